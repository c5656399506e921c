"""The last episodes of training, in the order in which they began."""

from __future__ import annotations

from collections import deque
from collections.abc import Hashable
from dataclasses import dataclass
from typing import NamedTuple

WINDOW = 100
"""Episodes that means are taken over."""

_PATIENCE = 20
"""Episodes of each agent, on average, that may begin after one that does not end."""


class Episode(NamedTuple):
    """An episode that has ended: its return, and its length in steps."""

    total: float
    length: int


@dataclass(slots=True)
class _Begun:
    """An episode that has begun; `is_over` once it has ended, or was given up."""

    ended: Episode | None = None
    is_over: bool = False


class EpisodesInOrder:
    """
    Keeps the last episodes that have ended, in the order in which they began.

    The last ones to end are the short ones for as long as the first long ones play, and their mean
    is wrong by that. So an episode counts after all that began before it: these are waited for,
    unless their agents have begun another one, or the other agents many more.
    """

    def __init__(self) -> None:
        self.last: deque[Episode] = deque(maxlen=WINDOW)
        self._order: deque[_Begun] = deque()
        self._open: dict[Hashable, _Begun] = {}

    def begin(self, agent: Hashable) -> None:
        """Begin an episode of an agent; one that it has left without an end is forgotten."""
        self.leave(agent)
        begun = self._open[agent] = _Begun()
        self._order.append(begun)
        if len(self._order) > WINDOW + _PATIENCE * len(self._open):
            self._give_up_oldest()

    def end(self, agent: Hashable, episode: Episode) -> None:
        """End the episode of an agent. One whose begin is not known counts at once."""
        begun = self._open.pop(agent, None)
        if begun is None:
            self.last.append(episode)
            return
        begun.ended, begun.is_over = episode, True
        self._count()

    def leave(self, agent: Hashable) -> None:
        """Forget the episode of an agent, which counts nowhere."""
        begun = self._open.pop(agent, None)
        if begun is not None:
            begun.is_over = True
            self._count()

    def _count(self) -> None:
        """Count the episodes that no earlier one has to be waited for."""
        order = self._order
        while order and order[0].is_over:
            ended = order.popleft().ended
            if ended is not None:
                self.last.append(ended)

    def _give_up_oldest(self) -> None:
        self.leave(next(iter(self._open)))  # in the order in which they began, too
