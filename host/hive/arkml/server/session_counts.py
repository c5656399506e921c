"""Counts of each session's rows in the log, kept for when their segments are deleted."""

from __future__ import annotations

import json
from pathlib import Path
from typing import NamedTuple

from arkml.base.files import write_atomic
from arkml.errors import HiveError
from arkml.hive.protocol.rows import Header
from arkml.server.files import read_object

COUNTS_NAME = "tallies.json"
"""The file of the counts, in the directory of a log."""


class SessionCounts(NamedTuple):
    """
    The rows of one session. Immutable: a thread may write it while another body is added.

    Attributes:
        acked: The number of the last acknowledged body of the session.
        rows: The rows in the log.
        refused: The rows that were received and not accepted.
        dropped: The rows that the host has given up.

    """

    acked: int = 0
    rows: int = 0
    refused: int = 0
    dropped: int = 0

    def plus(self, header: Header, refused: int = 0) -> SessionCounts:
        """Return the counts with one more body; `refused` of its rows were not accepted."""
        return SessionCounts(
            header.seq,
            self.rows + header.rows,
            self.refused + refused,
            self.dropped + header.dropped,
        )


def write_counts(directory: Path, counts: dict[int, SessionCounts]) -> None:
    """Write the counts of sessions, by their index. Raises OSError."""
    write_atomic(directory / COUNTS_NAME, json.dumps({"sessions": counts}).encode(), durable=True)


def read_counts(directory: Path) -> dict[int, SessionCounts]:
    """Return the counts that were written, none without a file. Raises HiveError."""
    path = directory / COUNTS_NAME
    if not path.exists():
        return {}
    values = read_object(path)
    try:
        counts = {int(index): SessionCounts._make(one) for index, one in values["sessions"].items()}
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise HiveError(f"{path} does not hold the counts of sessions: {error}") from error
    for one in counts.values():
        if any(type(count) is not int or count < 0 for count in one):
            raise HiveError(
                f"{path} does not hold the counts of sessions: {list(one)} are not counts"
            )
    return counts
