"""The two ends of a stream of messages, over gRPC, a websocket, or within a process."""

from __future__ import annotations

from typing import Generic, Protocol, TypeVar

M = TypeVar("M")
M_contra = TypeVar("M_contra", contravariant=True)


class Sender(Protocol[M_contra]):
    """
    The end of a stream that takes messages to be sent.

    Its methods belong to one event loop and never wait. Messages are not changed after `send`.
    """

    def send(self, message: M_contra) -> None:
        """Send a message after those before. Does nothing once the stream is closed or lost."""

    def close(self) -> None:
        """End the stream after what was sent. Safe to call again."""


class PacedSender(Sender[M_contra], Protocol):
    """A Sender whose writing can be waited for."""

    @property
    def waiting(self) -> int:
        """Number of messages that are not written yet."""

    @property
    def is_full(self) -> bool:
        """True while so much waits that it is better to wait, too."""

    async def written(self) -> None:
        """Wait until everything that was sent so far is written, or the stream is over."""


class Receiver(Protocol[M_contra]):
    """
    The end of a stream where messages arrive.

    Its methods belong to one event loop, return quickly and never raise.
    """

    def receive(self, message: M_contra) -> None:
        """Take in a message."""

    def lose(self, reason: str) -> None:
        """Take in the end of the stream by either side; nothing arrives after that."""


class Passing(Generic[M]):
    """A Sender that gives messages to a Receiver in the same process, and then the end."""

    def __init__(self, receiver: Receiver[M], reason: str) -> None:
        self._receiver: Receiver[M] | None = receiver
        self._reason = reason

    def send(self, message: M) -> None:
        """Give a message to the receiver."""
        if self._receiver is not None:
            self._receiver.receive(message)

    def close(self) -> None:
        """Tell the receiver of the end."""
        receiver, self._receiver = self._receiver, None
        if receiver is not None:
            receiver.lose(self._reason)
