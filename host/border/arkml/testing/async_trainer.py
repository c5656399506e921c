"""A counter as an environment, and an agent that adds one, for tests of the trainer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.agent import Agent
from arkml.async_trainer.core.env import Env, Flags, Step
from arkml.async_trainer.core.record import Record
from arkml.async_trainer.sync_model import SyncModel
from arkml.base.sealed import Sealed

__all__ = [
    "TestAct",
    "TestActBatch",
    "TestAgent",
    "TestAgentConfig",
    "TestEnv",
    "TestInfo",
    "TestObs",
    "TestObsBatch",
]


class _IntegerBatch(Sealed):
    """Integers, indexed by slot: `values`, int64, [n]."""

    def __init__(self, values: npt.NDArray[np.int64]) -> None:
        self.values = values

    @classmethod
    def new(cls, capacity: int) -> Self:
        """Return `capacity` slots with zeros."""
        return cls(np.zeros(capacity, np.int64))

    def push(self, i: int, data: Self) -> None:
        """Write one integer to the slot `i`."""
        self.values[i] = data.values[0]

    def sample(self, ixs: Sequence[int] | npt.NDArray[np.int64]) -> Self:
        """Return the slots `ixs`."""
        return type(self)(self.values[np.asarray(ixs)])


class TestObsBatch(_IntegerBatch):
    """A batch of observations."""

    __test__: ClassVar[bool] = False  # pytest collects classes whose names begin with Test


class TestActBatch(_IntegerBatch):
    """A batch of actions."""

    __test__: ClassVar[bool] = False


@dataclass(frozen=True, slots=True)
class TestObs:
    """An observation: the counter."""

    __test__: ClassVar[bool] = False

    obs: int

    def __len__(self) -> int:
        return 1

    def into_batch(self) -> TestObsBatch:
        """Return a batch of this observation."""
        return TestObsBatch(np.array([self.obs]))


@dataclass(frozen=True, slots=True)
class TestAct:
    """An action: the number to add to the counter."""

    __test__: ClassVar[bool] = False

    act: int

    def into_batch(self) -> TestActBatch:
        """Return a batch of this action."""
        return TestActBatch(np.array([self.act]))


@dataclass(frozen=True, slots=True)
class TestInfo:
    """Information on a step; it has no fields."""

    __test__: ClassVar[bool] = False


class TestEnv(Env[TestObs, TestAct]):
    """A counter that starts at its configuration, an integer. Episodes never end."""

    __test__: ClassVar[bool] = False

    def __init__(self, state_init: int) -> None:
        self._state_init = state_init
        self._state = 0

    @classmethod
    def build(cls, config: int, seed: int) -> TestEnv:
        """Build a counter that starts at `config`."""
        return cls(config)

    def reset(self, is_done: Flags | None = None) -> TestObs:
        """Set the counter to its first number."""
        self._state = self._state_init
        return TestObs(self._state)

    def reset_with_index(self, ix: int) -> TestObs:
        """Set the counter to its first number, as for every episode."""
        return self.reset()

    def step(self, act: TestAct) -> tuple[Step[TestObs, TestAct], Record]:
        """Add the action."""
        self._state += act.act
        step = Step(
            act=act,
            obs=TestObs(self._state),
            reward=np.zeros(1, np.float32),
            is_terminated=np.zeros(1, np.int8),
            is_truncated=np.zeros(1, np.int8),
            info=TestInfo(),
            init_obs=TestObs(self._state_init),
        )
        return step, Record.empty()


@dataclass(frozen=True)
class TestAgentConfig:
    """Configuration of TestAgent; it has no fields."""

    __test__: ClassVar[bool] = False

    builds: ClassVar[Any]


class TestAgent(Agent, SyncModel):
    """An agent that always acts 1 and learns nothing."""

    __test__: ClassVar[bool] = False

    @classmethod
    def build(cls, config: TestAgentConfig) -> Self:
        """Return an agent."""
        return cls()

    def train(self) -> None:
        """Change nothing."""

    def eval(self) -> None:
        """Change nothing."""

    def is_train(self) -> bool:
        """Return False."""
        return False

    def sample(self, obs: TestObs) -> TestAct:
        """Return the action 1."""
        return TestAct(1)

    def opt_with_record(self, buffer: Any) -> Record:
        """Return an empty record."""
        return Record.empty()

    def save_params(self, path: Path) -> list[Path]:
        """Write nothing and return no files."""
        return []

    def load_params(self, path: Path) -> None:
        """Read nothing."""

    def model_info(self) -> tuple[int, int]:
        """Return 0 optimization steps and the model 0."""
        return 0, 0

    def sync_model(self, model_info: int) -> None:
        """Change nothing."""


TestAgentConfig.builds = TestAgent
