"""HTTP servers by uvicorn, with limits of time, size and number that uvicorn does not have."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import sys
from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from functools import partial
from http import HTTPStatus
from pathlib import Path
from typing import Any

import httptools
import uvicorn
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT, FlowControl
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from arkml.base.files import open_file

CLOSING_SECONDS = 5.0
"""Seconds in which a client takes the last answer, before its connection is cut."""

_NO_PASSWORD = "none"
"""The password of the key, which has none: without one, OpenSSL asks at the terminal."""

_PIECE = 1 << 10
"""Bytes that are parsed at a time outside of a body; a limit is looked at after each piece."""

_STARTUP_FAILURE = 3
"""The exit code of uvicorn for an application that does not start."""

_MOST_FIELDS = 128
"""Fields of a header and trailers of one request at most: each costs a hundred times its bytes."""

_FRAMING = 8
"""Bytes beside each byte of a chunked body at most, besides the limit of headers: its framing."""


@dataclass(frozen=True, slots=True)
class HttpLimits:
    """
    Limits of HTTP connections. 0 switches a limit off, except the last one.

    Attributes:
        header_seconds: Seconds in which the header of a request must arrive.
        header_bytes: Bytes that the header of a request may have.
        body_seconds: Seconds in which the rest of a body must arrive after its answer, and in which
            a client must read a part of an answer.
        keep_alive: Seconds after which a connection without a request is closed.

    """

    header_seconds: float
    header_bytes: int
    body_seconds: float
    keep_alive: int


class LimitedConfig(uvicorn.Config, ABC):
    """
    The configuration of a limited server, with its answers to connections that it refuses.

    `named` are parameters of uvicorn. With `tells_late`, a client whose request comes too late gets
    an answer.
    """

    tells_late = True

    def __init__(
        self,
        app: Any,
        limits: HttpLimits,
        *,
        tls_cert: Path | None,
        tls_key: Path | None,
        **named: Any,
    ) -> None:
        self.limits = limits
        self._tls = [path for path in (tls_cert, tls_key) if path is not None]
        super().__init__(
            app,
            **{"http": LimitedProtocol, **named},
            proxy_headers=False,  # any client could forge them
            log_config=None,
            log_level="warning",  # lower levels log paths, which may contain tokens
            access_log=False,
            timeout_keep_alive=limits.keep_alive,
            timeout_graceful_shutdown=5,
            server_header=False,
            date_header=False,
            ssl_certfile=tls_cert,
            ssl_keyfile=tls_key,
            ssl_keyfile_password=_NO_PASSWORD,
        )

    def load(self) -> None:
        """
        Read the TLS certificate. Raises OSError, of which TLS errors are a kind, if it is unusable.
        """
        with contextlib.ExitStack() as opened:
            # OpenSSL takes names only: it gets those of open files, since it would wait for a pipe
            # that has come in the place of one, and for no signal.
            files = [opened.enter_context(open_file(path)) for path in self._tls]
            names = [f"/dev/fd/{file.fileno()}" for file in files]
            self.ssl_certfile, self.ssl_keyfile = (*names, None, None)[:2]
            super().load()
        if self.ssl is not None:
            self.ssl.minimum_version = ssl.TLSVersion.TLSv1_2

    @abstractmethod
    def problem_with(self, connection: LimitedProtocol) -> str:
        """Return why a new connection is refused, "" to accept it."""

    @abstractmethod
    def refusal(self, text: str) -> tuple[str, bytes]:
        """
        Return the header lines and the body of an answer that refuses a connection with a text.
        """


class LimitedServer(uvicorn.Server):
    """A server that installs no signal handlers."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """
        Listen at sockets as uvicorn does, with the time limit of headers also for TLS handshakes.

        asyncio allows a minute for a handshake, in which a silent client keeps a file descriptor.
        """
        await self.lifespan.startup()
        if self.lifespan.should_exit:
            sys.exit(_STARTUP_FAILURE)
        config: Any = self.config
        loop = asyncio.get_running_loop()
        made = partial(
            config.http_protocol_class,
            config=config,
            server_state=self.server_state,
            app_state=self.lifespan.state,
        )
        seconds = config.limits.header_seconds or None
        self.servers = [
            await loop.create_server(
                made,
                sock=listening,
                ssl=config.ssl,
                backlog=config.backlog,
                ssl_handshake_timeout=seconds if config.ssl else None,
            )
            for listening in sockets or ()
        ]
        self.started = True

    async def begin(self, listening: socket.socket) -> asyncio.Task[None]:
        """Begin to serve at a socket; the returned task serves until `should_exit` is set."""
        serving = asyncio.create_task(self.serve(sockets=[listening]))
        while not self.started and not serving.done():
            await asyncio.sleep(0.005)
        return serving


def listen_at(host: str, port: int) -> socket.socket:
    """Return a socket that listens at an address. Raises OSError and ValueError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # asyncio sends small parts at once where a socket names its protocol. Without it, each waits
    # until the one before is acknowledged, which a client does after 40 ms.
    listening = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen()
    except BaseException:
        listening.close()
        raise
    return listening


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


class _HeldReading(FlowControl):
    """Reading that stays paused while bytes of later requests are held."""

    holds = False

    def resume_reading(self) -> None:
        """Read again, unless bytes that were read already have to wait."""
        if not self.holds:
            super().resume_reading()


class LimitedProtocol(HttpToolsProtocol):
    """
    HTTP with time limits: requests arrive, and answers are taken, within the limits of a server.

    Bytes are parsed in small pieces, and each piece is counted: as a part of a body, which the
    application limits, or as outside of bodies, where a request may use as many bytes as a header
    may have. Bytes behind a request that is not answered yet are not parsed, and the socket is not
    read further. Trailers are dropped: the application has got the body before them, and their
    bytes count as bytes of a header.
    """

    config: LimitedConfig
    flow: _HeldReading

    def __init__(self, *arguments: Any, **named: Any) -> None:
        self._part = _Part.NONE
        self._held = b""
        self._outside = 0  # bytes of the request that are not of its body
        self._inside = 0
        self._announced = 0  # bytes of a body of known size that are still to come
        self._piece = 0  # size of a piece that begins between two requests, until one has begun
        self._is_last = self._is_websocket = False
        self._awaited: _Awaited | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._stalled: asyncio.TimerHandle | None = None
        self._fields = 0  # of a header that is complete
        self._running: RequestResponseCycle | None = None
        super().__init__(*arguments, **named)
        self._limits = self.config.limits
        self.headers = []  # bytes may come before the first request that begin none

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Accept a new connection, or refuse it."""
        super().connection_made(transport)
        self.flow = _HeldReading(transport)
        if problem := self.config.problem_with(self):
            self._end(HTTPStatus.SERVICE_UNAVAILABLE, problem)
        else:
            self._watch()

    def connection_lost(self, exc: Exception | None) -> None:
        """
        Tell the application that the connection has ended, and stop the timers.

        uvicorn itself notifies only the newest request, which may be waiting for an earlier one.
        """
        if self._running is not None and not self._running.response_complete:
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)
        self._wait_for(None)
        self.resume_writing()

    def data_received(self, data: bytes) -> None:
        """Parse received bytes; the time of a request begins with its first byte."""
        if self.transport.is_closing() or self._is_last:
            return
        self._unset_keepalive_if_required()
        self._held += data
        self._parse()

    def on_message_begin(self) -> None:
        """Note that a request's header begins, and start its time limit."""
        self._part = _Part.HEADER
        self._wait_for(None)
        self._outside, self._piece = self._piece, 0
        self._fields = 0
        self._inside = self._announced = 0
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """
        Note that the header has ended: later fields are trailers. A body, possibly empty, begins.
        """
        self._part = _Part.BODY
        # The parser has checked that it is a number.
        self._announced = int(dict(self.headers).get(b"content-length", 0))
        super().on_headers_complete()
        self._is_websocket = self.parser.should_upgrade() and self._should_upgrade()
        if not self._is_websocket:
            self._fields, self.headers = len(self.headers), []

    def on_body(self, body: bytes) -> None:
        """Count a part of a body, and pass it on."""
        self._outside -= len(body)
        self._inside += len(body)
        self._announced -= len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        """Note the end of a request."""
        self._part = _Part.NONE
        self._announced = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue after the end of an answer, which may come before the end of its request."""
        super().on_response_complete()
        if self._held:
            self._parse()
        elif not self.transport.is_closing():
            self._watch()

    def pause_writing(self) -> None:
        """Note that a client reads slowly; cut the connection unless it reads a part in time."""
        super().pause_writing()
        self._check_taken(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """Stop the time limit of a stalled answer, since the client has read the bytes sent."""
        super().resume_writing()
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        """Answer a request, the first one that has arrived."""
        self._running = cycle
        super()._start_asgi_task(cycle, app)

    def _parse(self) -> None:
        """Parse the bytes that have arrived, up to the end of an unanswered request."""
        held, done = memoryview(self._held), 0
        while done < len(held) and not self._must_hold and not self.transport.is_closing():
            size = min(self._announced, HIGH_WATER_LIMIT) if self._announced > 0 else _PIECE
            self._feed(held[done : done + size])
            done += size
        self._held = b"" if self._is_last else bytes(held[done:])
        if self.transport.is_closing() or self._is_websocket:
            return
        held_before, self.flow.holds = self.flow.holds, bool(self._held)
        if self._held:
            self.flow.pause_reading()
        elif held_before and len(self.cycle.body) <= HIGH_WATER_LIMIT:
            self.flow.resume_reading()
        self._watch()

    @property
    def _must_hold(self) -> bool:
        """True while the bytes that have arrived wait for the answer to an earlier request."""
        is_answered = self.cycle is None or self.cycle.response_complete
        is_whole = self._part is _Part.NONE
        return self._is_last or bool(self.pipeline) or (is_whole and not is_answered)

    def _feed(self, piece: memoryview) -> None:
        """Parse bytes; end the connection if too many bytes have arrived outside of bodies."""
        self._piece = len(piece) if self._part is _Part.NONE else 0
        self._outside += len(piece)
        try:
            self.parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._is_last = True  # further bytes may be of the protocol that was asked for
            if not self._is_websocket:
                self.cycle.keep_alive = False
        except httptools.HttpParserError as error:
            self._refuse(HTTPStatus.BAD_REQUEST, f"the request is not HTTP: {error}")
            return
        if self._is_websocket:  # a body would not be one of HTTP
            self._is_last = True
            self._wait_for(None)
            self.handle_websocket_upgrade()
            return
        most = self._limits.header_bytes
        if most and self._outside > most + _FRAMING * self._inside:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            part = "header of a request takes"
            if self._part is _Part.BODY:
                part = "chunk sizes and trailers of a body take"
            self._refuse(status, f"the {part} {most} bytes at most")
        elif self._fields + len(self.headers) > _MOST_FIELDS:
            status = HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE
            self._refuse(status, f"a request has {_MOST_FIELDS} fields in its header at most")

    def _refuse(self, status: HTTPStatus, text: str) -> None:
        """End the connection, with a sentence unless that would break another answer."""
        is_answered = self.cycle is None or self.cycle.response_complete
        is_in_order = self._part is not _Part.BODY if is_answered else not self.pipeline
        if is_in_order and (is_answered or not self.cycle.response_started):
            self._end(status, text)
        else:
            self.transport.abort()

    def _watch(self) -> None:
        """
        Start the time limit of the next part of a request, unless it runs already.

        None runs while bytes wait to be parsed: the client has sent them in time.
        """
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._held:
            self._wait_for(None)
        elif self._part is _Part.HEADER or self.cycle is None:
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
                seconds = self._limits.keep_alive + CLOSING_SECONDS
            case None:
                return
        if seconds:
            self._timer = self.loop.call_later(seconds, self._give_up)

    def _give_up(self) -> None:
        """End a connection whose client has not sent the awaited part in time."""
        if self.transport.is_closing():
            return
        is_answered = self.cycle is None or self.cycle.response_complete
        if self._awaited is _Awaited.HEADER and is_answered and self.config.tells_late:
            seconds = self._limits.header_seconds
            text = f"the header of a request did not arrive within {seconds:g} s"
            self._end(HTTPStatus.REQUEST_TIMEOUT, text)
        else:
            self.transport.abort()

    def _end(self, status: HTTPStatus, text: str) -> None:
        """Answer with a sentence, and end the connection."""
        self._wait_for(None)
        headers, body = self.config.refusal(text)
        head = (
            f"HTTP/1.1 {status.value} {status.phrase}\r\n{headers}content-length: {len(body)}\r\n"
            "connection: close\r\n\r\n"
        )
        self.transport.write(head.encode() + body)
        self.transport.close()
        self.loop.call_later(CLOSING_SECONDS, self.transport.abort)

    def _check_taken(self, before: int) -> None:
        """Check after some seconds that less than `before` bytes of the answer are left."""
        seconds = self._limits.body_seconds
        if seconds:
            self._stalled = self.loop.call_later(seconds, self._cut_unless_taken, before)

    def _cut_unless_taken(self, before: int) -> None:
        left = self.transport.get_write_buffer_size()
        if left < before:
            self._check_taken(left)
        else:
            self.transport.abort()
