"""Durations of trials and of ticks, for Prometheus."""

from __future__ import annotations

import asyncio
import os
from dataclasses import dataclass
from typing import Final

from arkml.base.host_names import authority_of
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import EntryKind, Logged
from arkml.trials.server.orchestrator import TrialLog
from arkml.trials.wire.common_pb2 import TrialParams, TrialState

MOST_CONNECTIONS: Final = 16
"""Maximum number of connections to the port of the metrics; others are closed at once."""

_HEAD_SECONDS = 5.0
_MOST_HEAD = 8 << 10  # bytes
_HELP = {
    "trial": "Duration of trials, from their start to their end.",
    "tick": "Time from the observations of one tick to those of the next.",
    "garbage_collection": "None: what is over is freed at once.",
}


@dataclass(slots=True)
class _Total:
    count: int = 0
    seconds: float = 0.0

    def add(self, nanoseconds: int) -> None:
        self.count += 1
        self.seconds += max(0, nanoseconds) / 1e9


class MeasuredLog:
    """A log that measures the durations of trials and ticks, and passes entries to another log."""

    def __init__(self, trial_log: TrialLog) -> None:
        self._log = trial_log
        self._totals = {name: _Total() for name in _HELP}
        self._began: dict[str, int] = {}
        self._observed: dict[str, int] = {}

    @property
    def failure(self) -> str:
        """Reason why the log cannot be written, empty if it can."""
        return self._log.failure

    def begin(self, trial_id: str, user_id: str, params: TrialParams, began: int) -> None:
        """
        Note the start of a trial, and add the trial to the log.

        Args:
            trial_id: Id of the trial.
            user_id: Id of the user who started it.
            params: Parameters of the trial.
            began: Time of the start, in nanoseconds since 1970.

        """
        self._began[trial_id] = began
        self._log.begin(trial_id, user_id, params, began)

    def add(self, trial_id: str, *entries: Logged) -> None:
        """Measure the ticks in a trial's entries, and add the entries to the log."""
        for entry in entries:
            if entry.kind is EntryKind.OBSERVATIONS:
                before = self._observed.get(trial_id)
                self._observed[trial_id] = entry.timestamp
                if before is not None:
                    self._totals["tick"].add(entry.timestamp - before)
        self._log.add(trial_id, *entries)

    def state(self, trial_id: str, state: TrialState, timestamp: int) -> None:
        """
        Pass a new state of a trial to the log.

        Args:
            trial_id: Id of the trial.
            state: The state.
            timestamp: Time of the change, in nanoseconds since 1970.

        """
        self._log.state(trial_id, state, timestamp)

    def end(self, trial_id: str, ended: int, reason: str) -> None:
        """
        Measure the duration of a trial, and pass its end to the log.

        Args:
            trial_id: Id of the trial.
            ended: Time of the end, in nanoseconds since 1970.
            reason: Why the trial was cut off, or empty.

        """
        began = self._began.pop(trial_id, None)
        self._observed.pop(trial_id, None)
        if began is not None:
            self._totals["trial"].add(ended - began)
        self._log.end(trial_id, ended, reason)

    def text(self) -> str:
        """Return all measured durations in Prometheus's text format."""
        lines = []
        for name, total in self._totals.items():
            series = f"orchestrator_{name}_duration_seconds"
            lines += [
                f"# HELP {series} {_HELP[name]}",
                f"# TYPE {series} summary",
                f"{series}_sum {total.seconds!r}",
                f"{series}_count {total.count}",
            ]
        return "\n".join(lines) + "\n"


async def serve_metrics(measured: MeasuredLog, host: str, port: int) -> asyncio.Server:
    """
    Serve measured durations to Prometheus over HTTP, to MOST_CONNECTIONS at once.

    Args:
        measured: The log that measures them.
        host: Address to listen at.
        port: Port to listen at.

    Raises:
        TrialError: The port is in use.

    """
    answered: set[asyncio.StreamWriter] = set()

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(answered) >= MOST_CONNECTIONS:
            writer.transport.abort()
            return
        answered.add(writer)
        try:
            async with asyncio.timeout(_HEAD_SECONDS):
                head = await reader.readuntil(b"\r\n\r\n")
                writer.write(_response(head, measured.text()))
                await writer.drain()
        except (TimeoutError, OSError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass
        finally:
            answered.remove(writer)
            writer.close()

    try:
        return await asyncio.start_server(
            answer, host, port, limit=_MOST_HEAD, backlog=MOST_CONNECTIONS
        )
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else error  # asyncio says it at length
        raise TrialError(
            f"nothing can listen at {authority_of(host, port)} ({reason}): take another"
        ) from None


def _response(head: bytes, text: str) -> bytes:
    is_known = head.startswith((b"GET /metrics ", b"GET / "))
    status, body = ("200 OK", text.encode()) if is_known else ("404 Not Found", b"see /metrics\n")
    return (
        f"HTTP/1.1 {status}\r\ncontent-type: text/plain; version=0.0.4\r\n"
        f"content-length: {len(body)}\r\nconnection: close\r\n\r\n"
    ).encode() + body
