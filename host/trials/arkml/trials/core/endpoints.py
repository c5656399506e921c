"""Endpoints of environments, actors and hooks, as trial parameters name them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from arkml.base.host_names import authority_of
from arkml.trials.core.error import TrialError

GRPC: Final = "grpc"
CLIENT: Final = "client"
LOCAL: Final = "local"

_FORMS = "grpc://HOST:PORT, cogment://client for actors that join, or local:// in this process"


class TrialEndpoint(NamedTuple):
    """
    A checked endpoint, for example `grpc://localhost:9000`.

    `scheme` is GRPC with a host and a port (localhost if the text names no host), CLIENT for actors
    that join by themselves, or LOCAL for implementations registered with the server itself.
    """

    scheme: str
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> TrialEndpoint:
        """Return the endpoint that `text` names. Raises TrialError for another text."""
        if text in ("cogment://client", "client"):
            return cls(CLIENT)
        if text == "local://":
            return cls(LOCAL)
        if text.startswith("cogment://discover"):
            raise TrialError(f"endpoint {text!r} asks for a directory, of which there is none here")
        try:
            parts = urlsplit(text)
            host, port = parts.hostname, parts.port
            if parts.netloc.startswith(":"):
                host = "localhost"
        except ValueError:
            host, port, parts = None, None, urlsplit("")
        is_bare = text == f"grpc://{parts.netloc}" and not re.search(r"[@\s]", text)
        if parts.scheme != "grpc" or not host or not port or not is_bare:
            raise TrialError(f"endpoint {text!r} is not one of: {_FORMS}{_hint(text)}")
        return cls(GRPC, host, port)

    @property
    def authority(self) -> str:
        """`HOST:PORT`, with brackets around an IPv6 address."""
        return authority_of(self.host, self.port)


def _hint(text: str) -> str:
    """Return a hint for an IPv6 address without brackets, and an empty text otherwise."""
    host, _, port = text.removeprefix("grpc://").rpartition(":")
    is_bare = ":" in host and "[" not in host and port.isdecimal()
    return f"; an IPv6 address has brackets: grpc://[{host}]:{port}" if is_bare else ""
