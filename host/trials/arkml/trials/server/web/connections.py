"""The connections of a web port, with limits that uvicorn does not have."""

from __future__ import annotations

import asyncio
from collections import Counter
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

import uvicorn
from starlette.types import ASGIApp, Scope
from uvicorn.protocols.http.h11_impl import H11Protocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

from arkml.base.files import open_file
from arkml.trials.server.web.options import WebLimits, WebOptions

SAFETY: Final = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
"""Headers of all answers: browsers guess no types, and pass addresses to no other site."""

_KEY: Final = "arkml.trials.connection"
_CLOSING_SECONDS: Final = 5.0  # a client has them to read the last answer


class Connection:
    """One connection; `ending` is set when the server is about to stop."""

    def __init__(self, address: str, transport: asyncio.Transport | None = None) -> None:
        self.address = address
        self.ending = asyncio.Event()
        self._transport = transport
        self._timer: asyncio.TimerHandle | None = None

    def abort(self) -> None:
        """Close the connection at once, dropping unsent data."""
        if self._transport is not None:
            self._transport.abort()

    def abort_in(self, seconds: float) -> None:
        """Close the connection after some seconds, unless that is postponed or cancelled."""
        self.keep()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def keep(self) -> None:
        """Cancel the scheduled close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    @property
    def is_timed(self) -> bool:
        """True while a close is scheduled."""
        return self._timer is not None


class Connections:
    """All open connections of a web port."""

    def __init__(self, limits: WebLimits) -> None:
        self._limits = limits
        self._open: set[Connection] = set()
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Add a connection, and return False if there are too many."""
        limits, address = self._limits, connection.address
        if len(self._open) >= limits.connections:
            return False
        if self._by_address[address] >= limits.connections_per_address:
            return False
        self._open.add(connection)
        self._by_address[address] += 1
        return True

    def release(self, connection: Connection) -> None:
        """Remove a connection, even one that was not admitted."""
        connection.keep()
        if connection in self._open:
            self._open.remove(connection)
            self._by_address[connection.address] -= 1
            if not self._by_address[connection.address]:
                del self._by_address[connection.address]

    def abort_all(self) -> None:
        """Close all connections at once."""
        for connection in list(self._open):
            connection.abort()


def connection_in(scope: Scope) -> Connection:
    """Return the connection of a call; under another ASGI server, a nameless one."""
    state: dict[str, Any] = scope.get("state", {})
    connection = state.get(_KEY)
    if not isinstance(connection, Connection):
        connection = Connection(_address(scope.get("client")))
    return connection


def _address(client: tuple[str, int] | None) -> str:
    """Return a client's address; for IPv6, the network that one client usually owns."""
    host = client[0] if client is not None else ""
    try:
        address = ip_address(host)
    except ValueError:
        return host
    if isinstance(address, IPv6Address):
        return str(ip_network((address, 64), strict=False))
    return str(address)


def _last_answer(status: str, text: str) -> bytes:
    """Return an answer after which the connection closes."""
    headers = {"content-type": "text/plain", "connection": "close", **SAFETY}
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in headers.items())]
    return "\r\n".join([*lines, "", text]).encode()


class WebConfig(uvicorn.Config):
    """Uvicorn's configuration for a web port, with its connections."""

    def __init__(self, app: ASGIApp, options: WebOptions) -> None:
        self.limits = options.limits
        self.open_connections = Connections(options.limits)
        self._options = options
        super().__init__(
            app,
            http=_HttpProtocol,
            ws=_WebsocketProtocol,
            # Room for the websocket's leading byte and the frame's prefix before a whole message.
            ws_max_size=options.limits.message_bytes + 6,
            ws_ping_interval=options.limits.stalled_seconds,
            ws_ping_timeout=options.limits.stalled_seconds,
            ws_per_message_deflate=False,
            proxy_headers=False,  # any client could forge them
            lifespan="on",
            log_config=None,
            log_level="warning",  # lower levels log paths, which contain tokens
            access_log=False,
            timeout_graceful_shutdown=5,
            server_header=False,
            date_header=False,
            ssl_certfile=options.tls_cert,
            ssl_keyfile=options.tls_key,
        )

    def load(self) -> None:
        """Read the certificate. Raises OSError if it cannot be used."""
        for path in filter(None, (self._options.tls_cert, self._options.tls_key)):
            open_file(path).close()  # OpenSSL would wait for a pipe, and for no signal
        super().load()


class _HttpProtocol(H11Protocol):
    """HTTP with a deadline for requests, over a limited number of connections."""

    config: WebConfig

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Add a connection, or refuse it."""
        super().connection_made(transport)
        self._connection = Connection(_address(self.client), transport)
        self.app_state = {**self.app_state, _KEY: self._connection}
        if self.config.open_connections.admit(self._connection):
            self._connection.abort_in(self.config.limits.handshake_seconds)
        else:
            text = "this server has as many connections as it may have\n"
            transport.write(_last_answer("503 Service Unavailable", text))
            transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        super().connection_lost(exc)
        self.config.open_connections.release(self._connection)

    def data_received(self, data: bytes) -> None:
        """Handle bytes; the deadline of a request starts with its first byte."""
        if self.transport.is_closing():
            return
        super().data_received(data)
        is_called = self.cycle is not None and not self.cycle.response_complete
        if is_called:
            self._connection.keep()
        elif not self._connection.is_timed and isinstance(
            self.transport.get_protocol(), H11Protocol
        ):
            self._connection.abort_in(self.config.limits.handshake_seconds)

    def send_400_response(self, msg: str) -> None:
        """Answer bytes that are not HTTP, unless another answer is being sent."""
        if self.cycle is not None and self.cycle.response_started:
            self._connection.abort()
        else:
            self.transport.write(_last_answer("400 Bad Request", f"{msg}\n"))
            self.transport.close()

    def handle_websocket_upgrade(self, event: Any) -> None:
        """Hand the connection to the websocket protocol."""
        self._connection.keep()
        super().handle_websocket_upgrade(event)

    def timeout_keep_alive_handler(self) -> None:
        """Close an idle connection, even if its client does not read."""
        super().timeout_keep_alive_handler()
        self._connection.abort_in(_CLOSING_SECONDS)

    def shutdown(self) -> None:
        """End the call that uses the connection."""
        super().shutdown()
        self._connection.ending.set()


class _WebsocketProtocol(WebSocketsSansIOProtocol):
    """Websockets that end in time, whatever their clients do."""

    config: WebConfig

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Add a connection, without logging its requests: their paths contain tokens."""
        super().connection_made(transport)
        self.conn.debug = False

    def data_received(self, data: bytes) -> None:
        """Take in bytes; a request that no websocket can begin with is refused."""
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            text = f"{self.conn.handshake_exc.__cause__ or self.conn.handshake_exc}"
            self.transport.write(_last_answer("400 Bad Request", f"no websocket: {text}\n"))
            self.transport.close()
            self._connection.abort_in(_CLOSING_SECONDS)

    @property
    def _connection(self) -> Connection:
        connection: Connection = self.app_state[_KEY]
        return connection

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        super().connection_lost(exc)
        self.config.open_connections.release(self._connection)

    def handle_cont(self, event: Frame) -> None:
        """Handle a fragment of a message; drop empty ones, since their number is unlimited."""
        if event.data or event.fin:
            super().handle_cont(event)

    def send_receive_event_to_app(self) -> None:
        """Pass on a message; text that is not UTF-8 ends the connection, once."""
        if self.conn.state is not State.OPEN:
            self.frames = []
            return
        if self.curr_msg_data_type == "text":
            try:
                b"".join(self.frames).decode()
            except UnicodeDecodeError:
                self.frames = []
                self.conn.send_close(CloseCode.INVALID_DATA)
                self.handle_parser_exception()
                return
        super().send_receive_event_to_app()

    async def send(self, message: Any) -> None:
        """Send a message of the application; an answer of HTTP ends the handshake, too."""
        await super().send(message)
        if self.initial_response is not None and self.close_sent:
            self.handshake_complete = True

    def handle_ping(self) -> None:
        """Answer a ping, unless the client leaves answers unread."""
        if self.writable.is_set():
            super().handle_ping()
        else:
            self._connection.abort()

    def keepalive_timeout(self) -> None:
        """Close the connection of a client that does not answer pings."""
        super().keepalive_timeout()
        self._connection.abort()

    def on_task_complete(self, task: asyncio.Task[None]) -> None:
        """Close the connection soon after its call, even if its client does not read."""
        super().on_task_complete(task)
        if not self.disconnected:
            self._connection.abort_in(_CLOSING_SECONDS)

    def shutdown(self) -> None:
        """Notify the call that the server stops."""
        super().shutdown()
        self._connection.ending.set()
