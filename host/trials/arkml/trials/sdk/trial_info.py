"""The details of a trial that a server tells: its state, its actors, its age."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum

from arkml.base.short_reprs import short_repr
from arkml.trials.wire import lifecycle_pb2 as lifecycle


class TrialState(IntEnum):
    """The states of a trial, in their order."""

    UNKNOWN = 0
    INITIALIZING = 1
    PENDING = 2
    RUNNING = 3
    TERMINATING = 4
    ENDED = 5


@dataclass(frozen=True, slots=True)
class ActorInfo:
    """The name and the class of an actor in a trial."""

    actor_name: str
    actor_class_name: str


@dataclass(frozen=True, slots=True)
class TrialInfo:
    """
    The details of a trial.

    `duration` is in nanoseconds, from the start of the trial to now or to its end. All but the id
    and the state are None in what `watch_trials` gives without `full_info`.
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
        """Return the details that a server sent."""
        return cls(
            trial_id=info.trial_id,
            state=TrialState(info.state),
            env_name=info.env_name,
            tick_id=info.tick_id,
            duration=info.trial_duration,
            properties=dict(info.properties),
        )
