"""What of each session's rows is in the log, for when their segments are gone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from arkml.errors import HiveError
from arkml.files import write_atomic
from arkml.hive.protocol.rows import Header
from arkml.server.files import read_object

_NAME = "tallies.json"


class Tally(NamedTuple):
    """
    The rows of one session. Never changed in place: a thread may be writing it down.

    `acked` is the number of its last body. `refused` rows came and were not taken, `dropped` ones
    the host gave up.
    """

    acked: int = 0
    rows: int = 0
    refused: int = 0
    dropped: int = 0

    def and_also(self, header: Header, refused: int = 0) -> Tally:
        """With a body more."""
        return Tally(
            header.seq,
            self.rows + header.rows,
            self.refused + refused,
            self.dropped + header.dropped,
        )


def write_tallies(directory: Path, tallies: dict[int, Tally]) -> None:
    """Write tallies down."""
    write_atomic(directory / _NAME, json.dumps({"sessions": tallies}).encode(), durable=True)


def read_tallies(directory: Path) -> dict[int, Tally]:
    """What was written down, nothing if nothing was. Raises HiveError if it cannot be read."""
    path = directory / _NAME
    if not path.exists():
        return {}
    found = read_object(path)
    try:
        tallies = {int(index): Tally._make(counts) for index, counts in found["sessions"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HiveError(f"{path} holds no tallies: {error}") from error
    for tally in tallies.values():
        if any(type(count) is not int or count < 0 for count in tally):
            raise HiveError(f"{path} holds no tallies: {list(tally)} are not counts")
    return tallies
