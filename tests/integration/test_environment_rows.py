"""The rows of submits, matched with those of the submit before: by the shim, or by a search."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent_walk import FOLLOWING, ROWS, PlainWalk, following, reports_of
from tests.integration.test_environment import (
    BY_V1,
    BY_V5,
    INITIAL,
    INTERRUPTED,
    RUNNING,
    TERMINAL,
    scripted,
)

from arkml.abi.codes import EpisodeState
from arkml.envs.core.agent_tracker import AgentTracker
from arkml.envs.core.decisions import InPlace
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.errors import Unavailable
from arkml.limits import Limits

BY = pytest.mark.parametrize("by", [BY_V1, BY_V5], ids=["v1", "v5"])
BEFORE = [(1, RUNNING), (2, TERMINAL), (3, RUNNING)]  # ids 1 and 3 are live, 2 has ended
FOLLOWS = {
    "an agent begins": [(1, RUNNING), (4, INITIAL), (3, RUNNING)],
    "one begins without saying so": [(1, RUNNING), (4, RUNNING), (3, RUNNING)],
    "one begins with the id of the one before": [(1, RUNNING), (2, INITIAL), (3, RUNNING)],
    "that without saying so": [(1, RUNNING), (2, RUNNING), (3, RUNNING)],
    "others end": [(1, INTERRUPTED), (4, INITIAL), (3, TERMINAL)],
    "one has the highest id": [(1, RUNNING), ((1 << 64) - 1, INITIAL), (3, RUNNING)],
}
DIFFERS = {
    "a live agent begins anew": [(1, INITIAL), (4, INITIAL), (3, RUNNING)],
    "one begins and ends": [(1, RUNNING), (4, TERMINAL), (3, RUNNING)],
    "one is in the place of a live one": [(4, INITIAL), (2, INITIAL), (3, RUNNING)],
    "an id comes twice": [(1, RUNNING), (1, RUNNING), (3, RUNNING)],
    "a new id is lower": [(1, RUNNING), (0, INITIAL), (3, RUNNING)],
    "rows are in another order": [(3, RUNNING), (4, INITIAL), (1, RUNNING)],
    "a row is missing": [(1, RUNNING), (4, INITIAL)],
    "a row is added": [(1, RUNNING), (4, INITIAL), (3, RUNNING), (5, INITIAL)],
}


def rows_of(*rows):
    return [(guest_id, EpisodeState(state), float(place)) for place, (guest_id, state) in rows]


def played(turns, by, limits=None, **options):
    """Step a guest that pushes the rows of each turn, and compare with the walk of the table."""
    walk, in_place = PlainWalk(itertools.count()), []
    with GuestEnv(scripted(*turns, by=by, **options), limits=limits) as env:
        step = env.reset(seed=1)
        for turn, rows in enumerate(turns):
            assert len(step.decisions) == 1
            expected = walk.observe([(*row, float(turn)) for row in rows])
            assert reports_of(step.decisions[0]) == expected
            for guest_id, (number, _) in walk.live.items():
                assert env.guest_id(number) == guest_id
            rows, decision = core_of(env).instance.pending.rows, step.decisions[0]
            in_place.append(isinstance(rows, InPlace))
            is_same = in_place[-1] and rows.before is decision.agents
            assert is_same == (in_place[-1] and not (decision.started | decision.ended).any())
            if turn + 1 < len(turns):
                step = env.step(np.zeros((len(env.decision.acting_agents), 1), np.float32))
    return in_place


@BY
@pytest.mark.parametrize("rows", [*FOLLOWS.values(), *DIFFERS.values()], ids=[*FOLLOWS, *DIFFERS])
def test_rows_that_follow_are_listed_and_all_are_reported_by_the_table(rows, by):
    begin = [(guest_id, INITIAL) for guest_id, _ in BEFORE]
    after = [
        (guest_id, RUNNING) for guest_id, state in rows if state not in (TERMINAL, INTERRUPTED)
    ]
    turns = [rows_of(*enumerate(some)) for some in (begin, BEFORE, rows, after, after)]

    in_place = played(turns, by)

    assert in_place[:2] == [False, True]  # the first submit follows none
    assert in_place[2] == (rows in FOLLOWS.values())
    assert in_place[4] == (len({guest_id for guest_id, _ in after}) == len(after))


@given(
    st.lists(st.tuples(FOLLOWING, ROWS), min_size=1, max_size=16),
    st.sampled_from([BY_V1, BY_V5]),
)
@settings(deadline=None, max_examples=80)
def test_a_guest_shows_random_histories_as_a_walk_of_the_table_does(history, by):
    turns, before = [], []
    for kind, drawn in history:
        before = following(kind, before, [row[:3] for row in drawn])
        turns.append(before)

    played(turns, by)


@BY
def test_rows_are_listed_again_after_their_queue_has_moved(by):
    few = [[(guest_id, state, 1.0) for guest_id in range(3)] for state in (INITIAL, RUNNING)]
    many = [[(guest_id, RUNNING, 1.0) for guest_id in range(100)] for _ in range(3)]

    in_place = played([*few, *many, few[1], few[1]], by)

    assert in_place == [False, True, False, True, True, False, True]


AUGMENTING = """
  (import "ark-ml-v1" "ml__submit_training_augmented_observations"
    (func $augment (param i64) (result i32)))"""
BETWEEN = {
    "a submit that is refused": """
      (call $row (i64.const 2) (i32.const 0) (f32.const 0))
      (drop (call $submit (i64.load (i32.const 8)) (i32.const 256) (i32.const 5)
        (i32.const 512) (i32.const 5)))""",
    "augmented rows": """
      (drop (call $push (i64.load (i32.const 8)) (i64.const 2) (i32.const 0) (f32.const 0)
        (i32.const 128) (i32.const 1) (i32.const 128) (i32.const 1) (f32.const 1)))
      (drop (call $augment (i64.load (i32.const 8))))""",
}


@pytest.mark.parametrize("between", BETWEEN.values(), ids=BETWEEN)
def test_rows_are_not_compared_with_those_that_no_step_has_shown(between):
    turns = [[(guest_id, RUNNING, 1.0)] for guest_id in (1, 2, 1, 1, 2)]
    by = {**BY_V1, "imports": BY_V1["imports"] + AUGMENTING}

    assert played(turns, by, each=between) == [False] * 5


def test_a_list_takes_no_memory_from_rows_that_need_it():
    submits = [[(guest_id, RUNNING, 1.0) for guest_id in range(count)] for count in (1, 100, 100)]
    least = 6_144  # with which the queue can grow from 64 rows to 128

    assert played(submits, BY_V1, Limits(column_bytes=least)) == [False, False, False]
    with pytest.raises(AssertionError):
        played(submits, BY_V1, Limits(column_bytes=least - 1))


def test_rows_of_a_refused_submit_are_not_taken_for_those_of_the_next_one(monkeypatch):
    observe, calls = AgentTracker.observe, []

    def refusing(*arguments):
        calls.append(arguments)
        if len(calls) == 3:
            raise Unavailable("once")
        return observe(*arguments)

    monkeypatch.setattr(AgentTracker, "observe", refusing)
    pairs = (
        [(1, INITIAL), (2, INITIAL)],
        [(1, RUNNING), (2, RUNNING)],
        [(1, TERMINAL), (2, RUNNING)],
    )
    after = [(2, RUNNING), (1, RUNNING)]
    with GuestEnv(scripted(*(rows_of(*enumerate(pair)) for pair in (*pairs, after)))) as env:
        env.reset(seed=1)
        for _ in range(2):
            step = env.step(np.zeros((2, 1), np.float32))

    assert step.decisions[0].agents.tolist() == [1, 0]
    assert not step.decisions[0].ended.any()
