import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.batches import ROW, Batch
from arkml.errors import InvalidArguments, NotFound, TooManyHandles
from arkml.sessions.handles import HandleTable
from arkml.sessions.responses import encode, require_countable
from arkml.sessions.session import InferenceSession, Keys, Origin, Session, TrainingSession
from arkml.sessions.session_table import SessionTable, TrainingStart
from arkml.testing import ConstantPolicy, MemoryQueue, RecordingSink

RUNNING, TERMINAL, INTERRUPTED, INITIAL = EpisodeState


def batch_of(states, num_actions=2, num_features=3):
    rows = np.zeros(len(states), ROW)
    rows["id"] = np.arange(10, 10 + len(states))
    rows["state"] = states
    return Batch(
        rows,
        np.ones((len(states), num_features), np.float32),
        np.zeros((len(states), num_actions), np.float32),
        np.zeros(len(states), np.float32),
        np.array(0, np.uint64),
    )


class Opened:
    """Opens queues and remembers how it was asked."""

    def __init__(self):
        self.queues = []
        self.asked = []

    def open_queue(self, handle, **shape):
        self.asked.append((handle, shape))
        self.queues.append(MemoryQueue(3, 2))
        for agent in (10, 11):
            self.queues[-1].push(agent, [1, 1, 1])
        return self.queues[-1]


@pytest.fixture
def opener():
    return Opened()


def table_of(opener, *, limit=8, number=3):
    handles = HandleTable("handles", limit=limit)
    return SessionTable(Keys(number), handles, opener), handles


def test_a_submit_is_answered_by_the_policy_and_counted(opener):
    table, _ = table_of(opener)
    session = table.get(
        table.open_inference(ConstantPolicy(3, 2, actions=7), 3, 2), InferenceSession
    )
    first = session.answer()
    session.answer()

    assert first.actions.tolist() == [[7, 7], [7, 7]]
    assert len(first) == 2


def test_the_queue_knows_its_handle_and_the_shape_of_its_session(opener):
    table, handles = table_of(opener)
    handle = table.open_inference(ConstantPolicy(3, 2, actions=7), 3, 2)
    session = table.get(handle, InferenceSession)

    assert opener.asked == [
        (handle, {"training": False, "num_features": 3, "num_actions": 2, "key": session.key})
    ]
    assert table.at(handles.index(handle)) is session


def test_a_slot_without_a_session_is_not_found(opener):
    table, handles = table_of(opener)
    other = handles.insert("no session")

    for index in (handles.index(other), 7, -1):
        with pytest.raises(NotFound):
            table.at(index)


def test_an_inference_handle_is_no_training_handle(opener):
    table, _ = table_of(opener)
    handle = table.open_inference(ConstantPolicy(3, 2, actions=7), 3, 2)

    with pytest.raises(NotFound):
        table.get(handle, TrainingSession)
    with pytest.raises(NotFound):
        table.close(handle, TrainingSession)
    with pytest.raises(NotFound):
        table.stop(handle)
    assert opener.queues[0].is_open


def test_closing_gives_up_the_queue_and_the_memory_of_the_policy(opener):
    table, handles = table_of(opener)
    policy = ConstantPolicy(3, 2, actions=7)
    handle = table.open_inference(policy, 3, 2)
    key = table.get(handle, InferenceSession).key
    table.close(handle, InferenceSession)

    assert not opener.queues[0].is_open
    assert policy.forgotten == [key]
    assert len(handles) == 0
    with pytest.raises(NotFound):
        table.get(handle, Session)


def test_a_full_table_opens_no_queue(opener):
    table, _ = table_of(opener, limit=1)
    table.open_inference(ConstantPolicy(3, 2, actions=7), 3, 2)

    with pytest.raises(TooManyHandles):
        table.require_room()
    with pytest.raises(TooManyHandles):
        table.open_training(TrainingStart(ConstantPolicy(3, 2, actions=7), 3, 2))
    assert len(opener.queues) == 1


def test_a_training_session_tells_that_it_is_open_where_it_is(opener):
    table, _ = table_of(opener, limit=1)
    opened = []
    policy = ConstantPolicy(3, 2, actions=7)
    start = TrainingStart(policy, 3, 2, opened=lambda: opened.append(len(opener.queues)))
    table.open_training(start)
    with pytest.raises(TooManyHandles):
        table.open_training(start)

    assert opened == [1]


def test_rows_of_others_go_to_the_sink_and_leave_the_queue(opener):
    table, _ = table_of(opener)
    sink = RecordingSink()
    handle = table.open_training(TrainingStart(ConstantPolicy(3, 2, actions=7), 3, 2, sink))
    session = table.get(handle, TrainingSession)
    session.hand_over(Origin.AUGMENTED)
    session.hand_over(Origin.DEMONSTRATION)

    assert [(len(batch), batch.metadata, origin) for batch, origin in sink.accepted] == [
        (2, [], Origin.AUGMENTED),
        (0, [], Origin.DEMONSTRATION),
    ]


def test_a_sink_that_refuses_rows_leaves_the_queue_empty(opener):
    table, _ = table_of(opener)
    sink = RecordingSink(failure=InvalidArguments("rows without actions"))
    handle = table.open_training(TrainingStart(ConstantPolicy(3, 2, actions=7), 3, 2, sink))

    with pytest.raises(InvalidArguments):
        table.get(handle, TrainingSession).hand_over(Origin.DEMONSTRATION)
    assert len(opener.queues[0]) == 0


def test_without_a_sink_rows_are_accepted_and_forgotten(opener):
    table, _ = table_of(opener)
    handle = table.open_training(TrainingStart(ConstantPolicy(3, 2, actions=7), 3, 2))
    table.get(handle, TrainingSession).hand_over(Origin.AUGMENTED)

    assert len(opener.queues[0]) == 0


@pytest.mark.parametrize("stop", [False, True])
def test_a_session_leaves_its_run_or_stops_it(opener, stop):
    table, handles = table_of(opener)
    sink = RecordingSink()
    handle = table.open_training(TrainingStart(ConstantPolicy(3, 2, actions=7), 3, 2, sink))
    if stop:
        table.stop(handle)
    else:
        table.close(handle, TrainingSession)

    assert sink.left == [stop]
    assert len(handles) == 0


def test_closing_all_closes_the_others_if_one_fails(opener):
    class Broken(ConstantPolicy):
        def forget(self, key):  # noqa: ARG002
            raise RuntimeError("broken")

    table, handles = table_of(opener)
    policy = ConstantPolicy(3, 2, actions=7)
    table.open_inference(Broken(3, 2), 3, 2)
    table.open_inference(policy, 3, 2)

    with pytest.raises(RuntimeError, match="broken"):
        table.close_all()
    assert [queue.is_open for queue in opener.queues] == [False, False]
    assert len(policy.forgotten) == 1
    assert len(handles) == 0


def test_keys_are_unique_across_guests_and_sessions():
    makers = [Keys(number) for number in range(100)]
    keys = [maker.next() for maker in makers for _ in range(100)]

    assert len(set(keys)) == 10_000
    assert all(0 <= key < 1 << 64 for key in keys)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.sampled_from(EpisodeState), max_size=30), st.integers(1, 5))
def test_the_answer_of_v5_holds_every_row_and_the_actions_of_those_that_go_on(states, num_actions):
    batch = batch_of(states, num_actions)
    batch.actions[:] = np.arange(batch.actions.size).reshape(batch.actions.shape)
    data, non_finite = encode(batch)

    expected = struct.pack("<BBH", 0, len(states), num_actions)
    for row, state in enumerate(states):
        goes_on = state in (RUNNING, INITIAL)
        expected += struct.pack("<QB", 10 + row, goes_on)
        if goes_on:
            expected += struct.pack(f"<{num_actions}f", *batch.actions[row])
    assert data == expected
    assert non_finite == 0


def test_actions_that_are_not_finite_go_out_as_zeros_and_are_counted():
    batch = batch_of([RUNNING, RUNNING, TERMINAL])
    batch.actions[:] = [[np.nan, 1], [-np.inf, np.inf], [np.nan, np.nan]]
    data, non_finite = encode(batch)

    row = struct.Struct("<QB2f")
    assert row.unpack_from(data, 4) == (10, 1, 0.0, 1.0)
    assert row.unpack_from(data, 4 + row.size) == (11, 1, 0.0, 0.0)
    assert len(data) == 4 + 2 * row.size + 9
    assert non_finite == 3


@pytest.mark.parametrize(("rows", "actions"), [(256, 1), (1, 16_384)])
def test_what_v5_cannot_count_is_refused(rows, actions):
    with pytest.raises(InvalidArguments):
        require_countable(rows, actions)
    require_countable(255, 16_383)
