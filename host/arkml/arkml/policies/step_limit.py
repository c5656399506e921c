"""The limit of the steps of an episode, for guests that act by the policy of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.policies.agents import GUEST_BITS
from arkml.policies.noise import Words

States = npt.NDArray[np.uint32]

_RUNNING, _INTERRUPTED = np.uint32(EpisodeState.RUNNING), np.uint32(EpisodeState.INTERRUPTED)


class Limited(NamedTuple):
    """
    The rows of a batch under a limit.

    states: uint32, [n], Interrupted where the limit has ended an episode. cut: bool, [n], those
    rows. gone: bool, [n], rows of guests that were cut off before.
    """

    states: States
    cut: Marks
    gone: Marks


class StepLimit:
    """
    Cuts off guests of which an agent has had `most` steps in its episode.

    As in an environment, all agents of such a guest are truncated with the rows of that submit, and
    the next episodes are those of a new guest, since a guest cannot be told: the runner of guests
    takes the numbers of those that were cut off, by `take`, and puts others in their places. What
    a guest submits until then does not count.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._cut: set[int] = set()

    def take(self) -> set[int]:
        """Return the numbers of the guests that were cut off since the last call."""
        cut, self._cut = self._cut, set()
        return cut

    def apply(self, keys: Words, steps: Words, states: States, closed: Marks) -> Limited | None:
        """
        Return the rows of a batch where a guest in it is, or was, cut off; None where none is.

        keys: uint64, [] or [n], of the agents' sessions. steps: uint64, [n], of each agent before.
        closed: bool, [n], rows at which no episode can end: theirs has, or has a later row.
        """
        full = (steps >= self.most) & (states == _RUNNING) & ~closed
        if not self._cut and not full.any():
            return None
        guests = np.broadcast_to(keys, states.shape) >> GUEST_BITS
        gone = np.isin(guests, np.array(list(self._cut), np.uint64))
        cut = np.isin(guests, guests[full & ~gone]) & (states == _RUNNING) & ~closed
        self._cut.update(guests[full & ~gone].tolist())
        return Limited(np.where(cut, _INTERRUPTED, states), cut, gone)
