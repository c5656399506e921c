"""Shared parts of commands about the runs of a hive: a client, and the search for a run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from contextlib import contextmanager
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.terminal import harmless
from arkml.cli.exits import GOOD, print_json
from arkml.cli.launch import TOKEN
from arkml.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo

HERE = "127.0.0.1:12356"
"""The hive of this machine."""

RunName = Annotated[
    str, typer.Argument(metavar="RUN", help="The id of a run, or its name.", show_default=False)
]


def run_with_client(hive: str, job: Callable[[HiveClient], int]) -> int:
    """Call a job with a client of the hive at an address, and return the job's exit status."""
    with _client(hive) as client:
        return job(client)


@contextmanager
def _client(hive: str) -> Iterator[HiveClient]:
    from arkml.hive.address import Address
    from arkml.hive.client import HiveClient

    address = Address.parse(hive, os.environ.get(TOKEN))
    client = HiveClient(lambda: address)
    try:
        yield client
    finally:
        client.close()


def find(client: HiveClient, wanted: str) -> RunInfo:
    """Return the run with an id or, for a name, the newest run of that name. Raises UsageError."""
    from arkml.hive.protocol.runs import find_run

    runs = client.runs().result()
    if (found := find_run(runs, wanted)) is None:
        raise UsageError(f"there is no run {wanted!r}; `arkml hive list` shows {len(runs)}")
    return found


def print_result(text: str, document: dict[str, Any], as_json: bool) -> int:
    """Print a text, or with `as_json` a document, and return the exit status."""
    if as_json:
        print_json(document)
    else:
        sys.stdout.write(f"{harmless(text)}\n")
    return GOOD
