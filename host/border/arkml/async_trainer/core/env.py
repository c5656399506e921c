"""Environments of the asynchronous trainer, and what one step of them returns."""

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
    """One observation, or those of several environments side by side."""

    def __len__(self) -> int:
        """Return the number of environments."""


class Act(Protocol):
    """One action, or those of several environments side by side."""


class Info(Protocol):
    """Anything else that an environment tells about a step."""


ObsT = TypeVar("ObsT", bound=Obs)
ActT = TypeVar("ActT", bound=Act)


@dataclass(slots=True)
class Step(Generic[ObsT, ActT]):
    """
    The outcome of an action in n environments side by side; most environments have n = 1.

    `reward` is float32, [n]; `is_terminated` and `is_truncated` are int8, [n], 0 or 1. `obs` is the
    observation after the action, the last of an episode included. `init_obs`, None if no episode
    ended, has the rows of all n: the first observation of the next episode where one ended.

    Where environments come and go, as the agents of one guest do, `init_obs` has the rows of those
    that act next, and `continues`, intp, [len(init_obs)], has for each of them the row of `obs`
    whose episode it continues, -1 for a new one.
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
        """True if the episode of any environment ended."""
        # Lists of one or a few numbers are searched faster than arrays.
        return 1 in self.is_terminated.tolist() or 1 in self.is_truncated.tolist()


class Env(Sealed, ABC, Generic[ObsT, ActT]):
    """An environment, or several of one kind that step together."""

    @classmethod
    @abstractmethod
    def build(cls, config: Any, seed: int) -> Self:
        """Return an environment. One is built at a time, in the threads of one process."""

    @abstractmethod
    def reset(self, is_done: Flags | None = None) -> ObsT:
        """Begin new episodes where `is_done`, int8, [n], is 1, everywhere without it."""

    @abstractmethod
    def reset_with_index(self, ix: int) -> ObsT:
        """Begin the episode of this number, for evaluations that can be compared."""

    @abstractmethod
    def step(self, act: ActT) -> tuple[Step[ObsT, ActT], Record]:
        """Act, and leave episodes that end for `reset`."""

    def step_with_reset(self, act: ActT) -> tuple[Step[ObsT, ActT], Record]:
        """Act, and begin a new episode where one ends: its observation is in `init_obs`."""
        step, record = self.step(act)
        self.begin_next(step)
        return step, record

    def begin_next(self, step: Step[ObsT, ActT]) -> None:
        """
        Begin a new episode where one ended in the latest step: its observation is in `init_obs`.

        Environments that come and go fill `continues`, too.
        """
        if step.is_done:
            step.init_obs = self.reset(step.is_terminated | step.is_truncated)

    def close(self) -> None:
        """Free what the environment holds. Safe to call again."""
