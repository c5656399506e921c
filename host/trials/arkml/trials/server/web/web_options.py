"""Options of a web port."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from arkml.base.host_names import host_in, is_loopback
from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import TrialEndpoint

_LAST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class WebLimits:
    """
    Limits of a web port against clients that are slow, numerous or hostile.

    Args:
        message_bytes: Maximum size of a message from a browser in bytes.
        messages_per_second: Maximum rate at which messages of one websocket, or requests of one
            address, are read.
        bytes_per_second: Maximum rate at which their bytes are read.
        connections: Maximum number of open connections; a quarter of the descriptors that the
            process may have, if those are fewer.
        connections_per_address: Maximum number of open connections of one address.
        handshake_seconds: Seconds within which a request, or an actor's opening, must arrive.
        stalled_seconds: Seconds after which a client that leaves data unread, or does not answer a
            ping, is disconnected.
        queued_messages: Maximum number of messages that wait for an actor; with one more it is
            lost.
        queued_bytes: Maximum size of these messages in bytes, and of states that wait for a
            watcher.
        queued_entries: Number of states that wait for a watcher, beyond which it gets only the last
            state of each trial.
        tokens: Maximum number of valid tokens.

    """

    message_bytes: int = 64 << 10
    messages_per_second: int = 1_000
    bytes_per_second: int = 4 << 20
    connections: int = 1_000
    connections_per_address: int = 200
    handshake_seconds: float = 10.0
    stalled_seconds: float = 30.0
    queued_messages: int = 1_000
    queued_bytes: int = 8 << 20
    queued_entries: int = 1_000
    tokens: int = 10_000

    def __post_init__(self) -> None:
        for name in self.__dataclass_fields__:
            value = getattr(self, name)
            if not 0 < value < math.inf:
                raise TrialError(f"{name} is {value}: it must be a number above 0")
        if self.bytes_per_second < self.message_bytes:
            raise TrialError(
                f"bytes_per_second is {self.bytes_per_second}, less than a message of"
                f" {self.message_bytes} bytes (message_bytes)"
            )


@dataclass(frozen=True, slots=True)
class WebOptions:
    """
    The address of a web port, and the rules for its clients.

    Args:
        host: Address to listen at.
        port: Port, 0 for a free one.
        allow_hosts: Host names that it answers to besides the names of the loopback interface.
        allow_origins: Origins of foreign pages that may use it, such as `https://example.org`.
        token: Token that grants everything. If it is empty, and the port needs a token (see
            `needs_token`), the port creates one.
        endpoints: Endpoints that parameters from the web may name besides `cogment://client`.
        tls_cert: Certificate file in PEM format, to serve TLS.
        tls_key: File with the key of the certificate, in PEM format.
        page: Folder of a page for people, served under /play/ together with the JavaScript SDK.
        page_shared: Folder of files that the page shares with others, served under /play/shared/.
        limits: Limits of the port.

    Raises:
        TrialError: An option is invalid.

    """

    host: str = "127.0.0.1"
    port: int = 0
    allow_hosts: tuple[str, ...] = ()
    allow_origins: tuple[str, ...] = ()
    token: str = ""
    endpoints: frozenset[TrialEndpoint] = frozenset()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    page: Path | None = None
    page_shared: Path | None = None
    limits: WebLimits = field(default_factory=WebLimits)

    def __post_init__(self) -> None:
        if not 0 <= self.port <= _LAST_PORT:
            raise TrialError(f"port {self.port}: it takes a whole number from 0 to {_LAST_PORT}")
        if self.token and not (self.token.isascii() and self.token.isprintable()):
            raise TrialError("the token of the web port has characters that no address can have")
        if set(self.token) & set("/?#% "):
            raise TrialError("the token of the web port has one of /?#% or a space")
        for origin in self.allow_origins:
            _check_origin(origin)
        if self.tls_key is not None and self.tls_cert is None:
            raise TrialError("--tls-key needs --tls-cert, the certificate of the key")

    @property
    def needs_token(self) -> bool:
        """True if other machines can reach the port, or a token is given."""
        names = (self.host, *(host_in(one) for one in self.allow_hosts))
        return bool(self.token) or not all(is_loopback(name) for name in names)


def _check_origin(origin: str) -> None:
    try:
        parts = urlsplit(origin)
        is_origin = parts.scheme in ("http", "https") and host_in(parts.netloc) != ""
    except ValueError:
        is_origin = False
    if not is_origin or origin != f"{parts.scheme}://{parts.netloc}".lower():
        raise TrialError(
            f"--allow-origin {origin!r} is not an origin: it takes the form https://game.example,"
            " in lower case and without a path"
        )
