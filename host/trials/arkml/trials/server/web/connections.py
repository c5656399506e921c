"""The connections of a web port, with limits that uvicorn does not have."""

from __future__ import annotations

import asyncio
from collections import Counter
from ipaddress import IPv6Address, ip_address, ip_network
from typing import Any, Final

from starlette.types import ASGIApp, Scope
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame
from websockets.protocol import State

from arkml.base.descriptors import share_for_connections
from arkml.base.http_server import (
    CLOSING_SECONDS,
    HttpLimits,
    LimitedConfig,
    LimitedProtocol,
)
from arkml.trials.server.web.web_options import WebLimits, WebOptions

SAFETY: Final = {"x-content-type-options": "nosniff", "referrer-policy": "no-referrer"}
"""Headers of all answers: browsers guess no types, and pass addresses to no other site."""

_KEY: Final = "arkml.trials.connection"
_LAST: Final = {"content-type": "text/plain", **SAFETY}
_HEADER_BYTES: Final = 64 << 10
_KEEP_ALIVE: Final = 5


class Connection:
    """One connection of a web port; the event `ending` is set when the server is about to stop."""

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
        """Close the connection after some seconds, in place of an earlier schedule."""
        self.keep()
        self._timer = asyncio.get_running_loop().call_later(seconds, self.abort)

    def keep(self) -> None:
        """Cancel the scheduled close."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


class Connections:
    """All open connections of a web port."""

    def __init__(self, limits: WebLimits) -> None:
        self._limits = limits
        self._most = min(limits.connections, share_for_connections())
        self._open: set[Connection] = set()
        self._by_address: Counter[str] = Counter()

    def __len__(self) -> int:
        return len(self._open)

    def admit(self, connection: Connection) -> bool:
        """Add a connection; return False if there are too many."""
        limits, address = self._limits, connection.address
        if len(self._open) >= self._most:
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
    """Return the connection of a call, or under another ASGI server than uvicorn a new one."""
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
    lines = [f"HTTP/1.1 {status}", *(f"{name}: {value}" for name, value in _LAST.items())]
    return "\r\n".join([*lines, "connection: close", "", text]).encode()


class WebConfig(LimitedConfig):
    """The configuration of uvicorn for a web port, with the port's connections."""

    tells_late = False

    def __init__(self, app: ASGIApp, options: WebOptions) -> None:
        self.open_connections = Connections(options.limits)
        limits = options.limits
        super().__init__(
            app,
            HttpLimits(
                limits.handshake_seconds, _HEADER_BYTES, 2 * limits.stalled_seconds, _KEEP_ALIVE
            ),
            tls_cert=options.tls_cert,
            tls_key=options.tls_key,
            http=_HttpProtocol,
            ws=_WebsocketProtocol,
            # Room for the websocket's leading byte and the frame's prefix before a whole message.
            ws_max_size=limits.message_bytes + 6,
            ws_ping_interval=limits.stalled_seconds,
            ws_ping_timeout=limits.stalled_seconds,
            ws_per_message_deflate=False,
            lifespan="on",
        )

    def problem_with(self, connection: LimitedProtocol) -> str:
        """Add a connection; return why it is refused, empty if it is accepted."""
        made = Connection(_address(connection.client), connection.transport)
        connection.app_state = {**connection.app_state, _KEY: made}
        if self.open_connections.admit(made):
            return ""
        return "this server has as many connections as it may have"

    def refusal(self, text: str) -> tuple[str, bytes]:
        """Return the headers and the body of an answer that ends a connection."""
        lines = "".join(f"{name}: {value}\r\n" for name, value in _LAST.items())
        return lines, f"{text}\n".encode()


class _HttpProtocol(LimitedProtocol):
    """HTTP over connections that are counted, and that end with the server."""

    config: WebConfig

    def connection_lost(self, exc: Exception | None) -> None:
        """Remove the connection."""
        super().connection_lost(exc)
        self.config.open_connections.release(self.app_state[_KEY])

    def shutdown(self) -> None:
        """End the call that uses the connection."""
        super().shutdown()
        self.app_state[_KEY].ending.set()


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
            self._connection.abort_in(CLOSING_SECONDS)

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
            self._connection.abort_in(CLOSING_SECONDS)

    def shutdown(self) -> None:
        """Notify the call that the server stops."""
        super().shutdown()
        self._connection.ending.set()
