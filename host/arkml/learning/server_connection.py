"""The learner's end of the socket to its server."""

from __future__ import annotations

import select
import socket
from threading import Lock
from typing import Any

from arkml.hive.protocol.messages import Message, Unpacker, pack

_CHUNK = 1 << 16


class LinkClosed(Exception):
    """The server is gone: there is nobody to learn for."""


class ServerConnection:
    """Messages both ways. Any thread may send; one receives."""

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection
        self._unpacker = Unpacker()
        self._sending = Lock()

    def send(self, kind: str, **fields: Any) -> None:
        """Send a message. Raises LinkClosed."""
        data = pack(kind, **fields)
        try:
            with self._sending:
                self._connection.sendall(data)
        except OSError as error:
            raise LinkClosed(str(error)) from error

    def receive(self, seconds: float | None) -> list[Message]:
        """
        The messages there are, after waiting up to `seconds` for the first; None waits for ever.

        Raises LinkClosed, and ProtocolError for what is no message.
        """
        if not select.select([self._connection], [], [], seconds)[0]:
            return []
        try:
            data = self._connection.recv(_CHUNK)
        except OSError as error:
            raise LinkClosed(str(error)) from error
        if not data:
            raise LinkClosed("the server closed the socket")
        return self._unpacker.feed(data)
