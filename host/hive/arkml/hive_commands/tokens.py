"""`arkml hive token`: the commands that make, list, renew and revoke the tokens of a hive."""

from __future__ import annotations

import re
import sys
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.units import counted
from arkml.cli.values import one_of
from arkml.errors import UsageError

if TYPE_CHECKING:
    from arkml.server.access.token_file import TokenEntry

_ROLES = ("act", "read", "admin")
_UNITS = {"m": 60, "h": 3_600, "d": 86_400, "w": 7 * 86_400}
_DURATION = re.compile(r"(\d{1,6})([mhdw])")

Data = Annotated[
    Path, typer.Option("--data", metavar="DIR", help="The directory that keeps the runs.")
]


def register(hive: typer.Typer) -> None:
    """Add the commands of `arkml hive token` to the application."""
    token = options.add_group(
        hive,
        "token",
        "Make, list, renew and revoke the tokens of a hive, which it reads while it serves.",
        epilog=options.epilog(
            "arkml hive token new --data runs --name alice --role act --expires 90d",
            "arkml hive token list --data runs",
            "arkml hive token renew alice --data runs",
            "arkml hive token revoke alice --data runs",
        ),
    )
    for command in (new, list_, renew, revoke):
        token.command(command.__name__.rstrip("_"))(command)


def new(
    name: Annotated[
        str, typer.Option(metavar="NAME", help="The person or the machine that gets the token.")
    ],
    role: Annotated[
        str,
        typer.Option(
            metavar="act|read|admin",
            parser=one_of("--role", _ROLES),
            help="act trains and stops its own runs, read sees everything, admin does everything.",
        ),
    ] = "act",
    expires: Annotated[
        str | None,
        typer.Option(
            metavar="TIME", help="Time until it expires, as 30d, 12h or 8w.", show_default="never"
        ),
    ] = None,
    data: Data = Path("hive"),
    as_json: options.Json = False,
) -> Job:
    """
    Make a token and print it, once: the hive keeps its SHA-256 alone.

    Clients have it in the environment variable ARKML_HIVE_TOKEN, browsers ask for it.
    """

    def job() -> int:
        from arkml.server.access.callers import AccessRole
        from arkml.server.access.token_file import TokenFile

        seconds = None if expires is None else _seconds(expires)
        entry, token = TokenFile(data).add(name, AccessRole(role), seconds)
        return _tell(entry, token, as_json=as_json)

    return job


def renew(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The name of a token, or its id.")],
    data: Data = Path("hive"),
    as_json: options.Json = False,
) -> Job:
    """
    Replace a token by a new one, to which its runs belong.

    It lasts as long as the old one was made for. A hive that serves refuses that within a second.
    """

    def job() -> int:
        from arkml.server.access.token_file import TokenFile

        _require_directory(data)
        return _tell(*TokenFile(data).renew(token), as_json=as_json)

    return job


def list_(data: Data = Path("hive"), as_json: options.Json = False) -> Job:
    """List the tokens, without the secrets, which are kept nowhere."""

    def job() -> int:
        from arkml.server.access.token_file import TokenFile

        _require_directory(data)
        entries = TokenFile(data).read()
        if as_json:
            print_json({"tokens": [_shown(one) for one in entries]})
            return GOOD
        from arkml.cli.tables import grid, show

        header = ("id", "name", "role", "made", "expires")
        show(counted(len(entries), "token"), grid(header, [_row(one) for one in entries]))
        return GOOD

    return job


def revoke(
    token: Annotated[str, typer.Argument(metavar="TOKEN", help="The name of a token, or its id.")],
    data: Data = Path("hive"),
    as_json: options.Json = False,
) -> Job:
    """Revoke a token: a hive that serves refuses it within a second, and ends its sessions."""

    def job() -> int:
        from arkml.server.access.token_file import TokenFile

        _require_directory(data)
        entry = TokenFile(data).revoke(token)
        if as_json:
            print_json({"revoked": entry.id})
        else:
            sys.stdout.write(f"token {entry.name} ({entry.id}) is revoked\n")
        return GOOD

    return job


def _tell(entry: TokenEntry, token: str, *, as_json: bool) -> int:
    """Print a new token, and return the exit code."""
    if as_json:
        print_json({**_shown(entry), "token": token})
        return GOOD
    until = f", until {_time(entry.expires_at)}" if entry.expires_at else ""
    sys.stderr.write(
        f"token {harmless(entry.name)} ({entry.id}), role {entry.role}{until};"
        " it is shown this once:\n"
    )
    sys.stderr.flush()
    sys.stdout.write(f"{token}\n")
    return GOOD


def _require_directory(data: Path) -> None:
    """Raise UsageError for the directory of no hive."""
    if not data.is_dir():
        raise UsageError(f"--data {data} is not a directory: name the data directory of the hive")


def _seconds(text: str) -> int:
    """Return the seconds of a time such as 30d. Raises UsageError."""
    match = _DURATION.fullmatch(text)
    if match is None or not int(match[1]):
        raise UsageError(f"--expires {text}: it takes a time, such as 30d, 12h, 90m or 8w")
    return int(match[1]) * _UNITS[match[2]]


def _shown(entry: TokenEntry) -> dict[str, Any]:
    return {
        "id": entry.id,
        "name": entry.name,
        "role": entry.role.value,
        "created_at": entry.created_at,
        "expires_at": entry.expires_at,
    }


def _row(entry: TokenEntry) -> tuple[str, ...]:
    expires = _time(entry.expires_at) if entry.expires_at else "never"
    if entry.is_expired(time.time()):
        expires = f"expired {expires}"
    return entry.id, entry.name, entry.role.value, _time(entry.created_at), expires


def _time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, tz=UTC).astimezone().isoformat(" ", "minutes")
