"""
Options of trials that guests play, and the interface of policies that replace missing players.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.coercion import seed_of
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.errors import UsageError
from arkml.guest_trials.probe import GuestClass
from arkml.limits import MOST_THREADS, keep_whole
from arkml.trials.core.hosting import MOST_RATE

Keys = npt.NDArray[np.uint64]

EndOn = Literal["first", "all"] | None

_ENDS: Final = (None, "first", "all")


class StandInRows(NamedTuple):
    """
    Agents of one class that wait for an action, from all trials of a worker.

    Attributes:
        actor_class: The class.
        observations: float32, [n, num_features].
        allowed: The allowed choices: bool, [n, choices of all branches], or None if all are
            allowed.
        keys: The key of the agent's slot in its trial, unique in the process: uint64, [n].
        agents: The number of the agent in its trial: uint64, [n].
        states: EpisodeState.INITIAL for the first row of an episode, RUNNING for others: uint32,
            [n].

    """

    actor_class: str
    observations: Floats
    allowed: Marks | None
    keys: Keys
    agents: Keys
    states: npt.NDArray[np.uint32]


class StandInActions(NamedTuple):
    """
    Actions of stand-ins (policies in place of players) for the rows of one class.

    actions: float32, [n, num_actions], continuous actions first, then the number of the choice in
    each branch. Actions that are out of bounds, not finite or not allowed are corrected before they
    are applied. origins: the policy version of each row.
    """

    actions: Floats
    origins: Sequence[str]


class StandInPolicies(Protocol):
    """The policies that replace missing players in one worker's trials, used by its thread."""

    def act(self, rows: Sequence[StandInRows]) -> Sequence[StandInActions | None]:
        """
        Return actions for each of `rows`, None for a class that has no policy.

        Raises PolicyFailed; the default actions are applied then.
        """

    def forget(self, keys: Sequence[int]) -> None:
        """Forget the recurrent states of slots whose trial has ended."""

    def close(self) -> None:
        """Free the policies. Safe to call more than once."""


class StandInSource(Protocol):
    """The source of a server's policies for the actor classes of its guest."""

    @property
    def names(self) -> Mapping[str, str]:
        """The name of the policy of each class that has one."""

    def open(self, classes: Sequence[GuestClass]) -> StandInPolicies:
        """
        Return the policies for one worker; from then on `names` has the names of all of them.

        Raises UsageError for a class that the guest does not have, and ModelRejected for a policy
        that is refused or does not fit its class.
        """


@dataclass(frozen=True, slots=True, kw_only=True)
class GuestTrialsOptions:
    """
    Options of the trials of one guest.

    Attributes:
        module: The guest.
        environment: Options of the guest, as for GuestEnv; without a host, one is made.
        tick_rate: Ticks per second; with 0 ticks wait for all players. None means the guest's own
            clock in trials that people may play, and 0 in others.
        people: Whether people may play all trials.
        away: Seconds after which a stand-in acts for a player that does not.
        end_on: When a trial ends: with its guest, or with the episode of the "first" or of "all" of
            its agents.
        workers: The number of threads that step guests; None for one less than there are cores.
        seed: The seed of the first trial that has no seed of its own; each following seed is drawn
            from the previous one.
        stand_ins: The policies that replace missing players, None for default actions.
        learning: A sentence that tells people how runs learn from them.

    """

    module: str | os.PathLike[str] | bytes
    environment: GuestEnvOptions = field(default_factory=lambda: GuestEnvOptions())
    tick_rate: float | None = None
    away: float = 10.0
    people: bool = False
    end_on: EndOn = None
    workers: int | None = None
    seed: int | None = None
    stand_ins: StandInSource | None = None
    learning: str = ""

    def __post_init__(self) -> None:
        rate = self.tick_rate
        if rate is not None and not (math.isfinite(rate) and 0 <= rate <= MOST_RATE):
            raise UsageError(f"tick_rate is {rate}: it takes 0 to {MOST_RATE:g} ticks a second")
        if not (math.isfinite(self.away) and self.away >= 0):
            raise UsageError(f"away is {self.away}: it takes seconds from 0")
        if self.end_on not in _ENDS:
            raise UsageError(f"end_on is {self.end_on!r}: it takes None, 'first' or 'all'")
        if self.workers is not None:
            keep_whole(self, "workers", MOST_THREADS)
        if self.seed is not None:
            object.__setattr__(self, "seed", seed_of(self.seed))
