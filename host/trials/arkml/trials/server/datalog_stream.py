"""The stream of a trial's samples to the datalog that its parameters name."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

from arkml.trials.core.datalog_samples import FIELDS, DatalogSamples
from arkml.trials.core.outputs import Logged
from arkml.trials.core.parameters import TrialEndpoint
from arkml.trials.core.states import ENDED
from arkml.trials.core.trial import Trial
from arkml.trials.service import Callers
from arkml.trials.wire.common_pb2 import TrialParams, TrialState
from arkml.trials.wire.datalog_pb2 import (
    DatalogSample,
    RunTrialDatalogInput,
    RunTrialDatalogOutput,
)

T = TypeVar("T")

_MOST_HELD = 1_000
"""Maximum number of outputs held back for a datalog; beyond it all are released."""


class DatalogStream:
    """
    The stream by which a trial sends its parameters and samples to its datalog.

    A missing or lost datalog does not end the trial.

    Args:
        trial: The trial.
        params: Its parameters, which name the datalog.
        callers: Opens the stream.
        most_bytes: Maximum size of a sample in bytes.
        warn: Called once with a sentence if the datalog is missing or lost.

    """

    def __init__(
        self,
        trial: Trial,
        params: TrialParams,
        callers: Callers,
        most_bytes: int,
        warn: Callable[[str], object],
    ) -> None:
        self._endpoint = params.datalog.endpoint
        self._warn = warn
        self._is_lost = self._is_over = False
        self._samples = DatalogSamples(params, trial.began, most_bytes)
        for name in self._samples.unknown:
            fields = ", ".join(sorted(FIELDS))
            warn(f"the datalog excludes {name!r}, which is not a field of samples: {fields}")
        endpoint = TrialEndpoint.parse(params.datalog.endpoint)
        self._sender = callers.datalog(endpoint, trial.id, trial.user_id, self)
        self._sender.send(RunTrialDatalogInput(trial_params=params))

    @property
    def is_full(self) -> bool:
        """True while the trial should wait, because too many samples are unwritten."""
        return not self._is_lost and self._sender.is_full

    async def written(self) -> None:
        """Wait until all samples so far are written, or the datalog is lost."""
        await self._sender.written()

    def take(self, entries: Iterable[Logged]) -> None:
        """Add entries of the trial's log, in order."""
        self._send(self._samples.take(entries))

    def change(self, state: TrialState) -> None:
        """Note a new state of the trial; the state ENDED ends the stream."""
        self._send(self._samples.change(state))
        if state == ENDED:
            self._is_over = True
            self._sender.close()

    def receive(self, message: RunTrialDatalogOutput) -> None:
        """Ignore an answer of the datalog, which carries no data."""

    def lose(self, reason: str) -> None:
        """Handle the end of the stream."""
        if not self._is_lost and (not self._is_over or self._sender.waiting):
            self._warn(f"its datalog {self._endpoint} is lost: {reason}; it gets no more samples")
        self._is_lost = True

    def _send(self, samples: Iterable[DatalogSample]) -> None:
        if not self._is_lost:
            for sample in samples:
                self._sender.send(RunTrialDatalogInput(sample=sample))


class HeldBack(Generic[T]):
    """Outputs of a trial, which are held back in order while the datalog's stream is full."""

    def __init__(self, datalog: DatalogStream, give: Callable[[T], object]) -> None:
        self._datalog = datalog
        self._give = give
        self._held: deque[T] = deque()
        self._releasing: asyncio.Task[None] | None = None

    def give(self, output: T, *, is_last: bool) -> None:
        """Pass on an output, at once or later; the last output of a trial is passed on at once."""
        if is_last or len(self._held) > _MOST_HELD:
            self._release()
        if is_last or not (self._held or self._datalog.is_full):
            self._give(output)
            return
        self._held.append(output)
        if self._releasing is None:
            self._releasing = asyncio.create_task(self._release_when_written())

    async def _release_when_written(self) -> None:
        await self._datalog.written()
        self._releasing = None
        self._release()

    def _release(self) -> None:
        while self._held:
            self._give(self._held.popleft())
