"""The rules of the watchdog, on curves of real runs, and what becomes of their findings."""

import gzip
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.benchmarks.watched_runs import HELD_OUT, KEPT, METRICS, RUNS

from arkml.hive.protocol.page_messages import GoalReached
from arkml.hive.protocol.run_origin import RunGoal
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.document import Document
from arkml.server.history import RunHistory
from arkml.server.run_origin import RunStart, StartFile, write_start
from arkml.server.watchdog.findings import Findings
from arkml.server.watchdog.rules import Sample
from arkml.server.watchdog.run_watch import RunWatch

CURVES = json.loads(gzip.decompress(KEPT.read_bytes()))
FOUND = {
    "cart-pole, rate 0.03": ["collapsed"],  # from 94 to 9
    "cart-pole, rate 0.1": ["collapsed"],
    "cart-pole, rate 0.3": ["collapsed", "stuck"],
    "corridor, rate 0.03, no bounds": ["collapsed"],
    "corridor, rate 0.3, no entropy": ["collapsed"],
    "pendulum by PPO, rate 0.3": ["stuck", "collapsed"],
    "pendulum, 256 x 3 units, 400 frames a second": ["slow"],
    "pendulum, rate 0": ["stuck"],
    "pendulum, rate 0.03, gamma 1, tau 1": ["diverging", "collapsed"],
    "pendulum, rate 0.1": ["stuck"],
    "point mass by PPO, rate 0.05": ["stuck", "collapsed"],
    "reach, rate 1": ["diverging", "collapsed"],
}
"""The kinds of findings, in their order; the other runs learn, and none is made about them."""

FOUND_LATER = {
    "asterix": ["stuck"],  # as good as by chance so far; it learns with ten times the rows
    "asterix, rate 1, no entropy": ["stuck", "collapsed"],
    "corridor, rate 0": ["stuck"],
    "echo of 16 steps, no memory": ["stuck"],
    "lander, rate 1": ["diverging", "collapsed", "stuck"],
    "space invaders, rate 0.1, no entropy": ["stuck", "collapsed"],
    "sparse reach": ["stuck"],  # it has found no reward so far
}
"""The same of runs on which no threshold was chosen."""

SETTINGS = Settings(3, 1)


def samples_of(name):
    updates = 0
    for rows, values in CURVES[name]["reports"]:
        updates = int(values.get("train/n_updates", updates))
        yield Sample(rows, updates, values)


def found(name, goal=None):
    settings, findings = Settings.from_json(CURVES[name]["settings"]), Findings()
    return [one for sample in samples_of(name) for one in findings.look(sample, settings, goal)]


@pytest.mark.parametrize("name", [*RUNS, *HELD_OUT])
def test_real_runs_are_found_to_be_in_trouble_if_they_are(name):
    assert [one.kind for one in found(name)] == (FOUND | FOUND_LATER).get(name, [])


def test_sentences_have_the_figures():
    [stuck] = found("pendulum, rate 0.1")
    [fallen] = found("cart-pole, rate 0.03")

    assert stuck.text == (
        "the run is stuck: its mean return is -1,299 after 42,016 rows, no better than at first"
        " (-1,274)"
    )
    assert fallen.text.startswith("the policy has collapsed: its mean return was 94.15, and is 9.")


@pytest.mark.parametrize(
    ("name", "goal", "kinds"),
    [
        ("mountain car by PPO", 90.0, ["stuck"]),  # it has learned to stand still
        ("mountain car by PPO", 0.0, []),
        ("corridor", 2.5, []),
        ("pendulum", -200.0, []),
        ("point mass", 10.0, ["stuck"]),  # its best are -4
        ("point mass", -6.0, []),
    ],
)
def test_a_run_that_is_better_than_at_first_is_stuck_if_it_stays_far_from_its_goal(
    name, goal, kinds
):
    assert [one.kind for one in found(name, goal)] == kinds


def test_a_run_that_goes_on_is_not_measured_by_the_first_that_is_seen_of_it():
    late = [sample for sample in samples_of("pendulum") if sample.updates > 50_000]
    findings = Findings()
    again = [sample._replace(rows=sample.rows + 100_000) for sample in late]
    made = [one for sample in (*late, *again) for one in findings.look(sample, SETTINGS)]

    assert made == []


@pytest.mark.parametrize("name", [*RUNS, *HELD_OUT])
def test_rules_that_are_kept_at_each_report_find_what_they_find_without(name):
    settings, seen, made = Settings.from_json(CURVES[name]["settings"]), Findings().packed(), []
    for sample in samples_of(name):
        findings = Findings.unpacked(seen, "r1")
        made += findings.look(sample, settings, 1e9)
        seen = findings.packed()

    assert made == found(name, 1e9)


@pytest.mark.parametrize("seen", [b"", b"\xc1", b"\x90", b'{"_bad": 1}', b"\x81\xa4_bad\x01"])
def test_what_is_damaged_of_what_rules_have_seen_is_left_out_and_logged(seen, caplog):
    assert Findings.unpacked(seen, "r1") == Findings()
    assert "of run r1 is damaged" in caplog.text


def test_numbers_that_are_not_finite_are_said_once_until_they_are_finite_again():
    def look(*losses):
        return [
            one.text
            for loss in losses
            for one in findings.look(Sample(10, 5_000, {"train/critic_loss": loss}), SETTINGS)
        ]

    findings = Findings()
    first = look(*[math.nan] * 9)

    assert first == ["the learner diverges: train/critic_loss is nan"]
    assert look(*[math.inf] * 9) == []
    assert look(*[1.0] * 20) == []
    assert look(*[math.inf] * 9) == ["the learner diverges: train/critic_loss is inf"]


def test_a_loss_that_grows_for_a_minute_diverges_and_one_that_jumps_does_not():
    def looks(jump):
        findings = Findings()
        losses = [0.02] * 20 + [50.0] * jump + [0.02] * 20
        samples = (Sample(10, 5_000, {"train/value_loss": loss}) for loss in losses)
        return [one for sample in samples for one in findings.look(sample, SETTINGS)]

    assert looks(30) == []
    assert [one.kind for one in looks(90)] == ["diverging"]


@pytest.mark.parametrize(("returned", "kinds"), [(0.0, []), (0.1, ["diverging"])])
def test_critics_that_expect_the_bonus_of_exploring_before_any_reward_do_not_diverge(
    returned, kinds
):
    values = {
        "train/critic_loss": 0.1,
        "train/q_mean": 32.4,
        "rollout/ep_len_mean": 50.0,
        "rollout/ep_rew_mean": returned,
    }
    findings, settings = Findings(), Settings(3, 1, gamma=0.5)
    made = [one for _ in range(9) for one in findings.look(Sample(10, 5_000, values), settings)]

    assert [one.kind for one in made] == kinds


def test_the_curves_have_what_the_rules_look_at():
    assert set(CURVES) == {*RUNS, *HELD_OUT}
    for run in CURVES.values():
        assert {name for _, values in run["reports"] for name in values} <= METRICS


class Told:
    """Receivers that keep what they are told."""

    def __init__(self):
        self.entries = []

    def tell(self, _, entry):
        self.entries.append((entry.about, entry.text))


@pytest.fixture
def watched(tmp_path):
    history, told = RunHistory(tmp_path), Told()
    return watch_of(tmp_path, history, told), history, told


def watch_of(directory, history, told):
    document = Document("r1", RunRequest("walker", "game", SETTINGS), 1, n_opts=5_000)
    return RunWatch(document, StartFile(directory), history, told)


def test_a_finding_is_an_event_a_line_of_the_log_a_count_and_a_notice(watched, caplog):
    watch, history, told = watched
    for _ in range(20):
        watch.look([("train/critic_loss", 5, math.nan)], 5)
    [entry] = history.entries

    assert (entry.kind, entry.about) == ("warning", "diverging")
    assert told.entries == [("diverging", "the learner diverges: train/critic_loss is nan")]
    assert watch.counts == {"diverging": 1}
    assert caplog.text.count("run r1 (diverging): the learner diverges") == 1


def test_a_kind_is_said_at_most_every_ten_minutes(watched, monkeypatch):
    watch, history, told = watched
    now = [0]
    monkeypatch.setattr("time.time_ns", lambda: now[0])
    for later in (0, 500, 601):
        now[0] = 10**18 + later * 10**9
        for value in (*[math.nan] * 9, *[1.0] * 9):
            watch.look([("train/critic_loss", 5, value)], 5)

    assert len(history.entries) == len(told.entries) == 2


def test_a_goal_that_is_reached_is_an_event_once(watched):
    watch, history, told = watched
    for _ in range(3):
        watch.note_goal(GoalReached(250.0, 251.25, 100))
    [entry] = history.entries

    assert entry.kind == entry.about == "goal"
    assert told.entries == [
        ("goal", "the goal is reached: a mean return of 251.2 in 100 episodes, and 250 was wanted")
    ]


def test_another_watch_says_what_this_one_has_not_and_nothing_twice(watched, tmp_path):
    watch, _, told = watched
    for _ in range(4):
        seen = watch.look([("train/critic_loss", 5, math.nan)], 5)
    before = list(told.entries)
    for _ in range(3):  # after the fifth look it has been said
        watch = watch_of(tmp_path, RunHistory(tmp_path), told)
        watch.restore(seen)
        seen = watch.look([("train/critic_loss", 5, math.nan)], 5)

    assert before == []
    assert told.entries == [("diverging", "the learner diverges: train/critic_loss is nan")]


def test_a_watch_that_lost_what_it_saw_after_it_said_it_is_silent_for_ten_minutes(
    watched, tmp_path
):
    watch, _, told = watched
    for _ in range(9):
        watch.look([("train/critic_loss", 5, math.nan)], 5)
    again = watch_of(tmp_path, RunHistory(tmp_path), told)
    for _ in range(9):
        again.look([("train/critic_loss", 5, math.nan)], 5)

    assert len(told.entries) == 1


def test_the_goal_is_that_of_the_start_of_the_run(tmp_path):
    def said(mean_return):
        write_start(tmp_path, RunStart(goal=RunGoal(mean_return=mean_return)))
        history, told = RunHistory(tmp_path / "none"), Told()
        watch = watch_of(tmp_path, history, told)
        for sample in samples_of("mountain car by PPO"):
            points = [(name, 0, value) for name, value in sample.values.items()]
            watch.look(points, sample.rows)
        return [kind for kind, _ in told.entries]

    assert said(90.0) == ["stuck"]
    assert said(None) == []


def test_each_restart_is_an_event_and_the_first_of_ten_minutes_a_notice(watched):
    watch, history, told = watched
    for _ in range(3):
        watch.note_restart("killed\x1b[2J", has_diverged=False)

    assert [one.about for one in history.entries] == ["restarted"] * 3
    assert told.entries == [("restarted", "the learner ended, another one starts: killed\\x1b[2J")]
    assert watch.counts == {"restarted": 3}


@given(
    st.lists(
        st.tuples(
            st.integers(0, 1 << 62),
            st.dictionaries(st.sampled_from(sorted(METRICS)), st.floats()),
        ),
        max_size=80,
    ),
    st.floats(),
)
def test_no_numbers_of_a_learner_break_the_rules(reports, goal):
    findings = Findings()
    for rows, values in reports:
        for one in findings.look(Sample(rows, rows, values), SETTINGS, goal):
            assert one.text
        assert Findings.unpacked(findings.packed(), "r1").packed() == findings.packed()
