"""The rules of the watchdog, on curves of real runs, and what becomes of their findings."""

import gzip
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.benchmarks.watched_runs import KEPT, METRICS, RUNS

from arkml.hive.protocol.page_messages import GoalReport
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.server.document import Document
from arkml.server.history import RunHistory
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

SETTINGS = Settings(3, 1)


def samples_of(name):
    updates = 0
    for rows, values in CURVES[name]["reports"]:
        updates = int(values.get("train/n_updates", updates))
        yield Sample(rows, updates, values)


def found(name, goal=None):
    given = CURVES[name]["settings"]
    findings = Findings(Settings.from_json(given))
    if goal is not None:
        findings.set_goal(goal)
    return [one for sample in samples_of(name) for one in findings.look(sample)]


@pytest.mark.parametrize("name", RUNS)
def test_real_runs_are_found_to_be_in_trouble_if_they_are(name):
    assert [one.kind for one in found(name)] == FOUND.get(name, [])


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
    ],
)
def test_a_run_that_is_better_than_at_first_is_stuck_if_it_stays_far_from_its_goal(
    name, goal, kinds
):
    assert [one.kind for one in found(name, goal)] == kinds


def test_a_run_that_goes_on_is_not_measured_by_the_first_that_is_seen_of_it():
    late = [sample for sample in samples_of("pendulum") if sample.updates > 50_000]
    findings = Findings(SETTINGS)
    again = [sample._replace(rows=sample.rows + 100_000) for sample in late]
    made = [one for sample in (*late, *again) for one in findings.look(sample)]

    assert made == []


def test_numbers_that_are_not_finite_are_said_once_until_they_are_finite_again():
    def look(*losses):
        return [
            one.text
            for loss in losses
            for one in findings.look(Sample(10, 5_000, {"train/critic_loss": loss}))
        ]

    findings = Findings(SETTINGS)
    first = look(*[math.nan] * 9)

    assert first == ["the learner diverges: train/critic_loss is nan"]
    assert look(*[math.inf] * 9) == []
    assert look(*[1.0] * 20) == []
    assert look(*[math.inf] * 9) == ["the learner diverges: train/critic_loss is inf"]


def test_a_loss_that_grows_for_a_minute_diverges_and_one_that_jumps_does_not():
    def looks(jump):
        findings = Findings(SETTINGS)
        losses = [0.02] * 20 + [50.0] * jump + [0.02] * 20
        samples = (Sample(10, 5_000, {"train/value_loss": loss}) for loss in losses)
        return [one for sample in samples for one in findings.look(sample)]

    assert looks(30) == []
    assert [one.kind for one in looks(90)] == ["diverging"]


def test_the_curves_have_what_the_rules_look_at():
    assert set(CURVES) == set(RUNS)
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
    document = Document("r1", RunRequest("walker", "game", SETTINGS), 1, n_opts=5_000)
    return RunWatch(document, history, told), history, told


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
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    for later in (0.0, 500.0, 601.0):
        now[0] = later
        for value in (*[math.nan] * 9, *[1.0] * 9):
            watch.look([("train/critic_loss", 5, value)], 5)

    assert len(history.entries) == len(told.entries) == 2


def test_a_goal_that_is_reached_is_an_event_once(watched):
    watch, history, told = watched
    watch.note_goal(GoalReport(250.0))
    for _ in range(3):
        watch.note_goal(GoalReport(250.0, 251.25, 100))
    [entry] = history.entries

    assert entry.kind == entry.about == "goal"
    assert told.entries == [
        ("goal", "the goal is reached: a mean return of 251.2 in 100 episodes, and 250 was wanted")
    ]


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
    findings = Findings(SETTINGS)
    findings.set_goal(goal)
    for rows, values in reports:
        for one in findings.look(Sample(rows, rows, values)):
            assert one.text
