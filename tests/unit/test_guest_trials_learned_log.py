"""Rows that are made of a trial while it runs, and from its log: they are the same."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.datalog_parts import reward, trial_params, write_trial
from tests.unit.guest_trial_parts import hosted_params, observed, played, same_rows

from arkml.abi.codes import EpisodeState
from arkml.demonstrations.demonstration_files import read_demonstrations, write_demonstrations
from arkml.guest_trials.learning.learned_log import LearnedLog
from arkml.guest_trials.learning.learned_rows import GuestTrialExport
from arkml.guest_trials.learning.learned_ticks import in_order
from arkml.guest_trials.learning.spans import SpanRules
from arkml.guest_trials.learning.trial_rows import TrialRows, as_columns
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import Entry, EntryKind
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.datalog.reader import DatalogReader, LoggedEntry

TRIAL = [
    observed(0, [0.1, 0.2], [1.1, 1.2]),
    played(0),
    played(0, "walker_1", "default", ""),
    reward(0, "walker_0", 0.1),
    reward(0, "walker_1", 7.0),
    reward(0, "walker_0", 0.7, sender="bob"),
    observed(1, [0.3, 0.4], [1.3, 1.4]),
    played(1, idle=0.1, note="held", action=(3.0, 0.0)),
    played(1, "walker_1"),
    reward(0, "walker_0", 50.0, sender="bob"),  # too late
    reward(1, "*", -1.0),
    observed(2, [0.5, 0.6], [1.5, 1.6]),
    played(2, idle=0.5, note="held"),
    played(2, "walker_1"),
    observed(3, [0.7, 0.8], [1.7, 1.8]),
]


class Rows(list):
    """Takes rows on the thread that makes them."""

    def take(self, rows):
        self.extend(rows)


def learned(directory, *trials, rules=None, **more):
    """Rows of trials that were logged and learned from: of walkers, and of flyers."""
    rows = {"walker": Rows(), "flyer": Rows()}
    rules = rules or {"walker": SpanRules(), "flyer": SpanRules()}
    takers = {name: taker.take for name, taker in rows.items()}
    with Datalog(directory) as log, LearnedLog(log, rules, takers, **more) as made:
        for trial_id, params, entries in trials:
            write_trial(made, trial_id, entries, params=params)
    return rows


def exported(directory, *ids, **options):
    made = GuestTrialExport(**options)
    with DatalogReader(directory) as reader:
        for trial_id in ids:
            made.add(reader, reader.named(trial_id)[0])
    return made.demonstrations()


@pytest.mark.parametrize("rewards", ["guest", "aggregated"])
def test_the_rows_of_a_trial_that_runs_and_of_its_log_are_the_same(tmp_path, rewards):
    rules = {"walker": SpanRules(is_aggregated=rewards == "aggregated")}
    rows = learned(tmp_path, ("t", hosted_params(), TRIAL), rules=rules)["walker"]
    demonstrations = exported(tmp_path, "t", rewards=rewards)
    write_demonstrations(tmp_path / "rows.npz", demonstrations)
    live = as_columns(rows)

    assert same_rows(live, demonstrations.columns)
    assert same_rows(live, read_demonstrations(tmp_path / "rows.npz").columns)
    assert len(live) == 3 + 3


def test_rows_have_the_action_that_the_guest_got_and_the_reward_that_led_to_them(tmp_path):
    learned(tmp_path, ("t", hosted_params(), TRIAL))
    own = exported(tmp_path, "t", actor="walker_0").columns
    mean = exported(tmp_path, "t", actor="walker_0", rewards="aggregated").columns

    assert own.state.tolist() == [
        EpisodeState.INITIAL,
        EpisodeState.RUNNING,
        EpisodeState.INTERRUPTED,
    ]
    assert own.features.tolist() == np.float32([[0.1, 0.2], [0.3, 0.4], [0.5, 0.6]]).tolist()
    assert own.action.tolist() == [[0.5, -0.5], [1.0, 0.0], [0.0, 0.0]]  # clipped, as applied
    assert own.reward.tolist() == np.float32([0.0, 0.1, -1.0]).tolist()
    assert mean.reward.tolist() == np.float32([0.0, 0.4, -1.0]).tolist()


def test_choices_are_the_last_actions_of_a_row(tmp_path):
    params = hosted_params("flyer_0")
    entries = [
        observed(0, [0.0], allowed=[False, True, True]),
        played(0, "flyer_0", action=(5.0,)),
        observed(1, [1.0]),
    ]
    learned(tmp_path, ("t", params, entries))
    demonstrations = exported(tmp_path, "t")

    assert demonstrations.branches == (3,)
    assert demonstrations.columns.action.tolist() == [[2.0, 1.0], [0.0, 0.0]]


def test_trials_of_one_id_have_agents_of_their_own(tmp_path):
    trial = ("t", hosted_params(), TRIAL)
    rows = learned(tmp_path, trial, trial)["walker"]

    assert len({row.agent for row in rows}) == 4


def test_a_trial_without_a_guest_is_logged_and_not_learned_from(tmp_path):
    entries = [observed(0, [0.1], [0.2]), played(0, "ann"), observed(1, [0.1], [0.2])]
    rows = learned(tmp_path, ("t", trial_params(), entries))

    assert rows == {"walker": [], "flyer": []}
    with DatalogReader(tmp_path) as reader:
        assert len([*reader.entries(reader.named("t")[0])]) == 4


def test_a_trial_with_an_entry_that_cannot_be_read_ends_nothing_but_its_own_rows(tmp_path, caplog):
    broken = [*TRIAL[:6], Entry(EntryKind.REWARD, 0, 7, "walker_0", "env", b"\xff"), *TRIAL[6:]]
    rows = learned(tmp_path, ("broken", hosted_params(), broken), ("t", hosted_params(), TRIAL))[
        "walker"
    ]

    assert same_rows(as_columns(rows), exported(tmp_path, "t").columns)
    with pytest.raises(TrialError, match="RewardSource"):
        exported(tmp_path, "broken")
    assert [record.message for record in caplog.records] == [
        "trial broken is not learned from: b'\\xff' cannot be parsed as a RewardSource"
    ]


def test_a_trial_whose_rows_are_made_too_slowly_is_logged_and_no_longer_learned_from(
    tmp_path, caplog
):
    rows = learned(tmp_path, ("t", hosted_params(), TRIAL), most_bytes=0)["walker"]

    assert rows == []
    assert len(exported(tmp_path, "t")) == 6
    assert "trial t is no longer learned from" in caplog.text


def test_a_log_without_the_actions_of_a_class_is_not_exported(tmp_path):
    learned(tmp_path, ("t", hosted_params("bird_0"), TRIAL))

    with pytest.raises(TrialError, match="says nothing about the actions of 'bird'"):
        exported(tmp_path, "t")


def test_only_actors_of_one_class_are_exported(tmp_path):
    entries = [observed(0, [0.1], [0.2]), played(0), observed(1, [0.1], [0.2])]
    learned(tmp_path, ("t", hosted_params("walker_0", "flyer_0"), entries))

    with pytest.raises(TrialError, match="of the classes flyer, walker"):
        exported(tmp_path, "t")
    with pytest.raises(TrialError, match="no actor 'x': it has walker_0"):
        exported(tmp_path, "t", actor="x")
    with pytest.raises(TrialError, match="no player has acted"):
        exported(tmp_path, "t", actor="flyer")
    assert len(exported(tmp_path, "t", actor="walker")) == 2


NOTES = st.sampled_from(
    [("given", "ann", 0.0), ("given", "bob", 0.0), ("held", "ann", 0.2), ("stand-in", "w@1", 0.0)]
)
REWARDS = st.lists(
    st.tuples(
        st.integers(0, 2),  # ticks before the present one
        st.sampled_from(["walker_0", "walker_1", "walker.*", "*"]),
        st.sampled_from(["env", "bob"]),
        st.floats(-10, 10, width=32),
    ),
    max_size=3,
)


@given(st.lists(st.tuples(NOTES, NOTES, REWARDS), max_size=12), st.booleans())
def test_rewards_that_come_late_do_not_part_the_two_ways_to_the_rows(ticks, is_aggregated):
    entries = []
    for tick, (first, second, rewards) in enumerate(ticks):
        entries.append(observed(tick, [tick, 0.0], [tick, 1.0]))
        for name, (note, origin, idle) in (("walker_0", first), ("walker_1", second)):
            entries.append(played(tick, name, note, origin, idle))
        entries += [
            reward(max(0, tick - back), receiver, value, sender=sender)
            for back, receiver, sender, value in rewards
        ]
    logged = [
        LoggedEntry(number, one.kind, *one[1:]) for number, one in enumerate(entries, start=1)
    ]
    by_tick = sorted(logged, key=lambda one: one.tick)

    assert made(entries, is_aggregated) == made(in_order(by_tick), is_aggregated)


def made(entries, is_aggregated):
    rules = {"walker": SpanRules(is_aggregated=is_aggregated)}
    rows = TrialRows("t", 7, hosted_params(), rules)
    return [repr(row) for entry in entries for row in rows.add(entry)] + [
        repr(row) for row in rows.end()
    ]
