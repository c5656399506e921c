"""Senders of a server, with limits on their unsent messages."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from arkml.trials.grpc_streams import QueuedSender
from arkml.trials.server.options import TrialLimits

M = TypeVar("M", bound=Any)

FAREWELL = 5.0
"""Seconds that a peer has to read the last messages after the end of its stream."""


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
        """End the stream after the queued messages."""
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
        """Wait until all messages so far are written, or the stream has ended."""
        await self._written.wait()

    async def pump(self, write: Callable[[M], Awaitable[object]]) -> None:
        """
        Write the queued messages until the stream is closed and empty.

        Raises TimeoutError if the peer has not read all messages within `farewell` seconds after
        the end, or at once if the queue exceeds its limits.
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
