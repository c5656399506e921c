"""The processes of learners: started when they are needed, and one kept ready."""

from __future__ import annotations

import asyncio
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.server.learner_places import LearnerPlaces
from arkml.server.learner_process import LearnerProcess

_log = SafeLogger(__name__)


class LearnerPool:
    """
    A source of learner processes.

    Args:
        command: The arguments of Python that start a learner.
        output: The file to which all learners print.
        lock: The descriptor of the lock of the data directory, which each learner shares.
        places: The slots in which learners run. A run holds one before it takes a learner; the
            spare learner holds none.
        spare: Whether to keep one learner ready that has imported everything.

    """

    def __init__(
        self,
        command: tuple[str, ...],
        output: Path,
        lock: int,
        places: LearnerPlaces,
        *,
        spare: bool,
    ) -> None:
        self.places = places
        self._command = command
        self._output = output
        self._lock = lock
        self._keeps_spare = spare
        self._spare: LearnerProcess | None = None
        self._starting = asyncio.Lock()

    async def take(self, run: Path) -> LearnerProcess:
        """Return a learner for the run in a directory. Raises OSError if none can be started."""
        async with self._starting:
            spare, self._spare = self._spare, None
        if spare is not None:
            spare.run_id = run.name
            if not spare.exit.done() and spare.send("adopt", run_dir=str(run)):
                return spare
            await spare.end()
        learner = await self._start(str(run))
        learner.run_id = run.name
        return learner

    async def refill(self, seconds: float = 0.0) -> None:
        """Start a spare learner after some seconds, unless there is one or the pool keeps none."""
        await asyncio.sleep(seconds)
        async with self._starting:
            if not self._keeps_spare or self._spare is not None:
                return
            try:
                self._spare = await self._start("--spare")
            except OSError as error:
                _log.warning("no spare learner is kept ready: %s", error)

    async def close(self) -> None:
        """End the spare learner, and keep none from now on."""
        self._keeps_spare = False
        async with self._starting:
            spare, self._spare = self._spare, None
        if spare is not None:
            await spare.end()

    async def _start(self, argument: str) -> LearnerProcess:
        return await LearnerProcess.start((*self._command, argument), self._output, self._lock)
