"""`arkml hive backup` and `arkml hive restore`: the data of a hive in one file, and back."""

from __future__ import annotations

import shlex
import sys
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.launch import require_hive
from arkml.cli.progress import ProgressBar
from arkml.cli.units import counted, size
from arkml.errors import UsageError

_Archive = Annotated[
    Path,
    typer.Option(
        "-o", "--output", metavar="FILE", help="The archive to write.", show_default=False
    ),
]
_SHOWN = 1_000
"""Steps of the bar, which is made before the number of files is known."""


def backup(
    data: Annotated[
        Path,
        typer.Argument(
            metavar="DIR",
            help="The data directory of a hive, which may serve meanwhile.",
            show_default=False,
        ),
    ],
    output: _Archive,
    as_json: options.Json = False,
) -> Job:
    """
    Write the data of a hive to one file, also while it serves.

    All that the hive acknowledged before is in it: rows, runs, policies, checkpoints, metrics,
    modules, tokens. Only its owner may read it: configurations and digests of tokens are in it.
    """
    return partial(_backup, data, output, as_json)


def restore(
    archive: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", help="An archive of `arkml hive backup`.", show_default=False
        ),
    ],
    data: Annotated[
        Path,
        typer.Option(
            "--data", metavar="DIR", help="A new directory, or an empty one.", show_default=False
        ),
    ],
    as_json: options.Json = False,
) -> Job:
    """
    Make the data directory of a hive from a backup; `arkml hive serve --data DIR` serves it.

    The archive is checked by the SHA-256 of each file; the directory is there as a whole, or not at
    all.
    """
    return partial(_restore, archive, data, as_json)


def _backup(data: Path, output: Path, as_json: bool) -> int:
    require_hive()
    from arkml.server.backup import write_backup

    if not data.is_dir():
        raise UsageError(
            f"{data} is not a directory: name the data directory of the hive, on its machine"
        )
    with _Bar("backup", hidden=as_json) as bar:
        try:
            summary = write_backup(data, output, bar)
        except FileNotFoundError:
            if output.parent.is_dir():
                raise
            raise UsageError(
                f"{output} cannot be written: {output.parent} is no directory"
            ) from None
    for run in summary.left_out:
        sys.stderr.write(f"run {run} is left out: it has no document, or was removed meanwhile\n")
    if as_json:
        document = {
            "file": str(output),
            "bytes": summary.size,
            "files": summary.files,
            "runs": list(summary.runs),
            "left_out": list(summary.left_out),
        }
        print_json(document)
        return GOOD
    runs = counted(len(summary.runs), "run")
    sys.stdout.write(
        f"{harmless(str(output))}: {runs}, {summary.files:,} files, {size(summary.size)}\n"
    )
    return GOOD


def _restore(archive: Path, data: Path, as_json: bool) -> int:
    require_hive()
    from arkml.server.restore import restore_backup

    if not archive.is_file():
        raise UsageError(f"{archive} is not a file: name an archive of `arkml hive backup`")
    with _Bar("restore", hidden=as_json) as bar:
        summary = restore_backup(archive, data, bar)
    if as_json:
        document = {
            "data": str(data),
            "bytes": summary.size,
            "files": summary.files,
            "runs": list(summary.runs),
            "release": summary.release,
            "created_at": summary.created_at,
            "tokens": [one.name for one in summary.tokens],
        }
        print_json(document)
        return GOOD
    runs = counted(len(summary.runs), "run")
    moment = datetime.fromtimestamp(summary.created_at / 1e9, tz=UTC).astimezone()
    sys.stdout.write(
        f"{data}: {runs}, {summary.files:,} files, {size(summary.size)}, of"
        f" {moment.isoformat(' ', 'seconds')}\n"
    )
    if summary.tokens:
        names = ", ".join(one.name for one in summary.tokens)
        are = "is" if len(summary.tokens) == 1 else "are"
        sys.stderr.write(
            f"{counted(len(summary.tokens), 'token')} of the backup {are} valid there, also if"
            f" revoked since: {names}; arkml hive token revoke NAME --data"
            f" {shlex.quote(str(data))}\n"
        )
    return GOOD


class _Bar(ProgressBar):
    """A bar for work whose extent is told with each step."""

    def __init__(self, title: str, *, hidden: bool) -> None:
        super().__init__(title, _SHOWN, hidden=hidden)

    def __call__(self, done: int, total: int = _SHOWN) -> None:
        """Show that `done` of `total` parts are done."""
        super().__call__(done * _SHOWN // max(1, total))
