"""The replays that a run keeps: of evaluations, and of episodes that were recorded on request."""

from __future__ import annotations

import time
from pathlib import Path
from typing import get_args

from arkml.base.files import open_file, read_plain, write_atomic
from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.replay_messages import (
    KeptReplay,
    ReplayDocument,
    ReplayKind,
    ReplayReport,
)

_log = SafeLogger(__name__)

_MOST_LINE = 4_096  # bytes
_MOST_RECORDED = 8  # versions; a further one takes the place of the oldest recording
_RECORDED: ReplayKind = "recorded"
_KINDS: tuple[ReplayKind, ...] = get_args(ReplayKind)


class RunReplays:
    """
    The folder `replays` of a run, with a file for each kind of replay and recorded version.

    A file has one line of JSON about the replay, followed by the compressed replay itself. The
    methods block, and are called from one thread at a time.
    """

    def __init__(self, run: Path) -> None:
        self._directory = run / "replays"

    def keep(self, report: ReplayReport) -> list[KeptReplay]:
        """
        Store a replay as the latest and, by its score, as the best or the worst.

        Of two replays with the same score the later one is kept. Returns all replays of the run.
        Raises ProtocolError for an invalid replay, and OSError.
        """
        packed = _checked(report)
        before = {kept.kind: kept.score for kept in self.kept()}
        kinds: list[ReplayKind] = ["latest"]
        if report.score >= before.get("best", report.score):
            kinds.append("best")
        if report.score <= before.get("worst", report.score):
            kinds.append("worst")
        self._directory.mkdir(exist_ok=True)
        at = time.time_ns()
        for kind in kinds:
            kept = KeptReplay(kind, report.version, report.score, at)
            write_atomic(self._path(kind), kept.as_bytes() + b"\n" + packed, durable=False)
        return self.kept()

    def keep_recorded(self, report: ReplayReport) -> KeptReplay:
        """
        Store a recorded episode of a policy version in place of an earlier one; return its entry.

        Raises ProtocolError for an invalid replay, and OSError.
        """
        packed = _checked(report)
        self._directory.mkdir(exist_ok=True)
        kept = KeptReplay(_RECORDED, report.version, report.score, time.time_ns())
        path = self._path(_RECORDED, report.version)
        write_atomic(path, kept.as_bytes() + b"\n" + packed, durable=False)
        recorded = sorted(
            (one for one in self.kept() if one.kind == _RECORDED), key=lambda one: one.at
        )
        for old in recorded[:-_MOST_RECORDED]:
            self._path(_RECORDED, old.version).unlink(missing_ok=True)
        return kept

    def kept(self) -> list[KeptReplay]:
        """
        Return the entries of all stored replays; recorded ones come last, by version.

        Raises OSError.
        """
        paths = [self._path(kind) for kind in _KINDS if kind != _RECORDED]
        paths += sorted(self._directory.glob(f"{_RECORDED}_*.replay"))
        found = []
        for path in paths:
            try:
                with open_file(path, follow=False) as file:
                    found.append(KeptReplay.from_bytes(file.readline(_MOST_LINE)))
            except FileNotFoundError:
                continue
            except ProtocolError as error:
                _log.warning("%s is damaged, and left out: %s", path, error)
        return found

    def read(self, kind: ReplayKind, version: int | None = None) -> bytes:
        """
        Return a stored replay, compressed by gzip.

        `version` is needed for a recorded replay, of which there is one for each version. Raises
        HiveRefused if there is no such replay, and OSError.
        """
        if kind == _RECORDED and version is None:
            raise HiveRefused("a recorded replay is named by its version: version=N", 422)
        try:
            content = read_plain(self._path(kind, version), follow=False)
        except FileNotFoundError:
            name = f"recorded of version {version}" if kind == _RECORDED else f"the {kind}"
            raise HiveRefused(f"the run keeps no replay that is {name}", 404) from None
        return content.partition(b"\n")[2]

    def _path(self, kind: ReplayKind, version: int | None = None) -> Path:
        number = f"_{version or 0:010d}" if kind == _RECORDED else ""
        return self._directory / f"{kind}{number}.replay"


def _checked(report: ReplayReport) -> bytes:
    """Return the packed document of a report. Raises ProtocolError for one that is none."""
    packed = report.packed()
    ReplayDocument.unpack(packed)
    return packed
