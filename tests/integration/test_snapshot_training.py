"""Guests in runs of a real hive that go back: they stay in their run, with rows that fit."""

import pytest
from tests.integration.hive_service import training_host
from tests.integration.stored_rows import stored_records
from tests.integration.test_training_abi import DRAWN, V3, push
from tests.integration.training_guest import V1, TrainingGuest
from tests.waiting import eventually

from arkml import GuestSnapshot
from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.errors import StateRefused
from arkml.guests.snapshots import summary_of
from arkml.host import hives_of
from arkml.learning.trajectories import TrajectoryIndex

INITIAL, RUNNING = EpisodeState.INITIAL, EpisodeState.RUNNING
AFTER = 100
"""Added to the rewards of rows after a restore, which are otherwise the number of their step."""


@pytest.fixture
def data(tmp_path):
    return tmp_path / "hive"


@pytest.fixture
def host(data):
    with training_host(data, wait_for_learner=True, settings=DRAWN) as made:
        yield made


def played(guest, context, steps, *, branch=0):
    """The answers to the rows of an agent in these steps, as code and actions."""
    found = []
    for step in steps:
        guest.proxy._next = 8_192  # what was put before is not needed any more
        row = (1, RUNNING if step else INITIAL, float(step + branch), 1.0)
        code, actions, _ = guest.submit(context, [row])
        found.append((code, actions.tolist()))
    return found


def given(guest, context, steps, *, branch=0):
    """Hand over rows with actions of the guest's own in these steps."""
    for step in steps:
        guest.proxy._next = 8_192
        state = RUNNING if step else INITIAL
        push(guest, context, 7, state, reward=step + branch, given=(0.25, -0.5), api=V3)
        code = guest.proxy.code(V1, "ml__submit_training_augmented_observations", context)
        assert code is ErrorCode.SUCCESS


def run_of(host, name):
    runs = hives_of(host).client().runs().result()
    return next(run for run in runs if run.name == name)


def joined_rows(data):
    """The rewards of rows that a learner takes for one after another, in the log of the hive."""
    found, index = [], TrajectoryIndex(0.99)
    rewards = []
    for record in stored_records(data):
        previous = index.extend(record.columns, len(rewards)).previous.tolist()
        rewards += record.columns.reward.tolist()
        found += [
            (rewards[before], rewards[-len(previous) + place])
            for place, before in enumerate(previous)
            if before >= 0
        ]
    return found


@pytest.mark.parametrize("play", [played, given])
def test_a_guest_that_goes_back_stays_in_its_run_and_its_rows_are_not_joined_to_others(
    host, data, play
):
    guest = TrainingGuest(host)
    context = guest.start("back")
    play(guest, context, range(10))
    state = guest.guest.snapshot()
    expected = play(guest, context, range(10, 15))
    guest.guest.restore(GuestSnapshot.load(bytes(state)))
    again = play(guest, context, range(10, 15), branch=AFTER)
    guest.guest.close()
    eventually(lambda: not run_of(host, "back").sessions)
    pairs = joined_rows(data)

    assert again == expected
    assert len(hives_of(host).client().runs().result()) == 1
    assert set(pairs) <= {
        *((step, step + 1) for step in range(14)),
        *((step + AFTER, step + 1 + AFTER) for step in range(10, 14)),
    }
    assert len(pairs) >= 14 + 3  # the first row after a restore may be refused: out of order


@pytest.mark.parametrize("play", [played, given])
def test_rows_that_would_fit_by_their_step_are_not_joined_after_a_restore(host, data, play):
    guest = TrainingGuest(host)
    context = guest.start("forward")
    play(guest, context, range(5))
    early = guest.guest.snapshot()
    play(guest, context, range(5, 8))
    late = guest.guest.snapshot()
    expected = play(guest, context, range(8, 11))
    guest.guest.restore(early)
    play(guest, context, range(5, 8), branch=AFTER)
    guest.guest.restore(late)
    again = play(guest, context, range(8, 11), branch=2 * AFTER)
    guest.guest.close()
    eventually(lambda: not run_of(host, "forward").sessions)

    assert again == expected
    assert set(joined_rows(data)) - {(5 + AFTER, 6 + AFTER)} == {  # that one may be out of order
        *((step, step + 1) for step in range(10)),
        (6 + AFTER, 7 + AFTER),
        (9 + 2 * AFTER, 10 + 2 * AFTER),
    }


def test_the_state_of_another_run_is_refused_and_changes_nothing(host):
    guest = TrainingGuest(host)
    empty = guest.guest.snapshot()
    first = guest.start("first")
    played(guest, first, range(3))
    state, run = guest.guest.snapshot(), run_of(host, "first").id
    assert [each["run"] for each in summary_of(state)["sessions"]] == [run]
    guest.guest.restore(empty)
    assert guest.guest.live_handles == 0
    assert eventually(lambda: not run_of(host, "first").sessions)
    second = guest.start("second")
    played(guest, second, range(5))
    with pytest.raises(StateRefused, match=f"lacks a session of the run {run} that the state has"):
        guest.guest.restore(state)

    assert second == first  # its handle is the same, which does not make it the same run
    (answer,) = played(guest, second, [5])
    assert answer[0] is ErrorCode.SUCCESS
    assert guest.proxy.code(V1, "ml__stop_training", second) is ErrorCode.SUCCESS
    assert eventually(lambda: run_of(host, "second").rows == 6)


def test_a_session_that_comes_after_a_restore_begins_anew(host, data):
    guest = TrainingGuest(host)
    stays = TrainingGuest(host)  # in the run, which keeps its policy and agents
    empty = guest.guest.snapshot()
    context = guest.start("joined")
    other = stays.joined(
        stays.handle("ark-ml-v2", "connect_to_experiment", "localhost", 12356,
                     run_of(host, "joined").id)
    )  # fmt: skip
    played(guest, context, range(6))
    given(guest, context, range(6))
    guest.guest.restore(empty)
    again = guest.joined(
        guest.handle("ark-ml-v2", "connect_to_experiment", "localhost", 12356,
                     run_of(host, "joined").id)
    )  # fmt: skip
    answers = played(guest, again, range(3), branch=AFTER)
    given(guest, again, range(3), branch=AFTER)
    stays.guest.close()
    guest.guest.close()
    eventually(lambda: not run_of(host, "joined").sessions)
    pairs = joined_rows(data)

    assert again == context == other
    assert all(actions[0] != [0, 0] for _, actions in answers)
    assert pairs.count((AFTER, AFTER + 1)) == pairs.count((AFTER + 1, AFTER + 2)) == 2


def test_another_guest_is_refused_the_state_of_one_in_a_run(host):
    guest, other = TrainingGuest(host), TrainingGuest(host)
    context = guest.start("alone")
    played(guest, context, range(3))
    state = guest.guest.snapshot()
    with pytest.raises(StateRefused, match="proxy lacks a session of the run"):
        other.guest.restore(state)
    with pytest.raises(StateRefused, match="lacks a session of the run"):
        host.restore(bytes(state), other.guest.module)

    assert other.guest.live_handles == 0
    assert played(guest, context, [3])[0][0] is ErrorCode.SUCCESS


def test_rows_and_metrics_that_wait_reach_the_run_once(host, data):
    guest = TrainingGuest(host)
    context = guest.start("waiting")
    played(guest, context, range(2))
    guest.proxy._next = 8_192
    push(guest, context, 1, RUNNING, reward=2, metrics=[("mine", 2.5)], api=V3)
    state = guest.guest.snapshot()
    push(guest, context, 5, INITIAL, reward=9, metrics=[("other", 9.5)], api=V3)
    guest.guest.restore(state)
    actions, values = guest.proxy.room(8), guest.proxy.room(4)
    code = guest.proxy.code(V1, "ml__submit_training_observations", context, actions, 2, values, 1)
    played(guest, context, [3])
    guest.guest.close()
    eventually(lambda: run_of(host, "waiting").rows == 3)
    rows = [each for record in stored_records(data) for each in record.columns.reward.tolist()]
    told = [each for record in stored_records(data) for each in record.columns.meta["value"]]

    assert code is ErrorCode.SUCCESS
    assert rows == [0, 1, 3]
    assert told == [2.5]
