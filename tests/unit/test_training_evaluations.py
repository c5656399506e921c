"""What the evaluations of a training do by default, and what they leave to its episodes."""

import threading
from types import SimpleNamespace

import pytest
from tests.tracked import RUN
from tests.unit.test_training_monitor import done
from tests.waiting import eventually

from arkml.runtime.module.description import ModuleKind
from arkml.training import training_evaluations
from arkml.training.periodic_evaluation import EvaluationFailed
from arkml.training.rating_rules import RatingPace
from arkml.training.tasks import Task
from arkml.training.training_evaluations import TrainingEvaluations
from arkml.training.training_options import Goal, TrainingOptions

APPLET = Task(ModuleKind.APPLET, "ark_applet_update")
CMDLET = Task(ModuleKind.CMDLET, "ark_cmdlet_run")
GOAL = Goal(frames=1_000, mean_return=50.0)
KILLED = EvaluationFailed("the process that evaluates walker.wasm ended with status -9")


class Client:
    """A client of a hive that answers at once."""

    def __init__(self):
        self.reports = []

    def begin_evaluation(self, *_):
        return done(RUN)

    def evaluate(self, _, report):
        self.reports.append(report)
        return done(True)


class Played:
    """
    The evaluations of a training whose versions play what a test says.

    `play` gets a version and a number of episodes, and returns the mean return of these, or raises.
    """

    def __init__(self, directory, play, task=APPLET, **options):
        self.client, self.version, self.played, self.others = Client(), 1, [], {}
        self.monitor = SimpleNamespace(
            warnings=[], evaluations=[], is_stopped=False, updates=9,
            keep_evaluation=print, highest_evaluation=lambda: None,
        )  # fmt: skip
        self.monitor.add_evaluation = self.monitor.evaluations.append
        self._play = play
        self.ratings = TrainingEvaluations(
            b"",
            TrainingOptions("walker.wasm", directory, **{"goal": GOAL} | options),
            task,
            SimpleNamespace(started=[(self.client, RUN)], names=["walker"]),
            lambda: self,
        )
        self.ratings._played._play = self._answer
        self.ratings.begin(self.monitor, lambda: False)
        self.ratings.after_frame(1)  # of a policy that has learned nothing

    def _answer(self, wanted, episodes):
        self.played.append((wanted.version, *wanted.others) if wanted.others else wanted.version)
        mean = self._play(wanted.version, episodes)
        count = 0 if mean is None else episodes
        return {
            "returns": [mean] * count, "lengths": [3] * count, "successes": None,
            "shortfall": "" if count else "no episode ended within 5,000 frames", "vanished": 0,
        }  # fmt: skip

    def rate(self, version):
        """Step frames under a version until it has been rated."""
        self.version = version

        def is_rated():
            self.ratings.after_frame(7)
            return version in self.played and self.ratings._played._playing is None

        eventually(is_rated)

    def step(self, version):
        """Step a frame under a version."""
        self.version = version
        self.ratings.after_frame(7)


@pytest.fixture
def made(tmp_path, monkeypatch):
    """A maker of evaluations, which are closed at the end."""
    every = []

    def make(play=lambda *_: 0.0, **options):
        every.append(Played(tmp_path, play, **options))
        return every[-1]

    monkeypatch.setattr(training_evaluations, "held_policy", lambda one: (one.version, b"onnx"))
    monkeypatch.setattr(training_evaluations, "held_others", lambda one: one.others)
    yield make
    for one in every:
        one.ratings.close()


def test_a_goal_is_reached_by_a_hundred_episodes_of_one_version(made):
    def play(version, episodes):
        return {2: 40.0, 3: 60.0 if episodes == 10 else 45.0, 4: 60.0}[version]

    training, reached = made(play), []
    for version in (2, 3, 4):
        training.rate(version)
        reached.append(training.ratings.is_reached)

    assert reached == [False, False, True]
    assert [len(report.returns) for report in training.client.reports] == [10, 100, 100]
    assert training.ratings.decides
    assert training.monitor.warnings == []


def test_versions_whose_first_episodes_are_good_do_not_reach_a_goal_together(made):
    training = made(lambda _, episodes: 60.0 if episodes == 10 else 45.0)
    for version in range(2, 14):
        training.rate(version)

    assert not training.ratings.is_reached
    assert len(training.monitor.evaluations) == 12


@pytest.mark.parametrize("eval_every", [1, "auto"])
def test_a_goal_is_the_same_for_any_interval(made, eval_every):
    training = made(lambda *_: 50.0, eval_every=eval_every)
    training.rate(2)

    assert training.ratings.is_reached
    assert len(training.monitor.evaluations[-1].returns) == 100


def test_without_evaluations_episodes_of_training_decide(made):
    training = made(eval_every=None)
    for version in (2, 3):
        training.step(version)
    training.ratings.finish(1.0)

    assert (training.played, training.ratings.decides) == ([], False)


def test_a_guest_that_starts_several_runs_is_evaluated_among_the_newest_of_the_others(made):
    training = made(lambda version, _: float(version))
    training.others = {"prey": b"early"}
    training.step(2)
    eventually(lambda: len(training.client.reports) == 1)
    training.others = {"prey": b"late"}
    training.step(3)

    def is_rated():
        training.step(3)
        return len(training.client.reports) == 2

    eventually(is_rated)

    assert training.ratings.decides
    assert training.played == [(2, "prey"), (3, "prey"), (2, "prey"), (3, "prey")]
    assert [one.best_return for one in training.client.reports] == [None, 2.0]
    assert training.monitor.warnings == []


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"settings": {"sync": True}}, "in lockstep (sync) nothing depends on a clock"),
        ({"task": CMDLET}, "walker.wasm is cmdlet ark_cmdlet_run, and"),
        ({"task": Task(ModuleKind.APPLET, "")}, "walker.wasm is a module without a task, and"),
    ],
)
def test_what_has_no_pace_is_not_evaluated_and_said_where_a_return_is_waited_for(
    made, options, reason
):
    waiting, other = made(**options), made(**options, goal=Goal(frames=9))
    for training in (waiting, other):
        training.step(2)
        training.ratings.finish(1.0)

        assert (training.played, training.ratings.decides) == ([], False)
    assert [one[: len(reason)] for one in waiting.monitor.warnings] == [reason]
    assert other.monitor.warnings == []


def failing(_version, _episodes):
    raise KILLED


def test_a_first_evaluation_that_fails_is_the_last_and_the_training_goes_on(made):
    training = made(failing)
    training.rate(2)
    for version in (3, 4):
        training.step(version)
    training.ratings.finish(1.0)

    assert (training.played, training.ratings.decides) == ([2], False)
    assert training.monitor.warnings == [
        f"{KILLED}; no further evaluations are played, and episodes of training decide"
    ]


def test_a_last_version_that_waited_for_the_failure_fails_without_a_word(made):
    begun, waits = threading.Event(), threading.Event()

    def play(*_):
        begun.set()
        waits.wait(60)

    def ask(_, version):
        if version == 3:
            waits.set()
        return done(RUN)

    training = made(play)
    training.client.begin_evaluation = ask
    training.step(2)
    begun.wait(60)
    training.version = 3
    training.ratings.finish(1.0)

    assert training.played == [2, 3]
    assert len(training.monitor.warnings) == 1


def test_an_evaluation_without_episodes_is_the_last_of_those_at_a_pace(made):
    paced, counted = made(lambda *_: None), made(lambda *_: None, eval_every=1)
    for version in (2, 3):
        counted.rate(version)
    paced.rate(2)
    paced.step(3)
    unended = "evaluation of version 2: no episode ended within 5,000 frames"

    assert (paced.played, paced.ratings.decides) == ([2], False)
    assert [one.partition(";")[0] for one in paced.monitor.warnings] == [unended]
    assert counted.ratings.decides
    # It is said once, of the version that was rated first.
    assert counted.monitor.warnings[-1].endswith(": no episode ended within 5,000 frames")


def test_evaluations_go_on_after_one_that_failed_and_end_after_three(made):
    def play(version, _):
        if version in (3, 5, 6, 7):
            raise KILLED
        return 10.0

    training, decides = made(play), []
    for version in range(2, 8):
        training.rate(version)
        decides.append(training.ratings.decides)

    assert decides == [True] * 5 + [False]
    assert [one.version for one in training.monitor.evaluations] == [2, 4]
    assert training.monitor.warnings == [
        f"{KILLED}; the training goes on, and a new process plays the next one",
        f"{KILLED}; no further evaluations are played, and episodes of training decide",
    ]


def test_an_evaluation_every_so_many_frames_that_fails_ends_the_training(made):
    training = made(failing, eval_every=7)
    training.step(2)
    with pytest.raises(EvaluationFailed, match="status -9"):
        training.ratings.finish(1.0)


def test_the_last_version_is_rated_and_the_best_plays_again_where_evaluations_have_begun(made):
    begun, short = made(), made(goal=Goal(frames=9))
    begun.rate(2)
    begun.version = 3
    short.step(2)  # within the first seconds
    for training in (begun, short):
        training.ratings.finish(1.0)

    assert (begun.played, short.played) == ([2, 3, 3], [])
    assert [one.version for one in begun.monitor.evaluations] == [2, 3]
    assert (begun.ratings.confirmed.version, short.ratings.confirmed) == (3, None)


def test_a_training_that_has_rated_its_first_version_alone_is_told(made):
    trainings = [made(eval_every=1) for _ in range(3)]
    trainings[1].rate(2)
    trainings[2].monitor.updates = 0
    for one in trainings:
        one.ratings.finish(1.0)

    (warning,) = trainings[0].monitor.warnings
    assert warning.startswith("only version 1 was rated, the policy from before the first update")
    assert [one.monitor.warnings for one in trainings[1:]] == [[], []]


def test_a_training_that_has_reached_its_goal_rates_no_further_version(made):
    training = made(lambda version, _: float(version))
    training.rate(2)
    training.version = 3
    training.ratings.finish(1.0, rates_last=False)

    assert training.played == [2, 2]
    assert len(training.ratings.confirmed.returns) == 100


def test_a_last_rating_that_takes_long_is_given_up(made, monkeypatch):
    monkeypatch.setattr(training_evaluations, "_LAST", 0.05)
    ended = threading.Event()
    training = made(lambda version, _: ended.wait(60) * 0.0 if version == 3 else 0.0)
    training.rate(2)
    training.version = 3
    training.ratings.finish(0.1)
    is_playing = not ended.is_set()
    training.ratings._played._is_closed = True
    ended.set()

    assert is_playing
    assert training.played[-1] == 3
    assert [one.version for one in training.monitor.evaluations] == [2]
    assert training.monitor.warnings == [
        "the last policy is not rated, since that takes longer than 0 s: an earlier one is the best"
        " of those that are, and the last may be better (arkml evaluate rates it)"
    ]


def test_ratings_are_at_the_pace_of_the_options(made, monkeypatch):
    paces = []

    class Noted(RatingPace):
        def __init__(self, *, has_goal):
            paces.append(has_goal)
            super().__init__(has_goal=has_goal)

    monkeypatch.setattr(training_evaluations, "RatingPace", Noted)
    for options in ({}, {"goal": Goal(minutes=1)}, {"eval_every": 5}, {"eval_every": None}):
        made(**options)

    assert paces == [True, False]
