"""A training from its first frame to the files it leaves."""

from __future__ import annotations

import sys
import time
from collections import deque
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from arkml.cli.exits import FAILED, GOOD, INTERRUPTED, print_json
from arkml.cli.files import write_file
from arkml.cli.measuring import Pacer
from arkml.cli.train import Goal, Training
from arkml.cli.units import sparkline
from arkml.cli.watch import Watch
from arkml.errors import GuestError, HiveError, NotFound, UsageError

if TYPE_CHECKING:
    from collections.abc import Callable

    from arkml.cli.players import Player
    from arkml.evaluation import Evaluator
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo
    from arkml.host import Host

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
        self.evaluations = 0
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
                if not self._has_begun():
                    continue
                self.frames += 1
                if every and evaluate is not None and not self.frames % every:
                    evaluate()
                self._watch.look(self.frames)
        finally:
            self.seconds = time.monotonic() - self._began

    def run_once(self, step: Callable[[], None]) -> None:
        """Do what has an end of its own."""
        try:
            step()
            self.frames = 1
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
    _require_fresh(training)
    training.out.mkdir(parents=True, exist_ok=True)
    with open_host(training.grants, program=training.guest.name) as host:
        program = playing.compiled(host, training.guest)
        task = choose(program, Wanted(training.cmdlet, None, (), None))
        budget = playing.budget_of(task, training.grants)
        player = playing.player_of(host, program, task, instances=training.instances, budget=budget)
        playing.announce(program, training.instances)
        goal = training.goal
        if goal.is_open:
            goal = Goal(minutes=_DEFAULT_MINUTES)
        watch = Watch(host)
        course = Course(training, goal, watch)
        status = _played(training, host, player, course, once=not task.is_repeatable)
        watch.close()
        return _finish(training, host, course) or status


def _played(training: Training, host: Host, player: Player, course: Course, *, once: bool) -> int:
    evaluator = _Evaluation(host, player, course)
    try:
        player.initialise()
        if once:
            course.run_once(player.step)
        else:
            course.run(player.step, evaluator if training.eval_every else None)
    except KeyboardInterrupt:
        sys.stderr.write("interrupted: what was learned is kept\n")
        return INTERRUPTED
    except GuestError as error:
        from arkml.cli.exits import say_failure, sentence

        say_failure(sentence(error), error, as_json=False)
        return FAILED
    return GOOD


class _Evaluation:
    """Rates the policy in a guest of its own, which is made when it is first asked for."""

    def __init__(self, host: Host, player: Player, course: Course) -> None:
        self._host = host
        self._player = player
        self._course = course
        self._evaluator: Evaluator | None = None

    def __call__(self) -> None:
        started = _started(self._host)
        if started is None:
            return
        client, run = started
        if self._evaluator is None:
            self._evaluator = self._host.evaluator(self._player.subject)
            self._evaluator.guest.initialise()
        version, returns, lengths = self._evaluator.play(_EVALUATED, _EVALUATION_FRAMES)
        if not returns:
            return
        self._course.evaluations += 1
        self._course.evaluated.extend(returns)
        client.evaluate(run.id, version, returns, lengths)


def _require_fresh(training: Training) -> None:
    """Raise UsageError if there is a training already that is not to be resumed."""
    wish = training.grants.hive
    assert wish is not None
    data = training.out / "hive"
    if wish.hive == "embedded" and not wish.resume and data.exists() and any(data.iterdir()):
        raise UsageError(
            f"{training.out} holds a training already: --resume goes on with it,"
            " --out DIR begins another"
        )


def _started(host: Host) -> tuple[HiveClient, RunInfo] | None:
    """The first run that the guest has started, and whom to ask for it."""
    hives = host.hives
    assert hives is not None
    runs = hives.started
    return (hives.client(), runs[0]) if runs else None


def _finish(training: Training, host: Host, course: Course) -> int:
    started = _started(host)
    if started is None:
        sys.stderr.write(f"{training.guest.name} started no training\n")
        return FAILED
    client, run = started
    try:
        document = _gathered(training, client, run, course)
    except (NotFound, HiveError) as error:
        sys.stderr.write(f"the policy cannot be had: {error}\n")
        return FAILED
    if training.as_json:
        print_json(document)
    else:
        _show(document)
    return GOOD


def _gathered(
    training: Training, client: HiveClient, run: RunInfo, course: Course
) -> dict[str, Any]:
    """Write the files; what is to be told of the training."""
    from arkml.cli.curve import draw
    from arkml.cli.snapshots import fetch, packed

    which, policy = fetch(client, run.id, ("best", "now", "latest"))
    base = training.out / training.guest.stem
    files = {}
    for suffix in (".onnx", ".crvo"):
        path = base.with_suffix(suffix)
        write_file(path, packed(policy, path))
        files[suffix[1:]] = str(path)
    learned = client.series(run.id, "rollout/ep_rew_mean").result()
    rated = client.series(run.id, "eval/mean_reward").result()
    curve = training.out / "learning_curve.png"
    has_curve = find_spec("matplotlib") is not None
    if has_curve:
        draw(curve, f"{run.name} ({training.guest.name})", learned, rated)
    metrics = {name: value for name, value, _ in client.metrics(run.id).result()}
    now = client.run(run.id).result()
    returns = rated or learned
    return {
        "guest": training.guest.name,
        "run": run.id,
        "name": run.name,
        "frames": course.frames,
        "seconds": round(course.seconds, 3),
        "fps": training.fps,
        "late_frames": None if course.pacer is None else course.pacer.late,
        "rows": now.rows,
        "updates": now.n_opts,
        "versions": now.policy_version,
        "mean_return": {
            "of": "evaluations" if rated else "training episodes",
            "first": returns[0][1] if returns else None,
            "last": returns[-1][1] if returns else None,
            "series": returns,
        },
        "policy": {
            "which": which,
            "rated_by": "evaluations" if rated else "the mean of the last 100 training episodes",
            **files,
        },
        "curve": str(curve) if has_curve else None,
        "metrics": metrics,
        "play": f"arkml run {training.guest} --policy {files['onnx']}",
    }


def _show(document: dict[str, Any]) -> None:
    from arkml.cli.tables import facts, show

    means, policy, seconds = document["mean_return"], document["policy"], document["seconds"]
    rows = [
        ("frames", f"{document['frames']:,} in {seconds:,.1f} s"),
        ("rows learned from", f"{document['rows']:,}"),
        ("updates", f"{document['updates']:,} ({document['updates'] / max(seconds, 1e-9):,.0f}/s)"),
        ("policy versions", f"{document['versions']:,}"),
    ]
    if document["fps"] is not None:
        late = f"{document['late_frames']:,} at {document['fps']:g} frames a second"
        rows.append(("late frames", late))
    if means["first"] is not None:
        told = f"{means['first']:,.4g} -> {means['last']:,.4g} ({means['of']})"
        rows += [("mean return", told), ("", sparkline([value for _, value in means["series"]]))]
    best = f" (by {policy['rated_by']})" if policy["which"] == "best" else ""
    rows += [
        (f"{policy['which']} policy", f"{policy['onnx']}, {policy['crvo']}{best}"),
        ("learning curve", document["curve"] or "none: matplotlib is not installed"),
        ("play it", document["play"]),
    ]
    show(f"{document['guest']}: {document['name']}", facts(rows))
