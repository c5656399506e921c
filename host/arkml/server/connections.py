"""The connections of a hive, with the limits of time and size that uvicorn leaves to others."""

from __future__ import annotations

import asyncio
import ssl
from enum import Enum
from http import HTTPStatus
from typing import Any

import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from arkml.errors import UsageError
from arkml.hive.protocol.runs import Refusal
from arkml.server.access.security_headers import DATA, as_text
from arkml.server.options import ServeOptions

_KEEP_ALIVE = 75
"""Seconds of a connection without a request: longer than clients keep one, or both would close."""

_NO_PASSWORD = "none"
"""The password of the key, which has none: without one, OpenSSL asks at the terminal."""

_CLOSING = 5.0
"""Seconds in which a client takes the last answer, before its connection is cut."""


class HiveConfig(uvicorn.Config):
    """The configuration of uvicorn for a hive, with the limits of its connections."""

    def __init__(self, app: ASGIApp, options: ServeOptions) -> None:
        self.limits = options.limits
        self._options = options
        super().__init__(
            app,
            http=_LimitedProtocol,
            ws="none",
            proxy_headers=False,  # `OriginRules` reads them, from trusted proxies only
            lifespan="off",
            log_config=None,
            log_level="warning",
            access_log=False,
            timeout_keep_alive=_KEEP_ALIVE,
            timeout_graceful_shutdown=5,
            server_header=False,
            date_header=False,
            ssl_certfile=options.tls_cert,
            ssl_keyfile=options.tls_key,
            ssl_keyfile_password=_NO_PASSWORD,
        )

    def load(self) -> None:
        """Read the certificate. Raises UsageError if it cannot be used."""
        options = self._options
        if options.tls_key is not None and options.tls_cert is None:
            raise UsageError("--tls-key takes --tls-cert, the certificate of the key")
        try:
            super().load()
        except OSError as error:  # which errors of TLS are
            raise UsageError(
                f"--tls-cert {options.tls_cert}: the certificate with its key"
                f" ({options.tls_key or 'in the same file'}) cannot be used: {error}"
            ) from error
        if self.ssl is not None:
            self.ssl.minimum_version = ssl.TLSVersion.TLSv1_2


class _Part(Enum):
    """The part of a request that a connection receives."""

    NONE = "none"
    HEADER = "header"
    BODY = "body"


class _Awaited(Enum):
    """The bytes that a client has to send in time, while no application waits for them."""

    HEADER = "header"
    REST = "the rest of a body that was answered"
    NEXT = "the next request"


class _LimitedProtocol(HttpToolsProtocol):
    """HTTP whose requests arrive in time, and whose answers are taken."""

    config: HiveConfig

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._part = _Part.NONE
        self._header_size = 0
        self._awaited: _Awaited | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        super().__init__(*arguments, **named)
        self._limits = self.config.limits

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take in a connection, or refuse it."""
        super().connection_made(transport)
        most = self._limits.connections
        if most and len(self.connections) > most:
            self._end(HTTPStatus.SERVICE_UNAVAILABLE, f"this hive has {most} connections already")
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """Take in the end of the connection."""
        super().connection_lost(exc)
        self._wait_for(None)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Take in bytes; the time of a request begins with its first one."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        if self.transport.is_closing():
            return
        self._header_size = self._header_size + len(data) if self._part is _Part.HEADER else 0
        most = self._limits.header_bytes
        if most and self._header_size > most:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._end(status, f"the header of a request takes {most} bytes at most")
        else:
            self._watch()

    def send_400_response(self, msg: str) -> None:
        """Refuse what is not HTTP with a sentence."""
        self._end(HTTPStatus.BAD_REQUEST, msg)

    def on_message_begin(self) -> None:
        """Note that a header begins."""
        self._part = _Part.HEADER
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Note that a body begins, which may be empty."""
        self._part = _Part.BODY
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._part = _Part.NONE
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Take in the end of an answer, which may come before that of its request."""
        super().on_response_complete()
        if not self.transport.is_closing():
            self._watch()

    def pause_writing(self) -> None:
        """Cut the connection unless its client takes a part of the answer in time."""
        super().pause_writing()
        self._check_taken(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Take in that the client has taken what was sent."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _watch(self) -> None:
        """Start the time of what the client has to send now, unless it runs already."""
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._part is _Part.HEADER or self.cycle is None:
            self._wait_for(_Awaited.HEADER)
        elif not is_answered:
            self._wait_for(None)
        else:
            self._wait_for(_Awaited.REST if self._part is _Part.BODY else _Awaited.NEXT)

    def _wait_for(self, awaited: _Awaited | None) -> None:
        if awaited is self._awaited:
            return
        self._awaited = awaited
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        match awaited:
            case _Awaited.HEADER:
                seconds = self._limits.header_seconds
            case _Awaited.REST:
                seconds = self._limits.body_seconds
            case _Awaited.NEXT:
                seconds = _KEEP_ALIVE
            case None:
                return
        if seconds:
            self._timer = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        """End a connection whose client has not sent in time what it had to."""
        if self.transport.is_closing():
            return
        if self._awaited is _Awaited.HEADER and (
            self.cycle is None or self.cycle.response_complete
        ):
            seconds = self._limits.header_seconds
            text = f"the header of a request did not arrive within {seconds:g} s"
            self._end(HTTPStatus.REQUEST_TIMEOUT, text)
        else:
            self.transport.abort()

    def _end(self, status: HTTPStatus, text: str) -> None:
        """Answer with a sentence, and end the connection."""
        self._wait_for(None)
        body = Refusal(text).as_bytes()
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\ncontent-type: application/json\r\n"
            f"content-length: {len(body)}\r\n{as_text(DATA)}connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        self.loop.call_later(_CLOSING, self.transport.abort)

    def _check_taken(self, before: int) -> None:
        """Look again after a time if less than `before` bytes of the answer are left."""
        seconds = self._limits.body_seconds
        if seconds:
            self._stalled = self.loop.call_later(seconds, self._cut_unless_taken, before)

    def _cut_unless_taken(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._check_taken(left)
        else:
            self.transport.abort()
