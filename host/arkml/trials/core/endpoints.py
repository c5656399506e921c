"""The addresses of environments, actors and hooks, as parameters name them."""

from __future__ import annotations

import re
from typing import Final, NamedTuple
from urllib.parse import urlsplit

from arkml.trials.core.error import TrialError

GRPC: Final = "grpc"
CLIENT: Final = "client"
LOCAL: Final = "local"

_FORMS = "grpc://HOST:PORT, cogment://client for actors that join, or local:// in this process"


class TrialEndpoint(NamedTuple):
    """
    A checked address.

    `scheme` is GRPC with a port and a host, localhost if the text names none, CLIENT for actors
    that join by themselves, or LOCAL for what is registered with the server itself.
    """

    scheme: str
    host: str = ""
    port: int = 0

    @classmethod
    def parse(cls, text: str) -> TrialEndpoint:
        """Return the endpoint that `text` names (CG-5c). Raises TrialError for another text."""
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
            raise TrialError(f"endpoint {text!r} is not one of: {_FORMS}")
        return cls(GRPC, host, port)

    @property
    def authority(self) -> str:
        """`HOST:PORT`, with brackets around an IPv6 address."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"
