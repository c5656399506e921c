"""Names and addresses that requests to a server may be made for."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Final
from urllib.request import proxy_bypass

_AUTHORITY: Final = re.compile(r"(?:\[([0-9A-Fa-f:.]+)\]|([^\s:/?#@\[\]]+))(?::\d*)?")
_MOST_SHOWN = 200


class HostRule:
    """
    The Host headers that a server answers to.

    At a loopback address these are loopback names and the `allowed` ones, since a web page may have
    its own name resolve to that address. At another address any name will do, unless there are
    `allowed` ones.
    """

    def __init__(self, host: str, allowed: Sequence[str]) -> None:
        self._names: frozenset[str] | None = None
        if allowed or is_loopback(host):
            self._names = frozenset(host_in(one) or one.lower() for one in (host, *allowed))

    def refused(self, headers: Iterable[tuple[bytes, bytes]]) -> str | None:
        """Return the refused names of a request, for a message, or None if it may pass."""
        if self._names is None:
            return None
        names = [value.decode("latin-1") for key, value in headers if key == b"host"]
        if names and all(self._answers_to(name) for name in names):
            return None
        return ", ".join(names)[:_MOST_SHOWN]

    def is_own(self, authority: str) -> bool:
        """Return whether no web page elsewhere can have this name: an address, or one allowed."""
        name = host_in(authority)
        return _is_address(name) or is_loopback(name) or name in (self._names or ())

    def _answers_to(self, authority: str) -> bool:
        assert self._names is not None
        name = host_in(authority)
        return name in self._names or is_loopback(name)


def is_loopback(host: str) -> bool:
    """Return whether a name or an address is that of this machine for itself."""
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
    """Return `HOST:PORT`, with brackets around an IPv6 address."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def listening_authority(host: str, port: int) -> str:
    """Return the `HOST:PORT` at which this machine reaches what listens at `host`."""
    return authority_of({"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host), port)


def bare_host(host: str) -> str:
    """Return an address to listen at without the brackets that IPv6 has in an endpoint."""
    return host[1:-1] if host.startswith("[") and host.endswith("]") else host


def is_this_machine(host: str) -> bool:
    """
    Return whether a client that asks for a host asks this machine.

    More than loopback names are that to a client: 0.0.0.0 and ::, and all below `localhost`.
    """
    name = host.lower().removesuffix(".")
    try:
        address = ip_address(name)
    except ValueError:
        return name.rpartition(".")[2] == "localhost"
    mapped = getattr(address, "ipv4_mapped", None) or address  # as ::ffff:127.0.0.1
    return mapped.is_loopback or mapped.is_unspecified


def proxy_of(host: str, scheme: str = "http") -> str:
    """
    Return the environment variable that names a proxy for requests to a host, or empty.

    A host of this machine is never behind a proxy, whatever NO_PROXY says.
    """
    if is_this_machine(host) or proxy_bypass(host):
        return ""
    names = (f"{scheme}_proxy", f"{scheme}_proxy".upper(), "all_proxy", "ALL_PROXY")
    return next((name for name in names if os.environ.get(name)), "")


def grpc_proxy_options(authority: str) -> list[tuple[str, int]]:
    """Return the options of a gRPC channel by which this machine is asked without a proxy."""
    return [("grpc.enable_http_proxy", 0)] if is_this_machine(host_in(authority)) else []


def proxy_note(authority: str) -> str:
    """Return the end of a sentence about a gRPC server that is not reached, empty without proxy."""
    names = ("grpc_proxy", "https_proxy", "http_proxy")  # in gRPC's order, which reads no others
    host = host_in(authority)
    if is_this_machine(host) or not any(map(os.environ.get, names)) or _bypasses(host):
        return ""
    name = next(name for name in names if os.environ.get(name))
    return f"; it was asked by the proxy of {name} (no_proxy names hosts without one)"


def _bypasses(host: str) -> bool:
    """Return whether gRPC asks a host without a proxy."""
    names = next(filter(None, map(os.environ.get, ("no_grpc_proxy", "no_proxy"))), "")
    return any(host.endswith(one.strip()) for one in names.split(",") if one.strip())


def host_in(authority: str) -> str:
    """Return the host in HOST or HOST:PORT, in lower case; empty if it is neither."""
    match = _AUTHORITY.fullmatch(authority)
    return (match[1] or match[2]).lower() if match else ""
