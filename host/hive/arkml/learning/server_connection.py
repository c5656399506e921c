"""The learner's end of the socket to its server."""

from __future__ import annotations

import select
import socket
from threading import Lock
from typing import Any

from arkml.hive.protocol.wire import Message, Unpacker, pack

_CHUNK = 1 << 16


class ServerGone(Exception):
    """Raised when the server closed the connection, or its process ended."""


class ServerConnection:
    """The connection to the server. Any thread may send messages; one thread receives them."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unpacker = Unpacker()
        self._sending = Lock()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message. Raises ServerGone."""
        data = pack(kind, **fields)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise ServerGone(str(error)) from error

    def receive(self, seconds: float | None) -> list[Message]:
        """
        Return the messages that have arrived, after waiting up to `seconds` for the first.

        None waits without a limit. Raises ServerGone, and ProtocolError for bytes that are not a
        message.
        """
        if not select.select([self._connection], [], [], seconds)[0]:
            return []
        try:
            data = self._connection.recv(_CHUNK)
        except OSError as error:
            raise ServerGone(str(error)) from error
        if not data:
            raise ServerGone("the server closed the socket")
        return self._unpacker.feed(data)
