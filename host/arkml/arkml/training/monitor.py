"""A thread that watches the run of a training at its hive: metrics, progress and failure."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import CancelledError
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from arkml.base.closing import Closing
from arkml.base.terminal import harmless
from arkml.errors import (
    ArkmlError,
    GuestError,
    HiveError,
    HiveRefused,
    HiveUnreachable,
    InvalidSettings,
    NotTrainable,
    ProtocolError,
    RunAborted,
    RunGone,
    Unavailable,
)
from arkml.hive.protocol.runs import OVER, RunInfo, Status
from arkml.hive.transport import GONE
from arkml.training.results import (
    EVALUATION_RETURN,
    TRAINING_EPISODES,
    TRAINING_RETURN,
    Evaluation,
    ProgressFunction,
    RunNotice,
    TrainingProgress,
    WorkerProgress,
)

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.runs.hive_access import HiveAccess

_INTERVAL = 1.0  # seconds between two looks at the run
_ANSWERED_WITHIN = 10.0
_ASKED_WITHIN = 3.0
_QUIET = 15.0  # seconds after which a guest that trains nothing is worth a warning
_FULL = (429, 507)
"""Statuses of a hive with all the runs or sessions that it may have, or with a full disk."""
_FINAL = (401, 403, 410, *_FULL)
"""Final statuses of a hive, which also are for a wrong token, and a run whose time is over."""
_DENIED = (401, 403)
"""Statuses of a hive whose token was revoked, or has expired."""
_ABSENT = 404
_UNANSWERED = 10.0  # seconds that a hive which starts meanwhile gets to answer for the first time
_LOST = 5.0  # seconds that a guest gets to join its run again after its session has failed
_SAID_ELSEWHERE = ("restarted", "aborted", "goal")
"""Notices that are no warnings: the monitor has found them itself, or they are the end."""

_ENDING = 0.5  # seconds that the thread gets to end


class RunMonitor(Closing):
    """
    A thread that asks the hive about the run once a second, and reports to `progress`.

    `on_run` is called with the run once there is one; an ArkmlError that it raises becomes a
    warning. `frames` is set by the training loop. `metrics`, `info` and `curves` (mean returns by
    rows) are the last answers of the hive, `updates` the largest number of updates that it has
    reported. `verdict` is the error that ends the training, such as RunGone or an exception of
    `progress`, or None. `learner_end` is the reason of the last end of a learner, empty while none
    has ended. `is_stopped` says that `progress` returned False. `evaluations` and `warnings` has
    all of them so far.

    `is_own_end` returns whether the guest itself has stopped the run; if anything else stops it,
    the training fails. `notices` are the hive's notices about the run, and `on_notice` is called
    with each. `session_failure` returns why the guest's session takes no more rows, or an empty
    text. In case of a failure the hive is asked at once, and the training ends if the guest does
    not rejoin. `is_refused` returns whether the guest was refused a run and has none in view; the
    loop of the training asks. `workers` returns the states of the rollout workers, given the frames
    of worker 0.
    """

    def __init__(
        self,
        hives: HiveAccess,
        on_run: Callable[[RunInfo], None],
        progress: ProgressFunction | None = None,
    ) -> None:
        self.frames = self.updates = 0
        self.metrics: dict[str, float] = {}
        self.info: RunInfo | None = None
        self.curves: dict[str, dict[int, float]] = {TRAINING_RETURN: {}, EVALUATION_RETURN: {}}
        self.verdict: Exception | None = None
        self.is_stopped = False
        self.learner_end = ""
        self.warnings: list[str] = []
        self.notices: list[RunNotice] = []
        self.on_notice: Callable[[RunNotice], object] = lambda _: None
        self.is_own_end: Callable[[], bool] = lambda: False
        self.session_failure: Callable[[], str] = lambda: ""
        self.is_refused: Callable[[], bool] = lambda: False
        self.workers: Callable[[int], tuple[WorkerProgress, ...]] = lambda _: ()
        self._hives = hives
        self._on_run: Callable[[RunInfo], None] | None = on_run
        self._progress = progress
        self.evaluations: list[Evaluation] = []
        self._reported = self._reported_evaluations = self._reported_notices = 0
        self._heard: int | None = None  # the time of the last event
        self._hearing = threading.Lock()  # what two threads would fetch at once is told once
        self._is_quiet = True
        self._lost_since: float | None = None
        self._began = time.monotonic()
        self._is_closed = False
        self._due = threading.Event()
        self._thread = threading.Thread(target=self._run, name="arkml-monitor", daemon=True)
        self._thread.start()

    @property
    def has_run(self) -> bool:
        """True if the guest takes part in a run."""
        return self._hives.is_training

    @property
    def awaits_runs(self) -> bool:
        """True while the guest has had no session of a run that it has asked for."""
        return self._hives.awaits_runs

    @property
    def is_pending(self) -> bool:
        """True if the run waits for a learner among other runs of its hive, which answers."""
        is_gone = any(client.is_gone for client, _ in self._hives.started)
        return self.info is not None and self.info.place > 0 and not is_gone

    def has_session(self) -> bool:
        """Return whether the hive takes rows of the guest; if not, ask it for the reason."""
        if not self.session_failure():
            return True
        if self._lost_since is None:
            self._lost_since = time.monotonic()
            self._due.set()
        return False

    @property
    def mean_return(self) -> float | None:
        """Mean of the last 100 training episodes, None before the first."""
        return self.metrics.get(TRAINING_RETURN)

    @property
    def episodes(self) -> int:
        """Number of training episodes that have ended."""
        return int(self.metrics.get(TRAINING_EPISODES, 0))

    def cause_of(self, error: Exception) -> Exception:
        """
        Return the cause of an error that ended a training, or the error itself.

        A guest often traps because it is refused a run, or its run has ended; the hive is asked
        about it.
        """
        if not isinstance(error, GuestError):
            return error
        runs = self._hives.started
        if runs and self.verdict is None:
            with suppress(HiveError, TimeoutError, CancelledError):
                client, run = runs[0]
                self._judge(client.run(run.id).result(_ASKED_WITHIN), self.info)
        cause = self.verdict or self._refusal() or (None if runs else self._hives.failure)
        if cause is None:
            return error
        cause.__cause__ = error
        return cause

    def raise_verdict(self) -> None:
        """Raise `verdict`, or the error with which hives refuse to train, if there is either."""
        verdict = self.verdict or self._refusal()
        if verdict is not None:
            raise verdict

    def add_evaluation(self, evaluation: Evaluation) -> None:
        """Report an evaluation to `progress` at once. Any thread may call it."""
        self.evaluations.append(evaluation)
        self._due.set()

    def keep_evaluation(self, evaluation: Evaluation) -> None:
        """Add an evaluation to the curve that the hive did not take."""
        rows = evaluation.rows
        if rows is None:
            rows = self.info.rows if self.info else 0
        self.curves[EVALUATION_RETURN][rows] = evaluation.mean_return

    def highest_evaluation(self) -> float | None:
        """Return the highest mean return of all evaluations, None before the first."""
        return max(list(self.curves[EVALUATION_RETURN].values()), default=None)

    def close(self) -> None:
        """End the thread after reporting new evaluations. Safe to call twice."""
        was_closed, self._is_closed = self._is_closed, True
        self._due.set()
        if self._thread is not threading.current_thread():
            self._thread.join(_ENDING)
        self._note_run()
        if self._hives.started and not was_closed:
            with suppress(HiveError, TimeoutError, CancelledError):  # it is told for people
                self._tell_frames(*self._hives.started[0], _ENDING)

    def _run(self) -> None:
        while not self._is_closed:
            self._due.wait(_INTERVAL)
            self._due.clear()
            if not self._is_closed:
                self._look()
            has_news = len(self.evaluations) > self._reported_evaluations
            if self._progress is not None and (has_news or not self._is_closed):
                self._report(self._progress)

    def _look(self) -> None:
        self.verdict = self.verdict or self._refusal()
        self._note_run()
        runs = self._hives.started
        if not runs:
            if time.monotonic() - self._began > _QUIET and self._is_quiet:
                self._is_quiet = False
                silence = self._hives.silence
                reason = silence and f": {silence}"
                self.warnings.append(f"the guest has started no training yet{reason}")
            return
        client, run = runs[0]
        try:
            self._ask(client, run)
            self._judge_session(run)
        except HiveRefused as error:
            if error.status in GONE:
                self.verdict = self.verdict or RunGone(f"run {run.name!r} is gone: {error}")
            elif error.status in _DENIED:
                self.verdict = self.verdict or error
        except (HiveError, TimeoutError, CancelledError):
            return  # the client logs it when a hive is gone

    def _report(self, progress: ProgressFunction) -> None:
        try:
            answer: object = progress(self._state())
            if isinstance(answer, bool | np.bool_) and not answer:
                self.is_stopped = True
        except Exception as error:  # noqa: BLE001  raised by the training when all is written
            self.verdict = self.verdict or error
            self._progress = None

    def _state(self) -> TrainingProgress:
        info, metrics, count = self.info, self.metrics, len(self.warnings)
        news = tuple(self.warnings[self._reported : count])
        self._reported = count
        evaluations = tuple(self.evaluations[self._reported_evaluations :])
        self._reported_evaluations += len(evaluations)
        notices = tuple(self.notices[self._reported_notices :])
        self._reported_notices += len(notices)
        evaluated = self.evaluations[-1].mean_return if self.evaluations else None
        runs = self._hives.started
        return TrainingProgress(
            run_id=runs[0][1].id if runs else None,
            frames=self.frames,
            seconds=time.monotonic() - self._began,
            rows=info.rows if info else 0,
            updates=info.n_opts if info else 0,
            versions=info.policy_version if info else 0,
            mean_return=metrics.get(TRAINING_RETURN),
            evaluation_return=metrics.get(EVALUATION_RETURN) if evaluated is None else evaluated,
            metrics=dict(metrics),
            evaluations=evaluations,
            warnings=news,
            workers=self.workers(self.frames),
            page=self._hives.page,
            notices=notices,
        )

    def _note_run(self) -> None:
        """Call `on_run` with the run that the guest has started, once."""
        on_run, runs = self._on_run, self._hives.started
        if on_run is None or not runs:
            return
        self._on_run = None
        try:
            on_run(runs[0][1])
        except ArkmlError as error:
            self.warnings.append(str(error))

    def _ask(self, client: HiveClient, run: RunInfo) -> None:
        """Fetch the state of the run. Raises HiveError, TimeoutError and CancelledError."""
        self._tell_frames(client, run, _ANSWERED_WITHIN)
        info = client.run(run.id).result(_ANSWERED_WITHIN)
        if self.info is None:  # the points of earlier trainings, if it is resumed
            for name, curve in self.curves.items():
                points = client.series(run.id, name).result(_ANSWERED_WITHIN)
                curve.update((point.step, point.value) for point in points)
        self._judge(info, self.info)
        self.info = info
        self.updates = max(self.updates, info.n_opts)  # a learner that died may have lost some
        newest = client.metrics(run.id).result(_ANSWERED_WITHIN)
        self.metrics = {name: value for name, value, _ in newest}
        for name, value, step in newest:
            if name in self.curves:
                self.curves[name][step] = value
        with suppress(HiveRefused):  # a hive that tells no events to those that train
            self.hear()

    def _tell_frames(self, client: HiveClient, run: RunInfo, within: float) -> None:
        """Tell the hive the frames so far, if they are a goal. Raises HiveError and others."""
        if self._hives.goal is not None and self._hives.goal.frames:
            with suppress(HiveRefused):  # a hive of before, or that of a colleague whose run it is
                client.note_frames(run.id, self.frames).result(within)

    def hear(self) -> None:
        """Fetch new notices from the hive. Raises HiveError, TimeoutError and others."""
        if not self._hives.started:
            return
        with self._hearing:
            self._fetch_notices(*self._hives.started[0])

    def _fetch_notices(self, client: HiveClient, run: RunInfo) -> None:
        events = client.events(run.id, self._heard or 0).result(_ANSWERED_WITHIN)
        is_first, self._heard = (
            self._heard is None,
            max([self._heard or 0, *(e.at for e in events)]),
        )
        if is_first and run.rows:
            return  # those of the trainings before this one
        for event in events:
            if event.about is not None:
                self._take(RunNotice(event.about, harmless(event.text), event.at))

    def _take(self, notice: RunNotice) -> None:
        self.notices.append(notice)
        if notice.kind not in _SAID_ELSEWHERE:
            self.warnings.append(notice.text)
        self.on_notice(notice)

    def _judge(self, info: RunInfo, before: RunInfo | None) -> None:
        """Warn if the learner of a run has ended; give up a run that is over or aborted."""
        if info.status is Status.ABORTED:
            reason = info.reason or "no reason"
            self.verdict = RunAborted(f"run {info.name!r} is aborted: {reason}")
            return
        if info.status in OVER:
            if not self.is_own_end():
                reason = f": {info.reason}" if info.reason else ""
                is_removed = info.status is Status.NOT_FOUND
                end = "is gone: its files were removed at" if is_removed else "was stopped at"
                self.verdict = RunGone(f"run {info.name!r} {end} its hive{reason}")
            return
        known = before is not None and (before.status, before.reason) == (info.status, info.reason)
        self.learner_end = info.reason or self.learner_end
        is_news = before is not None and info.reason not in ("", before.reason)
        if is_news or (info.status is Status.UNHEALTHY and not known):
            self.warnings.append(f"the learner ended, another one starts: {harmless(info.reason)}")

    def _judge_session(self, run: RunInfo) -> None:
        """Give up a training if its session failed over five seconds ago, and its run goes on."""
        if self.has_session():
            self._lost_since = None
        elif self._lost_since is not None and time.monotonic() - self._lost_since > _LOST:
            reason = f"the session of run {run.name!r} has failed: {self.session_failure()}"
            self.verdict = self.verdict or RunGone(reason)

    def _refusal(self) -> ArkmlError | None:
        """Return the error for which no guest will ever get a policy, None while one may."""
        failure, grant = self._hives.failure, self._hives.grant
        if self._hives.started:  # or joined, where its hive may admit no session more
            is_full = isinstance(failure, HiveRefused) and failure.status in _FULL
            return Unavailable(str(failure)) if is_full and not self._hives.is_training else None
        is_late = time.monotonic() - self._began >= _UNANSWERED
        if is_late and not grant.is_embedded and (absence := self._hives.absence):
            return Unavailable(absence)
        if failure is None:
            return None
        if isinstance(failure, InvalidSettings):  # the guest would ask for the same again
            return failure
        if isinstance(failure, HiveRefused) and failure.status in _FINAL:
            return Unavailable(str(failure))
        if isinstance(failure, HiveRefused) and failure.status == _ABSENT and grant.checkpoint:
            return NotTrainable(str(failure))
        if isinstance(failure, HiveUnreachable) and grant.is_embedded:
            return Unavailable(str(failure))
        if isinstance(failure, ProtocolError):
            return Unavailable(str(failure))
        return None
