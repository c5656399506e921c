"""Environments of the trainer, and the outcome of a step."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.record import Record
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import short_repr

Flags = npt.NDArray[np.int8]


class Obs(Protocol):
    """One observation, or n observations of parallel environments."""

    def __len__(self) -> int:
        """Return the number of environments."""


class Act(Protocol):
    """One action, or n actions for parallel environments."""


class Info(Protocol):
    """Additional information on a step."""


ObsT = TypeVar("ObsT", bound=Obs)
ActT = TypeVar("ActT", bound=Act)


@dataclass(slots=True)
class Step(Generic[ObsT, ActT]):
    """
    The outcome of an action in n parallel environments; usually n is 1.

    Args:
        act: The action.
        obs: Observation after the action, for an ended episode its last one.
        reward: float32, [n].
        is_terminated: int8, [n]: 1 where the episode ended in a terminal state.
        is_truncated: int8, [n]: 1 where the episode was cut off.
        info: Additional information.
        init_obs: Observation to act on next, if it differs from `obs`: where an episode ended, the
            first observation of the next one. None if no episode ended.
        continues: intp, [len(init_obs)]: if environments come and go, such as the agents of one
            guest, the row of `obs` whose episode each row of `init_obs` continues, -1 for a new
            episode.

    """

    __repr__ = short_repr

    act: ActT
    obs: ObsT
    reward: npt.NDArray[np.float32]
    is_terminated: Flags
    is_truncated: Flags
    info: Any
    init_obs: ObsT | None = None
    continues: npt.NDArray[np.intp] | None = None

    @property
    def is_done(self) -> bool:
        """True if an episode ended in any environment."""
        # For one or a few numbers, a list is searched faster than an array.
        return 1 in self.is_terminated.tolist() or 1 in self.is_truncated.tolist()


class Env(Sealed, ABC, Generic[ObsT, ActT]):
    """An environment, or n parallel environments that step together."""

    @classmethod
    @abstractmethod
    def build(cls, config: Any, seed: int) -> Self:
        """Build an environment. Within a process, one is built at a time."""

    @abstractmethod
    def reset(self, is_done: Flags | None = None) -> ObsT:
        """Begin new episodes where `is_done` (int8, [n]) is 1, or everywhere without it."""

    @abstractmethod
    def reset_with_index(self, ix: int) -> ObsT:
        """Begin episode number `ix`, the same one in every evaluation, so that scores compare."""

    @abstractmethod
    def step(self, act: ActT) -> tuple[Step[ObsT, ActT], Record]:
        """Act, without beginning new episodes where one ended; `reset` does that."""

    def step_with_reset(self, act: ActT) -> tuple[Step[ObsT, ActT], Record]:
        """Act, and begin a new episode where one ended, with its observation in `init_obs`."""
        step, record = self.step(act)
        self.begin_next(step)
        return step, record

    def begin_next(self, step: Step[ObsT, ActT]) -> None:
        """
        Begin a new episode where one ended in this step, with its observation in `init_obs`.

        Environments that come and go also set `continues`.
        """
        if step.is_done:
            step.init_obs = self.reset(step.is_terminated | step.is_truncated)

    def close(self) -> None:
        """Release resources. Idempotent."""
