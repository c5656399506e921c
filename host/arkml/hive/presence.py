"""Whether a hive is there, said in the log once when it is gone and once when it is back."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from time import monotonic

from arkml.errors import HiveError
from arkml.hive.transport import HiveTransport

log = logging.getLogger(__name__)

_LOOK = 0.25  # seconds between two looks
_SILENCE = 1.0  # seconds without an answer after which the hive is asked for one
_PATIENCE = 1.5
"""Seconds that it has to answer then. With the others: what is gone is told within 3 s."""


class Presence:
    """
    Watches over one hive. A hive that answers, but takes nothing, is gone as well.

    `is_gone` may be read from any thread.
    """

    def __init__(self, link: HiveTransport) -> None:
        self.is_gone = False
        self._link = link

    async def watch(self, is_needed: Callable[[], bool]) -> None:
        """Look again and again as long as that is needed."""
        while is_needed():
            await asyncio.sleep(_LOOK)
            why = await self._trouble()
            if why and not self.is_gone:
                log.warning("the hive is gone: %s (rows wait for it, and policies stay)", why)
            elif self.is_gone and not why:
                log.warning("the hive is back")
            self.is_gone = bool(why)

    async def _trouble(self) -> str:
        """Why the hive is of no use, empty if it is."""
        silence = monotonic() - self._link.answered
        if silence > _SILENCE:
            try:
                await asyncio.wait_for(self._link.send("GET", "/health"), _PATIENCE)
            except TimeoutError:
                return self._link.trouble or f"it has not answered for {silence + _PATIENCE:.1f} s"
            except HiveError as error:
                return str(error)
        refusal = self._link.refusal(_SILENCE)
        return f"it takes nothing, {refusal}" if refusal else ""
