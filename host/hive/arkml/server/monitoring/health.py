"""`/healthz` and `/readyz`, by which a supervisor restarts a hive and a balancer sends it work."""

from __future__ import annotations

import asyncio
import tempfile
import time
from pathlib import Path

from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from arkml.base.loggers import SafeLogger
from arkml.server.hive import Hive

HEALTH_PATH, READY_PATH = "/healthz", "/readyz"

_FRESH = 1.0
"""Seconds that one trial of the directory counts: anyone may ask, and each trial writes."""

_UNREADY = 503

_log = SafeLogger(__name__)


class HiveReadiness:
    """
    The readiness of a hive: it is open, is not ending, and can write to its data directory.

    Once a second at most, it tries to write a byte to a file without a name there.
    """

    def __init__(self, hive: Hive) -> None:
        self._hive = hive
        self._can_write = True
        self._tried = float("-inf")
        self._trying = asyncio.Lock()

    async def is_ready(self) -> bool:
        """Return whether the hive takes work now."""
        if self._hive.is_ending:
            return False
        async with self._trying:
            if time.monotonic() - self._tried > _FRESH:
                before, self._can_write = self._can_write, await self._try()
                self._tried = time.monotonic()
                if before and not self._can_write:
                    _log.error("%s cannot be written: not ready", self._hive.options.data)
        return self._can_write and not self._hive.is_ending

    async def _try(self) -> bool:
        try:
            await asyncio.to_thread(_write, self._hive.options.data)
        except OSError:
            return False
        return True


def health_routes(hive: Hive) -> list[Route]:
    """Return the routes `/healthz` and `/readyz`, which answer `ok` or `not ready`."""
    readiness = HiveReadiness(hive)

    async def health(_: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def ready(_: Request) -> Response:
        if await readiness.is_ready():
            return PlainTextResponse("ok\n")
        return PlainTextResponse("not ready\n", _UNREADY)

    return [Route(HEALTH_PATH, health), Route(READY_PATH, ready)]


def _write(directory: Path) -> None:
    """Write a byte into a directory. Raises OSError if that is not possible."""
    with tempfile.TemporaryFile(dir=directory) as file:
        file.write(b"?")
        file.flush()
