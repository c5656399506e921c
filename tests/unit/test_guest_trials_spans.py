"""Spans of ticks in which one source acted for a slot, as rows of a run."""

import math
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.guest_trials.learning.learned_ticks import SlotTick
from arkml.guest_trials.learning.spans import SpanRules, Spans
from arkml.hive.protocol.rows import RowKind
from arkml.trials.core.hosting import Acted, ActionNote
from arkml.trials.datalog.samples import LoggedAction
from arkml.trials.wire.guest_pb2 import RUNS_ON, TERMINATED, TRUNCATED, Observation

INITIAL, RUNNING, TERMINAL, INTERRUPTED = (
    EpisodeState.INITIAL,
    EpisodeState.RUNNING,
    EpisodeState.TERMINAL,
    EpisodeState.INTERRUPTED,
)


def acted(note, origin="ann", idle=0.0, content=b"\x05"):
    made = Acted(content, ActionNote(note), origin, idle)
    return LoggedAction(made.content, made.noted, made.origin)


GIVEN = acted("given")
DEFAULT = acted("default", "")


def tick(value, action=GIVEN, own=0.0, aggregated=None, **observed):
    observation = Observation(**{"present": True, "values": [value], "agent": 0, **observed})
    return SlotTick(0, observation, own, own if aggregated is None else aggregated, action)


def spans(**rules):
    def applied(content, _):
        return np.array([content[0]], np.float32)

    return Spans("a trial\n7\nwalker_0", 1, SpanRules(**rules), applied)


def rows_of(ticks, **rules):
    made = spans(**rules)
    return [row for one in ticks for row in made.take(one)] + made.close()


def short(rows):
    return [
        (row.step, row.state, float(row.features[0]), float(row.action[0]), row.reward)
        for row in rows
    ]


def test_a_span_begins_with_the_first_tick_in_which_a_person_acts_and_ends_when_it_is_handed_back():
    ticks = [
        tick(0, DEFAULT, own=9.0),
        tick(1, GIVEN, own=9.0),
        tick(2, acted("given", content=b"\x06"), own=0.5),
        tick(3, DEFAULT, own=0.25),
        tick(4, DEFAULT, own=9.0),
    ]

    assert short(rows_of(ticks)) == [
        (0, INITIAL, 1.0, 5.0, 0.0),
        (1, RUNNING, 2.0, 6.0, 0.5),
        (2, INTERRUPTED, 3.0, 0.0, 0.25),
    ]


@pytest.mark.parametrize(
    ("end", "state"), [(TERMINATED, TERMINAL), (TRUNCATED, INTERRUPTED)], ids=["end", "cut"]
)
def test_a_span_ends_as_its_agent_does_and_the_next_agent_has_one_of_its_own(end, state):
    ticks = [tick(1), tick(2, end=end, own=1.0), tick(3, agent=1), tick(4, agent=1, own=2.0)]
    rows = rows_of(ticks)

    assert short(rows) == [
        (0, INITIAL, 1.0, 5.0, 0.0),
        (1, state, 2.0, 0.0, 1.0),
        (0, INITIAL, 3.0, 5.0, 0.0),
        (1, INTERRUPTED, 4.0, 0.0, 2.0),
    ]
    assert len({row.agent for row in rows}) == 2


def test_an_agent_that_is_replaced_in_one_submit_has_its_own_last_observation():
    ticks = [
        tick(1),
        tick(2, own=0.5, agent=1, final_values=[7], final_end=TERMINATED),
        tick(3, own=0.25, agent=1),
        tick(4, DEFAULT, own=0.0, agent=1),
    ]

    assert short(rows_of(ticks)) == [
        (0, INITIAL, 1.0, 5.0, 0.0),
        (1, TERMINAL, 7.0, 0.0, 0.5),
        (0, INITIAL, 2.0, 5.0, 0.0),
        (1, RUNNING, 3.0, 5.0, 0.25),
        (2, INTERRUPTED, 4.0, 0.0, 0.0),
    ]


def test_an_action_counts_as_the_players_own_while_it_is_held_for_a_quarter_of_a_second():
    ticks = [
        tick(1),
        tick(2, acted("held", idle=0.25)),
        tick(3, acted("held", idle=0.26)),
        tick(4, acted("held", idle=0.3)),
        tick(5),
        tick(6),
    ]

    assert [(row.step, row.state, row.features[0]) for row in rows_of(ticks)] == [
        (0, INITIAL, 1),
        (1, RUNNING, 2),
        (2, INTERRUPTED, 3),
        (0, INITIAL, 5),
        (1, INTERRUPTED, 6),
    ]


def test_a_trial_that_is_cut_off_interrupts_the_span_at_its_last_observation():
    assert short(rows_of([tick(1), tick(2), tick(3)])) == [
        (0, INITIAL, 1.0, 5.0, 0.0),
        (1, RUNNING, 2.0, 5.0, 0.0),
        (2, INTERRUPTED, 3.0, 0.0, 0.0),
    ]
    assert rows_of([tick(1)]) == []  # one row is not a transition


def test_an_agent_that_vanishes_without_an_end_is_interrupted_where_it_was_last_seen():
    ticks = [tick(1), tick(2), tick(2, present=False), tick(9, agent=1), tick(9, DEFAULT, agent=1)]

    assert [(row.state, row.features[0]) for row in rows_of(ticks)] == [
        (INITIAL, 1),
        (INTERRUPTED, 2),
        (INITIAL, 9),
        (INTERRUPTED, 9),
    ]


def test_submits_without_the_agent_are_no_rows_and_their_rewards_go_to_its_next_row():
    ticks = [
        tick(1),
        tick(1, own=0.0, aggregated=2.0, present=False),
        tick(2, own=1.0, aggregated=1.0),
        tick(3, DEFAULT),
    ]

    assert [row.reward for row in rows_of(ticks)] == [0.0, 1.0, 0.0]
    assert [row.reward for row in rows_of(ticks, is_aggregated=True)] == [0.0, 3.0, 0.0]


def test_two_people_after_each_other_have_two_spans_that_share_an_observation():
    ticks = [tick(1), tick(2), tick(3, acted("given", "bob")), tick(4, acted("given", "bob"))]
    rows = rows_of(ticks)

    assert [(row.state, row.features[0]) for row in rows] == [
        (INITIAL, 1),
        (RUNNING, 2),
        (INTERRUPTED, 3),
        (INITIAL, 3),
        (INTERRUPTED, 4),
    ]
    assert rows[0].agent == rows[2].agent != rows[3].agent


def test_what_policies_do_is_learned_from_only_where_it_is_asked_for_and_of_the_run():
    def by(origin, value, note="stand-in"):
        return tick(value, acted(note, origin))

    ticks = [by("walk@12", 1), by("walk@12", 2), tick(3), tick(4), by("walk@13", 5), by("x@3", 6)]
    rows = rows_of(ticks, run="walk")

    assert {row.kind for row in rows_of(ticks)} == {RowKind.DEMONSTRATION}
    assert [(row.kind, row.version, row.state, row.features[0]) for row in rows] == [
        (RowKind.TRAINING, 12, INITIAL, 1),
        (RowKind.TRAINING, 12, RUNNING, 2),
        (RowKind.TRAINING, 12, INTERRUPTED, 3),
        (RowKind.DEMONSTRATION, 0, INITIAL, 3),
        (RowKind.DEMONSTRATION, 0, RUNNING, 4),
        (RowKind.DEMONSTRATION, 0, INTERRUPTED, 5),
        (RowKind.TRAINING, 13, INITIAL, 5),
        (RowKind.TRAINING, 13, INTERRUPTED, 6),
    ]
    assert rows[3].agent == rows_of(ticks)[0].agent


def test_a_row_that_is_not_finite_is_left_out_and_counts_as_a_step():
    ticks = [tick(1), tick(math.nan), tick(3), tick(4, own=1e300), tick(5), tick(6, DEFAULT)]

    assert [(row.step, row.features[0]) for row in rows_of(ticks)] == [
        (0, 1),
        (2, 3),
        (4, 5),
        (5, 6),
    ]


ACTIONS = st.sampled_from(
    [
        GIVEN,
        acted("given", "bob"),
        acted("held", idle=0.1),
        acted("held", idle=1.0),
        acted("stand-in", "walk@3"),
        acted("stand-in", "walk@4"),
        acted("stand-in", "a.onnx"),
        DEFAULT,
        None,
    ]
)
STEPS = st.sampled_from(["there", "there", "there", "skips", "ends", "cut", "replaced", "vanishes"])


@st.composite
def games(draw):
    """Ticks of a slot whose observations are numbered, as a guest may send them."""
    agent, ticks, is_over = 0, [], False
    for number, (step, action) in enumerate(draw(st.lists(st.tuples(STEPS, ACTIONS), max_size=60))):
        more = {"own": float(number), "aggregated": -float(number)}
        if is_over:
            agent, is_over = agent + 1, False
        if step == "skips":
            ticks.append(tick(number, action, agent=agent, present=False, **more))
        elif step in ("ends", "cut"):
            end = TERMINATED if step == "ends" else TRUNCATED
            ticks.append(tick(number, action, agent=agent, end=end, **more))
            is_over = True
        elif step == "replaced":
            agent += 1
            final = {"final_values": [number + 0.5], "final_end": TRUNCATED}
            ticks.append(tick(number, action, agent=agent, **final, **more))
        elif step == "vanishes":
            agent += 1
            ticks.append(tick(number, action, agent=agent, **more))
        else:
            ticks.append(tick(number, action, agent=agent, **more))
    return ticks


@given(games(), st.sampled_from(["", "walk"]), st.booleans())
def test_every_transition_is_one_of_the_game_in_which_one_source_acted(game, run, is_aggregated):
    rules = SpanRules(run=run, is_aggregated=is_aggregated)
    by_agent = {}
    for row in rows_of(game, run=run, is_aggregated=is_aggregated):
        by_agent.setdefault((row.kind, row.agent), []).append(row)

    covered = []
    for rows in by_agent.values():
        assert len(rows) > 1
        assert [row.step for row in rows] == list(range(len(rows)))
        assert [row.state for row in rows[:-1]] == [INITIAL] + [RUNNING] * (len(rows) - 2)
        assert rows[-1].state in (TERMINAL, INTERRUPTED)
        assert not rows[-1].action.any()
        sources = set()
        for row, following in pairwise(rows):
            at, after = int(row.features[0]), math.floor(following.features[0])
            one, other = game[at], game[after]
            sources.add(rules.source(one.action))
            covered.append(at)
            between = game[at + 1 : after]
            assert one.observation.present
            assert one.observation.end == RUNS_ON
            assert not any(skipped.observation.present for skipped in between)
            has_ended = other.observation.final_end != RUNS_ON
            assert has_ended == (following.features[0] != after)
            assert has_ended or one.observation.agent == other.observation.agent
            rewards = range(at + 1, after + 1)
            assert following.reward == (-sum(rewards) if is_aggregated else sum(rewards))
        assert len(sources) == 1
        assert None not in sources
    assert len(covered) == len(set(covered))


@given(games(), st.sampled_from(["", "walk"]))
def test_every_tick_that_is_learned_from_and_has_an_outcome_is_a_row(game, run):
    rules = SpanRules(run=run)
    rows = rows_of(game, run=run)
    acting = {int(row.features[0]) for row in rows if row.state in (INITIAL, RUNNING)}

    for at, one in enumerate(game):
        seen = one.observation
        if not seen.present or seen.end != RUNS_ON or rules.source(one.action) is None:
            assert at not in acting
            continue
        following = next((other for other in game[at + 1 :] if other.observation.present), None)
        is_seen_again = following is not None and (
            following.observation.agent == seen.agent or following.observation.final_end != RUNS_ON
        )
        assert (at in acting) == is_seen_again
