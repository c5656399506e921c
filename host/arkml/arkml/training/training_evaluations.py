"""
The evaluations of one training: which policy versions are rated and when, and the consequences.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from arkml.base.closing import Closing
from arkml.runtime.module.description import ModuleKind
from arkml.training.evaluation_traces import EvaluationTraces
from arkml.training.evaluations import EvaluationTask
from arkml.training.outcome import held_others, held_policy
from arkml.training.periodic_evaluation import PeriodicEvaluation, frames_of
from arkml.training.rating_rules import RatingPace, is_of_untrained
from arkml.training.results import Evaluation
from arkml.training.tasks import Task, fill_seed

if TYPE_CHECKING:
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import Guest
    from arkml.runs.hive_access import HiveAccess
    from arkml.training.monitor import RunMonitor
    from arkml.training.training_options import TrainingOptions

_LAST = 10.0  # seconds that the last ratings may lengthen a training by, if "auto"
_LAST_SHARE = 0.1  # of the length of the training, if that is more
_WHATEVER = "--eval-every N (eval_every=N) evaluates every N frames all the same"
_UNRATED = (
    "the last policy is not rated, since that takes longer than {:.0f} s: an earlier one is the"
    " best of those that are, and the last may be better (arkml evaluate rates it)"
)
_UNLEARNED = (
    "only version 1 was rated, the policy from before the first update, since no other has acted:"
    " the last policy may be better (arkml evaluate rates it); train for longer"
)
_INSTEAD = "no further evaluations are played, and episodes of training decide"


class TrainingEvaluations(Closing):
    """
    Rates the policies of a training by episodes without noise, by the option `eval_every`.

    With a number of frames, evaluations are part of the training: it fails if one fails. With
    "auto" the training continues: if evaluations are not possible, or fail, `warn` gets a sentence,
    and then training episodes decide, as they do with None.

    Attributes:
        is_reached: True once a version has reached the goal.
        confirmed: New episodes of the version with the best rating, played after the last rating.
            None before, and if there was no time for them.

    """

    def __init__(
        self,
        data: bytes,
        options: TrainingOptions,
        task: Task,
        hives: HiveAccess,
        subject: Callable[[], Guest | Fleet],
    ) -> None:
        self.is_reached = False
        self.confirmed: Evaluation | None = None
        goal = options.goal.mean_return
        self._options = options
        self._hives = hives
        self._subject = subject
        self._pace = RatingPace(has_goal=goal is not None) if options.eval_every == "auto" else None
        self._obstacle = _obstacle(options, task)
        self._monitor: RunMonitor | None = None
        self._is_over: Callable[[], bool] = lambda: False
        self._has_failed = False
        self._traces: EvaluationTraces | None = None
        if options.trace_every is not None:
            self._traces = EvaluationTraces(options.directory, options.trace_every)
        self._played = PeriodicEvaluation(
            EvaluationTask(
                options.name,
                fill_seed(options.arguments, options.environment_seed),
                options.limits,
                options.budgets_every_call,
                options.evaluate_episodes,
                frames_of(options.evaluate_episodes),
                options.max_episode_steps,
                options.imports,
                is_traced=self._traces is not None,
                wasi=options.wasi,
            ),
            data,
            goal=goal,
            traces=self._traces,
        )

    @property
    def decides(self) -> bool:
        """Whether evaluations, and not training episodes, decide that a goal is reached."""
        if self._pace is not None:
            return not self._pace.is_over
        return self._options.eval_every is not None

    @property
    def reports(self) -> Sequence[Future[Any]]:
        """Reports that the hive has not answered yet."""
        return self._played.reports

    def begin(self, monitor: RunMonitor, is_over: Callable[[], bool]) -> None:
        """
        Begin to report to a monitor; `is_over` returns whether the training is to end.

        Raises UsageError if the folder of traces cannot be made.
        """
        if self._traces is not None:
            self._traces.make_folder()
        self._monitor, self._is_over = monitor, is_over
        played, pace = self._played, self._pace
        played.on_evaluation = self._take
        played.on_lost = monitor.keep_evaluation
        played.earlier = monitor.highest_evaluation
        played.warn = monitor.warnings.append
        if pace is None:
            return
        played.on_failure = self._note_failure
        played.on_rated = lambda: pace.end(is_rated=True)
        if self._obstacle:
            pace.give_up()
            if self._options.goal.mean_return is not None:
                self._warn_once(f"{self._obstacle}: episodes of training decide; {_WHATEVER}")
            if self._options.trace_every is not None:
                self._warn_once(f"{self._obstacle}: none is recorded; {_WHATEVER}")

    def use_module(self, module: bytes) -> None:
        """Play with another module from the next evaluation on."""
        self._played.use_module(module)

    def after_frame(self, frames: int) -> None:
        """
        Rate the newest version if that is due; with the setting `sync`, wait until it is rated.
        """
        pace, every = self._pace, self._options.eval_every
        if pace is None:
            if isinstance(every, int) and not frames % every:
                self._rate_newest()
                if self._options.settings.get("sync", False):
                    self._played.wait(self._is_over)
        elif not pace.is_pausing:
            held = held_policy(self._subject())
            if held is not None and pace.is_due(held[0]):
                self._rate(*held)

    def finish(self, seconds: float, *, rates_last: bool = True) -> None:
        """
        Let the version with the best rating play again at the end of a training.

        Args:
            seconds: The length of the training. With "auto" the wait is short in comparison.
            rates_last: Whether the last version is rated first, and waited for.

        Raises:
            EvaluationFailed: An evaluation failed; not with "auto".

        """
        monitor, pace = self._monitor, self._pace
        assert monitor is not None
        limit = max(_LAST, _LAST_SHARE * seconds)
        until = time.monotonic() + limit

        def is_late() -> bool:
            return monitor.is_stopped or time.monotonic() >= until

        if rates_last:
            held = held_policy(self._subject())
            is_new = pace is not None and held is not None and pace.version not in (None, held[0])
            if pace is not None and held is not None and is_new and not pace.is_over:
                self._rate(*held)
            self._played.wait(is_late if pace is not None else lambda: monitor.is_stopped)
            if pace is None:
                until = time.monotonic() + limit
            elif self._played.is_busy and not monitor.is_stopped:
                self._warn_once(_UNRATED.format(limit))
                return
        if is_of_untrained((one.version for one in monitor.evaluations), monitor.updates):
            self._warn_once(_UNLEARNED)
        self.confirmed = self._played.play_again(is_late)

    def close(self) -> None:
        """Abort the evaluation in progress, which then is in no result. Safe to call twice."""
        self._played.close()

    def _rate_newest(self) -> None:
        held = held_policy(self._subject())
        if held is not None:
            self._rate(*held)

    def _rate(self, version: int, policy: bytes) -> None:
        if not self._hives.started:
            return
        client, run = self._hives.started[0]
        self._played.behavior = self._hives.names[0]
        if self._pace is not None:
            self._pace.begin(version)
        self._played.begin(client, run.id, version, policy, held_others(self._subject()))

    def _take(self, evaluation: Evaluation) -> None:
        assert self._monitor is not None
        self.is_reached = self.is_reached or self._played.rule.is_reached(evaluation.returns)
        self._monitor.add_evaluation(evaluation)

    def _note_failure(self, error: Exception) -> None:
        """Go on without an evaluation that failed, and say so once."""
        pace = self._pace
        assert pace is not None
        if pace.is_over:  # the last version had waited while the one before it failed
            return
        pace.end(is_rated=False)
        if pace.is_over:
            self._warn_once(f"{error}; {_INSTEAD}")
        elif not self._has_failed:
            self._has_failed = True
            self._warn_once(f"{error}; the training goes on, and a new process plays the next one")

    def _warn_once(self, warning: str) -> None:
        if self._monitor is not None and warning not in self._monitor.warnings:
            self._monitor.warnings.append(warning)


def _obstacle(options: TrainingOptions, task: Task) -> str:
    """Return why evaluations by a pace of time are not possible, empty if they are."""
    if options.settings.get("sync", False):
        return "in lockstep (sync) nothing depends on a clock, as evaluations at a pace would"
    if task.kind is not ModuleKind.APPLET or not task.is_repeatable:
        return f"{options.name} is {task.title}, and evaluations at a pace are of frames"
    return ""
