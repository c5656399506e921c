"""Host names and addresses in requests to a server."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from ipaddress import ip_address
from typing import Final
from urllib.request import proxy_bypass

_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::\d*)?")
_MOST_SHOWN = 200
_REMEMBERED = 64  # names by which clients ask: each of them repeats its own


class HostRule:
    """
    The rule by which a server accepts the Host headers of requests.

    At a loopback address it accepts loopback names and `allowed` names only, because a web page can
    have its own name resolve to that address (DNS rebinding). At another address it accepts every
    name, or only the `allowed` ones if there are any.

    `accepts` returns whether the value of a Host header is accepted.
    """

    def __init__(self, host: str, allowed: Sequence[str]) -> None:
        self._names: frozenset[str] | None = None
        if allowed or is_loopback(host):
            self._names = frozenset(host_in(one) or one.lower() for one in (host, *allowed))
        self.accepts = lru_cache(_REMEMBERED)(self._accepts)

    def _accepts(self, value: bytes) -> bool:
        host = host_in(value.decode("latin-1"))
        return self._names is None or host in self._names or is_loopback(host)

    def refused(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return the refused names of a request, for a message; None if it is accepted."""
        if self._names is None:
            return None
        names = [value for key, value in headers if key == b"host"]
        if names and all(map(self.accepts, names)):
            return None
        return b", ".join(names).decode("latin-1")[:_MOST_SHOWN]

    def is_own(self, authority: str) -> bool:
        """
        Return whether a host cannot be a foreign web page's name: an address, or an allowed name.
        """
        name = host_in(authority)
        return _is_address(name) or is_loopback(name) or name in (self._names or ())


def is_loopback(host: str) -> bool:
    """Return whether a name or address is loopback, such as "localhost" or "127.0.0.1"."""
    try:
        return host == "localhost" or ip_address(host).is_loopback
    except ValueError:
        return False


def _is_address(host: str) -> bool:
    try:
        ip_address(host)
    except ValueError:
        return False
    return True


def authority_of(host: str, port: int) -> str:
    """Return `HOST:PORT`, with brackets around an IPv6 address, such as `[::1]:12356`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening_authority(host: str, port: int) -> str:
    """Return the `HOST:PORT` of a server that listens at `host`: 127.0.0.1 for 0.0.0.0."""
    return authority_of({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


def bare_host(host: str) -> str:
    """Return a host to listen at, without the brackets around an IPv6 address."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_this_machine(host: str) -> bool:
    """
    Return whether a client's request to a host goes to this machine.

    Besides loopback names this includes, for example, 0.0.0.0, :: and all names below `localhost`.
    """
    name = host.lower().removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name.rpartition(".")[2] == "localhost"
    mapped = getattr(address, "ipv4_mapped", None) or address  # such as ::ffff:127.0.0.1
    return mapped.is_loopback or mapped.is_unspecified


def proxy_of(host: str, scheme: str = "http") -> str:
    """
    Return the name of the environment variable that sets a proxy for a host, "" without a proxy.

    This machine is never behind a proxy, whatever NO_PROXY says.
    """
    if is_this_machine(host) or proxy_bypass(host):
        return ""
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return next((name for name in names if os.environ.get(name)), "")


def grpc_proxy_options(authority: str) -> list[tuple[str, int]]:
    """Return gRPC channel options that disable the proxy if the host is this machine."""
    return [("grpc.enable_http_proxy", 0)] if is_this_machine(host_in(authority)) else []


def proxy_note(authority: str) -> str:
    """
    Return words for the end of a sentence about an unreachable gRPC server: its proxy, if any.
    """
    names = ("grpc_proxy", "https_proxy", "http_proxy")  # all that gRPC reads, in its order
    host = host_in(authority)
    if is_this_machine(host) or not any(map(os.environ.get, names)) or _bypasses(host):
        return ""
    name = next(name for name in names if os.environ.get(name))
    return f"; it was asked by the proxy of {name} (no_proxy names hosts without one)"


def _bypasses(host: str) -> bool:
    """Return whether gRPC connects to a host without a proxy."""
    names = next(filter(None, map(os.environ.get, ("no_grpc_proxy", "no_proxy"))), "")
    return any(host.endswith(one.strip()) for one in names.split(",") if one.strip())


def host_in(authority: str) -> str:
    """Return the lower-case host in HOST or HOST:PORT; empty if the text is neither."""
    match = _AUTHORITY.fullmatch(authority)
    return (match[1] or match[2]).lower() if match else ""
