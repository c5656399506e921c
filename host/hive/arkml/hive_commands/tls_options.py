"""Options of `arkml hive serve` about TLS and proxies."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

_PANEL = "Access"

TlsCert = Annotated[
    Path | None,
    typer.Option(
        "--tls-cert",
        metavar="FILE",
        help="Speak TLS by this certificate with its chain, PEM.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
TlsKey = Annotated[
    Path | None,
    typer.Option(
        "--tls-key",
        metavar="FILE",
        help="The key of the certificate, PEM, unless it is in the same file.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
PublicUrl = Annotated[
    str | None,
    typer.Option(
        "--public-url",
        metavar="URL",
        help="The URL by which clients know the hive, such as that of a proxy with TLS and a"
        " prefix.",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
TrustedProxy = Annotated[
    list[str] | None,
    typer.Option(
        "--trusted-proxy",
        metavar="IP",
        help="Believe X-Forwarded-For, -Host and -Proto from that address or network (any number"
        " of times).",
        show_default=False,
        rich_help_panel=_PANEL,
    ),
]
