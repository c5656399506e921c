"""Where learners come from: a new process, or the one that is kept ready."""

from __future__ import annotations

import asyncio
import logging
from pathlib import Path

from arkml.server.learner import Learner

_log = logging.getLogger(__name__)


class LearnerPool:
    """
    Starts learners. With `spare` one more is always ready, which has imported everything.

    `command` are the arguments of Python that start one. What they print goes to one file.
    """

    def __init__(self, command: tuple[str, ...], output: Path, lock: int, *, spare: bool) -> None:
        self._command = command
        self._output = output
        self._lock = lock
        self._keeps_spare = spare
        self._spare: Learner | None = None
        self._starting = asyncio.Lock()

    async def take(self, run: Path) -> Learner:
        """A learner for the run in a directory. Raises OSError if none can be started."""
        async with self._starting:
            spare, self._spare = self._spare, None
        if spare is not None:
            if not spare.exit.done() and spare.send("adopt", run_dir=str(run)):
                return spare
            await spare.end()
        return await self._start(str(run))

    async def refill(self) -> None:
        """Start a spare learner if there is to be one and is none."""
        async with self._starting:
            if not self._keeps_spare or self._spare is not None:
                return
            try:
                self._spare = await self._start("--spare")
            except OSError as error:
                _log.warning("no spare learner: %s", error)

    async def close(self) -> None:
        """End the spare one."""
        self._keeps_spare = False
        async with self._starting:
            spare, self._spare = self._spare, None
        if spare is not None:
            await spare.end()

    async def _start(self, what: str) -> Learner:
        return await Learner.start((*self._command, what), self._output, self._lock)
