"""Evaluations of the run that is being trained, played by another process."""

from __future__ import annotations

import json
import math
import subprocess
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import numpy as np

from arkml.base.closing import Closing
from arkml.base.loggers import SafeLogger
from arkml.errors import GuestError, HiveError
from arkml.hive.protocol.replay_messages import KeptReplay, ReplayReport
from arkml.runs.episode_recorder import vanishing
from arkml.training.evaluation_traces import EvaluationTraces
from arkml.training.evaluations import EvaluationTask, EvaluatorMessage, write_message
from arkml.training.rating_rules import GOAL_EPISODES, RatingRule
from arkml.training.results import Evaluation
from arkml.workers.process_environment import environment

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo

_log = SafeLogger(__name__)

FRAMES = 20_000
"""Frames after which an evaluation ends, whether or not its episodes have; more for many."""

_FRAMES_EACH = 500
_ANSWERED_WITHIN = 10.0
_SLICE = 0.1
_ENDING = 2.0


class EvaluationFailed(GuestError):
    """Raised when the guest failed while it played an evaluation."""


@dataclass(frozen=True, slots=True)
class _Wanted:
    """
    A version to be rated; `run` is the run at the time of the request, None before it.

    `others` are the versions of other runs that act beside it, by the names of these. With `again`
    it has been rated, and plays once more for that.
    """

    version: int
    policy: bytes
    client: HiveClient
    run_id: str
    others: Mapping[str, bytes] = field(default_factory=dict)
    run: Future[RunInfo] | None = None
    again: Future[Evaluation | None] | None = None


class PeriodicEvaluation(Closing):
    """
    Evaluates policy versions of a run in a separate process, so that training frames do not wait.

    The process starts with the first evaluation. While one version is rated, the newest one waits.
    By a `RatingRule` a version plays more episodes if it seems to be better than all earlier
    versions, including `earlier()`, or to have reached the `goal`. The goal is also the return from
    which an episode is a success, if the guest does not report success itself. `traces` keeps
    traces of evaluations, without these additional episodes.

    Agents of other runs act by versions of these, which learn, too: a mean return against early
    ones says nothing about a later version. So the best version plays again beside each new one,
    among the same others, and the better of the two is the best.

    Attributes:
        on_evaluation: Called with each evaluation, on a thread of this object.
        on_lost: Called with evaluations that the hive did not take.
        on_failure: Called with the error of an evaluation that failed or has no episode; a new
            process plays the next one. With None the first failure is raised.
        on_rated: Called after each evaluation that did not fail.
        warn: Called once with a sentence if episodes are missing, or a replay for the page of the
            run.
        reports: Reports that the hive has not answered yet.
        behavior: Name by which the guest starts the run.

    """

    def __init__(
        self,
        task: EvaluationTask,
        module: bytes,
        *,
        goal: float | None = None,
        traces: EvaluationTraces | None = None,
    ) -> None:
        self.rule = RatingRule(task.episodes, goal)
        self.reports: list[Future[Any]] = []
        self.on_evaluation: Callable[[Evaluation], None] = lambda _: None
        self.on_lost: Callable[[Evaluation], None] = lambda _: None
        self.on_failure: Callable[[Exception], None] | None = None
        self.on_rated: Callable[[], None] = lambda: None
        self.warn: Callable[[str], object] = lambda _: None
        self.earlier: Callable[[], float | None] = lambda: None
        self.behavior = ""
        self._traces = traces
        self._task = task
        self._module = module
        self._process: subprocess.Popen[bytes] | None = None
        self._is_stale = False  # the process has the module before
        self._wanted: _Wanted | None = None
        self._warned: set[str] = set()
        self._best: float | None = None
        self._leader: _Wanted | None = None  # the version with that mean, if it was rated here
        self._others: Mapping[str, bytes] = {}  # the newest
        self._failure: Exception | None = None
        self._playing: _Wanted | None = None
        self._asked: Future[RunInfo] | None = None
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread: threading.Thread | None = None

    def begin(
        self,
        client: HiveClient,
        run_id: str,
        version: int,
        policy: bytes,
        others: Mapping[str, bytes] = MappingProxyType({}),
    ) -> None:
        """
        Rate a version of a run as soon as the previous one is rated.

        Does nothing if that version is waiting already. The hive is asked to keep the waiting
        version, with one request at a time.

        Args:
            client: The client of the run's hive.
            run_id: The id of the run.
            version: The number of the version.
            policy: The version, an ONNX file.
            others: Versions that play the agents of other runs, by the names of these.

        Raises:
            EvaluationFailed: An earlier evaluation has failed.

        """
        with self._changed:
            self._raise_failure()
            waiting, asked = self._wanted, self._asked
            if waiting is not None and waiting.version == version:
                return
            wanted = _Wanted(version, policy, client, run_id, others)
            self._others = others
            is_asking = asked is not None and not asked.done()
            self._wanted = wanted if waiting is not None and is_asking else self._ask(wanted)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._run, name="arkml-evaluation", daemon=True
                )
                self._thread.start()
            self._changed.notify_all()

    def use_module(self, module: bytes) -> None:
        """Play the next evaluation with another module, in a new process."""
        with self._changed:
            self._module, self._is_stale = module, True

    def wait(self, is_over: Callable[[], bool] = lambda: False) -> None:
        """Wait until all versions are rated, or `is_over` returns True. Raises EvaluationFailed."""
        with self._changed:
            while (self._wanted is not None or self._playing is not None) and self._failure is None:
                if is_over():
                    return
                self._changed.wait(_SLICE)  # in slices, so that Ctrl-C is seen
            self._raise_failure()

    @property
    def is_busy(self) -> bool:
        """True while a version is rated, or waits for that."""
        with self._changed:
            return self._wanted is not None or self._playing is not None

    def play_again(self, is_over: Callable[[], bool]) -> Evaluation | None:
        """
        Return GOAL_EPISODES new episodes of the version with the best rating.

        The highest of many ratings is mostly a lucky one, and these episodes have chosen nothing.
        They are told to nobody else. Returns None without such a version, if they fail, or once
        `is_over` returns True.
        """
        again: Future[Evaluation | None] = Future()
        with self._changed:
            if self._leader is None or self._failure is not None or self._is_closed:
                return None
            self._wanted = replace(self._leader, again=again, others=self._others)
            self._changed.notify_all()
            while not again.done() and not is_over():
                self._changed.wait(_SLICE)  # in slices, so that Ctrl-C is seen
        return again.result() if again.done() else None

    def close(self) -> None:
        """
        End the process, with an evaluation that it is playing. Safe to call twice.

        From then on no evaluation is reported, and `reports` is complete.
        """
        with self._changed:
            self._is_closed, self._wanted = True, None
            self._changed.notify_all()
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
        if self._thread is not None:
            self._thread.join(_ENDING)
        if process is not None:
            _close_pipes(process)

    def _raise_failure(self) -> None:
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        while (wanted := self._next()) is not None:
            try:
                if wanted.again is not None:
                    wanted.again.set_result(self._played_again(wanted))
                else:
                    self._report(wanted, self._rate(wanted))
                    self.on_rated()
            except Exception as error:  # noqa: BLE001  else all would wait for this thread
                self._fail(error)
            with self._changed:
                self._playing = None
                self._changed.notify_all()

    def _fail(self, error: Exception) -> None:
        """Keep the error of an evaluation or, if `on_failure` takes it, replace the process."""
        with self._changed:
            if self._is_closed:
                return
            if self.on_failure is None:
                self._failure = error
                return
            process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            _close_pipes(process)
        self.on_failure(error)

    def _next(self) -> _Wanted | None:
        with self._changed:
            while self._wanted is None and not self._is_closed:
                self._changed.wait()
            wanted, self._wanted = self._wanted, None
            is_asked = wanted is None or wanted.run is not None
            self._playing = wanted if wanted is None or is_asked else self._ask(wanted)
            return self._playing

    def _ask(self, wanted: _Wanted) -> _Wanted:
        """Ask the hive to keep a version, and for the state of its run."""
        self._asked = wanted.client.begin_evaluation(wanted.run_id, wanted.version)
        return replace(wanted, run=self._asked)

    def _rate(self, wanted: _Wanted) -> dict[str, Any]:
        """Return the episodes of a version, which plays on by the rule. Raises as `_play` does."""
        played = self._begun(wanted)
        best = self._best_before(wanted)
        if wanted.others:
            played["best_return"] = best
        while more := self.rule.lacking(played["returns"], best):
            again = self._play(wanted, more)
            for name in ("returns", "lengths", "successes"):
                played[name] = played[name] and again[name] and played[name] + again[name]
            played["shortfall"] = again["shortfall"] or played["shortfall"]
            played["vanished"] += again["vanished"]
            played["unrated"] = again.get("unrated", "")
            if again["shortfall"]:  # so would be the next
                break
        if played["returns"]:
            own = float(np.mean(played["returns"]))
            if best is None or own >= best:  # of two with the same mean the later one
                self._best, self._leader = own, wanted
            else:
                self._best = best
        return played

    def _best_before(self, wanted: _Wanted) -> float | None:
        """
        Return the mean return of the best version before this one, None if it is not known.

        Among others that learn, too, it is of new episodes. Raises as `_play` does.
        """
        if not wanted.others:
            before = self._best, self.earlier()
            return max((one for one in before if one is not None), default=None)
        if self._leader is None:
            return None
        again = replace(self._leader, others=wanted.others)
        returns = self._play(again, self.rule.episodes)["returns"]
        return float(np.mean(returns)) if returns else None

    def _played_again(self, wanted: _Wanted) -> Evaluation | None:
        """Return new episodes of a version; None if they fail, or if some are missing."""
        try:
            played = self._play(wanted, GOAL_EPISODES)
        except (EvaluationFailed, OSError):  # the training is over, and keeps what was chosen
            return None
        if played["shortfall"] or not played["returns"]:
            return None
        return self._evaluation(wanted.version, None, played)

    def _begun(self, wanted: _Wanted) -> dict[str, Any]:
        """Return the first episodes of a version, which may be recorded. Raises as `_play` does."""
        traces, file = self._traces, None
        if traces is not None:
            file = traces.begin()
        if traces is None or file is None:
            return self._play(wanted, self.rule.episodes)
        returns: list[float] = []
        try:
            played = self._play(wanted, self.rule.episodes, file)
            returns = played["returns"]
        finally:
            with self._changed:
                is_kept = not self._is_closed and file.is_file()
            if is_kept:
                traces.keep(file, wanted.version, returns)
            else:
                file.unlink(missing_ok=True)
        return played

    def _play(self, wanted: _Wanted, episodes: int, trace: Path | None = None) -> dict[str, Any]:
        """
        Return the episodes of a version, recorded in the file `trace`.

        There are none if the return of one is not finite: a mean without it would be of those that
        went well. Raises EvaluationFailed and OSError.
        """
        process, is_new = self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            if is_new:
                write_message(process.stdin, self._task.message(self._module))
            for name, policy in wanted.others.items():
                write_message(process.stdin, EvaluatorMessage({"other": name}, policy))
            values = {"behavior": self.behavior, "version": wanted.version, "episodes": episodes}
            if trace is not None:
                values["trace"] = str(trace.resolve())
            message = EvaluatorMessage(values, wanted.policy)
            write_message(process.stdin, message)
            line = process.stdout.readline()
        except (BrokenPipeError, ValueError):
            line = b""
        if not line.endswith(b"\n"):
            raise EvaluationFailed(
                f"the process that evaluates {self._task.name} ended with status {process.wait()}"
            )
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise EvaluationFailed(f"the evaluation failed: {answer['error']}")
        if not all(map(math.isfinite, answer["returns"])):
            unrated = f"{answer['shortfall']}: it is not rated"
            answer |= {"returns": [], "lengths": [], "successes": None, "unrated": unrated}
            answer["shortfall"] = ""
        return answer

    def _started(self) -> tuple[subprocess.Popen[bytes], bool]:
        """Return the process, and whether it waits for its first message. Raises OSError."""
        with self._changed:
            process = self._process
            if process is not None and self._is_stale:
                process.kill()
                process.wait()
                _close_pipes(process)
                self._process = process = None
            self._is_stale = False
            if process is not None:
                return process, False
            if self._is_closed:
                raise BrokenPipeError
            self._process = subprocess.Popen(
                [sys.executable, "-m", "arkml.training.evaluations"],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,  # the guest that is trained logs the same
                env=environment(),
                process_group=0,  # Ctrl-C is for the host
            )
            return self._process, True

    def _report(self, wanted: _Wanted, played: dict[str, Any]) -> None:
        """Tell the episodes of a version. Raises EvaluationFailed for `on_failure` without any."""
        unrated = played.get("unrated", "")
        if not (played["returns"] or unrated) and self.on_failure is not None:
            raise EvaluationFailed(f"evaluation of version {wanted.version}: {played['shortfall']}")
        vanished = vanishing(played["vanished"]) if played["vanished"] else ""
        unshown = _unshown(played["unshown"]) if "unshown" in played else ""
        doubts = (
            (played["shortfall"],) * 2,
            ("unrated", unrated),
            ("vanished", vanished),
            ("unshown", unshown),
            ("refused", played.get("refused", "")),
            ("idle", _idle(played.get("idle", ()))),
        )
        for kind, doubt in doubts:
            if doubt and kind not in self._warned:
                self._warned.add(kind)
                self.warn(f"evaluation of version {wanted.version}: {doubt}")
        if not played["returns"]:
            return
        assert wanted.run is not None  # it plays, and was asked for before
        try:
            run = wanted.run.result(_ANSWERED_WITHIN)
        except (HiveError, TimeoutError, CancelledError):
            run = None
        evaluation = self._evaluation(wanted.version, None if run is None else run.rows, played)
        with self._changed:  # told to all or, once this is closed, to none
            if self._is_closed:
                return
            self._tell(evaluation, wanted.client, run)
            if run is not None and "replay" in played:
                report = ReplayReport(wanted.version, evaluation.mean_return, played["replay"])
                kept = wanted.client.keep_replay(run.id, report)
                kept.add_done_callback(_tell_unkept)
                self.reports.append(kept)

    def _tell(self, evaluation: Evaluation, client: HiveClient, run: RunInfo | None) -> None:
        self.on_evaluation(evaluation)
        if run is None:
            self.on_lost(evaluation)
            return
        report = client.evaluate(run.id, evaluation.report())

        def keep(done: Future[bool]) -> None:
            if done.cancelled() or done.exception() is not None:
                self.on_lost(evaluation)

        report.add_done_callback(keep)
        self.reports = [earlier for earlier in self.reports if not earlier.done()] + [report]

    def _evaluation(self, version: int, rows: int | None, played: dict[str, Any]) -> Evaluation:
        successes, goal = played["successes"], self.rule.goal
        if successes is None and goal is not None:
            successes = [value >= goal for value in played["returns"]]
        return Evaluation(
            version,
            rows,
            tuple(played["returns"]),
            tuple(played["lengths"]),
            None if successes is None else tuple(successes),
            played.get("best_return"),
        )


def _idle(names: Sequence[str]) -> str:
    """Return a sentence on runs whose agents got zeros, empty without any."""
    if not names:
        return ""
    return f"agents of {', '.join(names)} got zeros, for there was no policy of that run yet"


def _unshown(reason: str) -> str:
    """Return a sentence on an evaluation that was recorded, and of which there is no replay."""
    return (
        f"the page of the run has no replay of it: {reason}; look whether the disk of the training"
        " is full or slow, or leave --trace-every (trace_every) away"
    )


def _tell_unkept(kept: Future[list[KeptReplay]]) -> None:
    """Log why the hive keeps no replay, as one of an earlier release does."""
    if not kept.cancelled() and (error := kept.exception()) is not None:
        _log.warning("the page of the run has no replay of an evaluation: %s", error)


def _close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close the pipes to a process that has ended."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(BrokenPipeError):  # of what the process has not read
                pipe.close()


def frames_of(episodes: int) -> int:
    """Return the frames after which an evaluation is ended in any case: 50,000 for 100 episodes."""
    return max(FRAMES, _FRAMES_EACH * episodes)
