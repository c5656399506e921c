"""Statistics of a run's sessions: counts and rates of their rows, and their policy versions."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from arkml.base.files import write_atomic
from arkml.errors import HiveError
from arkml.hive.protocol.rows import Header
from arkml.hive.protocol.runs import SessionInfo
from arkml.server.hive_files import read_object
from arkml.server.sessions import RunSession

COUNTS_NAME = "tallies.json"
"""The file of the counts of sessions, in the directory of a log."""

PACE_SECONDS = 10
"""Seconds over which the rows of a session are counted."""

_REMEMBERED = 4_096  # versions
_MOST_PACES = 1_024  # kept for the sessions that sent rows last


class SessionCounts(NamedTuple):
    """
    The numbers of one session's rows.

    Immutable, so that one thread may write it to a file while another adds a body.

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
        """Return the counts after one more body, of whose rows `refused` were not accepted."""
        return SessionCounts(
            header.seq,
            self.rows + header.rows,
            self.refused + refused,
            self.dropped + header.dropped,
        )


def write_counts(directory: Path, counts: dict[int, SessionCounts]) -> None:
    """Write the counts of sessions, by their index, to a file in a directory. Raises OSError."""
    write_atomic(directory / COUNTS_NAME, json.dumps({"sessions": counts}).encode(), durable=True)


def read_counts(directory: Path) -> dict[int, SessionCounts]:
    """Return the counts that `write_counts` wrote, none without a file. Raises HiveError."""
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


@dataclass(slots=True)
class _Pace:
    """
    The rows of one session by the second, as `[second, rows]`, and its last policy version.

    `version` is the policy version of the last row, 0 where no policy acted.
    """

    since: float
    version: int = 0
    seconds: deque[list[int]] = field(default_factory=deque)

    def add(self, rows: int, now: float) -> None:
        second = int(now)
        if self.seconds and self.seconds[-1][0] == second:
            self.seconds[-1][1] += rows
        else:
            self.seconds.append([second, rows])
        while self.seconds[0][0] <= second - PACE_SECONDS:
            self.seconds.popleft()

    def rows_per_second(self, now: float) -> float:
        rows = sum(count for second, count in self.seconds if second > now - PACE_SECONDS)
        return rows / min(max(now - self.since, 1.0), PACE_SECONDS)


class SessionFigures:
    """
    The rate of rows of each session of a run, and the times at which policies were published.

    Rates count from the start of the hive. Times are in seconds of a monotonic clock.
    """

    def __init__(self) -> None:
        self._paces: dict[int, _Pace] = {}
        self._published: dict[int, float] = {}

    def publish(self, version: int, now: float) -> None:
        """Note that a policy version is published at `now`, in seconds of a monotonic clock."""
        self._published[version] = now
        if len(self._published) > _REMEMBERED:
            del self._published[next(iter(self._published))]

    def count(self, index: int, rows: int, version: int, now: float) -> None:
        """
        Count rows that were accepted from a session.

        Args:
            index: The index of the session.
            rows: The number of rows.
            version: The policy version that acted on the last row.
            now: The present time, in seconds of a monotonic clock.

        """
        pace = self._paces.pop(index, None) or _Pace(now)
        self._paces[index] = pace  # last in order: the first one is dropped when there are too many
        if len(self._paces) > _MOST_PACES:
            del self._paces[next(iter(self._paces))]
        pace.version = version or pace.version
        pace.add(rows, now)

    def infos(
        self,
        sessions: Iterable[RunSession],
        counts: Mapping[int, SessionCounts],
        *,
        newest: int,
        lease: float,
        now: float,
    ) -> list[SessionInfo]:
        """
        Return descriptions of the sessions, ordered by index.

        Args:
            sessions: The sessions of the run.
            counts: The counts of each session, by its index.
            newest: The newest policy version.
            lease: Seconds after its last request for which a session is alive.
            now: The present time, in seconds of a monotonic clock.

        """
        known = {session.index: session for session in sessions}
        self._paces = {index: pace for index, pace in self._paces.items() if index in known}
        infos = []
        for index, session in sorted(known.items()):
            counted, pace = counts.get(index, SessionCounts()), self._paces.get(index, _Pace(now))
            version = pace.version
            info = SessionInfo(
                index=index,
                role=session.role,
                is_worker=session.is_worker,
                alive=session.is_alive(lease),
                idle_seconds=max(0.0, now - session.seen) if session.seen > 0.0 else None,
                rows=counted.rows,
                rows_per_second=pace.rows_per_second(now),
                refused=counted.refused,
                dropped=counted.dropped,
                policy_version=version,
                lag=max(0, newest - version) if version else 0,
                policy_seconds=now - self._published.get(version, now),
            )
            infos.append(info)
        return infos
