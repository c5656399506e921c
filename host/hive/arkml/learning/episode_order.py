"""The last episodes of training, in the order in which they began."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Sequence
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
class _Together:
    """Episodes that began side by side, None while one plays; `playing` are not over yet."""

    agents: Sequence[int]
    ended: list[Episode | None]
    playing: int


class EpisodesInOrder:
    """
    Keeps the last episodes that have ended, in the order in which they began.

    While the first long episodes still play, the last episodes to end are short ones, so their mean
    is biased. Therefore an episode counts once it and all episodes that began before or beside it
    have ended. An episode is no longer waited for when its agent has begun another one, or when the
    other agents have begun many more.
    """

    def __init__(self) -> None:
        self.last: deque[Episode] = deque(maxlen=WINDOW)
        self._order: deque[_Together] = deque()
        self._waiting = 0  # episodes in it
        self._open: dict[int, tuple[_Together, int]] = {}

    def begin(self, agents: Sequence[int]) -> None:
        """
        Begin an episode of each of these agents, side by side, each of them once.

        One that an agent has left without an end is forgotten.
        """
        for agent in agents:
            self.leave(agent)
        together = _Together(agents, [None] * len(agents), len(agents))
        self._open.update((agent, (together, place)) for place, agent in enumerate(agents))
        self._order.append(together)
        self._waiting += len(agents)
        while self._waiting > WINDOW + _PATIENCE * len(self._open):
            self._give_up_oldest()

    def end(self, agent: int, episode: Episode) -> None:
        """End the episode of an agent. One whose begin is not known counts at once."""
        if agent in self._open:
            self._close(agent, episode)
        else:
            self.last.append(episode)

    def __contains__(self, agent: int) -> bool:
        return agent in self._open

    def cut_off(self, agents: Iterable[int], guest_of: Callable[[int], int]) -> set[int]:
        """
        Forget episodes that began after the episodes of `agents`, in the same guests.

        These agents reach the limit by which their guests are cut off: of the episodes that began
        later, only short ones had time to end. Returns the agents whose episodes are forgotten.
        """
        full: dict[int, set[int]] = {}
        for agent in agents:
            if agent in self._open:
                full.setdefault(id(self._open[agent][0]), set()).add(guest_of(agent))
        guests: set[int] = set()
        late = set()
        for together in tuple(self._order) if full else ():
            for place, agent in enumerate(together.agents if guests else ()):
                if guest_of(agent) in guests:
                    late.add(agent)
                    together.ended[place] = None
            guests |= full.get(id(together), set())
        for agent in late:
            self.leave(agent)
        return late

    def leave(self, agent: int) -> None:
        """Forget the episode of an agent, which counts nowhere."""
        if agent in self._open:
            self._close(agent, None)

    def _close(self, agent: int, episode: Episode | None) -> None:
        """Close an episode, and count all episodes that no longer wait for another one."""
        together, place = self._open.pop(agent)
        together.ended[place] = episode
        together.playing -= 1
        order = self._order
        while order and not order[0].playing:
            ended = order.popleft().ended
            self._waiting -= len(ended)
            self.last.extend(one for one in ended if one is not None)

    def _give_up_oldest(self) -> None:
        self.leave(next(iter(self._open)))  # in the order in which they began, too
