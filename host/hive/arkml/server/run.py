"""One run: its sessions, its log, its learner, and the policy versions and metrics it has."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, assert_never

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.replay_messages import KeptReplay, ReplayReport
from arkml.hive.protocol.result_messages import EvaluationReport
from arkml.hive.protocol.rows import Header, Place
from arkml.hive.protocol.runs import (
    LEAST_AHEAD,
    Best,
    Role,
    RunInfo,
    SessionInfo,
    Status,
)
from arkml.hive.protocol.session_messages import SessionState
from arkml.hive.protocol.wire import Message
from arkml.server.best_policy import BestPolicy
from arkml.server.document import Document
from arkml.server.histogram_files import RunHistograms
from arkml.server.labels import RunLabels
from arkml.server.learner_events import (
    CandidateNamed,
    CandidateRated,
    CheckpointSaved,
    HistogramsMade,
    LearnerEnded,
    LearnerGivenUp,
    LearnerProgress,
    LearnerStarted,
    MetricPoints,
    PolicyFile,
    Progress,
    RunEvent,
)
from arkml.server.lifecycle import HiveParts, Lifecycle
from arkml.server.metrics import Points, RunMetrics, UnrecordedPoints, evaluation_points
from arkml.server.metrics_store import MetricsStore
from arkml.server.policy_versions import RESERVED, PolicyVersion, PolicyVersions
from arkml.server.run_guest import RunGuest
from arkml.server.run_origin import StartFile
from arkml.server.run_replays import RunReplays
from arkml.server.session_figures import SessionFigures
from arkml.server.sessions import RunSession
from arkml.server.usage import CpuShares, learner_points
from arkml.server.watchdog.run_watch import RunWatch

_log = SafeLogger(__name__)

_SYNC_TIMEOUT = 40.0
_LEARNER_ENDS = "hive/learner_ends"


class Run:
    """
    A run in its directory. Its methods belong to one event loop.

    The log is open and the learner runs from `start` until the run is stopped or closed. Code that
    only reads the state of the run finds its log and its learner through `lifecycle`.

    Args:
        directory: The directory of the run.
        document: The state of the run.
        parts: The parts of the hive that all runs share.

    """

    def __init__(self, directory: Path, document: Document, parts: HiveParts) -> None:
        self.directory = directory
        self.document = document
        self.policies = PolicyVersions(directory, document.version_limit)
        store = MetricsStore(directory, parts.metrics)
        self.metrics = RunMetrics(document.id, store)
        self.histograms = RunHistograms(document.id, store)
        self._best = BestPolicy(document, self.policies)
        self.replays = RunReplays(directory)
        self.labels, self.start_file = RunLabels(directory), StartFile(directory)
        self.guest = RunGuest(directory)
        self.lifecycle = Lifecycle(directory, document, self.policies, parts, self._apply)
        history = self.lifecycle.history
        self.watch = RunWatch(document, self.start_file, history, parts.notices)
        self.workers = self.lifecycle.workers
        self._log = self.lifecycle.log
        self._supervisor = self.lifecycle.supervisor
        self._changes = self.lifecycle.changes
        self._lease = parts.options.timeouts.lease
        self._progress = Progress(n_opts=document.n_opts)
        self._unrecorded = UnrecordedPoints(self._supervisor.send)
        self._is_in_lockstep = document.request.settings.sync
        self._figures, self._shares = SessionFigures(), CpuShares()
        self._naming, self._rating = asyncio.Lock(), asyncio.Lock()
        self._replaying = asyncio.Lock()

    @property
    def status(self) -> Status:
        """The status of the run."""
        return self.lifecycle.status

    @property
    def is_active(self) -> bool:
        """True while the log is open, so that rows can be appended."""
        return self._log.is_open

    def info(self) -> RunInfo:
        """Return the entry of the run in a list of runs."""
        goal, frames = self.start_file.now.goal, self.start_file.frames
        return self.document.info(
            **self.labels.now.shown(),
            **({"goal": goal} if goal else {}),
            **({"frames": frames} if frames is not None else {}),
            status=self.status,
            rows=self._log.rows,
            policy_version=self._policy_version,
            sessions=self.document.sessions.count_alive(self._lease),
            latest={name: value for name, (value, _) in self.metrics.latest.items()},
            workers=self.workers.living,
            **self.lifecycle.uses,
        )

    async def restore(self) -> None:
        """Load the newest metrics; unless the run has ended, start the task that looks after it."""
        if not self.document.is_over:
            self.document.reason = ""  # it was about a learner of a hive before
        await self.metrics.load()
        if self.metrics.seen:
            self.watch.restore(self.metrics.seen)
        if not self.document.is_over:
            self.lifecycle.maintain()

    async def start(self) -> None:
        """Open the log and start the learner, if needed. Raises HiveRefused and OSError."""
        await self.lifecycle.start()

    async def stop(self) -> None:
        """Save a checkpoint and stop the run for all of its present sessions. Raises OSError."""
        await self._rate(self._best.keep_waiting)
        await self.lifecycle.stop(for_all=True)

    async def close(self, seconds: float) -> None:
        """Save a checkpoint within `seconds` and free everything. The run can be opened again."""
        await self._rate(self._best.keep_waiting)
        await self.lifecycle.close(seconds)

    async def join(
        self,
        join_key: object,
        features: object,
        actions: object,
        role: Role,
        *,
        is_worker: bool = False,
    ) -> tuple[RunSession, bool]:
        """
        Join the run; a stopped run with time left is resumed, but not for a rollout worker.

        Args:
            join_key: A key of the client's choice: joining twice with one key gives one session.
            features: The number of features of a row.
            actions: The number of actions of a row.
            role: The role of the session.
            is_worker: True for a rollout worker.

        Returns:
            The session, and whether it had joined before.

        Raises:
            HiveRefused: The run cannot be joined, for example because it has other numbers of
                features.
            OSError: The document of the run cannot be written.

        """
        self.document.check_widths(features, actions, 409)
        sessions = self.document.sessions
        known = sessions.find(join_key) if isinstance(join_key, str) else None
        is_refused = self.document.is_over if is_worker else self.document.status is Status.ABORTED
        if is_refused or (known and known.ended):
            raise self.lifecycle.refusal()
        self.lifecycle.require_time()
        session = known or sessions.add(join_key, role, is_worker=is_worker)
        session.left, session.seen = False, time.monotonic()
        await self.lifecycle.reopen()
        try:
            await self.lifecycle.save()
            await self.start()
        except OSError:
            if known is None:
                sessions.remove(session)
            raise
        self.lifecycle.use(session)
        return session, known is not None

    async def leave(self, session: RunSession, *, stop: bool, may_end: bool = True) -> None:
        """
        End a session; a session that is only silent has not left.

        Args:
            session: The session that leaves.
            stop: Stop the run, whether other sessions are left or not.
            may_end: Stop the run if neither sessions nor kept workers are left.

        Raises:
            OSError: The document of the run cannot be written.

        """
        await self._rate(self._best.keep_waiting)
        await self.lifecycle.leave(session, stop=stop, may_end=may_end)

    def session_state(self, session: RunSession) -> SessionState:
        """Return the state of a session, which is a part of every answer to its requests."""
        settings = self.document.request.settings
        admitted = max(self._progress.admitted, settings.memory_min_size + LEAST_AHEAD)
        return SessionState(
            acked=self._log.acked(session.index),
            policy_version=self._policy_version,
            credit=max(0, admitted - self._log.rows),
            hold=self._progress.holds,
            place=self._supervisor.place.number,
        )

    def session_infos(self) -> list[SessionInfo]:
        """
        Return descriptions of all sessions that the run remembers, with the counts of their rows.
        """
        return self._figures.infos(
            self.document.sessions,
            self._log.counted,
            newest=self._policy_version,
            lease=self._lease,
            now=time.monotonic(),
        )

    def require_turn(self) -> None:
        """
        Raise HiveRefused if the run is in lockstep and still waits for a slot for its learner.
        """
        if self._is_in_lockstep and (place := self.lifecycle.place):
            raise HiveRefused(
                f"run {self.document.id} waits for a learner, as number {place} of the runs that"
                " wait, and takes its rows in lockstep",
                503,
            )

    async def append(
        self,
        session: RunSession,
        header: Header,
        body: bytes,
        *,
        refused: int,
        version: int,
        is_new: bool,
    ) -> Place | None:
        """
        Append a checked body to the log of an active run, unless it is there already.

        A run in lockstep waits until its learner has processed the rows.

        Args:
            session: The session that sends the body.
            header: The header of the body.
            body: The accepted rows.
            refused: The number of rows that were removed from the body before.
            version: The policy version of the last row, 0 without rows.
            is_new: Whether the body follows the session's last body in the log; otherwise it is in
                the log already. The caller must not await anything between finding this out and
                this call, so that no other body is appended in between.

        Returns:
            The position of the log after the rows, None unless they are new.

        Raises:
            HiveRefused: The run takes no rows.
            OSError: The log cannot be written.

        """
        appended = None
        if is_new:
            appended = self._log.append(body, session.index, header, refused)
            self._send_rows(appended)
            self._figures.count(session.index, header.rows, version, time.monotonic())
        if self._is_in_lockstep and (end := appended or self._log.end):
            await self._wait_for(lambda: self._progress.cursor >= end, _SYNC_TIMEOUT)
        return appended

    async def newer_policy(self, after: int, seconds: float) -> PolicyVersion | None:
        """
        Return the newest policy version if its number is above `after`, else None.

        Waits at most `seconds` for such a version.
        """
        await self._wait_for(lambda: self._policy_version > after, seconds)
        return self.policies.newest if self._policy_version > after else None

    async def number_metrics(self, names: Sequence[str]) -> tuple[dict[str, int], dict[str, str]]:
        """
        Return the number of each metric name, which never changes, and the reason for each refusal.

        Raises OSError if new names cannot be written; then they have no numbers.
        """
        async with self._naming:
            new, refused = self.document.select_new_names(names)
            if new:
                self.document.names += new
                try:
                    await self.lifecycle.save()
                except OSError:
                    del self.document.names[-len(new) :]
                    raise
                self._supervisor.send("names", names=self.document.names)
            numbers = {name: number for number, name in enumerate(self.document.names)}
            return {name: numbers[name] for name in names if name not in refused}, refused

    async def begin_evaluation(self, version: int) -> None:
        """Keep a policy version until its evaluation is reported. Raises OSError."""
        async with self._rating:
            await asyncio.to_thread(self._best.keep_evaluated, version)

    async def evaluate(self, report: EvaluationReport) -> bool:
        """
        Rate a policy version by the episodes in a report; return whether it is the best so far.

        Raises HiveRefused and OSError.
        """
        rows = self._log.rows
        rated = report.version, report.returns, report.best_return
        is_best = await self._rate(self._best.rate_evaluation, *rated)
        await self.record(evaluation_points(report, rows))
        if is_best:
            await self.lifecycle.save()
        return is_best

    async def keep_replay(self, report: ReplayReport) -> list[KeptReplay]:
        """
        Store the replay of an episode as the latest and, if its score says so, as best or worst.

        Returns all replays that the run keeps then. Raises ProtocolError and OSError.
        """
        async with self._replaying:
            return await asyncio.to_thread(self.replays.keep, report)

    async def keep_recorded(self, report: ReplayReport) -> KeptReplay:
        """
        Store an episode that someone had recorded of a policy version.

        Raises ProtocolError and OSError.
        """
        async with self._replaying:
            return await asyncio.to_thread(self.replays.keep_recorded, report)

    async def best_policy(self) -> bytes | None:
        """
        Return the ONNX file of the best policy so far, None before any rating. Raises OSError.
        """
        if await self._rate(self._best.keep_waiting):
            await self._try_save()
        return await asyncio.to_thread(self.policies.read_best)

    async def record(self, points: Points) -> None:
        """
        Add metrics that the server has measured; the learner writes them to its event files, too.
        """
        await self.metrics.add(points, self.watch.look(points, self._log.rows))
        self._unrecorded.add(points)

    async def record_usage(self) -> None:
        """Measure the learner's processor time and memory, and the run's disk space, as metrics."""
        pid, uses = self._supervisor.place.pid, self.lifecycle.uses
        if pid is not None and self.status is Status.RUNNING:
            points = learner_points(self._shares, pid, uses["memory"], uses["disk"])
            await self.record([(name, self._log.rows, value) for name, value in points])

    async def request(self, kind: str, seconds: float) -> Message:
        """
        Send a request of a kind to the learner, and return its reply.

        Raises HiveRefused if there is no reply within `seconds`.
        """
        return await self._supervisor.request(kind, seconds)

    async def audit(self, seconds: float) -> dict[str, Any]:
        """
        Return the counts of each session's rows, and of the rows that the learner holds.

        Waits at most `seconds` for the learner. Raises HiveRefused if the run has no active
        learner: an audit does not start one.
        """
        if not self.is_active or self.status is Status.PAUSED:
            name = f"run {self.document.id} is {self.status}"
            raise HiveRefused(f"{name}: its learner is asleep until a session uses it", 503)
        log = self._log
        reply = await self._supervisor.request("audit", seconds)
        held = {name: value for name, value in reply.items() if name not in ("kind", "req")}
        sessions = {str(index): one._asdict() for index, one in sorted(log.counts.items())}
        return {**held, "sessions": sessions, "committed": list(log.end or ())}

    @property
    def _policy_version(self) -> int:
        """The number of the newest policy version, 0 before the first."""
        return self.policies.newest.version if self.policies.newest else 0

    async def _wait_for(self, predicate: Callable[[], bool], seconds: float) -> None:
        """Wait until the predicate is true, or the run ends."""
        lifecycle = self.lifecycle
        await self._changes.wait_for(lambda: lifecycle.is_ending or predicate(), seconds)

    async def _apply(self, event: RunEvent) -> None:
        match event:
            case LearnerStarted():
                _log.info(
                    "run %s learns on %s from %s updates, process %s",
                    self.document.id, event.device, event.n_opts, event.pid,
                )  # fmt: skip
                self._supervisor.send("names", names=self.document.names)
                self._send_rows(self._log.end)
                self._unrecorded.send()
                self._set_progress(self._progress.after(event))
            case LearnerProgress():
                self._set_progress(self._progress.after(event))
            case PolicyFile():
                await self._publish(event)
            case MetricPoints(points=points):
                await self.metrics.add(points, self.watch.look(points, self._log.rows))
            case CandidateNamed(version=version):
                async with self._rating:
                    await asyncio.to_thread(self._best.keep_candidate, version)
            case CandidateRated(version=version, score=score):
                if await self._rate(self._best.rate_training, version, score):
                    await self._try_save()
            case HistogramsMade():
                await self.histograms.add(event.rows, event.histograms)
            case CheckpointSaved():
                self._progress = self._progress.after(event)
                self.document.n_opts = self._progress.n_opts
                await self._try_save()
            case LearnerEnded(reason=reason, has_diverged=has_diverged):
                self.document.reason = reason
                self.watch.note_restart(reason, has_diverged=has_diverged)
                before, _ = self.metrics.latest.get(_LEARNER_ENDS, (0.0, 0))
                await self.record([(_LEARNER_ENDS, self._log.rows, before + 1)])
                await self._try_save()
            case LearnerGivenUp(reason=reason):
                await self._abort(reason)
            case _:
                assert_never(event)

    def _set_progress(self, progress: Progress) -> None:
        self._progress = progress
        self.document.n_opts = progress.n_opts
        self._log.mark_read(progress.cursor, progress.rows)
        self._changes.notify()
        end = self._log.end
        if end is not None and progress.cursor < end and not self._is_in_lockstep:
            self._send_rows(end)  # again, in case it was sent while there was no learner

    async def _publish(self, file: PolicyFile) -> None:
        document = self.document
        if self.policies.last_version >= document.version_limit:
            document.version_limit = self.policies.last_version + RESERVED
            await self._try_save()
        try:
            if self.policies.newest is None:
                await self.start_file.begin()
            newest = await asyncio.to_thread(self.policies.publish, file)
        except (HiveError, OSError) as error:
            _log.warning("a policy of run %s cannot be published: %s", document.id, error)
            return
        self._figures.publish(newest.version, time.monotonic())
        self._supervisor.send("version", version=newest.version, n_opts=newest.n_opts)
        self._changes.notify()

    async def _rate(self, rate: Callable[..., Best | None], *arguments: object) -> bool:
        """Rate a policy; if it is the best so far, the learner is told to keep a checkpoint."""
        async with self._rating:
            best = await asyncio.to_thread(rate, *arguments)
            if best is not None:
                self.document.best = best
                self.lifecycle.history.note_best(best)
                self._supervisor.send("checkpoint", req=0, best=True)
            return best is not None

    def _send_rows(self, end: Place | None) -> None:
        """Send the learner the end of the log, if that is open."""
        if end is not None:
            self._supervisor.send("rows", segment=end.segment, offset=end.offset)

    async def _abort(self, reason: str) -> None:
        try:
            await self.lifecycle.stop(for_all=False, aborted=reason)
        except OSError as error:
            _log.error("run %s is aborted, which cannot be written: %s", self.document.id, error)

    async def _try_save(self) -> None:
        try:
            await self.lifecycle.save()
        except OSError as error:
            _log.warning("run %s cannot be written: %s", self.document.id, error)
