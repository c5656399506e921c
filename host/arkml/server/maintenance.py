"""Looking after a run: its log reaches the disk, and it rests while nobody takes part."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from arkml.server.options import Patience

if TYPE_CHECKING:
    from arkml.server.run import Run

_log = logging.getLogger(__name__)

_EVERY = 0.5
_SECOND = 1_000_000_000


async def tend(run: Run, patience: Patience) -> None:
    """Look after a run until it is over."""
    told = ""
    while not run.document.is_over:
        await asyncio.sleep(_EVERY)
        trouble = ""
        try:
            await run.sync()
            await _look(run, patience)
        except OSError as error:
            trouble = str(error)
        if trouble and trouble != told:
            _log.error("run %s: %s", run.document.id, trouble)
        told = trouble


async def _look(run: Run, patience: Patience) -> None:
    """Pause or stop the run if nobody takes part in it, or its time is over."""
    now, document = time.monotonic(), run.document
    seconds = document.request.seconds
    if seconds and time.time_ns() - document.started_at > seconds * _SECOND:
        await run.stop(for_all=True)
    elif document.sessions.alive(patience.lease):
        run.occupied = now
    elif now - run.occupied > patience.idle_stop:
        await run.stop(for_all=False)
    elif now - run.occupied > patience.pause:
        run.pause(paused=True)
