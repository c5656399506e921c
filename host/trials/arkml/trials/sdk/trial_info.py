"""The details of a trial, such as its state, actors and age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from arkml.base.short_reprs import short_repr
from arkml.trials.wire import lifecycle_pb2 as lifecycle


class TrialState(IntEnum):
    """The states of a trial, in order. UNKNOWN stands for a number without a state."""

    UNKNOWN = 0
    INITIALIZING = 1
    PENDING = 2
    RUNNING = 3
    TERMINATING = 4
    ENDED = 5

    @classmethod
    def _missing_(cls, value: object) -> TrialState | None:
        return cls.UNKNOWN if isinstance(value, int) else None


@dataclass(frozen=True, slots=True)
class ActorInfo:
    """The name and class of an actor in a trial."""

    actor_name: str
    actor_class_name: str


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """
    The details of a trial.

    `watch_trials` without `full_info` fills in the id and the state alone; the other fields are
    None.

    Args:
        trial_id: Id of the trial.
        state: Its state.
        env_name: Name of its environment.
        tick_id: Number of its latest tick.
        duration: Nanoseconds from its start until now, or until its end.
        properties: Its properties.

    """

    __repr__ = short_repr

    trial_id: str
    state: TrialState
    env_name: str | None = None
    tick_id: int | None = None
    duration: int | None = None
    properties: Mapping[str, str] | None = None

    @classmethod
    def of(cls, info: lifecycle.TrialInfo) -> TrialInfo:
        """Return the details from the protobuf message of a server."""
        return cls(
            trial_id=info.trial_id,
            state=TrialState(info.state),
            env_name=info.env_name,
            tick_id=info.tick_id,
            duration=info.trial_duration,
            properties=dict(info.properties),
        )
