"""A watch over a hive, which logs once that the hive is gone and once that it is back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from time import monotonic

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError
from arkml.hive.transport import HiveTransport

log = SafeLogger(__name__)

_INTERVAL = 0.25  # seconds between two checks
_SILENCE = 1.0  # seconds without an answer after which the hive is asked for one
_PATIENCE = 1.5
"""Seconds for that answer. In all, the loss of a hive is logged within 3 s."""


class Presence:
    """
    A watch over one hive. A hive that answers but accepts no requests counts as gone, too.

    `is_gone` may be read from any thread.
    """

    def __init__(self, transport: HiveTransport) -> None:
        self.is_gone = False
        self._lost = 0.0  # time of the last answer before it was gone
        self._transport = transport
        self._since = monotonic()

    @property
    def silence(self) -> float:
        """Seconds since the last answer, while the hive is watched. Any thread may read it."""
        return monotonic() - max(self._since, self._transport.answered)

    async def watch(self, is_needed: Callable[[], bool]) -> None:
        """
        Check the hive at intervals while `is_needed` returns true, or a request is on its way.

        While `is_needed` returns false, a hive counts as gone only if it does not answer a request
        that is on its way. If nothing listens at the address, the request raises that itself.
        """
        self._since = monotonic()
        while is_needed() or self._transport.waiting:
            await asyncio.sleep(_INTERVAL)
            has_need = is_needed()
            reason = await self._trouble(has_need)
            if self.is_gone and not reason and self._transport.answered <= self._lost:
                continue  # this watch has just begun, and has not asked yet
            if reason and not self.is_gone:
                self._lost = self._transport.answered
            if reason and not self.is_gone and has_need:
                log.warning("the hive is gone: %s (rows wait for it, and policies stay)", reason)
            elif reason and not self.is_gone:
                log.warning("the hive at %s does not answer: %s", self._transport.place, reason)
            elif self.is_gone and not reason:
                log.warning("the hive is back")
            self.is_gone = bool(reason)

    async def _trouble(self, has_need: bool) -> str:
        """Return the reason why the hive cannot be used, empty if it can."""
        silence = self.silence
        if silence > _SILENCE:
            try:
                await asyncio.wait_for(self._transport.send("GET", "/health"), _PATIENCE)
            except TimeoutError:
                text = f"it has not answered for {silence + _PATIENCE:.1f} s"
                return self._transport.trouble or text
            except HiveError as error:
                return str(error) if has_need or self.is_gone else ""
        refusal = self._transport.refusal(_SILENCE)
        return f"it takes nothing, {refusal}" if refusal else ""
