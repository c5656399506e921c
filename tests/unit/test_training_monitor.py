"""The verdict of a training's monitor on what its hive says."""

import threading
from concurrent.futures import Future
from types import SimpleNamespace

import numpy as np
import pytest
from msgspec.structs import replace
from tests.tracked import RUN
from tests.waiting import PATIENCE, eventually

from arkml.errors import (
    GuestTrap,
    HiveRefused,
    HiveUnreachable,
    ProtocolError,
    RunAborted,
    RunGone,
    Unavailable,
)
from arkml.hive.protocol.page_messages import HistoryEntry
from arkml.hive.protocol.runs import Status
from arkml.training.loop import TrainingLoop
from arkml.training.monitor import RunMonitor
from arkml.training.training_options import Goal


class Client:
    """A hive that has one answer about its run."""

    is_gone = False

    def __init__(self, answer):
        self.answer, self.happened = answer, []

    def run(self, _):
        future = Future()
        if isinstance(self.answer, Exception):
            future.set_exception(self.answer)
        else:
            future.set_result(self.answer)
        return future

    def series(self, *_):
        return done([])

    def metrics(self, _):
        return done([])

    def events(self, *_):
        return done(self.happened)


def done(value):
    future = Future()
    future.set_result(value)
    return future


class Ratings:
    """Ratings that are noted for each frame, and reach a goal after so many."""

    def __init__(self, *, decides=True, reached_after=10**9):
        self.decides, self.is_reached, self.frames = decides, False, []
        self._reached_after = reached_after

    def after_frame(self, frames):
        self.frames.append(frames)
        self.is_reached = frames >= self._reached_after


def monitor_of(answer, *, is_own=False):
    hives = SimpleNamespace(
        started=[(Client(answer), RUN)], failure=None, is_training=True, awaits_runs=False,
        page="", silence="",
        absence="", goal=None, grant=SimpleNamespace(is_embedded=False, checkpoint=""),
    )  # fmt: skip
    monitor = RunMonitor(hives, lambda _: None)
    monitor.is_own_end = lambda: is_own
    return monitor


@pytest.mark.parametrize(
    ("answer", "error", "reason"),
    [
        (replace(RUN, status=Status.STOPPED, reason="its hours are over"), RunGone, "its hours"),
        (replace(RUN, status=Status.STOPPED), RunGone, "run 'walker' was stopped at its hive"),
        (replace(RUN, status=Status.NOT_FOUND), RunGone, "its files were removed at its hive"),
        (replace(RUN, status=Status.ABORTED, reason="no memory"), RunAborted, "no memory"),
        (HiveRefused("there is no run r1", 404), RunGone, "run 'walker' is gone: there is no"),
        (HiveRefused("the token has expired", 401), HiveRefused, "the token has expired"),
    ],
)
def test_the_end_of_a_run_is_the_end_of_its_training(answer, error, reason):
    with monitor_of(answer) as monitor:
        verdict = eventually(lambda: monitor.verdict)

    assert isinstance(verdict, error)
    assert reason in str(verdict)


@pytest.mark.parametrize(
    ("answer", "is_own"),
    [
        (replace(RUN, status=Status.STOPPED), True),
        (replace(RUN, rows=5), False),
        (HiveUnreachable("no answer"), False),
        (HiveRefused("a disk is full", 507), False),
    ],
)
def test_a_run_that_may_go_on_or_that_its_guest_has_ended_ends_no_training(answer, is_own):
    with monitor_of(answer, is_own=is_own) as monitor:
        monitor._look()

    assert monitor.verdict is None


@pytest.mark.parametrize(
    ("answer", "is_stopped"),
    [(False, True), (np.bool_(False), True), (None, False), (0, False), (np.bool_(True), False)],
)
def test_progress_that_answers_false_stops_a_training(answer, is_stopped):
    with monitor_of(replace(RUN, rows=5)) as monitor:
        monitor.close()
        monitor._report(lambda _: answer)

    assert monitor.is_stopped is is_stopped


def test_the_reason_of_a_guest_that_trapped_is_that_of_its_run():
    trap = GuestTrap("unreachable")
    with monitor_of(replace(RUN, status=Status.STOPPED, reason="by ann")) as monitor:
        cause = monitor.cause_of(trap)
    with monitor_of(replace(RUN, rows=5)) as monitor:
        own = monitor.cause_of(trap)

    assert "by ann" in str(cause)
    assert cause.__cause__ is trap
    assert own is trap


def test_a_session_that_has_failed_has_the_run_looked_at_at_once_and_ends_the_training(
    monkeypatch,
):
    with monitor_of(replace(RUN, rows=5)) as monitor:
        eventually(lambda: monitor.info)
        monitor.session_failure = lambda: "it was refused"
        monkeypatch.setattr("arkml.training.monitor._INTERVAL", None)  # it looks when told to
        assert monitor.has_session() is False
        monitor._hives.started[0][0].answer = replace(RUN, status=Status.STOPPED, reason="by ann")
        reason = eventually(lambda: monitor.verdict)
    with monitor_of(replace(RUN, rows=5)) as monitor:
        monkeypatch.setattr("arkml.training.monitor._LOST", 0.0)
        monitor.session_failure = lambda: "it was refused"
        lost = eventually(lambda: monitor.has_session() or monitor._look() or monitor.verdict)

    assert "by ann" in str(reason)
    assert isinstance(lost, RunGone)
    assert str(lost) == "the session of run 'walker' has failed: it was refused"


def test_a_guest_that_joins_its_run_again_goes_on(monkeypatch):
    monkeypatch.setattr("arkml.training.monitor._LOST", 0.0)
    with monitor_of(replace(RUN, rows=5)) as monitor:
        monitor.close()
        monitor.session_failure = lambda: "it was refused"
        lost = monitor.has_session()
        monitor.session_failure = lambda: ""
        monitor._look()
        monitor._look()

    assert not lost
    assert monitor.has_session()
    assert monitor.verdict is None


def test_frames_after_a_session_has_failed_are_neither_counted_nor_evaluated():
    ratings, steps = Ratings(), []
    with monitor_of(replace(RUN, rows=5)) as monitor:
        monitor.session_failure = lambda: "it was refused" if len(steps) > 4 else ""
        goal = Goal(None, 60.0, None)
        loop = TrainingLoop(goal, None, monitor, is_once=False, cancel=lambda: None)

        def step():
            steps.append(None)
            if len(steps) == 8:
                monitor.verdict = RunGone("it was stopped")

        with pytest.raises(RunGone, match="it was stopped"):
            loop.run(lambda: None, step, ratings)

    assert loop.frames == 4
    assert ratings.frames == [1, 2, 3, 4]


@pytest.mark.parametrize(
    ("place", "is_gone", "is_given_up"), [(1, False, False), (1, True, True), (0, False, True)]
)
def test_a_guest_without_a_policy_is_given_up_unless_its_run_waits_for_a_learner(
    place, is_gone, is_given_up
):
    with monitor_of(replace(RUN, place=place)) as monitor:
        monitor.close()
        monitor._look()
        monitor._hives.is_training = False
        monitor._hives.started[0][0].is_gone = is_gone
        loop = TrainingLoop(Goal(9, None, None), None, monitor, is_once=False, cancel=print)
        loop._began = loop._missed = float("-inf")
        has_run = loop._has_run()

        assert not has_run
        assert loop.is_due() is is_given_up


@pytest.mark.parametrize(("status", "is_refused"), [(410, False), (429, True), (507, True)])
def test_a_run_that_was_joined_is_refused_where_its_hive_is_full_and_else_judged(
    status, is_refused
):
    with monitor_of(RUN) as monitor:
        monitor.close()
        monitor._hives.is_training = False
        monitor._hives.failure = HiveRefused("run r1 has 1 sessions, and may have 1", status)

        assert isinstance(monitor._refusal(), Unavailable) is is_refused


@pytest.mark.parametrize("ratings", [None, Ratings(decides=False)])
@pytest.mark.parametrize(("episodes", "ended"), [(19, "frames"), (20, "return")])
def test_the_first_few_episodes_of_training_reach_no_goal(episodes, ended, ratings):
    with monitor_of(replace(RUN, rows=5)) as monitor:
        monitor.close()
        monitor.metrics = {"rollout/ep_rew_mean": -10.0, "time/episodes": float(episodes)}
        loop = TrainingLoop(Goal(9, None, -50.0), None, monitor, is_once=False, cancel=print)
        loop.run(lambda: None, lambda: None, ratings)

    assert loop.ended == ended


def test_where_policies_are_evaluated_episodes_of_training_reach_no_goal():
    with monitor_of(replace(RUN, rows=5)) as monitor:
        monitor.close()
        monitor.metrics = {"rollout/ep_rew_mean": -10.0, "time/episodes": 500.0}
        loop = TrainingLoop(Goal(9, None, -50.0), None, monitor, is_once=False, cancel=print)
        loop.run(lambda: None, lambda: None, Ratings(reached_after=6))

    assert (loop.frames, loop.ended) == (6, "return")


def test_a_hive_that_does_not_answer_is_why_a_guest_has_started_no_training(monkeypatch):
    monkeypatch.setattr("arkml.training.monitor._QUIET", 0.0)
    with monitor_of(RUN) as monitor:
        monitor.close()
        monitor._hives.started = []
        monitor._hives.silence = "the hive at mars:1 has not answered for 9 s"
        monitor._look()

    assert monitor.warnings == [
        "the guest has started no training yet: the hive at mars:1 has not answered for 9 s"
    ]


@pytest.mark.parametrize("is_embedded", [False, True])
def test_a_hive_that_has_never_answered_ends_a_training_once_it_had_its_time(is_embedded):
    absence = "no hive answers at mars:1"
    with monitor_of(RUN) as monitor:
        monitor.close()
        monitor._hives.started = []
        monitor._hives.absence, monitor._hives.grant.is_embedded = absence, is_embedded
        monitor._look()
        early, monitor._began = monitor.verdict, float("-inf")
        monitor._look()

    assert early is None
    assert str(monitor.verdict or "") == ("" if is_embedded else absence)


def test_a_hive_that_has_answered_before_is_waited_for():
    with monitor_of(RUN) as monitor:
        monitor.close()
        monitor._hives.started, monitor._began = [], float("-inf")
        monitor._hives.failure = HiveUnreachable("no hive answers at mars:1")
        monitor._look()

    assert monitor.verdict is None


def test_a_server_that_speaks_otherwise_than_a_hive_ends_a_training_at_once():
    with monitor_of(RUN) as monitor:
        monitor.close()
        monitor._hives.started = []
        monitor._hives.failure = ProtocolError("the hive answered what cannot be used")
        monitor._look()

    assert str(monitor.verdict) == "the hive answered what cannot be used"


def test_why_a_learner_ended_last_is_known_while_another_one_starts():
    with monitor_of(replace(RUN, status=Status.UNHEALTHY, reason="no memory")) as monitor:
        monitor._look()
        monitor._hives.started[0][0].answer = replace(RUN, reason="")
        monitor._look()

    assert monitor.learner_end == "no memory"


HAPPENED = [
    HistoryEntry(1, "started", "a learner begins"),
    HistoryEntry(2, "warning", "the run is stuck\x1b[2J", "stuck"),
    HistoryEntry(3, "warning", "the learner ended", "restarted"),
    HistoryEntry(4, "goal", "the goal is reached", "goal"),
]


def heard(run, monkeypatch):
    """What a monitor hears of a run that was so when it was joined, by two looks at its hive."""
    monkeypatch.setattr("arkml.training.monitor._INTERVAL", 3_600)
    told, states = [], []
    client = Client(replace(run, rows=5))
    with monitor_of(None) as monitor:
        monitor._hives.started[0] = client, run
        monitor.on_notice = told.append
        client.events = lambda _, since: done([one for one in client.happened if one.at > since])
        client.happened = HAPPENED[:2]
        monitor._look()
        monitor._report(states.append)
        client.happened = HAPPENED
        monitor._look()
        monitor._report(states.append)
    return monitor, [one.kind for one in told], [[one.kind for one in s.notices] for s in states]


def test_notices_of_the_hive_are_said_once_and_each_is_a_warning_unless_it_is_said_elsewhere(
    monkeypatch,
):
    monitor, told, states = heard(RUN, monkeypatch)

    assert told == [one.kind for one in monitor.notices] == ["stuck", "restarted", "goal"]
    assert states == [["stuck"], ["restarted", "goal"]]
    assert monitor.warnings == ["the run is stuck\\x1b[2J"]


def test_notices_of_the_trainings_before_this_one_are_not_said_again(monkeypatch):
    _, told, states = heard(replace(RUN, rows=100), monkeypatch)

    assert told == ["restarted", "goal"]
    assert states == [[], ["restarted", "goal"]]


def test_notices_that_two_threads_would_fetch_at_once_are_told_once(monkeypatch):
    monkeypatch.setattr("arkml.training.monitor._INTERVAL", 3_600)
    asked, answered, told = threading.Semaphore(0), threading.Event(), []
    client = Client(replace(RUN, rows=5))

    def events(_, since):
        asked.release()
        answered.wait(PATIENCE)
        return done([one for one in HAPPENED if one.at > since])

    client.events = events
    with monitor_of(None) as monitor:
        monitor._hives.started[0] = client, RUN
        monitor.on_notice = told.append
        threads = [threading.Thread(target=monitor.hear) for _ in range(2)]
        for thread in threads:
            thread.start()
        asked.acquire()
        asked.acquire(timeout=0.1)  # the other, unless it waits for the first
        answered.set()
        for thread in threads:
            thread.join()

    assert [one.kind for one in told] == ["stuck", "restarted", "goal"]


def test_a_hive_that_tells_no_events_ends_no_training():
    refused = Future()
    refused.set_exception(HiveRefused("the token may not", 403))
    client = Client(replace(RUN, rows=5))
    client.events = lambda *_: refused
    with monitor_of(None) as monitor:
        monitor._hives.started[0] = client, RUN
        monitor._look()

    assert monitor.info.rows == 5
    assert monitor.verdict is None
