"""Inference sessions of ml-v1 through wasm, from the first push to the stop."""

import logging
import math
import weakref

import pytest
from tests.conformance import models
from tests.conformance.echo import Echo
from tests.conformance.scripted_guest import PAGE, step
from tests.conformance.scripted_session import (
    ACTIONS,
    FEATURES,
    SUBMIT,
    V3,
    VALUES,
    ScriptedSession,
    start,
)

from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.guests.guest import calls_of

WRONG, MISSING, LATER = (
    ErrorCode.INVALID_ARGUMENTS,
    ErrorCode.NOT_FOUND,
    ErrorCode.UNAVAILABLE,
)
END = 4 * PAGE
RUNNING, TERMINAL, INTERRUPTED, INITIAL = EpisodeState


@pytest.fixture
def session(run):
    """3 features and 3 actions that are the same, without values."""
    return start(run, models.same(3), 3, 3)


def test_every_row_is_answered_in_push_order(session):
    rows = [[agent, agent / 2, -agent] for agent in (5, 1, 9)]
    for row in rows:
        assert session.push(row[0], row) == 0

    assert session.submit(3) == (0, rows, [0, 0, 0])


def test_rows_that_ended_are_answered_with_zeros(run):
    session = start(run, models.valued(2), 2, 2)
    for agent, state in enumerate(EpisodeState):
        assert session.push(agent, [agent + 1, 7], state) == 0
    code, actions, values = session.submit(4)

    assert code == 0
    assert actions == [[1, 7], [0, 0], [0, 0], [4, 7]]
    assert values == [2, 0, 0, 8]


def test_an_agent_that_ended_may_be_pushed_again(session):
    session.push(1, [1, 2, 3], TERMINAL)
    session.submit(1)
    session.push(1, [4, 5, 6], RUNNING)

    assert session.submit(1) == (0, [[4, 5, 6]], [0])


def test_a_submit_of_nothing_succeeds(session):
    assert session.submit(0) == (0, [], [])
    assert session.run(step(SUBMIT, session.handle, 4, 0, 4, 0)) == [0]
    assert session.run(step(SUBMIT, session.handle, 0xFFFF_FFFF, 0, END, 0)) == [0]
    session.push(1, [1, 2, 3])
    assert session.submit(1) == (0, [[1, 2, 3]], [0])
    assert session.submit(0) == (0, [], [])


@pytest.mark.parametrize(
    ("actions", "values"),
    [
        ((ACTIONS, 5), (VALUES, 2)), ((ACTIONS, 7), (VALUES, 2)), ((ACTIONS, 6), (VALUES, 1)),
        ((ACTIONS, 6), (VALUES, 3)), ((ACTIONS, 0), (VALUES, 0)), ((ACTIONS, 6), (VALUES, 0)),
        ((ACTIONS, 3), (VALUES, 1)), ((END - 23, 6), (VALUES, 2)), ((ACTIONS, 6), (END - 7, 2)),
        ((0xFFFF_FFF0, 6), (VALUES, 2)), ((ACTIONS, 6), (0xFFFF_FFFF, 2)),
        ((ACTIONS, 6 + (1 << 30)), (VALUES, 2)), ((ACTIONS, 6), (VALUES, 2 + (1 << 30))),
        ((ACTIONS, 0xFFFF_FFFF), (VALUES, 0xFFFF_FFFF)),
    ],
)  # fmt: skip
def test_a_failing_submit_writes_nothing_and_empties_the_queue(session, actions, values):
    session.run.put(FEATURES, b"?" * (END - FEATURES))
    for agent in range(2):
        session.push(agent, [1, 2, 3])
    codes = session.run(step(SUBMIT, session.handle, *actions, *values))
    memory = session.run.guest.read_memory(ACTIONS, PAGE - ACTIONS)

    assert codes == [WRONG]
    assert memory == b"?" * len(memory)
    assert session.submit(0) == (0, [], [])
    session.push(1, [4, 5, 6])
    assert session.submit(1) == (0, [[4, 5, 6]], [0])


def test_results_may_end_where_memory_ends_and_need_no_alignment(session):
    session.push(1, [1, 2, 3])
    first = session.run(step(SUBMIT, session.handle, END - 12, 3, 0x4001, 1))
    session.push(1, [4, 5, 6])
    second = session.run(step(SUBMIT, session.handle, 0x5003, 3, END - 4, 1))

    assert (first, second) == ([0], [0])
    assert session.run.floats(END - 12, 2) == [1, 2]
    assert session.run.floats(END - 4, 1) == [0]
    assert session.run.floats(0x5003, 3) == [4, 5, 6]


@pytest.mark.parametrize("count", [0, 1, 2, 4, 6, (1 << 30) + 3, 0xFFFF_FFFF])
def test_a_push_of_another_width_is_refused_and_leaves_no_trace(session, count):
    session.push(1, [1, 2, 3])
    place = (FEATURES, count, 4, 0)
    name = V3 + "push_inference_observation"

    assert session.run(step(name, session.handle, 2, INITIAL, 0.0, *place)) == [WRONG]
    assert session.submit(1) == (0, [[1, 2, 3]], [0])


@pytest.mark.parametrize("state", [4, 5, 0x80, 0x100, 0x8000_0000, 0xFFFF_FFFF])
@pytest.mark.parametrize("version", [1, 3])
def test_an_unknown_episode_state_is_refused(session, state, version):
    name = f"ark-ml-v{version}.ml__push_inference_observation"
    rest = (0.5,) if version == 1 else (4, 0)
    codes = session.run(step(name, session.handle, 2, state, 0.0, FEATURES, 3, *rest))

    assert codes == [WRONG]
    assert session.submit(0) == (0, [], [])


def test_an_id_that_comes_twice_is_answered_twice_and_moves_on_in_push_order(run):
    session = start(run, models.adding(2), 2, 2)
    for agent, row in ((1, [1, 10]), (2, [5, 5]), (1, [2, 20]), (1, [3, 30]), (2, [6, 6])):
        session.push(agent, row, RUNNING)
    first = session.submit(5)
    for agent in (2, 1):
        session.push(agent, [0, 0], RUNNING)

    assert first == (0, [[1, 10], [5, 5], [3, 30], [6, 60], [11, 11]], [0] * 5)
    assert session.submit(2)[1] == [[11, 11], [6, 60]]


def test_initial_forgets_what_an_id_remembers_even_within_a_batch(run):
    session = start(run, models.adding(2), 2, 2)
    for row, state in (([1, 1], INITIAL), ([2, 2], RUNNING), ([4, 4], INITIAL), ([8, 8], RUNNING)):
        session.push(7, row, state)

    assert session.submit(4)[1] == [[1, 1], [3, 3], [4, 4], [12, 12]]
    session.push(7, [0, 0], INITIAL)
    assert session.submit(1)[1] == [[0, 0]]


def test_the_last_row_of_an_episode_is_answered_with_zeros_and_the_next_one_starts_anew(run):
    session = start(run, models.adding(2), 2, 2)
    session.push(7, [1, 1], INITIAL)
    session.push(7, [1, 1], TERMINAL)
    session.push(7, [5, 5], INITIAL)

    assert session.submit(3)[1] == [[1, 1], [0, 0], [5, 5]]


def test_a_model_may_have_no_features(run):
    session = start(run, models.constant([1.5, -2]), 0, 2)
    for agent in range(3):
        assert session.push(agent, []) == 0
    name = V3 + "push_inference_observation"
    anywhere = step(name, session.handle, 9, INITIAL, 0.0, 0xFFFF_FFFF, 0, 8, 0)

    assert session.run(anywhere) == [0]
    assert session.push(1, [1.0]) == WRONG
    assert session.submit(4) == (0, [[1.5, -2]] * 4, [0] * 4)


def test_values_are_zero_when_the_model_has_none_even_where_others_were(run):
    valued = start(run, models.valued(3), 3, 3)
    valued.push(1, [5, 6, 7])
    assert valued.submit(1) == (0, [[5, 6, 7]], [10])
    assert valued.stop() == 0
    session = start(run, models.same(3), 3, 3)
    session.push(1, [5, 6, 7])

    assert session.submit(1) == (0, [[5, 6, 7]], [0])


def test_what_is_not_finite_is_passed_on_counted_answered_as_zeros_and_told_once(run, caplog):
    session = start(run, models.same(3), 3, 3)
    with caplog.at_level(logging.WARNING, "arkml.guest"):
        for agent in range(3):
            session.push(agent, [math.nan, 2, -math.inf])
            session.push(agent + 10, [1, 2, 3])

            assert session.submit(2) == (0, [[0, 2, 0], [1, 2, 3]], [0, 0])
    statistics = run.guest.statistics
    told = [record.message for record in caplog.records if "finite" in record.message]

    assert (statistics.non_finite_features, statistics.non_finite_actions) == (6, 6)
    assert (statistics.submits, statistics.rows) == (3, 6)
    assert len([text for text in told if "features" in text]) == 1
    assert len([text for text in told if "actions" in text]) == 1


def test_values_that_are_not_finite_are_answered_as_zeros(run):
    session = start(run, models.valued(1), 1, 1)
    session.push(1, [3e38])

    code, actions, values = session.submit(1)
    assert (code, values) == (0, [0])
    assert actions == [[pytest.approx(3e38)]]


def test_sessions_of_different_widths_take_turns(run):
    widths = [1, 2, 3, 5, 64, 70]
    sessions = [start(run, models.same(width), width, width) for width in widths]
    for agent in range(20):
        for width, session in zip(widths, sessions, strict=True):
            if agent % (widths.index(width) + 1) == 0:
                assert session.push(agent, [agent + k for k in range(width)]) == 0
    for place in (3, 0, 5, 1, 4, 2):
        width, agents = widths[place], range(0, 20, place + 1)
        rows = [[agent + k for k in range(width)] for agent in agents]

        assert sessions[place].submit(len(rows)) == (0, rows, [0] * len(rows))


def test_two_sessions_of_one_snapshot_have_queues_and_memories_of_their_own(run):
    first, second = (start(run, models.adding(2), 2, 2) for _ in range(2))
    first.push(1, [1, 1])
    second.push(1, [5, 5], RUNNING)
    assert first.submit(1)[1] == [[1, 1]]
    first.stop()
    second.push(1, [1, 1], RUNNING)

    assert second.submit(2)[1] == [[5, 5], [6, 6]]


def test_a_session_that_was_stopped_answers_nothing(session):
    session.push(1, [1, 2, 3])
    assert session.stop() == 0

    assert session.stop() == MISSING
    assert session.push(1, [1, 2, 3]) == MISSING
    assert session.submit(1) == (MISSING, None, None)


def test_a_session_in_the_place_of_one_that_was_stopped_has_a_policy_of_its_own(run):
    first = start(run, models.same(1), 1, 1)
    first.push(1, [5])
    assert first.submit(1) == (0, [[5]], [0])
    first.stop()
    second = start(run, models.valued(1), 1, 1)
    second.push(1, [5])

    assert second.handle & 0xFFFF_FFFF == first.handle & 0xFFFF_FFFF
    assert second.submit(1) == (0, [[5]], [10])


def test_a_session_that_was_stopped_gives_its_policy_up(run):
    policy = Echo(1, 1)
    dropped = weakref.ref(policy)
    handle = calls_of(run.guest).services.sessions.open_inference(policy, 1, 1)
    session = ScriptedSession(run, handle, 1)
    session.push(1, [1])
    assert session.submit(1)[0] == 0
    del policy
    assert dropped() is not None
    session.stop()

    assert dropped() is None


def test_a_policy_that_fails_fails_the_submit_and_empties_the_queue(run, caplog):
    policy = Echo(1, 1)
    handle = calls_of(run.guest).services.sessions.open_inference(policy, 1, 1)
    session = ScriptedSession(run, handle, 1)
    session.push(1, [0.0])
    policy.failure = RuntimeError("a bug")
    with caplog.at_level(logging.ERROR):
        failed = session.submit(1)
    policy.failure = None

    assert failed == (ErrorCode.INTERNAL_ERROR, None, None)
    assert any(record.exc_info for record in caplog.records)
    assert session.submit(0) == (0, [], [])
    session.push(1, [0.0])
    assert session.submit(1) == (0, [[0.0]], [0.0])
