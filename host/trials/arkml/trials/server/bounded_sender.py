"""Senders of a server, whose messages wait within bounds."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from arkml.trials.grpc_streams import QueuedSender
from arkml.trials.server.options import TrialLimits

M = TypeVar("M", bound=Any)

FAREWELL = 5.0
"""Seconds that the other end of a stream has to take what was sent before its end."""


class BoundedSender(QueuedSender[M]):
    """
    A QueuedSender within the limits of a server.

    `farewell` are the seconds that the other end has to take what was sent before the end.
    """

    def __init__(
        self, limits: TrialLimits, overflow: Callable[[str], object], farewell: float = FAREWELL
    ) -> None:
        super().__init__(overflow, (limits.queued_messages, limits.queued_bytes))
        self.farewell = farewell
        self._timeout: asyncio.Timeout | None = None  # of the pump
        self._is_writing = False
        self._written = asyncio.Event()
        self._written.set()

    def send(self, message: M) -> None:
        """Queue a message."""
        if not self._is_closed:
            self._written.clear()
            super().send(message)

    def close(self) -> None:
        """End the stream after what is queued."""
        if not self._is_closed:
            self._end(within=self.farewell)

    def _cut(self) -> None:
        """End the stream at once."""
        self._end(within=0.0)

    def _end(self, within: float) -> None:
        super().close()
        if self._timeout is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time() + within)

    @property
    def waiting(self) -> int:
        """Number of messages that are not written yet."""
        return len(self._queue) + self._is_writing

    @property
    def is_full(self) -> bool:
        """True while a quarter of what may wait does."""
        return 4 * len(self._queue) > self._most_messages or 4 * self._bytes > self._most_bytes

    async def written(self) -> None:
        """Wait until everything that was sent so far is written, or the stream is over."""
        await self._written.wait()

    async def pump(self, write: Callable[[M], Awaitable[object]]) -> None:
        """
        Write what is queued, until the stream is closed and all is written.

        Raises TimeoutError if the other end does not take all within `farewell` seconds of the end,
        and at once if more waits than may.
        """
        try:
            async with asyncio.timeout(self.farewell if self._is_closed else None) as self._timeout:
                async with contextlib.aclosing(aiter(self)) as messages:
                    async for message in messages:
                        self._is_writing = True
                        await write(message)
                        self._is_writing = False
                        if not self._queue:
                            self._written.set()
        finally:
            self._timeout = None
            self._written.set()
