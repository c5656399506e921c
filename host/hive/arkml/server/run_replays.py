"""The replays of evaluated episodes that a run keeps: the best, the worst and the latest."""

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
_KINDS: tuple[ReplayKind, ...] = get_args(ReplayKind)


class RunReplays:
    """
    The folder `replays` of a run: a file for each kind, a line about it and then its document.

    The methods block, and are called from one thread at a time.
    """

    def __init__(self, run: Path) -> None:
        self._directory = run / "replays"

    def keep(self, report: ReplayReport) -> list[KeptReplay]:
        """
        Keep a replay as the latest and, by its score, as the best or the worst; return all.

        Of two with the same score the later one is kept, as of policies. Raises ProtocolError for
        a document that is none, and OSError.
        """
        packed = report.packed()
        ReplayDocument.unpack(packed)
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

    def kept(self) -> list[KeptReplay]:
        """Return the replays that are kept. Raises OSError."""
        found = []
        for kind in _KINDS:
            try:
                with open_file(self._path(kind), follow=False) as file:
                    found.append(KeptReplay.from_bytes(file.readline(_MOST_LINE)))
            except FileNotFoundError:
                continue
            except ProtocolError as error:
                _log.warning("%s is damaged, and left out: %s", self._path(kind), error)
        return found

    def read(self, kind: ReplayKind) -> bytes:
        """Return a document, packed. Raises HiveRefused without one, and OSError."""
        try:
            content = read_plain(self._path(kind), follow=False)
        except FileNotFoundError:
            raise HiveRefused(f"the run keeps no replay that is the {kind}", 404) from None
        return content.partition(b"\n")[2]

    def _path(self, kind: ReplayKind) -> Path:
        return self._directory / f"{kind}.replay"
