"""Options of a web port."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from urllib.parse import urlsplit

from arkml.base.host_names import host_in, is_loopback
from arkml.trials.core.endpoints import TrialEndpoint
from arkml.trials.core.error import TrialError

_LAST_PORT: Final = 65_535


@dataclass(frozen=True, slots=True)
class WebLimits:
    """
    Limits of a web port, for browsers that are slow, many, or not browsers at all.

    `message_bytes` is the size of a message from a browser, whose messages are read at no more than
    `messages_per_second` and `bytes_per_second`: those of a websocket, and the requests of an
    address. `connections` may be open at once, `connections_per_address` of them from one address.
    A request, and what an actor sends to join, has to arrive within `handshake_seconds`. A client
    that leaves something unread for `stalled_seconds`, or does not answer a ping for as long, is
    disconnected; meanwhile `queued_messages` and `queued_bytes` may wait for an actor, which is
    lost with one more, and `queued_entries` for a watcher, which then misses states of trials but
    not the last ones. `tokens` may be valid at once.
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
    The address of a web port, and what may be done there.

    `allow_hosts` are names that it answers to besides those of the loopback, `allow_origins` the
    origins of pages elsewhere that may use it. `token` opens everything; without one it is made
    where one is needed, see `needs_token`. `endpoints` are those that parameters from the web may
    name besides cogment://client. With `tls_cert` and `tls_key`, files in the format PEM, it speaks
    TLS. `page` is the folder of a page for people, which is served under /play/ beside the
    JavaScript SDK. Raises TrialError for options that cannot be meant.
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
        """True where others than this machine can reach the port, or if a token is given."""
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
