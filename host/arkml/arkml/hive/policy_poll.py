"""The poll for newer policy versions of a run."""

from __future__ import annotations

import asyncio
import hashlib
import random
import time
from collections.abc import Awaitable, Callable

import httpx

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveUnreachable, ProtocolError
from arkml.hive.delivery import FIRST_PAUSE, LAST_PAUSE
from arkml.hive.protocol.runs import POLL_SECONDS
from arkml.hive.protocol.wire import MAX_VERSION
from arkml.hive.tracing import HEADER, tracing
from arkml.hive.transport import HiveTransport

log = SafeLogger(__name__)

_READ = POLL_SECONDS + 10.0
_SPACING = 1.0
"""Seconds between two policy versions where no frame may be late: loading one takes a core."""


class PolicyPoll:
    """
    A long poll for newer policy versions of a run.

    Args:
        transport: The connection to the hive.
        run_id: Id of the run.
        on_policy: Called with each newer policy version and its ONNX file.
        pause: Returns when a frame has just ended, for a host whose frames must be on time.
            Versions are then requested a second apart, and passed on after a pause, so some are
            skipped. None if frames may be late.

    """

    def __init__(
        self,
        transport: HiveTransport,
        run_id: str,
        on_policy: Callable[[int, bytes], object],
        pause: Callable[[], Awaitable[object]] | None,
    ) -> None:
        self._transport = transport
        self._run_id = run_id
        self._on_policy = on_policy
        self._pause = pause
        self._tracing = tracing("arkml-host")

    async def run(self) -> None:
        """Poll until it is canceled."""
        version, pause = 0, FIRST_PAUSE
        while True:
            path = f"/runs/{self._run_id}/policy?after={version}&wait={POLL_SECONDS:g}"
            started, status, newest = time.monotonic(), 0, version
            try:
                answer = await self._transport.send("GET", path, timeout=_READ, is_file=True)
                status = answer.status_code
                if status == 200:
                    newest = await self._received(answer, version)
            except HiveUnreachable as error:
                log.debug("%s", error)
            except ProtocolError as error:
                log.warning("a policy version of run %s is not used: %s", self._run_id, error)
            if newest > version:
                version, pause = newest, FIRST_PAUSE
                if self._pause is not None:
                    await asyncio.sleep(_SPACING)
                    await self._pause()
            elif status != 204 or time.monotonic() - started < 1.0:
                await asyncio.sleep(pause * random.uniform(0.5, 1.0))
                pause = min(2 * pause, LAST_PAUSE)

    async def _received(self, answer: httpx.Response, before: int) -> int:
        """Hand a newer policy version on, and return its number. Raises ProtocolError."""
        headers = answer.headers
        if hashlib.sha256(answer.content).hexdigest() != headers.get("x-arkml-sha256"):
            raise ProtocolError("it arrived damaged")
        text = headers.get("x-arkml-version", "")
        version = int(text) if text.isdecimal() and len(text) <= 10 else -1
        if not 0 <= version <= MAX_VERSION:
            raise ProtocolError(f"its version is {text[:80]!r}")
        if version <= before:
            return before
        if self._pause is not None:
            await self._pause()
        if self._tracing is None or HEADER not in headers:
            self._on_policy(version, answer.content)
            return version
        attributes: dict[str, str | int] = {
            "arkml.run": self._run_id,
            "arkml.policy_version": version,
        }
        with self._tracing.span("receive version", parent=headers[HEADER], attributes=attributes):
            self._on_policy(version, answer.content)
        return version
