"""A training from its first frame to the files it leaves."""

from __future__ import annotations

import sys
import time
from collections import deque
from concurrent.futures import Future
from typing import TYPE_CHECKING

from arkml.cli.ending import Ending
from arkml.cli.files import make_directory
from arkml.cli.signals import SIGNALS
from arkml.cli.timing import Pacer
from arkml.cli.train_command import Goal, Training
from arkml.cli.training_record import TrainingRecord
from arkml.cli.watch import Watch

if TYPE_CHECKING:
    from collections.abc import Callable

    from arkml.cli.task_runner import Player
    from arkml.host import Host
    from arkml.runs.evaluation import Evaluator
    from arkml.runtime.compiled_module import CompiledModule

_DEFAULT_MINUTES = 5.0
_EVALUATED = 10  # episodes of an evaluation
_EVALUATION_FRAMES = 5_000
_IDLE = 0.005  # seconds between two frames before there is a run
_NO_RUN = 90.0  # seconds after which a guest that starts none is given up
_RATED = 100  # episodes that a mean return is of


class Course:
    """
    The frames of one training, and when they are enough.

    Frames before the run is there do not count, and are not played as fast as can be: the learner
    starts sooner then.
    """

    def __init__(self, training: Training, goal: Goal, watch: Watch) -> None:
        self.frames = 0
        self.seconds = 0.0
        self.evaluated: deque[float] = deque(maxlen=_RATED)
        self.pacer: Pacer | None = None
        self._training = training
        self._goal = goal
        self._watch = watch
        self._began = time.monotonic()
        self._begun: float | None = None

    def run(self, step: Callable[[], None], evaluate: Callable[[], None] | None) -> None:
        """Step until the goal is reached."""
        fps, every = self._training.fps, self._training.eval_every
        pacer = self.pacer = None if fps is None else Pacer(fps)
        if pacer is not None:
            pacer.begin()
        try:
            while not self._is_reached():
                step()
                if pacer is not None:
                    pacer.wait()
                if self._watch.verdict is not None or not self._has_begun():
                    self._watch.require_hope()
                    continue
                self.frames += 1
                self._watch.frames = self.frames
                if every and evaluate is not None and not self.frames % every:
                    evaluate()
        finally:
            self.seconds = time.monotonic() - self._began

    def run_once(self, step: Callable[[], None]) -> None:
        """Do what has an end of its own."""
        try:
            step()
            self.frames = 1
            self._watch.require_hope()
        finally:
            self.seconds = time.monotonic() - self._began

    @property
    def mean_return(self) -> float | None:
        """Of the last 100 evaluation episodes, or else of training episodes."""
        if self.evaluated:
            return sum(self.evaluated) / len(self.evaluated)
        return self._watch.mean_return

    def _has_begun(self) -> bool:
        """Whether there is a run to train."""
        if self._begun is None:
            if self._watch.has_run:
                self._begun = time.monotonic()
            elif self._training.fps is None:
                time.sleep(_IDLE)
        return self._begun is not None

    def _is_reached(self) -> bool:
        goal = self._goal
        if goal.frames is not None and self.frames >= goal.frames:
            return True
        since = time.monotonic() - (self._begun or self._began)
        if goal.minutes is not None and since >= 60 * goal.minutes:
            return True
        if self._begun is None and since > _NO_RUN:
            return True
        mean = self.mean_return
        return goal.mean_return is not None and mean is not None and mean >= goal.mean_return


def train(training: Training) -> int:
    """Train, say how it goes, write what came of it."""
    from arkml.cli import playing
    from arkml.cli.launch import open_host
    from arkml.cli.tasks import Wanted, choose

    training.logs.start()
    record = TrainingRecord(training)
    with open_host(record.grants, program=training.guest.name) as host:
        program = playing.compiled(host, training.guest)
        _require_continuous(program)
        task = choose(program, Wanted(training.cmdlet, None, (), None))
        budget = playing.budget_of(task, training.grants)
        player = playing.player_of(host, program, task, instances=training.instances, budget=budget)
        make_directory("--out", training.out)
        playing.announce(program, training.instances)
        goal = training.goal
        if goal.is_open:
            goal = Goal(minutes=_DEFAULT_MINUTES)
        SIGNALS.keep()
        with Watch(host, record.write) as watch:
            course = Course(training, goal, watch)
            evaluation = _Evaluation(host, player, course, watch)
            error = _played(training, player, course, evaluation, once=not task.is_repeatable)
        status = Ending(training, host, player, course, watch, error).write(evaluation.reports)
        SIGNALS.done()
        return SIGNALS.ended(status)


def _played(
    training: Training,
    player: Player,
    course: Course,
    evaluation: Callable[[], None],
    *,
    once: bool,
) -> Exception | None:
    """Play to the end. No signal interrupts afterwards. Returns what went wrong."""
    try:
        error = _tried(training, player, course, evaluation, once=once)
        SIGNALS.begin_end()
    except KeyboardInterrupt:
        SIGNALS.begin_end()
        sys.stderr.write(f"interrupted by {SIGNALS.name}: what was learned is kept\n")
        return None
    return error


def _tried(
    training: Training,
    player: Player,
    course: Course,
    evaluation: Callable[[], None],
    *,
    once: bool,
) -> Exception | None:
    try:
        player.initialize()
        if once:
            course.run_once(player.step)
        else:
            course.run(player.step, evaluation if training.eval_every else None)
    except Exception as error:  # noqa: BLE001  whatever it is, what was learned is to be kept
        return error
    return None


class _Evaluation:
    """
    Rates the policy in a guest of its own, which is made when it is first asked for.

    `reports` are those that the hive has not answered yet.
    """

    def __init__(self, host: Host, player: Player, course: Course, watch: Watch) -> None:
        self.reports: list[Future[bool]] = []
        self._host = host
        self._player = player
        self._course = course
        self._watch = watch
        self._evaluator: Evaluator | None = None

    def __call__(self) -> None:
        hives = self._host.hives
        if hives is None or not hives.started:
            return
        client, run = hives.started[0]
        if self._evaluator is None:
            self._evaluator = self._host.evaluator(self._player.subject)
            self._evaluator.guest.initialize()
        version, returns, lengths = self._evaluator.play(_EVALUATED, _EVALUATION_FRAMES)
        if not returns:
            return
        self._course.evaluated.extend(returns)
        mean = sum(returns) / len(returns)
        report = client.evaluate(run.id, version, returns, lengths)
        report.add_done_callback(lambda done: self._heard(done, mean))
        self.reports = [known for known in self.reports if not known.done()] + [report]

    def _heard(self, report: Future[bool], mean: float) -> None:
        if report.cancelled() or report.exception() is not None:
            self._watch.rated(mean)


def _require_continuous(program: CompiledModule) -> None:
    """Raise NotTrainable if all that a module declares of its agents has discrete actions."""
    from arkml.sessions.branches import declared_branches, require_continuous

    declared = declared_branches(program.info.spec)
    if declared and all(declared.values()):
        require_continuous(next(iter(declared)), declared)
