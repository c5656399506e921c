"""The limit on the steps of an episode, for guests that act by the policy of a run."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.hive.protocol.rows import GUEST_SHIFT
from arkml.policies.agents import GUEST_BITS
from arkml.policies.noise import Words

States = npt.NDArray[np.uint32]

_RUNNING, _INTERRUPTED = np.uint32(EpisodeState.RUNNING), np.uint32(EpisodeState.INTERRUPTED)


class Limited(NamedTuple):
    """
    The rows of a batch after a limit on steps was applied.

    Attributes:
        states: uint32, [n], Interrupted if the limit has ended an episode.
        cut: bool, [n], True for such rows.
        gone: bool, [n], True for rows of guests that were cut off before, which belong to no
            episode.

    """

    states: States
    cut: Marks
    gone: Marks


class StepLimit:
    """
    Cuts off guests once an agent has made `most` steps in its episode.

    As in an environment, all agents of such a guest are truncated with their rows of that submit,
    or of another submit in the same frame. The next episodes begin in a new guest, since a guest
    cannot be asked to start over: the runner of guests gets the numbers of guests that were cut off
    from `take`, and replaces them. Rows of the guest until then do not count.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._cut: set[int] = set()

    @staticmethod
    def named(agents: Words, keys: Words) -> Words:
        """
        Return agents' numbers that contain the number of the guest in the upper bits: uint64, [n].

        agents: uint64, [n]. keys: uint64, [] or [n], the keys of their sessions.
        """
        bits = np.uint64(64 - GUEST_SHIFT)
        return (agents >> bits) | ((keys >> GUEST_BITS) << np.uint64(GUEST_SHIFT))

    def take(self) -> set[int]:
        """Return the numbers of the guests that were cut off since the last call."""
        cut, self._cut = self._cut, set()
        return cut

    def apply(
        self, keys: Words, steps: Words, states: States, over: Marks, last: Marks
    ) -> Limited | None:
        """
        Apply the limit to the rows of a batch; return None if no guest in it is, or was, cut off.

        keys: uint64, [] or [n], the keys of the agents' sessions. steps: uint64, [n], the number of
        each agent's earlier steps. over: bool, [n], rows of agents whose episodes have ended
        before. last: bool, [n], the last row of each agent in the batch.
        """
        open_ = (states == _RUNNING) & ~over & last
        full = (steps >= self.most) & open_
        if not self._cut and not full.any():
            return None
        guests = np.broadcast_to(keys, states.shape) >> GUEST_BITS
        before = np.isin(guests, np.array(list(self._cut), np.uint64))
        cut = (before | np.isin(guests, guests[full])) & open_
        self._cut.update(guests[full].tolist())
        gone = before & (over | (steps == 0))
        return Limited(np.where(cut, _INTERRUPTED, states), cut, gone)
