"""The connections of a hive: their limits, and the answers to connections that it refuses."""

from __future__ import annotations

from starlette.types import ASGIApp

from arkml.base.http_server import HttpLimits, LimitedConfig, LimitedProtocol
from arkml.errors import UsageError
from arkml.hive.protocol.runs import Refusal
from arkml.server.access.security_headers import DATA, as_text
from arkml.server.serve_options import ServeOptions

_KEEP_ALIVE = 75
"""Seconds of a connection without a request: longer than clients keep one, or both would close."""


class HiveConfig(LimitedConfig):
    """
    The configuration of uvicorn for a hive.

    Args:
        app: The application that answers requests.
        options: The address of the hive, and its limits.
        room: The largest number of connections at one time.

    """

    def __init__(self, app: ASGIApp, options: ServeOptions, room: int) -> None:
        self._options = options
        self._room = room
        limits = options.limits
        super().__init__(
            app,
            HttpLimits(
                limits.header_seconds, limits.header_bytes, limits.body_seconds, _KEEP_ALIVE
            ),
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            ws="none",
            lifespan="off",
        )

    def load(self) -> None:
        """Read the certificate. Raises UsageError if it cannot be used."""
        options = self._options
        if options.tls_key is not None and options.tls_cert is None:
            raise UsageError("--tls-key takes --tls-cert, the certificate of the key")
        try:
            super().load()
        except OSError as error:
            raise UsageError(
                f"--tls-cert {options.tls_cert}: the certificate with its key"
                f" ({options.tls_key or 'in the same file'}) cannot be used: {error}"
            ) from error

    def problem_with(self, connection: LimitedProtocol) -> str:
        """Return why a new connection is refused, empty to take it."""
        if self._room and len(connection.connections) > self._room:
            return f"this hive has {self._room} connections already"
        return ""

    def refusal(self, text: str) -> tuple[str, bytes]:
        """Return the headers and the body of an answer that ends a connection."""
        return f"content-type: application/json\r\n{as_text(DATA)}", Refusal(text).as_bytes()
