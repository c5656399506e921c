"""What of each session's rows is in the log, for when their segments are gone."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from arkml.errors import HiveError
from arkml.hive.protocol.rows import Header
from arkml.server.files import read_object, write_whole

_NAME = "tallies.json"


@dataclass(slots=True)
class Tally:
    """
    The rows of one session.

    `acked` is the number of its last body. `refused` rows came and were not taken, `dropped` ones
    the host gave up.
    """

    acked: int = 0
    rows: int = 0
    refused: int = 0
    dropped: int = 0

    def count(self, header: Header, refused: int = 0) -> None:
        """A body more."""
        self.acked = header.seq
        self.rows += header.rows
        self.refused += refused
        self.dropped += header.dropped


def write_tallies(directory: Path, rows: int, tallies: dict[int, Tally]) -> None:
    """Write tallies down; `rows` is the sum of them all."""
    sessions = {
        index: [tally.acked, tally.rows, tally.refused, tally.dropped]
        for index, tally in tallies.items()
    }
    text = json.dumps({"rows": rows, "sessions": sessions})
    write_whole(directory / _NAME, text.encode())


def read_tallies(directory: Path) -> tuple[int, dict[int, Tally]]:
    """What was written down, nothing if nothing was. Raises HiveError if it cannot be read."""
    path = directory / _NAME
    if not path.exists():
        return 0, {}
    found = read_object(path)
    try:
        sessions = {int(index): Tally(*counts) for index, counts in found["sessions"].items()}
        return int(found["rows"]), sessions
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HiveError(f"{path} holds no tallies: {error}") from error
