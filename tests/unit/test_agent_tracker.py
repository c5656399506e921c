"""The agents of a session: every row of the table, and its invariants over random submits."""

import itertools
from dataclasses import replace
from weakref import WeakKeyDictionary

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.agent_walk import FOLLOWING, OTHER, ROWS, PlainWalk, following, reports_of

from arkml.abi.codes import EpisodeState
from arkml.batches import NO_METADATA, ROW, Batch, Metadata, MetadataLog
from arkml.envs.core import agent_tracker
from arkml.envs.core.agent_tracker import AgentNumbers
from arkml.envs.core.decisions import Behavior, Decision, InPlace, Replaced
from arkml.envs.core.specs import Spec
from arkml.envs.core.transitions import TRANSITIONS, TRUNCATED, AgentState
from arkml.errors import GuestMemoryFull, Unavailable, UsageError
from arkml.runtime.columns.region import Listed
from arkml.runtime.kept_bytes import PORTION, KeptBytes

RUNNING, TERMINAL, INTERRUPTED, INITIAL = EpisodeState
AGENT = 7  # equal to OTHER in its low half
CASES = [
    pytest.param(*key, transition, id=f"{key[0].value}-{key[1].name.lower()}")
    for key, transition in TRANSITIONS.items()
]


def behavior(period=1, branches=()):
    spec = Spec.flat(1, 1)
    actions = replace(spec.actions, branches=branches)
    return Behavior("walker", 1, 1, replace(spec, decision_period=period, actions=actions))


def tracked(period=1, branches=()):
    numbers = AgentNumbers()
    return numbers, numbers.track(behavior(period, branches), KeptBytes())


def batch_of(*rows, feature=0.0):
    """A submit of rows (id, episode state, reward), all with one observation."""
    scalars = np.zeros(len(rows), ROW)
    for place, (guest_id, state, reward) in enumerate(rows):
        scalars[place]["id"], scalars[place]["state"] = guest_id, state
        scalars[place]["reward"] = reward
    return Batch(
        scalars,
        np.full((len(rows), 1), feature, np.float32),
        np.full((len(rows), 1), 9, np.float32),
        np.full(len(rows), 9, np.float32),
        np.array(0, np.uint64),
    )


def observe(tracker, *rows, feature=0.0):
    return submit(tracker, batch_of(*rows, feature=feature))


LATEST = WeakKeyDictionary()  # the rows of the latest submit, by tracker
IN_PLACE = WeakKeyDictionary()  # what the tracker had of them, if they follow the ones before
REPLACED = WeakKeyDictionary()  # likewise, if new agents take the places of those that end


def submit(tracker, batch, said=NO_METADATA, *, is_followed=True):
    """Have a tracker observe a submit, with the list that the shim makes of its rows."""
    before = LATEST.get(tracker)
    listed = listed_of(batch.rows, before, tracker.highest) if is_followed else None
    rows = tracker.observe(batch, said, listed)
    LATEST[tracker] = batch.rows.copy()
    IN_PLACE[tracker] = rows if isinstance(rows, InPlace) else None
    REPLACED[tracker] = rows if isinstance(rows, Replaced) else None
    return decision_of(rows)


def decision_of(rows):
    return rows if isinstance(rows, Decision) else rows.decision()


def listed_of(rows, before, highest):
    """List rows that follow those of the submit before, by the table; None for others."""
    if before is None or highest is None or len(before) != len(rows):
        return None
    reports, over = np.zeros((3, len(rows)), bool), np.zeros(len(rows), bool)
    for place, (row, old) in enumerate(zip(rows, before, strict=True)):
        is_new, had_ended = row["id"] != old["id"], old["state"] in (TERMINAL, INTERRUPTED)
        if is_new and (not had_ended or row["id"] <= highest):
            return None
        highest = int(row["id"]) if is_new else highest
        state = AgentState.ABSENT if is_new or had_ended else AgentState.LIVE
        transition = TRANSITIONS[state, EpisodeState(row["state"])]
        over[place] = transition.next_state is AgentState.ABSENT
        if transition.ends_previous or (transition.report.started and over[place]):
            return None
        reports[:, place] = transition.report
    begun, over = (marks.nonzero()[0].astype(np.uint32) for marks in (reports[0], over))
    is_rewarded = bool(rows["reward"][begun].any())
    return Listed(rows["reward"].copy(), *reports, begun, over, highest, is_rewarded)


def test_the_table_covers_every_state_of_an_agent_with_every_episode_state():
    assert set(TRANSITIONS) == {(state, row) for state in AgentState for row in EpisodeState}


@pytest.mark.parametrize(("state", "row", "transition"), CASES)
def test_a_transition_starts_and_ends_an_agent_as_its_states_say(state, row, transition):
    started, ended = transition.report.started, transition.report.ended

    assert started == (state is AgentState.ABSENT or transition.ends_previous)
    assert ended == (transition.next_state is AgentState.ABSENT)
    assert transition.ends_previous == (state is AgentState.LIVE and row is INITIAL)


@pytest.mark.parametrize("is_steady", [True, False], ids=["all kept running", "one ended before"])
@pytest.mark.parametrize(("state", "row", "transition"), CASES)
def test_a_row_moves_its_agent_and_is_reported_by_the_table(state, row, transition, is_steady):
    numbers, tracker = tracked()
    before = [(AGENT, INITIAL, 1)] if state is AgentState.LIVE else []
    observe(tracker, *before, (OTHER, INITIAL, 1), feature=1)
    observe(tracker, *((guest_id, RUNNING, 1) for guest_id, *_ in before), (OTHER, RUNNING, 1))
    if not is_steady:
        observe(tracker, (OTHER, TERMINAL, 1))
    number = len(before) + 1
    decision = observe(tracker, (AGENT, row, 5), feature=2)
    is_same = state is AgentState.LIVE and not transition.ends_previous
    closing = [(0, -1, 0.0, 0.0, tuple(TRUNCATED))] if transition.ends_previous else []
    reported = (0 if is_same else number, 0, 5.0, 2.0, tuple(transition.report))

    assert reports_of(decision) == [*closing, reported]
    is_live = transition.next_state is AgentState.LIVE
    ended = [0] if state is AgentState.LIVE and not (is_same and is_live) else []
    ended += [] if is_live or is_same else [number]
    for gone in ended:
        with pytest.raises(KeyError):
            numbers.guest_id(gone)
    assert not is_live or numbers.guest_id(reported[0]) == AGENT
    live = tracker.truncate_all()
    assert (reported[0] in live.agents) == is_live


def test_an_agent_without_a_row_stays_live_and_is_not_reported():
    _, tracker = tracked()
    observe(tracker, (AGENT, INITIAL, 0), (OTHER, INITIAL, 0))
    between = observe(tracker, (OTHER, RUNNING, 1))
    after = observe(tracker, (AGENT, RUNNING, 2))

    assert between.agents.tolist() == [1]
    assert reports_of(after) == [(0, 0, 2.0, 0.0, (False, False, False))]


def test_one_submit_may_end_an_agent_and_start_another_one_under_its_id():
    _, tracker = tracked()
    observe(tracker, (AGENT, INITIAL, 0))
    decision = observe(tracker, (AGENT, TERMINAL, 1), (AGENT, INITIAL, 2))

    assert decision.agents.tolist() == [0, 1]
    assert decision.terminated.tolist() == [True, False]
    assert decision.started.tolist() == [False, True]
    assert tracker.acting_rows.tolist() == [1]


def test_the_end_of_a_guest_truncates_live_agents_with_what_they_reported_last():
    _, tracker = tracked()
    observe(tracker, (AGENT, INITIAL, 0), feature=1)
    observe(tracker, (OTHER, INITIAL, 0), feature=2)
    observe(tracker, (OTHER, RUNNING, 0), feature=3)
    end, again = tracker.truncate_all(), tracker.truncate_all()

    truncated = (False, False, True)
    assert reports_of(end) == [(0, -1, 0.0, 1.0, truncated), (1, -1, 0.0, 3.0, truncated)]
    assert len(again) == 0
    assert again.observations.shape == (0, 1)


@pytest.mark.parametrize("rows", [1, 2], ids=["all keep running", "one begins"])
def test_the_arrays_of_a_decision_are_the_callers(rows):
    _, tracker = tracked()
    observe(tracker, (AGENT, INITIAL, 0), feature=1)
    decision = observe(tracker, *[(AGENT, RUNNING, 1), (OTHER, INITIAL, 0)][:rows], feature=2)
    marks = decision.started, decision.terminated, decision.truncated
    for column in (decision.observations, decision.rewards, marks[1]):
        column[:] = 9

    assert [mark.tolist() for mark in marks] == [
        [False, True][:rows], [True] * rows, [False] * rows
    ]  # fmt: skip
    truncated = [(number, -1, 0.0, 2.0, (False, False, True)) for number in range(rows)]
    assert reports_of(tracker.truncate_all()) == truncated


def test_agents_that_are_forgotten_end_without_a_report():
    numbers, tracker = tracked()
    observe(tracker, (AGENT, INITIAL, 0))
    tracker.forget_all()

    with pytest.raises(KeyError):
        numbers.guest_id(0)
    assert len(tracker.truncate_all()) == 0
    assert observe(tracker, (AGENT, RUNNING, 0)).agents.tolist() == [1]


def test_agents_that_all_keep_running_are_named_by_one_array():
    _, tracker = tracked()
    first = observe(tracker, (AGENT, INITIAL, 0), (OTHER, INITIAL, 0))
    named = tracker.running_agents
    second = observe(tracker, (AGENT, RUNNING, 0), (OTHER, RUNNING, 0))
    turned = observe(tracker, (OTHER, RUNNING, 0), (AGENT, RUNNING, 0))

    assert first.agents.tolist() == [0, 1]
    assert second.agents is named
    assert tracker.running_agents.tolist() == turned.agents.tolist() == [1, 0]


def test_no_array_names_agents_of_which_one_has_ended():
    _, tracker = tracked()
    observe(tracker, (AGENT, INITIAL, 0), (OTHER, TERMINAL, 0))

    assert tracker.running_agents is None
    assert tracker.acting_rows.tolist() == [0]


def test_rows_that_follow_those_before_are_in_place_with_their_ends_and_beginnings():
    _, tracker = tracked()
    first = observe(tracker, (1, INITIAL, 0), (2, INITIAL, 0))
    places = [IN_PLACE[tracker]]
    second = observe(tracker, (1, TERMINAL, 1), (2, RUNNING, 1))
    places.append(IN_PLACE[tracker])
    third = observe(tracker, (3, INITIAL, 0), (2, RUNNING, 1))
    places.append(IN_PLACE[tracker])
    observe(tracker, (3, RUNNING, 0), (2, RUNNING, 1))
    places.append(IN_PLACE[tracker])

    assert places[0] is None
    befores = [place.before for place in places[1:]]
    assert all(map(lambda a, b: a is b.agents, befores, [first, second, third]))
    events = [(place.begun.tolist(), place.over.tolist()) for place in places[1:]]
    assert events == [([], [0]), ([0], []), ([], [])]


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(2, RUNNING, 0), (1, RUNNING, 0)], id="in another order"),
        pytest.param([(1, RUNNING, 0)], id="one is missing"),
        pytest.param([(3, INITIAL, 0), (2, RUNNING, 0)], id="another id while one lives"),
        pytest.param([(1, INITIAL, 0), (2, RUNNING, 0)], id="an episode that ends the one before"),
        pytest.param([(1, RUNNING, 0), (1, RUNNING, 0)], id="an id twice"),
    ],
)
def test_rows_that_moved_are_not_in_place(rows):
    _, tracker = tracked()
    observe(tracker, (1, INITIAL, 0), (2, INITIAL, 0))
    observe(tracker, *rows)

    assert IN_PLACE[tracker] is None


def test_a_row_that_begins_and_ends_an_agent_is_not_in_place():
    _, tracker = tracked()
    observe(tracker, (1, TERMINAL, 0), (2, RUNNING, 0))
    observe(tracker, (3, TERMINAL, 0), (2, RUNNING, 0))

    assert IN_PLACE[tracker] is None


def test_agents_that_begin_where_others_end_take_their_places():
    _, tracker = tracked()
    first = observe(tracker, (1, INITIAL, 0), (2, INITIAL, 0))
    second = observe(
        tracker, (1, TERMINAL, 1), (3, INITIAL, 4), (2, INTERRUPTED, 2), (4, INITIAL, 0)
    )
    ends = REPLACED[tracker]
    third = observe(tracker, (3, RUNNING, 1), (4, RUNNING, 1))
    runs = REPLACED[tracker]
    observe(tracker, (3, RUNNING, 1), (4, RUNNING, 1))

    assert ends.before is first.agents
    assert second.agents.tolist() == [0, 2, 1, 3]
    assert ends.agents.tolist() == [2, 3]
    assert ends.places.tolist() == [0, 1]
    assert ends.continuing.tolist() == [0, 2]
    assert ends.acting.tolist() == [1, 3]
    assert runs.before is ends.agents
    assert runs.agents is third.agents
    assert not len(runs.places)
    assert IN_PLACE[tracker].before is third.agents


@pytest.mark.parametrize(
    "rows",
    [
        pytest.param([(1, TERMINAL, 0), (2, RUNNING, 0)], id="nobody begins"),
        pytest.param([(1, RUNNING, 0), (3, INITIAL, 0), (2, RUNNING, 0)], id="nobody ends"),
        pytest.param([(3, INITIAL, 0), (1, RUNNING, 0), (2, TERMINAL, 0)], id="elsewhere"),
        pytest.param([(1, TERMINAL, 0), (0, INITIAL, 0), (2, RUNNING, 0)], id="a lower id"),
        pytest.param([(1, TERMINAL, 0), (1, INITIAL, 0), (2, RUNNING, 0)], id="the same id"),
        pytest.param([(2, RUNNING, 0), (1, TERMINAL, 0), (3, INITIAL, 0)], id="in another order"),
        pytest.param([(1, TERMINAL, 0), (3, INITIAL, 0)], id="one is missing"),
        pytest.param([(1, TERMINAL, 0), (3, RUNNING, 0), (2, RUNNING, 0)], id="already running"),
        pytest.param(
            [(1, TERMINAL, 0), (3, INITIAL, 0), (2, TERMINAL, 0), (3, INITIAL, 0)], id="an id twice"
        ),
    ],
)
def test_agents_that_begin_otherwise_are_not_replaced_in_place(rows):
    _, tracker = tracked()
    observe(tracker, (1, INITIAL, 0), (2, INITIAL, 0))
    observe(tracker, *rows)

    assert REPLACED[tracker] is None


def test_agents_without_a_row_are_not_forgotten_where_others_are_replaced():
    numbers, tracker = tracked()
    observe(tracker, (1, INITIAL, 0), (2, INITIAL, 0))
    observe(tracker, (2, RUNNING, 0))
    observe(tracker, (2, TERMINAL, 0), (3, INITIAL, 0))

    assert REPLACED[tracker] is None
    assert numbers.guest_id(0) == 1


def test_a_decision_keeps_its_arrays_when_the_memory_of_the_submit_changes():
    _, tracker = tracked()
    first, second = batch_of((AGENT, INITIAL, 1), feature=1), batch_of((AGENT, RUNNING, 2))
    decisions = [submit(tracker, first), submit(tracker, second)]
    for batch in (first, second):
        batch.features[...] = 9
        batch.rows["reward"] = 9

    assert [decision.rewards.tolist() for decision in decisions] == [[1], [2]]
    assert [decision.observations.tolist() for decision in decisions] == [[[1]], [[0]]]


def test_actions_are_repeated_until_a_decision_is_due_which_has_all_rewards():
    _, tracker = tracked(period=3)
    observe(tracker, (AGENT, INITIAL, 1))
    tracker.keep_actions(np.array([[0.5]], np.float32))
    submits = [batch_of((AGENT, RUNNING, reward)) for reward in (2, 4, 8)]
    repeated = [tracker.repeat_actions(batch) for batch in submits]
    decision = submit(tracker, submits[-1])

    assert repeated == [True, True, False]
    assert [batch.actions.tolist() for batch in submits] == [[[0.5]], [[0.5]], [[9]]]
    assert [batch.values.tolist() for batch in submits] == [[9]] * 3  # which begin as zeros
    assert decision.rewards.tolist() == [14]


@pytest.mark.parametrize("state", [TERMINAL, INTERRUPTED, INITIAL])
def test_an_agent_that_ends_or_begins_is_due_a_decision_at_once(state):
    _, tracker = tracked(period=3)
    observe(tracker, (AGENT, INITIAL, 0))
    tracker.keep_actions(np.zeros((1, 1), np.float32))
    is_repeated = tracker.repeat_actions(batch_of((AGENT, RUNNING, 2)))
    batch = batch_of((AGENT, state, 1))

    assert is_repeated
    assert not tracker.repeat_actions(batch)
    assert submit(tracker, batch).rewards.tolist()[-1] == 3


def test_rewards_of_an_agent_that_is_missing_wait_for_its_next_row():
    _, tracker = tracked(period=3)
    observe(tracker, (AGENT, INITIAL, 0), (OTHER, INITIAL, 0))
    tracker.keep_actions(np.zeros((2, 1), np.float32))
    tracker.repeat_actions(batch_of((AGENT, RUNNING, 1), (OTHER, RUNNING, 2)))
    without = observe(tracker, (AGENT, RUNNING, 4))
    again = observe(tracker, (AGENT, RUNNING, 8), (OTHER, RUNNING, 16))

    assert without.rewards.tolist() == [5]
    assert again.rewards.tolist() == [8, 18]


def test_masks_are_given_by_report_and_other_metadata_by_row():
    _, tracker = tracked(branches=(2,))
    observe(tracker, (AGENT, INITIAL, 0))
    said = MetadataLog.of([Metadata(0, "mask/0/1", 1.0), Metadata(0, "speed", 3.0)])
    decision = submit(tracker, batch_of((AGENT, INITIAL, 0)), said)

    assert [mask.tolist() for mask in decision.masks] == [[[False, False], [False, True]]]
    assert [(item.row, item.name) for item in decision.metadata] == [(0, "speed")]


def test_an_environment_refuses_a_number_that_its_arrays_cannot_hold():
    numbers = AgentNumbers(first=(1 << 31) - 1)
    last = numbers.take(1)

    assert last.tolist() == [np.iinfo(np.int32).max]
    with pytest.raises(UsageError, match="make a new one"):
        numbers.take(1)


def counted():
    """A tracker of agents with 1,000 features, and the bytes that count."""
    kept = KeptBytes()
    wide = Behavior("walker", 1_000, 1, Spec.flat(1_000, 1))
    return AgentNumbers().track(wide, kept), kept


def wide_batch(*ids, state=RUNNING):
    batch = batch_of(*((guest_id, state, 0) for guest_id in ids))
    batch.features = np.zeros((len(ids), 1_000), np.float32)
    return batch


def test_agents_without_a_row_count_until_they_have_ended():
    tracker, kept = counted()
    sizes = []
    for first in range(0, 500, 100):
        submit(tracker, wide_batch(*range(first, first + 100)))
        sizes.append(kept.granted)
    submit(tracker, wide_batch(*range(400), state=TERMINAL))
    submit(tracker, wide_batch(*range(400, 500)))
    ended = kept.granted
    tracker.truncate_all()

    assert all(abs(more - 100 * 4_017) <= PORTION for more in np.diff(sizes))
    assert sizes[0] <= ended <= sizes[0] + 3 * PORTION
    assert kept.granted == 0


def test_reports_of_ends_before_rows_count_while_they_are_there():
    tracker, kept = counted()
    submit(tracker, wide_batch(*range(100)))
    before = kept.granted
    submit(tracker, wide_batch(*range(100), state=INITIAL))
    twice = kept.granted
    submit(tracker, wide_batch(*range(100)))

    assert twice >= before + 200 * 4_000
    assert kept.granted <= before + 3 * PORTION


def refusing(size):
    raise GuestMemoryFull(f"{size} bytes")


REFUSED = {"more": range(1, 41), "new": range(5, 45), "twice": (4,) * 40}


@pytest.mark.parametrize("ids", REFUSED.values(), ids=REFUSED)
def test_a_submit_over_the_limit_of_the_guest_changes_no_agent(ids):
    plain, (tracker, kept) = counted()[0], counted()
    for each in (plain, tracker):
        each.observe(wide_batch(1, 2, 3), NO_METADATA)
    held, kept.require = kept.granted, refusing
    with pytest.raises(GuestMemoryFull):
        submit(tracker, wide_batch(*ids))

    assert kept.granted == held
    for rows in (1, 2, 3), (2, 1, 3), (1, 2, 3):
        expected = decision_of(plain.observe(wide_batch(*rows), NO_METADATA))
        assert reports_of(submit(tracker, wide_batch(*rows))) == reports_of(expected)


def test_rows_after_a_refused_submit_are_not_compared_with_its_rows():
    tracker, kept = counted()
    submit(tracker, wide_batch(*(1,) * 40))
    require, kept.require = kept.require, refusing
    with pytest.raises(GuestMemoryFull):
        submit(tracker, wide_batch(*range(1, 81)))
    kept.require = require
    decision = submit(tracker, wide_batch(*(1,) * 40))

    assert decision.agents.tolist() == [0] * 40
    assert not decision.started.any()


def test_agents_without_a_row_are_limited_in_number(monkeypatch):
    monkeypatch.setattr(agent_tracker, "MOST_AWAY", 5)
    _, tracker = tracked()
    for first in (0, 3):
        observe(tracker, *((guest_id, RUNNING, 0) for guest_id in range(first, first + 3)))
    with pytest.raises(Unavailable, match="6 live agents without a row in this submit, 5 are"):
        observe(tracker, (6, RUNNING, 0))
    decision = observe(tracker, *((guest_id, RUNNING, 0) for guest_id in (1, 2, 3, 4)))

    assert decision.agents.tolist() == [1, 2, 3, 4]
    assert not decision.started.any()


SUBMITS = st.lists(
    st.lists(
        st.tuples(
            st.sampled_from([1, 2, OTHER]),
            st.sampled_from([RUNNING, RUNNING, RUNNING, *EpisodeState]),
            st.integers(-8, 8),
        ),
        min_size=1,
        max_size=4,
    ).flatmap(lambda rows: st.integers(1, 3).map(lambda times: [rows] * times)),
    max_size=12,
)


@given(SUBMITS, st.integers(1, 3))
@settings(deadline=None)
def test_over_random_submits_the_invariants_of_the_table_hold(submits, period):
    numbers, tracker = tracked(period)
    episodes, received, live = {}, 0, {}
    for rows in (rows for same in submits for rows in same):
        batch = batch_of(*rows)
        received += sum(reward for _, _, reward in rows)
        if tracker.repeat_actions(batch):
            assert all(state is RUNNING and guest_id in live for guest_id, state, _ in rows)
            continue
        decision = submit(tracker, batch)
        tracker.keep_actions(batch.actions)
        assert [place for place in decision.submit_rows if place >= 0] == list(range(len(rows)))
        for number, place, reward, _, flags in reports_of(decision):
            episodes.setdefault(number, []).append((reward, flags))
            guest_id = rows[place][0] if place >= 0 else live_id(live, number)
            live[guest_id] = number
            if flags[1] or flags[2]:
                del live[guest_id]
    waiting = received - sum(reward for reports in episodes.values() for reward, _ in reports)
    end = tracker.truncate_all()

    assert sorted(end.agents.tolist()) == sorted(live.values())
    assert sorted(episodes) == list(range(len(episodes)))
    assert waiting == 0 or live
    for number, reports in episodes.items():
        flags = [flags for _, flags in reports]
        assert [started for started, _, _ in flags] == [True] + [False] * (len(flags) - 1)
        assert not any(terminated or truncated for _, terminated, truncated in flags[:-1])
        assert (number in live.values()) == (not any(flags[-1][1:]))
        with pytest.raises(KeyError):
            numbers.guest_id(number)


HISTORIES = st.lists(st.tuples(st.integers(0, 1), FOLLOWING, ROWS, st.booleans()), max_size=20)


@given(HISTORIES)
@settings(deadline=None, max_examples=400)
def test_arrays_report_random_histories_of_two_sessions_as_a_walk_of_the_table_does(history):
    numbers = AgentNumbers()
    trackers = [numbers.track(behavior(), KeptBytes()), numbers.track(behavior(), KeptBytes())]
    shared = itertools.count()
    walks = [PlainWalk(shared), PlainWalk(shared)]
    before, last = [[], []], [None, None]
    for session, kind, drawn, is_followed in history:
        rows = before[session] = following(kind, before[session], drawn)
        batch = batch_of(*(row[:3] for row in rows))
        batch.features[:, 0] = [feature for *_, feature in rows]
        decision = submit(trackers[session], batch, is_followed=is_followed)

        assert reports_of(decision) == walks[session].observe(rows)
        in_place, earlier = IN_PLACE[trackers[session]], last[session]
        if in_place is not None and (earlier.submit_rows >= 0).all():
            stays = decision.agents == earlier.agents
            assert in_place.before is earlier.agents
            assert (~stays).nonzero()[0].tolist() == in_place.begun.tolist()
            assert earlier.ended[in_place.begun].all()
            assert decision.ended.nonzero()[0].tolist() == in_place.over.tolist()
        took_places = REPLACED[trackers[session]]
        if took_places is not None:
            acts = ~decision.ended
            assert took_places.agents.tolist() == decision.agents[acts].tolist()
            assert took_places.before.tolist() == decision.agents[~decision.started].tolist()
            assert took_places.before.tolist() == earlier.acting_agents.tolist()
            assert took_places.continuing.tolist() == (~decision.started).nonzero()[0].tolist()
            ends = decision.ended[took_places.continuing].nonzero()[0]
            assert took_places.places.tolist() == ends.tolist()
            assert took_places.acting[ends].tolist() == decision.started.nonzero()[0].tolist()
        last[session] = decision
        acting = [place for _, place, *_, flags in reports_of(decision) if not any(flags[1:])]
        assert np.arange(len(rows))[trackers[session].acting_rows].tolist() == acting
        for guest_id, (number, _) in walks[session].live.items():
            assert numbers.guest_id(number) == guest_id
    for tracker, walk in zip(trackers, walks, strict=True):
        assert reports_of(tracker.truncate_all()) == walk.truncate_all()


def live_id(live, number):
    (guest_id,) = (guest_id for guest_id, known in live.items() if known == number)
    return guest_id
