"""The trials of a server that have ended, and the bytes of what is kept of all trials."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from arkml.trials.core.error import TrialError
from arkml.trials.wire.common_pb2 import TrialActor, TrialState
from arkml.trials.wire.environment_pb2 import ObservationSet
from arkml.trials.wire.lifecycle_pb2 import TrialInfo

MOST_BYTES = 256 << 20
"""Bytes of the parameters of live trials, and of the descriptions of those that have ended."""


@dataclass(frozen=True, slots=True)
class EndedTrial:
    """
    The description of a trial that has ended, with its last observations and its actors.

    `reason` is why it was cut off, or ended by its server.
    """

    id: str
    state: TrialState
    reason: str
    info: TrialInfo
    latest: ObservationSet | None
    actors: Sequence[TrialActor]

    def trial_actors(self) -> Sequence[TrialActor]:
        """Return names and classes of all actors, in trial order."""
        return self.actors

    @property
    def size(self) -> int:
        """Bytes of the description."""
        latest = 0 if self.latest is None else self.latest.ByteSize()
        actors = sum(one.ByteSize() for one in self.actors)
        return latest + self.info.ByteSize() + actors + len(self.reason.encode())


class KeptTrials:
    """
    The last `count` trials that have ended, and the bytes of all trials.

    The oldest ended ones are forgotten for others that need their bytes.
    """

    def __init__(self, count: int) -> None:
        self.ended: dict[str, EndedTrial] = {}
        """By their ids, in the order of their ends."""
        self._count = count
        self._sizes: dict[str, int] = {}
        self._used = 0

    def begin(self, trial_id: str, size: int) -> None:
        """Count a trial whose parameters take `size` bytes. Raises TrialError without room."""
        if not self._has_room(size):
            raise TrialError(
                f"the parameters of the trial take {size} bytes, and those of the others"
                f" {self._used}: {MOST_BYTES} together at most"
            )
        self._take(trial_id, size)

    def end(self, trial: EndedTrial) -> None:
        """Keep a trial that has ended, if there is room."""
        self._used -= self._sizes.pop(trial.id, 0)
        if self._has_room(trial.size):
            self.ended[trial.id] = trial
            self._take(trial.id, trial.size)
        while len(self.ended) > self._count:
            self._forget_oldest()

    def _has_room(self, size: int) -> bool:
        """Forget ended trials until there are `size` bytes; return False if there are fewer."""
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
