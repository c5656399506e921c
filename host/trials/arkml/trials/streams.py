"""The two ends of a message stream, over gRPC, a websocket, or within a process."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class Sender(Protocol[M_contra]):
    """
    The sending end of a stream.

    Methods belong to one event loop and never wait. A message must not be modified after `send`.
    """

    def send(self, message: M_contra) -> None:
        """Send a message. Does nothing once the stream is closed or lost."""

    def close(self) -> None:
        """End the stream after the messages that were sent. Idempotent."""


class PacedSender(Sender[M_contra], Protocol):
    """A Sender with methods to wait for its writes."""

    @property
    def waiting(self) -> int:
        """Number of messages that are not written yet."""

    @property
    def is_full(self) -> bool:
        """True while the caller should wait, because too many messages are unwritten."""

    async def written(self) -> None:
        """Wait until all messages so far are written, or the stream has ended."""


class Receiver(Protocol[M_contra]):
    """
    The receiving end of a stream.

    Methods belong to one event loop, return quickly and never raise.
    """

    def receive(self, message: M_contra) -> None:
        """Handle the next message of the stream."""

    def lose(self, reason: str) -> None:
        """Handle the end of the stream, which either side may have ended; it is the last call."""


class Passing(Generic[M]):
    """
    A Sender within a process, which passes messages to a Receiver.

    When it is closed, the Receiver is told `reason` as the end of the stream.
    """

    def __init__(self, receiver: Receiver[M], reason: str) -> None:
        self._receiver: Receiver[M] | None = receiver
        self._reason = reason

    def send(self, message: M) -> None:
        """Pass a message to the receiver."""
        if self._receiver is not None:
            self._receiver.receive(message)

    def close(self) -> None:
        """Tell the receiver that the stream has ended."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lose(self._reason)
