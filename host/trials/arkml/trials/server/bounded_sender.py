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
    A QueuedSender within limits.

    The stream is lost, and `overflow` called with the reason, once more messages or bytes wait
    than `limits` allow: an end that does not read cannot fill the memory of the server.
    `farewell` are the seconds that the other end has to take what was sent before the end.
    """

    def __init__(
        self, limits: TrialLimits, overflow: Callable[[str], object], farewell: float = FAREWELL
    ) -> None:
        super().__init__()
        self.farewell = farewell
        self._limits = limits
        self._overflow = overflow
        self._bytes = 0
        self._timeout: asyncio.Timeout | None = None  # of the pump
        self._is_writing = False
        self._written = asyncio.Event()
        self._written.set()

    def send(self, message: M) -> None:
        """Queue a message."""
        if self._is_closed:
            return
        super().send(message)
        self._written.clear()
        self._bytes += message.ByteSize()
        limits = self._limits
        if len(self._queue) > limits.queued_messages or self._bytes > limits.queued_bytes:
            reason = f"it left {len(self._queue)} messages of {self._bytes} bytes unread"
            self._queue.clear()
            self._end(within=0.0)
            self._overflow(reason)

    def close(self) -> None:
        """End the stream after what is queued."""
        if not self._is_closed:
            self._end(within=self.farewell)

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
        limits = self._limits
        return (
            4 * len(self._queue) > limits.queued_messages or 4 * self._bytes > limits.queued_bytes
        )

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
                        self._bytes -= message.ByteSize()
                        self._is_writing = True
                        await write(message)
                        self._is_writing = False
                        if not self._queue:
                            self._written.set()
        finally:
            self._timeout = None
            self._written.set()
