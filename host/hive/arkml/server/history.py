"""The events of one run, kept in a small file: restarts, best policies, rebuilt modules."""

from __future__ import annotations

import time
from collections import deque
from pathlib import Path

from arkml.base.files import open_file, write_atomic
from arkml.base.loggers import SafeLogger
from arkml.errors import ProtocolError
from arkml.hive.protocol.page_messages import (
    HistoryEntry,
    HistoryKind,
    ModuleReport,
    NoticeKind,
)
from arkml.hive.protocol.runs import Best, Status
from arkml.server.learner_events import (
    CheckpointSaved,
    LearnerStarted,
    RunEvent,
)

_log = SafeLogger(__name__)

HISTORY_NAME = "history.jsonl"
_MOST = 500
"""Events that are kept; the file has at most twice as many lines."""

_STATES = {
    "handed over": "its state was handed over",
    "kept": "its state was kept",
    "anew": "its state begins anew",
}
_HEX = 12  # digits of a hash, as in the sentences of a host
_LONGEST = 500
_MOST_BYTES = 4 << 20


class RunHistory:
    """
    The last events of a run; `total` counts all events since the process began.

    An event that cannot be written is kept in memory, and the failure is logged once.
    """

    def __init__(self, directory: Path) -> None:
        self.total = 0
        self._path = directory / HISTORY_NAME
        self._lines = 0
        self._has_failed = False
        self._entries: deque[HistoryEntry] = deque(maxlen=_MOST)
        self._read()

    @property
    def entries(self) -> list[HistoryEntry]:
        """The last events, the oldest first."""
        return list(self._entries)

    def since(self, at: int) -> list[HistoryEntry]:
        """Return the events after a time in nanoseconds since the Unix epoch."""
        return [one for one in self._entries if one.at > at]

    def newest(self, count: int) -> list[HistoryEntry]:
        """Return the last `count` events, the oldest first."""
        return list(self._entries)[-count:] if count else []

    def add(self, kind: HistoryKind, text: str, about: NoticeKind | None = None) -> HistoryEntry:
        """
        Add an event that happens now, and return it.

        Args:
            kind: The kind of the event.
            text: One sentence for people.
            about: The kind of the notice that was sent about the event, None without a notice.

        """
        last = self._entries[-1].at if self._entries else 0
        entry = HistoryEntry(max(last + 1, time.time_ns()), kind, text[:_LONGEST], about)
        self._entries.append(entry)
        self.total += 1
        try:
            self._write(entry)
        except OSError as error:
            if not self._has_failed:
                _log.warning("%s cannot be written: %s", self._path, error)
            self._has_failed = True
        return entry

    def note(self, event: RunEvent) -> None:
        """Add an event of the learner to the history: its start, or a checkpoint. Ignore others."""
        match event:
            case LearnerStarted(n_opts=n_opts, device=device):
                kind: HistoryKind = "restart" if self._entries else "started"
                self.add(kind, f"a learner begins after {n_opts:,} updates, on {device}")
            case CheckpointSaved(n_opts=n_opts):
                self.add("checkpoint", f"a checkpoint after {n_opts:,} updates")
            case _:
                pass

    def note_best(self, best: Best) -> None:
        """Add a new best policy."""
        self.add("best", f"{best.score:g} by {best.by}: version {best.version}")

    def note_module(self, report: ModuleReport) -> HistoryEntry:
        """Add the event that the run is trained with a rebuilt module of its guest."""
        before, after = report.before[:_HEX], report.after[:_HEX]
        if report.state is None:
            return self.add(
                "module", f"the guest goes back from {before} to {after}: {report.reason}"
            )
        return self.add("module", f"the guest is {after} after {before}: {_STATES[report.state]}")

    def note_stop(self, status: Status, reason: str) -> HistoryEntry:
        """Add the end of the run, which is Stopped or Aborted, with its reason if it has one."""
        text = f"{status}: {reason}" if reason else "stopped, after a checkpoint"
        return self.add("stopped", text, "aborted" if status is Status.ABORTED else None)

    def _write(self, entry: HistoryEntry) -> None:
        if self._lines >= 2 * _MOST:
            content = b"".join(one.as_bytes() + b"\n" for one in self._entries)
            write_atomic(self._path, content, durable=False)
            self._lines = len(self._entries)
            return
        with open_file(self._path, follow=False, mode="ab") as file:
            file.write(entry.as_bytes() + b"\n")
        self._lines += 1

    def _read(self) -> None:
        """Read the events of earlier processes; damaged lines are left out."""
        try:
            with open_file(self._path, follow=False) as file:
                lines = file.read(_MOST_BYTES).splitlines()
        except FileNotFoundError:
            return
        except OSError as error:
            _log.warning("%s cannot be read: %s", self._path, error)
            return
        self._lines = len(lines)
        for line in lines:
            try:
                self._entries.append(HistoryEntry.from_bytes(line))
            except ProtocolError:
                continue
