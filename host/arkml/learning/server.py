"""What a learner needs of its server."""

from __future__ import annotations

from typing import Any, Protocol

from arkml.hive.protocol.messages import Message


class Server(Protocol):
    """Where messages go to and come from."""

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message. Any thread may. Raises LinkClosed."""

    def receive(self, seconds: float | None) -> list[Message]:
        """
        The messages there are, after waiting up to `seconds` for the first; None waits for ever.

        Raises LinkClosed.
        """
