"""The participants of a trial, actors and environment, with their phases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Self

from arkml.trials.core.endpoints import CLIENT, TrialEndpoint
from arkml.trials.core.states import ACTOR, ENVIRONMENT, Move, Phase
from arkml.trials.wire.common_pb2 import ActorParams, CommunicationState


class Breach(Exception):
    """A message that the protocol does not allow now."""

    @classmethod
    def of(cls, state: CommunicationState, kind: str | None) -> Self:
        """Return the error for a state and data that do not fit together."""
        if state not in CommunicationState.values():
            return cls(f"it sent the unknown state {state}")
        return cls(f"it sent {CommunicationState.Name(state)} with {kind or 'no data'}")


class TrialPlace:
    """A participant of a trial, whose phase follows a table."""

    __slots__ = ("_table", "name", "phase")

    def __init__(self, name: str, table: Mapping[Phase, Mapping[Move, Phase]]) -> None:
        self.name = name
        self.phase = Phase.ABSENT
        self._table = table

    def take(self, step: Move) -> None:
        """Move to the next phase. Raises Breach if the table has no such step."""
        phase = self._table[self.phase].get(step)
        if phase is None:
            raise Breach(f"{step.value} while it is {self.phase.value}")
        self.phase = phase

    @property
    def is_present(self) -> bool:
        """True from its first message to its last."""
        return self.phase not in (Phase.ABSENT, Phase.STANDBY, Phase.OVER)


class EnvironmentPlace(TrialPlace):
    """The environment of a trial."""

    __slots__ = ()

    def __init__(self, name: str) -> None:
        super().__init__(name, ENVIRONMENT)


class ActorPlace(TrialPlace):
    """
    An actor of a trial.

    Attributes:
        joins: Whether it joins by itself.
        action: Its action in the present tick, None until it is known.
        is_missing: Whether the trial waits for its action.

    """

    __slots__ = ("action", "index", "is_missing", "joins", "params")

    def __init__(
        self, index: int, params: ActorParams, table: Mapping[Phase, Mapping[Move, Phase]] = ACTOR
    ) -> None:
        super().__init__(params.name, table)
        self.index = index
        self.params = params
        self.joins = TrialEndpoint.parse(params.endpoint).scheme == CLIENT
        self.action: bytes | None = None
        self.is_missing = False

    @property
    def is_awaited(self) -> bool:
        """True until it takes part, or is given up."""
        return self.phase in (Phase.ABSENT, Phase.CALLED)
