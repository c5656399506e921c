"""Streams of gRPC: sending without waiting, reading to the end, and cancelling."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any, Generic, TypeVar

import grpc.aio
from google.protobuf.message import DecodeError

M = TypeVar("M", bound=Any)

UNREADABLE = "sent bytes that are not a message of the protocol"
ENDED = "ended its stream"
"""End of a sentence about a peer that has ended its stream."""


_FAILED_WRITE = "Internal error from Core"
"""Details that grpc.aio gives for a call whose end a write met, and not those of the peer."""

MOST_WAITING = 100_000
"""Messages that wait for an end that does not read them; with one more the stream is over."""

MOST_WAITING_BYTES = 256 << 20
"""Bytes of those messages."""


FAREWELL = 5.0
"""Seconds that a peer has to read the last messages after the end of its stream."""


class SharedRoom:
    """
    Memory of MOST_WAITING_BYTES, shared by the unsent messages of several senders.

    When it is used up, the sender with the most unsent bytes gives up.
    """

    def __init__(self) -> None:
        self._bytes = 0
        self._senders: set[QueuedSender[Any]] = set()

    @property
    def is_full(self) -> bool:
        """True while more than a quarter of the memory is used."""
        return 4 * self._bytes > MOST_WAITING_BYTES

    def take(self, sender: QueuedSender[Any], size: int) -> None:
        """Count `size` bytes of a sender's unsent messages; a negative size gives memory back."""
        self._bytes += size
        if sender.bytes:
            self._senders.add(sender)
        else:
            self._senders.discard(sender)
        while self._bytes > MOST_WAITING_BYTES:
            max(self._senders, key=lambda one: one.bytes).give_up()


class QueuedSender(Generic[M]):
    """
    A Sender whose messages wait until the stream asks for them, by `pump` or iteration.

    If more messages or bytes than `most` wait, the stream ends and `overflow` is called with the
    reason. So a peer that sends requests without reading the answers cannot fill the memory of this
    process.

    Args:
        overflow: Called with the reason.
        most: Maximum number of messages that wait, and of their bytes; by default MOST_WAITING and
            MOST_WAITING_BYTES.
        room: Memory that the sender shares with others, if any; `drop` gives its part back.
        farewell: Seconds that `pump` gives the peer to read what was sent before the end; None for
            no limit.

    """

    def __init__(
        self,
        overflow: Callable[[str], object],
        most: tuple[int, int] | None = None,
        farewell: float | None = None,
        room: SharedRoom | None = None,
    ) -> None:
        self._queue: deque[M] = deque()
        self.bytes = 0
        """The size of the messages that are not written yet."""
        self._room = room
        self._most_messages, self._most_bytes = most or (MOST_WAITING, MOST_WAITING_BYTES)
        self._overflow = overflow
        self._farewell = farewell
        self._timeout: asyncio.Timeout | None = None  # of the pump
        self._is_closed = self._is_writing = False
        self._arrived = asyncio.Event()
        self._written = asyncio.Event()
        self._written.set()

    def send(self, message: M) -> None:
        """Queue a message. Does nothing once the stream is closed."""
        if self._is_closed:
            return
        self._queue.append(message)
        self._arrived.set()
        self._written.clear()
        self._count(message.ByteSize())
        if len(self._queue) > self._most_messages or self.bytes > self._most_bytes:
            self.give_up()

    def give_up(self) -> None:
        """End the stream at once, without sending the messages that wait."""
        reason = f"it left {len(self._queue) or self.waiting} messages of {self.bytes} bytes unread"
        self._end(within=0.0)
        self._count(-self.bytes)
        self._overflow(reason)
        self._queue.clear()

    def drop(self) -> None:
        """Drop the messages that wait, release their memory, and accept no more. Idempotent."""
        self._is_closed = True
        self._count(-self.bytes)
        self._queue.clear()

    def close(self) -> None:
        """End the stream after the queued messages. Idempotent."""
        if not self._is_closed:
            self._end(within=self._farewell)

    def _end(self, within: float | None) -> None:
        self._is_closed = True
        self._arrived.set()
        if self._timeout is not None and within is not None:
            self._timeout.reschedule(asyncio.get_running_loop().time() + within)

    @property
    def waiting(self) -> int:
        """Number of messages that are not written yet."""
        return len(self._queue) + self._is_writing

    @property
    def is_full(self) -> bool:
        """True while more than a quarter of the messages or bytes that may wait do."""
        if self._room is not None and self._room.is_full:
            return True
        return 4 * len(self._queue) > self._most_messages or 4 * self.bytes > self._most_bytes

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
            async with asyncio.timeout(self._farewell if self._is_closed else None) as timeout:
                self._timeout = timeout
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

    def _count(self, size: int) -> None:
        self.bytes += size
        if self._room is not None:
            self._room.take(self, size)

    async def __aiter__(self) -> AsyncGenerator[M, None]:
        while True:
            while self._queue:
                message = self._queue.popleft()
                yield message
                self._count(-min(self.bytes, message.ByteSize()))  # none of a stream given up
            if self._is_closed:
                return
            self._arrived.clear()
            await self._arrived.wait()


async def read_all(stream: Any, receive: Callable[[Any], object]) -> str:
    """
    Pass all messages of a gRPC call, or of its server-side context, to `receive`.

    Returns the end of a sentence about the peer, such as the reason why the stream broke; it is
    ENDED if the peer has ended the stream.
    """
    try:
        while (message := await stream.read()) is not grpc.aio.EOF:
            if message is None:  # a call returns None for bytes that it cannot parse
                return UNREADABLE
            receive(message)
    except grpc.aio.AioRpcError as error:
        return failure(error)
    except DecodeError as error:  # the context of a call raises it instead
        return f"{UNREADABLE}: {error}"
    except (grpc.aio.UsageError, grpc.aio.InternalError):
        pass  # the stream is over
    return ENDED


def failure(error: grpc.aio.AioRpcError) -> str:
    """Return the end of a sentence about the peer of a gRPC call that failed with this error."""
    if error.details() == _FAILED_WRITE:
        return "ended its stream while more was being sent to it"
    return f"failed: {error.code().name}: {error.details()}"


def cancel(call: Any) -> None:
    """
    Cancel a gRPC call, even one whose write has failed.

    After a failed write, grpc.aio considers the call done, and leaves a task that waits for its
    status. The status never comes, since the messages before it are no longer read.
    """
    if not call.cancel():
        call._cython_call.cancel("it is not used any more")  # noqa: SLF001
