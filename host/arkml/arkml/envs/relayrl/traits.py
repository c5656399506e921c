"""RelayRL's environment traits as protocols, and the records that their methods return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Protocol, TypeAlias, runtime_checkable

from arkml.base.short_reprs import short_repr
from arkml.envs.relayrl.kinds import (
    EnvDType,
    EnvInfo,
    EnvironmentError,
    EnvironmentKind,
    EnvironmentUuid,
    EnvNdArrayDType,
    EnvTchDType,
    Tensor,
)

__all__ = [
    "DynScalarEnvironment",
    "DynVectorEnv",
    "EnvDType",
    "EnvInfo",
    "EnvNdArrayDType",
    "EnvTchDType",
    "Environment",
    "EnvironmentError",
    "EnvironmentHandle",
    "EnvironmentKind",
    "EnvironmentUuid",
    "ScalarEnvReset",
    "ScalarEnvStep",
    "ScalarEnvironment",
    "TrainingPerformanceReturnFn",
    "VectorEnvReset",
    "VectorEnvStep",
    "VectorEnvironment",
]


@dataclass(slots=True)
class ScalarEnvReset:
    """The beginning of an episode; `observation` has D_IN axes."""

    observation: Tensor
    info: EnvInfo | None = None


@dataclass(slots=True)
class ScalarEnvStep:
    """
    The outcome of an action.

    Attributes:
        observation: Observation with D_IN axes.
        reward: Reward of the step.
        terminated: True if the episode has ended.
        truncated: True if the episode was cut off.
        info: Pairs of text, or None.

    """

    observation: Tensor
    reward: float
    terminated: bool
    truncated: bool
    info: EnvInfo | None = None


@dataclass(slots=True)
class VectorEnvReset:
    """
    The beginning of an episode in one of many environments.

    Attributes:
        env_id: Id of the environment.
        observation: Observation with D_IN axes.
        info: Pairs of text, or None.

    """

    env_id: EnvironmentUuid
    observation: Tensor
    info: EnvInfo | None = None


@dataclass(slots=True)
class VectorEnvStep:
    """
    The outcome of an action in one of many environments.

    Attributes:
        env_id: Id of the environment.
        observation: Observation with D_IN axes.
        reward: Reward of the step.
        terminated: True if the episode has ended.
        truncated: True if the episode was cut off.
        info: Pairs of text, or None.

    """

    env_id: EnvironmentUuid
    observation: Tensor
    reward: float
    terminated: bool
    truncated: bool
    info: EnvInfo | None = None


@runtime_checkable
class Environment(Protocol):
    """
    An environment to train or evaluate a model in, usable from any thread.

    All methods raise EnvironmentError.
    """

    def run_environment(self) -> None:
        """Run one episode."""

    def build_observation(self) -> Any:
        """Return the present observation."""

    def observation_dtype(self) -> EnvDType: ...

    def action_dtype(self) -> EnvDType: ...

    def kind(self) -> EnvironmentKind: ...

    def into_handle(self) -> EnvironmentHandle:
        """Return a handle that replaces this object, which becomes unusable."""
        ...


@runtime_checkable
class ScalarEnvironment(Environment, Protocol):
    """A single environment, stepped with one action at a time."""

    def step(self, action: Tensor) -> ScalarEnvStep:
        """Step the environment with an action, which has D_OUT axes."""
        ...

    def reset(self) -> ScalarEnvReset: ...


@runtime_checkable
class VectorEnvironment(Environment, Protocol):
    """Many environments, stepped by their ids; results may come in any order."""

    def init_num_envs(self, num_envs: int) -> list[EnvironmentUuid]:
        """Set the number of environments and return all ids; remaining environments keep theirs."""
        ...

    def step(self, actions: Sequence[tuple[EnvironmentUuid, Tensor]]) -> list[VectorEnvStep]: ...

    def reset(self, env_ids: Sequence[EnvironmentUuid]) -> list[VectorEnvReset]: ...


@runtime_checkable
class DynScalarEnvironment(ScalarEnvironment, Protocol):
    """A single environment that can be copied."""

    def clone_box(self) -> DynScalarEnvironment: ...


DynVectorEnv: TypeAlias = VectorEnvironment


@runtime_checkable
class TrainingPerformanceReturnFn(Protocol):
    """A measure of training performance, such as the returns of episodes."""

    def calculate_performance_return(self) -> Any:
        """Return the measure, such as returns of episodes. Raises EnvironmentError."""


@dataclass(frozen=True, slots=True)
class EnvironmentHandle:
    """Ownership of an environment that was given away: `Scalar(env)` or `Vector(env)`."""

    __repr__ = short_repr

    kind: EnvironmentKind
    environment: Any

    Scalar: ClassVar[Any]
    Vector: ClassVar[Any]


def _scalar(environment: DynScalarEnvironment) -> EnvironmentHandle:
    """Return a handle of one environment."""
    return EnvironmentHandle(EnvironmentKind.Scalar, environment)


def _vector(environment: DynVectorEnv) -> EnvironmentHandle:
    """Return a handle of many environments."""
    return EnvironmentHandle(EnvironmentKind.Vector, environment)


EnvironmentHandle.Scalar = staticmethod(_scalar)
EnvironmentHandle.Vector = staticmethod(_vector)
