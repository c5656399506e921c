"""The lifecycle of one run: started, paused while it is not used, stopped, written to disk."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.runs import DOCUMENT_NAME, RunRequest, Status
from arkml.server.document import Document, pack_document, write_document
from arkml.server.history import RunHistory
from arkml.server.learner_events import RunEvent
from arkml.server.learner_pool import LearnerPool
from arkml.server.log import RunLog, kept_rows
from arkml.server.policy_versions import PolicyVersions
from arkml.server.request_context import begin_run
from arkml.server.serve_options import ServeOptions
from arkml.server.session_figures import SessionCounts
from arkml.server.sessions import RunSession
from arkml.server.supervisor import Supervisor
from arkml.server.usage import DiskUse
from arkml.server.watchdog.run_watch import Notices
from arkml.server.worker_pool import WorkerPool
from arkml.server.workers import RunWorkers

_log = SafeLogger(__name__)

_MAINTAIN_EVERY = 0.5
_NAME = 80
"""Letters of the name of a run in a line of the log."""


class LoopCondition:
    """A condition variable for the tasks of one event loop."""

    def __init__(self) -> None:
        self._event = asyncio.Event()

    def notify(self) -> None:
        """Wake all tasks that wait, to test their predicates."""
        self._event.set()
        self._event = asyncio.Event()

    async def wait_for(self, predicate: Callable[[], bool], seconds: float) -> bool:
        """Wait until `predicate` is true, for at most `seconds`. Returns its last result."""
        try:
            async with asyncio.timeout(seconds):
                while not predicate():
                    await self._event.wait()
        except TimeoutError:
            return predicate()
        return True


@dataclass(frozen=True, slots=True)
class HiveParts:
    """The parts of a hive that all of its runs share."""

    options: ServeOptions
    metrics: Executor
    learners: LearnerPool
    workers: WorkerPool
    disk: DiskUse
    notices: Notices


class Lifecycle:
    """
    The activity of a run, and its status.

    From `start` until `stop` or `close` the log is open and the learner runs. After
    `Timeouts.pause` without sessions the learner is paused; if other runs wait for a learner, its
    process ends, after a restart of the hive sooner (`Timeouts.back`), and starts again when the
    run is used. After `Timeouts.idle_stop` the run is stopped. Rollout workers, which end with the
    run, keep it alive for some time without other sessions. Tasks that wait for `changes` are woken
    by each new status.

    Args:
        directory: The directory of the run.
        document: The state of the run.
        policies: The policy versions of the run.
        parts: The parts of the hive that all runs share.
        apply: Called with each event of the learner.

    """

    def __init__(
        self,
        directory: Path,
        document: Document,
        policies: PolicyVersions,
        parts: HiveParts,
        apply: Callable[[RunEvent], Awaitable[None]],
    ) -> None:
        options = parts.options
        self.changes = LoopCondition()
        self.history = RunHistory(directory)
        self._apply = apply
        self.log = RunLog(
            directory / "rows",
            parts.disk,
            rows=document.rows,
            keep=kept_rows(document.request.settings),
            segment_bytes=options.segment_bytes,
            compress=bool(document.request.settings.parts),
        )
        self.supervisor = Supervisor(
            directory,
            parts.learners,
            options.timeouts,
            self._take,
            self.changes.notify,
            has_begun=document.version_limit > 0,
        )
        seed = document.request.settings.seed
        self.workers = RunWorkers(document.id, document.owner, seed, parts.workers)
        self._directory = directory
        self._lock = options.data / "lock"  # missing while the whole data directory is away
        self._document = document
        self._policies = policies
        self._timeouts = options.timeouts
        self._limits = options.limits
        self._places = parts.learners.places
        self._disk = parts.disk
        self._notices = parts.notices
        self._silent: set[int] = set()  # of sessions, by their index
        self._is_closing = False
        self._is_stopping = False
        self._is_resting = False
        self._is_awaited = False  # from a restart of the hive to the first request of a session
        self._last_used = self._last_attended = self._counted = time.monotonic()
        self._changing = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._maintaining: asyncio.Task[None] | None = None

    @property
    def status(self) -> Status:
        """The status of the run."""
        if not (self._directory / DOCUMENT_NAME).exists() and self._lock.exists():
            return Status.NOT_FOUND
        if self._document.is_over:
            return Status.TERMINATING if self._is_stopping else self._document.status
        if self._is_resting:
            return Status.PAUSED
        return self.supervisor.status(has_policy=self._policies.newest is not None)

    @property
    def place(self) -> int:
        """The position of the run in the queue for a learner, from 1; 0 if it does not wait."""
        return self.supervisor.place.number

    @property
    def uses(self) -> dict[str, int]:
        """Queue position, memory and disk space of the run in bytes, as fields of `RunInfo`."""
        disk = self._disk.of_run(self._document.id)
        return {"place": self.place, "memory": self.supervisor.place.memory, "disk": disk}

    @property
    def title(self) -> str:
        """The id of the run and its name, for lines of the log."""
        document = self._document
        return f"{document.id} ({harmless(document.request.name)[:_NAME]})".replace("\n", " ")

    def rows_of(self, session: RunSession) -> int:
        """Return the number of rows that a session has in the log."""
        return self.log.counted.get(session.index, SessionCounts()).rows

    @property
    def sessions(self) -> int:
        """The number of live sessions, including sessions of rollout workers."""
        return self._document.sessions.count_alive(self._timeouts.lease)

    @property
    def is_ending(self) -> bool:
        """True once the run has ended, or its hive is being closed."""
        return self._is_closing or self._document.is_over

    def require_time(self) -> None:
        """Raise HiveRefused if the run has used up the time it was started for."""
        document = self._document
        if document.time_over:
            raise HiveRefused(f"run {document.id} is stopped: {document.time_over}", 410)

    def refusal(self) -> HiveRefused:
        """Return the error that refuses a request to a run that is ending or has ended."""
        if self._is_closing:
            return HiveRefused("the hive is ending", 503)
        document = self._document
        status = document.status if document.is_over else self.status
        reason = f": {document.reason}" if document.is_over and document.reason else ""
        return HiveRefused(f"run {document.id} is {status}{reason}", 410)

    async def start(self) -> None:
        """Open the log and start the learner, if needed. Raises HiveRefused and OSError."""
        async with self._changing:
            await self._open()
            self._is_resting = False
            self.supervisor.start()
            self.maintain()

    async def _open(self) -> None:
        """Open the log, if needed."""
        if self.is_ending:
            raise self.refusal()
        if not self.log.is_open:
            await self.log.open()
            if self.log.lost > self._document.lost:
                self._document.lost = self.log.lost
                await self.save()

    async def restart(self, before: asyncio.Event | None, waits: asyncio.Event) -> None:
        """
        Start the run, which was in use when the hive ended, and its workers.

        It waits for a learner behind the run that sets `before`, if any, and sets `waits` then.
        """
        self._is_awaited = True
        try:
            try:
                async with self._changing:
                    await self._open()
                if before is not None:
                    await before.wait()
                await self.start()
            finally:
                waits.set()
            await self.workers.start(self._document.request)
        except (HiveError, OSError) as error:
            _log.error("run %s cannot be resumed as it was: %s", self._document.id, error)

    async def leave(self, session: RunSession, *, stop: bool, may_end: bool) -> None:
        """
        End a session.

        A session that merely sends no requests has not left: a run that all sessions have left is
        stopped, a run whose sessions are silent is only paused.

        Args:
            session: The session that leaves.
            stop: Stop the run, whether other sessions are left or not.
            may_end: Stop the run if neither sessions nor kept workers are left.

        Raises:
            OSError: The document of the run cannot be written.

        """
        session.left = True
        sessions = self._document.sessions
        is_used = self.sessions or sessions.has_vanished or self.workers.are_kept
        if stop or (may_end and not is_used):
            await self.stop(for_all=stop)
        else:
            await self.save()

    async def reopen(self) -> None:
        """Change the status of a stopped run, so that it can be started again."""
        async with self._changing:
            if self._document.status is Status.STOPPED:
                self._document.status, self._document.ended_at = Status.RUNNING, 0

    async def resume_with_workers(self, request: RunRequest) -> None:
        """Resume the run if it was stopped, and start its missing workers. Raises HiveRefused."""
        was_over = self._document.is_over
        await self.reopen()
        await self.start()
        try:
            await self.workers.start(request)
        except HiveRefused:
            if was_over:
                await self.stop(for_all=False)
            raise

    async def require_learner(self, seconds: float) -> None:
        """
        Wait at most `seconds` for the first message of the run's learner.

        A run that still waits for a free slot for its learner is not waited for. Raises HiveRefused
        if the learner cannot begin.
        """
        waiting = (Status.PENDING, Status.UNHEALTHY)
        await self.changes.wait_for(
            lambda: self.is_ending or self.place > 0 or self.status not in waiting, seconds
        )
        document = self._document
        if document.status is Status.ABORTED:
            raise HiveRefused(f"run {document.request.name} is aborted: {document.reason}", 503)

    async def stop(self, *, for_all: bool, why: str = "", aborted: str = "") -> None:
        """
        Save a checkpoint and stop the run; a session that joins later resumes it.

        Args:
            for_all: Do not let the present sessions join the run again.
            why: The reason for a stop that no client asked for, empty otherwise.
            aborted: The reason why the run cannot be resumed, empty if it can.

        Raises:
            OSError: The document of the run cannot be written.

        """
        async with self._changing:
            document = self._document
            if for_all:
                document.sessions.end()
            if not document.is_over:
                document.status = Status.ABORTED if aborted else Status.STOPPED
                document.reason, document.ended_at = aborted or why, time.time_ns()
                self._is_stopping = not aborted
                self._notices.tell(
                    document, self.history.note_stop(document.status, document.reason)
                )
                self.changes.notify()
                await self._deactivate(self._timeouts.stop)
                self._is_stopping = False
            await self.save()

    async def close(self, seconds: float) -> None:
        """Save a checkpoint within `seconds` and free everything. The run can be opened again."""
        self._is_closing = True
        self.changes.notify()
        if self._maintaining is not None:
            self._maintaining.cancel()
        async with self._changing:
            await self._deactivate(seconds)
            if not self._document.is_over:
                try:
                    await self.save()
                except OSError as error:
                    _log.error("run %s cannot be written: %s", self._document.id, error)

    def use(self, session: RunSession) -> None:
        """
        Note a request of a session, and resume the learner if it is paused.

        Raises HiveRefused if the session has left, or the run is ending.
        """
        if session.left or self.is_ending:
            raise self.refusal()
        self._last_used = session.seen = time.monotonic()
        self._is_awaited = False
        if self.supervisor.is_paused:
            self.supervisor.pause(paused=False)

    def maintain(self) -> None:
        """
        Start the task that syncs the log, and that pauses or stops the run when nobody uses it.
        """
        if self._maintaining is None or self._maintaining.done():
            self._last_used = self._last_attended = self._counted = time.monotonic()
            self._maintaining = asyncio.create_task(self._maintain())

    async def save(self) -> None:
        """Write the document. Raises OSError."""
        async with self._writing:
            self._document.rows = self.log.rows
            content = pack_document(self._document)
            await asyncio.to_thread(write_document, self._directory, content)

    async def _take(self, event: RunEvent) -> None:
        self.history.note(event)
        await self._apply(event)

    async def _deactivate(self, seconds: float) -> None:
        ending = asyncio.create_task(self.workers.stop(seconds))
        await self.supervisor.stop(seconds)  # by this task, which may be the supervisor's own
        await ending
        await self.log.close()

    async def _maintain(self) -> None:
        begin_run(self._document.id)
        logged = ""
        while not self._document.is_over:
            await asyncio.sleep(_MAINTAIN_EVERY)
            trouble = ""
            try:
                await self.log.sync()
                await self._stop_or_pause_unused()
                self._tell_silent()
                self._forget_sessions()
            except OSError as error:
                trouble = str(error)
            if trouble and trouble != logged:
                _log.error("run %s: %s", self._document.id, trouble)
            logged = trouble

    async def _stop_or_pause_unused(self) -> None:
        now, document, timeouts = time.monotonic(), self._document, self._timeouts
        excess = self.supervisor.place.excess
        if not self.place:
            document.lasted += now - self._counted
        self._counted = now
        is_left = self.workers.have_ended and not document.sessions.has_vanished
        if excess:
            await self.stop(for_all=False, aborted=excess)
        elif document.time_over:
            await self.stop(for_all=True, why=document.time_over)
        elif document.sessions.count_alive(timeouts.lease, workers=False):
            self._last_used = self._last_attended = now
        elif self.workers.are_kept:
            self._last_used = now
            if now - self._last_attended > self.workers.minutes * 60:
                await self.stop(for_all=False)
        elif is_left or now - self._last_used > timeouts.idle_stop:
            await self.stop(for_all=False)
        elif self._places.are_wanted:
            if now - self._last_used > (timeouts.back if self._is_awaited else timeouts.pause):
                await self._rest()
        elif now - self._last_used > timeouts.pause:
            self.supervisor.pause(paused=True)

    async def _rest(self) -> None:
        """End the learner of a run that is not used; the next request of a session starts it."""
        async with self._changing:
            is_used = self.sessions
            if self.log.is_open and not (self.is_ending or is_used):
                self._is_resting = True
                await self._deactivate(self._timeouts.stop)

    def _tell_silent(self) -> None:
        """
        Log the sessions that have fallen silent: hosts that were killed, or cut off.

        Those that have said nothing since this process began are not among them.
        """
        lease = self._timeouts.lease
        told, self._silent = self._silent, set()
        for session in self._document.sessions:
            if session.left or session.is_alive(lease) or math.isinf(session.seen):
                continue
            self._silent.add(session.index)
            if session.index not in told:
                _log.warning(
                    "session %d of run %s has been silent for %g s, after %d rows",
                    session.index, self.title, lease, self.rows_of(session),
                )  # fmt: skip

    def _forget_sessions(self) -> None:
        limits = self._limits
        self._document.sessions.forget(
            self._timeouts.lease, limits.session_hours * 3_600, limits.sessions_per_run
        )
