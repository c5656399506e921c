"""Descriptions of ended trials, and a limit of memory for the descriptions of all trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arkml.trials.core.error import TrialError
from arkml.trials.wire.common_pb2 import TrialActor, TrialState
from arkml.trials.wire.environment_pb2 import ObservationSet
from arkml.trials.wire.lifecycle_pb2 import TrialInfo

MOST_BYTES = 256 << 20
"""Maximum size of live trials' parameters and ended trials' descriptions together, in bytes."""


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """
    The description of an ended trial, with its last observations and its actors.

    `reason` says why the trial was cut off, or ended by its server; it is empty otherwise.
    """

    id: str
    state: TrialState
    reason: str
    info: TrialInfo
    latest: ObservationSet | None
    actors: Sequence[TrialActor]

    def trial_actors(self) -> Sequence[TrialActor]:
        """Return the name and class of each actor, in trial order."""
        return self.actors

    @property
    def size(self) -> int:
        """Size of the description in bytes."""
        latest = 0 if self.latest is None else self.latest.ByteSize()
        actors = sum(one.ByteSize() for one in self.actors)
        return latest + self.info.ByteSize() + actors + len(self.reason.encode())


class KeptTrials:
    """
    The last `count` ended trials, and the memory that all trials take.

    Ended trials are forgotten, oldest first, when live ones need their memory.
    """

    def __init__(self, count: int) -> None:
        self.ended: dict[str, EndedTrial] = {}
        """Ended trials by id, in the order of their ends."""
        self._count = count
        self._sizes: dict[str, int] = {}
        self._used = 0

    def begin(self, trial_id: str, size: int) -> None:
        """
        Reserve `size` bytes for the parameters of a trial.

        Raises TrialError if there is no room.
        """
        if not self._has_room(size):
            raise TrialError(
                f"the parameters of the trial take {size} bytes, and those of the others"
                f" {self._used}: {MOST_BYTES} together at most"
            )
        self._take(trial_id, size)

    def end(self, trial: EndedTrial) -> None:
        """Keep the description of an ended trial if there is room."""
        self._used -= self._sizes.pop(trial.id, 0)
        if self._has_room(trial.size):
            self.ended[trial.id] = trial
            self._take(trial.id, trial.size)
        while len(self.ended) > self._count:
            self._forget_oldest()

    def _has_room(self, size: int) -> bool:
        """Forget ended trials until `size` bytes are free; return False if that is impossible."""
        while self.ended and self._used + size > MOST_BYTES:
            self._forget_oldest()
        return self._used + size <= MOST_BYTES

    def _take(self, trial_id: str, size: int) -> None:
        self._sizes[trial_id] = size
        self._used += size

    def _forget_oldest(self) -> None:
        oldest = next(iter(self.ended))
        del self.ended[oldest]
        self._used -= self._sizes.pop(oldest)
