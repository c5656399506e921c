"""The ports of trial servers: their addresses, and the clients that may use them."""

from __future__ import annotations

import os
from dataclasses import dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING

from arkml import page_scripts
from arkml.errors import UsageError

if TYPE_CHECKING:
    from arkml.trial_commands.trial_service import TrialPorts
    from arkml.trials.server.web.web_options import WebOptions
    from arkml.trials.wire.common_pb2 import TrialParams

TOKEN = "ARKML_TRIALS_TOKEN"
PAGE = Path(__file__).parents[1] / "guest_trials" / "page"
"""The folder with the files of the page for people."""


def refuse_directory(endpoint: str | None) -> None:
    """Raise UsageError if an option names an endpoint of a Cogment directory, which arkml lacks."""
    if endpoint:
        raise UsageError(
            f"--directory-endpoint {endpoint}: there is no directory here: name environments and"
            " actors by grpc://HOST:PORT"
        )


def refuse_tls(file: str | None) -> None:
    """Raise UsageError if an option names a TLS file for gRPC, which arkml serves without TLS."""
    if file:
        raise UsageError(
            f"{file}: gRPC is served without TLS here: keep it on this machine, or behind a proxy"
            " that has the certificate"
        )


def grpc_host(host: str, *, is_open: bool, has_web: bool) -> str:
    """
    Return the address at which to serve gRPC.

    Args:
        host: The address of the server, for example "0.0.0.0".
        is_open: Whether gRPC may be served to other machines.
        has_web: Whether there is a web port; then gRPC may be limited to this machine.

    Raises:
        UsageError: Other machines could use gRPC, which has no login, although that is not allowed.

    """
    from arkml.base.host_names import is_loopback

    if is_open or is_loopback(host):
        return host
    if has_web:
        return "127.0.0.1"
    raise UsageError(
        f"--host {host} is open to others, and gRPC has no login: --grpc-open allows that"
    )


def check_ports(ports: TrialPorts, web: int) -> None:
    """Raise UsageError for a port that is requested twice; `web` is the port for browsers."""
    if ports.prometheus and ports.prometheus in (ports.lifecycle, ports.actor, web):
        raise UsageError(f"--prometheus-port {ports.prometheus}: it takes a port of its own")
    if web and web in (ports.lifecycle, ports.actor):
        raise UsageError(f"--actor-web-port {web}: it takes a port of its own")


@dataclass(frozen=True, slots=True)
class WebPortOptions:
    """The options of the web port of a trial server, as the user gave them."""

    host: str
    port: int
    tls_cert: Path | None
    tls_key: Path | None
    allow_host: list[str] | None
    allow_origin: list[str] | None
    allow_endpoint: list[str] | None

    def options(self, params: TrialParams, *, has_page: bool) -> WebOptions | None:
        """
        Return checked options of the web port, with or without the page; None without a port.

        Raises UsageError and TrialError for options that contradict each other.
        """
        from arkml.trials.core.parameters import TrialEndpoint
        from arkml.trials.server.parameter_file import endpoints_of
        from arkml.trials.server.web.web_options import WebOptions

        token = os.environ.pop(TOKEN, "")
        if not self.port:
            for field in fields(self):
                if field.name not in ("host", "port") and getattr(self, field.name):
                    name = field.name.replace("_", "-")
                    raise UsageError(f"--{name} is about the web port: it takes --actor-web-port")
            return None
        allowed = frozenset(map(TrialEndpoint.parse, self.allow_endpoint or ()))
        return WebOptions(
            host=self.host,
            port=self.port,
            allow_hosts=tuple(self.allow_host or ()),
            allow_origins=tuple(self.allow_origin or ()),
            token=token,
            endpoints=endpoints_of(params) | allowed,
            tls_cert=self.tls_cert,
            tls_key=self.tls_key,
            page=PAGE if has_page else None,
            page_shared=page_scripts.FOLDER if has_page else None,
        )
