"""Agents in the slots of a trial, and the observations that say who is where."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.batches import Metadata, MetadataLog
from arkml.envs.core.decisions import Behavior, Decision
from arkml.envs.core.specs import Actions, Spec
from arkml.errors import GuestError
from arkml.guest_trials.class_side import (
    ABSENT,
    ClassSlots,
    ObservationWriter,
    RewardWriter,
    allowed_choices,
)
from arkml.guest_trials.probe import GuestClass, class_names
from arkml.trials.core.hosting import HostedRewards
from arkml.trials.wire.common_pb2 import RewardSource
from arkml.trials.wire.guest_pb2 import TERMINATED, TRUNCATED, Observation
from arkml.trials.wire.guest_pb2 import Metadata as Items

START, RUN, WIN, CUT, BRIEF = "start", "run", "win", "cut", "brief"


def guest_class(slots, features=2, branches=()):
    spec = Spec.flat(features, 0)
    spec = Spec(spec.observations, Actions(0, (), (), branches))
    return GuestClass("walker", Behavior("walker", features, len(branches), spec), slots)


def submit(*reports, masks=(), metadata=(), features=2):
    """A submit of (agent, what happens); the features of an agent are its number and its row."""
    agents = np.array([agent for agent, _ in reports], np.int32)
    kinds = [kind for _, kind in reports]
    count = len(reports)
    observations = np.zeros((count, features), np.float32)
    observations[:, :2] = np.stack([agents, np.arange(count)], axis=1)[:, :features]
    return Decision(
        guest_class(1, features).behavior,
        agents,
        observations,
        np.arange(count, dtype=np.float32) / 2,
        np.array([kind in (START, BRIEF) for kind in kinds]),
        np.array([kind in (WIN, BRIEF) for kind in kinds]),
        np.array([kind == CUT for kind in kinds]),
        np.arange(count),
        MetadataLog.of(metadata),
        tuple(np.array(mask, bool) for mask in masks),
    )


def played(slots, *submits, branches=()):
    """The observations of the last of some submits, by slot."""
    places = ClassSlots(guest_class(slots, branches=branches))
    writer = ObservationWriter(places)
    for one in submits:
        contents = writer.write(places.take(one), one, allowed_choices(one))
    return [Observation.FromString(content) for content in contents], places, writer


def seen(observation):
    return observation.present, observation.agent, observation.episode, list(observation.values)


def test_agents_take_the_lowest_free_slots_in_push_order():
    observed, _, _ = played(3, submit((4, START), (2, START)))

    assert [seen(one) for one in observed] == [
        (True, 4, 0, [4, 0]),
        (True, 2, 0, [2, 1]),
        (False, 0, 0, [0, 0]),
    ]


def test_an_agent_keeps_its_slot_wherever_its_row_is_pushed():
    begun = submit((0, START), (1, START))

    observed, places, _ = played(2, begun, submit((1, RUN), (0, RUN)))

    assert [one.agent for one in observed] == [0, 1]
    assert places.take(submit((1, RUN), (0, RUN))).deciding == [1, 0]


def test_an_agent_that_skips_a_submit_shows_its_last_values_and_is_not_present():
    begun = submit((0, START), (1, START))

    observed, _, _ = played(2, begun, submit((1, RUN)))

    assert [seen(one) for one in observed] == [(False, 0, 0, [0, 0]), (True, 1, 0, [1, 0])]


def test_an_end_is_shown_with_the_last_row_and_the_slot_is_empty_afterwards():
    begun = submit((0, START), (1, START))
    ended = submit((0, WIN), (1, CUT))

    observed, _, writer = played(2, begun, ended)

    assert [(one.present, one.end) for one in observed] == [(True, TERMINATED), (True, TRUNCATED)]
    assert [Observation.FromString(one).present for one in writer.absent()] == [False, False]
    assert [Observation.FromString(one).end for one in writer.absent()] == [0, 0]


def test_the_next_agent_of_a_slot_has_the_next_episode():
    begun = submit((0, START), (1, START))

    observed, _, _ = played(2, begun, submit((0, WIN), (1, RUN)), submit((1, RUN), (7, START)))

    assert seen(observed[0]) == (True, 7, 1, [7, 1])
    assert seen(observed[1]) == (True, 1, 0, [1, 0])


def test_a_successor_in_the_same_submit_shows_the_last_row_of_the_one_before():
    observed, places, _ = played(1, submit((0, START)), submit((0, CUT), (1, START)))

    assert seen(observed[0]) == (True, 1, 1, [1, 1])
    assert observed[0].end == 0
    assert (list(observed[0].final_values), observed[0].final_end) == ([0, 0], TRUNCATED)
    assert places.agents == [1]


def test_a_successor_that_is_pushed_first_takes_the_slot_all_the_same():
    observed, _, _ = played(1, submit((0, START)), submit((1, START), (0, WIN)))

    assert seen(observed[0]) == (True, 1, 1, [1, 0])
    assert (list(observed[0].final_values), observed[0].final_end) == ([0, 1], TERMINATED)


def test_an_episode_of_a_single_row_takes_a_slot_for_that_submit():
    observed, places, _ = played(1, submit((0, BRIEF)), submit((1, START)))

    assert seen(observed[0]) == (True, 1, 1, [1, 0])
    assert places.has_ended


def test_more_agents_than_slots_are_an_error_that_names_both_numbers():
    places = ClassSlots(guest_class(2))
    places.take(submit((0, START), (1, START)))

    with pytest.raises(GuestError, match=r"walker has 3 agents at once, where a trial has 2 slots"):
        places.take(submit((0, RUN), (1, RUN), (2, START)))


def test_the_first_episodes_are_counted_until_all_have_ended():
    places = ClassSlots(guest_class(2))
    places.take(submit((0, START), (1, START)))
    begun = places.first_live
    places.take(submit((0, WIN), (1, RUN), (2, START)))
    replaced = places.first_live
    places.take(submit((1, WIN), (2, RUN)))

    assert (begun, replaced, places.first_live) == (2, 1, 0)


def test_masked_choices_are_not_allowed_and_none_are_listed_where_all_are():
    masks = [[[False, True, False], [False, False, False]]]
    observed, _, _ = played(2, submit((0, START), (1, START), masks=masks), branches=(3,))

    assert [list(one.allowed) for one in observed] == [[True, False, True], []]


def test_rewards_carry_the_metadata_of_their_rows_and_first_rows_have_none_without_a_value():
    places = ClassSlots(guest_class(3))
    one = submit((0, START), (1, START), metadata=(Metadata(1, "moves", 3.0),))
    actors, values, contents = RewardWriter([4, 2, 0], "env").write(places.take(one), one)
    (source,) = map(RewardSource.FromString, contents)

    assert (actors, values) == ([2], [0.5])
    assert (source.sender_name, source.value, source.confidence) == ("env", 0.5, 1.0)
    items = Items()
    assert source.user_data.Unpack(items)
    assert [(item.name, item.value) for item in items.items] == [("moves", 3.0)]


def test_rows_that_no_submit_has_carry_no_reward():
    places = ClassSlots(guest_class(2))
    one = replace(submit((0, START), (1, START)), submit_rows=np.array([0, -1]))

    assert RewardWriter([0, 1], "env").write(places.take(one), one) == HostedRewards([], [], [])


def test_a_slot_whose_agent_is_replaced_has_the_reward_of_the_one_that_ended():
    places = ClassSlots(guest_class(1))
    places.take(submit((0, START)))
    one = replace(submit((0, WIN), (1, START)), rewards=np.array([2.0, 7.0], np.float32))

    assert RewardWriter([0], "env").write(places.take(one), one).values == [2.0]


@given(
    st.text(max_size=200),
    st.lists(st.floats(width=32), min_size=1, max_size=4),
    st.lists(st.tuples(st.text(max_size=80), st.floats(width=32)), max_size=8),
)
def test_sources_are_written_as_protobuf_writes_them(sender, values, items):
    one = submit(*((agent, RUN) for agent in range(len(values))))
    one = replace(
        one,
        rewards=np.array(values, np.float32),
        metadata=MetadataLog.of([Metadata(0, name, value) for name, value in items]),
    )
    expected = [RewardSource(sender_name=sender, value=value, confidence=1.0) for value in values]
    if items:
        made = Items(items=[Items.Item(name=name, value=value) for name, value in items])
        expected[0].user_data.Pack(made)
    rows = ClassSlots(guest_class(len(values))).take(one)
    written = RewardWriter(range(len(values)), sender).write(rows, one)

    assert written.sources == [source.SerializeToString() for source in expected]
    assert np.array_equal(written.values, one.rewards, equal_nan=True)


def test_names_of_classes_are_identifiers_and_different():
    names = class_names(["red", "red!", "red?", "7 up", "", "ä"])

    assert names == ["red", "red_", "red__2", "_7_up", "_", "__2"]


@st.composite
def lives(draw):
    """Submits of a guest that never has more than `slots` agents at once."""
    slots = draw(st.integers(1, 4))
    live, fresh, submits = [], 0, []
    for _ in range(draw(st.integers(1, 12))):
        reports = []
        for agent in draw(st.permutations(live)):
            kind = draw(st.sampled_from([RUN, RUN, WIN, CUT, None]))
            if kind is not None:
                reports.append((agent, kind))
            if kind in (WIN, CUT):
                live.remove(agent)
        for _ in range(draw(st.integers(0, slots - len(live)))):
            reports.append((fresh, START))
            live.append(fresh)
            fresh += 1
        if reports:
            submits.append(submit(*draw(st.permutations(reports))))
    return slots, submits


@given(lives())
@settings(deadline=None)
def test_every_row_is_shown_once_and_every_agent_keeps_one_slot(life):
    slots, submits = life
    places = ClassSlots(guest_class(slots))
    slot_of, episodes, live = {}, [-1] * slots, set()
    for one in submits:
        rows = places.take(one)
        shown = {row: slot for slot, row in enumerate(rows.shown) if row != ABSENT}
        shown |= {row: slot for slot, (row, _) in rows.finals.items()}

        assert [shown[row] for row in range(len(one))] == rows.slots
        for row, agent in enumerate(one.agents.tolist()):
            slot = rows.slots[row]
            if one.started[row]:
                episodes[slot] += 1
            assert slot_of.setdefault(agent, slot) == slot
        live = (live | {*one.agents.tolist()}) - {*one.agents[one.ended].tolist()}
        assert len({slot_of[agent] for agent in live}) == len(live)
        assert rows.deciding == [slot_of[agent] for agent in one.acting_agents.tolist()]
        assert rows.started == one.started[~one.ended].astype(int).tolist()
        assert places.episodes == episodes


@given(lives())
@settings(deadline=None)
def test_observations_are_written_as_protobuf_writes_them(life):
    slots, submits = life
    places = ClassSlots(guest_class(slots))
    writer = ObservationWriter(places)
    for one in submits:
        for content in writer.write(places.take(one), one, None):
            assert Observation.FromString(content).SerializeToString() == content
