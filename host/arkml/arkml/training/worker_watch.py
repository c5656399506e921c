"""A thread of a rollout worker that watches it: its events, its progress, the end of its run."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import CancelledError
from concurrent.futures import TimeoutError as TimedOut
from typing import TYPE_CHECKING, Any, NamedTuple

from arkml.base.closing import Closing
from arkml.errors import HiveError, HiveRefused, InvalidArguments, RunGone
from arkml.hive.protocol.runs import OVER
from arkml.hive.transport import GONE
from arkml.training.delivered_rows import DeliveredRows

if TYPE_CHECKING:
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import Guest
    from arkml.hive.protocol.worker_jobs import WorkerJob
    from arkml.hive.run_session import RunSession
    from arkml.runs.hive_access import HiveAccess

_INTERVAL = 1.0
_ANSWERED_WITHIN = 10.0
_LOOK = 5.0  # seconds between two looks at a run without a session, which would notice its end
_NO_RUN = 90.0  # seconds in which the guest has to take part in the run
_NO_HIVE = 60.0  # seconds after which a hive that does not answer is given up


Report = Callable[[Mapping[str, Any]], None]
"""Reports an event of the worker: JSON values, from any thread."""


class Ending(NamedTuple):
    """The end of a rollout worker: its exit status, and the reason as a sentence."""

    status: int
    reason: str


class WorkerWatch(Closing):
    """
    A thread that reports a worker's progress once a second, and interrupts it when it must end.

    `frames` is set by the worker's loop. `ending` is the reason why the worker must end, such as
    the end of the run, or None; when it is set, the main thread gets a SIGTERM.
    """

    def __init__(
        self, job: WorkerJob, hives: HiveAccess, subject: Guest | Fleet, report: Report
    ) -> None:
        self.frames = 0
        self.ending: Ending | None = None
        self._job = job
        self._hives = hives
        self._report = report
        self._rows = DeliveredRows(subject)
        self._session: RunSession | None = None
        self._began = self._looked = self._answered = time.monotonic()
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arkml-worker-watch", daemon=True)
        self._thread.start()

    def report(self) -> None:
        """
        Write the progress: frames, rows that the hive has acknowledged, and the acting version.
        """
        counts = self._rows
        counts.update()
        session = counts.session
        if session is not None and session is not self._session:
            self._session = session
            self._report({"event": "joined", "session": session.sid, "index": session.index})
        self._report(
            {
                "event": "progress",
                "frames": self.frames,
                "rows": counts.rows,
                "rows_per_second": round(counts.rows_per_second, 1),
                "version": counts.version,
            }
        )

    def close(self) -> None:
        """End the thread. Safe to call twice."""
        self._closed.set()
        self._thread.join()

    def _run(self) -> None:
        while self.ending is None and not self._closed.wait(_INTERVAL):
            self.report()
            self.ending = self._end()
        if self.ending is not None and not self._closed.is_set():
            os.kill(os.getpid(), signal.SIGTERM)

    def _end(self) -> Ending | None:
        """Return the end of the worker if it is due."""
        job, now = self._job, time.monotonic()
        if job.minutes is not None and now - self._began >= 60 * job.minutes:
            return Ending(0, f"its {job.minutes:g} minutes are over")
        if not self._hives.client().is_gone:
            self._answered = now
        if now - self._answered >= _NO_HIVE:
            return Ending(1, f"no hive has answered at {job.hive} for {_NO_HIVE:g} s")
        session = self._session
        if session is not None and session.failure is None and not session.ended.done():
            return None
        if (refusal := self.refusal()) is not None:
            return refusal
        failure = None if session is None else session.failure
        if failure is not None or now - self._looked >= _LOOK:
            self._looked = now
            if self._is_run_over():
                return Ending(0, f"run {job.name!r} is over")
        if failure is not None:
            return Ending(1, failure)
        if session is None and now - self._began >= _NO_RUN:
            why = "" if self._hives.failure is None else f": {self._hives.failure}"
            return Ending(1, f"{job.module_name} took no part in run {job.name!r}{why}")
        return None

    def refusal(self) -> Ending | None:
        """Return why the worker must end because its guest cannot take part in the run, or None."""
        match self._hives.failure:
            case RunGone() as error:
                return Ending(0, str(error))
            case HiveRefused(status=status) as error if status in GONE:
                return Ending(0, str(error))
            case HiveRefused(status=400 | 401 | 403 | 409 | 422) | InvalidArguments() as error:
                return Ending(2, str(error))
            case _:
                return None

    def _is_run_over(self) -> bool:
        try:
            run = self._hives.client().run(self._job.run_id).result(_ANSWERED_WITHIN)
        except HiveRefused as error:
            return error.status in GONE
        except (HiveError, TimedOut, CancelledError):
            return False
        return run.status in OVER
