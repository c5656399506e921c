"""Rows on their way out, one writer and one reader."""

import copy
import threading

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from tests.waiting import eventually

from arkml.hive.outbox import Outbox
from arkml.hive.protocol.rows import MAX_BODY, NO_ROW, RowKind, encode

FEATURES, ACTIONS = 3, 2


class World:
    def __init__(self, **options):
        self.woken = self.pauses = 0
        self.outbox = Outbox(FEATURES, ACTIONS, wake=self.wake, pause=self.pause, **options)
        self.sent = 0

    def wake(self):
        self.woken += 1

    def pause(self):
        self.pauses += 1

    def append(self, count, *, kind=RowKind.TRAINING, keep=None, masks=None):
        numbers = np.arange(self.sent, self.sent + count)
        self.sent += count
        self.outbox.append(
            numbers.astype(np.uint64), numbers.astype(np.uint64), 5, numbers.astype("f4"),
            np.zeros(count, np.uint32), np.outer(numbers, [1, 2, 3]).astype("f4"),
            np.outer(numbers, [4, 5]).astype("f4"), keep, kind, masks=masks,
        )  # fmt: skip

    def take_all(self):
        found = []
        while (taken := self.outbox.take(partial=True)) is not None:
            found.append(copy.deepcopy(taken))
        return found


def numbers_of(taken):
    return [number for _, columns in taken for number in columns.agent.tolist()]


@given(st.lists(st.integers(0, 40), max_size=20), st.lists(st.booleans(), max_size=20))
def test_rows_come_out_once_and_in_order_however_they_went_in(sizes, reads):
    world = World(rows=16)
    taken = []
    for place, size in enumerate(sizes):
        world.append(size)
        if place < len(reads) and (found := world.outbox.take(partial=reads[place])):
            taken.append(copy.deepcopy(found))  # the columns are views
    taken += world.take_all()

    assert numbers_of(taken) == list(range(sum(sizes)))
    for _, columns in taken:
        assert np.array_equal(columns.features[:, 2], 3 * columns.reward)
        assert np.array_equal(columns.action[:, 1], 5 * columns.reward)
        assert (columns.version == 5).all()
        assert len(columns) <= 16
    assert world.outbox.is_empty


def test_a_body_that_is_full_wakes_the_reader_once():
    world = World(rows=16)
    world.append(15)
    before = world.woken
    world.append(18)

    assert before == 0
    assert world.woken == 2


def test_only_full_bodies_are_taken_until_time_is_up():
    world = World(rows=16)
    world.append(20)

    assert len(world.outbox.take(partial=False)[1]) == 16
    assert world.outbox.take(partial=False) is None
    assert len(world.outbox.take(partial=True)[1]) == 4


def test_rows_that_are_not_kept_do_not_go_out():
    world = World()
    world.append(4, keep=np.array([True, False, False, True]))

    assert numbers_of(world.take_all()) == [0, 3]
    assert world.outbox.appended == 2


def test_rows_that_are_left_out_are_counted_if_a_feature_or_the_reward_is_not_finite():
    outbox, none = World().outbox, np.zeros(5, np.uint32)
    reward, features = np.zeros(5, np.float32), np.zeros((5, FEATURES), np.float32)
    reward[[1, 3]], features[[2, 3], 1] = [np.nan, -np.inf], np.nan
    actions = np.zeros((5, ACTIONS), np.float32)
    outbox.append(none, none, 5, reward, none, features, actions, np.arange(5) == 0)

    assert [outbox.take_non_finite() for _ in range(2)] == [3, 0]


def test_a_body_holds_rows_of_one_kind():
    world = World()
    world.append(2)
    world.append(1, kind=RowKind.AUGMENTED)
    world.append(1)
    taken = world.take_all()

    assert [kind for kind, _ in taken] == [RowKind.TRAINING, RowKind.AUGMENTED, RowKind.TRAINING]
    assert numbers_of(taken) == [0, 1, 2, 3]


def test_the_oldest_rows_are_given_up_when_there_are_too_many():
    world = World(rows=16, max_bytes=16 * 64 * 4)
    world.append(128)
    world.outbox.trim()
    taken = numbers_of(world.take_all())

    assert taken == list(range(128 - len(taken), 128))
    assert 0 < world.outbox.dropped == 128 - len(taken)
    assert world.outbox.take_dropped() == world.outbox.dropped
    assert world.outbox.take_dropped() == 0


def test_a_writer_whose_reader_is_stuck_uses_a_bounded_amount_of_memory():
    world = World(rows=16, max_bytes=1)
    for _ in range(100):
        world.append(16)

    assert world.outbox.appended <= 3 * 16
    assert world.outbox.dropped == 1600 - world.outbox.appended


def test_one_thread_writes_while_another_reads():
    world = World(rows=64)
    total = 40_000
    done = threading.Event()

    def write():
        for _ in range(total // 50):
            world.append(50)
        done.set()

    writer = threading.Thread(target=write)
    writer.start()
    taken = []
    while not (done.is_set() and world.outbox.is_empty):
        if (found := world.outbox.take(partial=True)) is not None:
            taken.append(copy.deepcopy(found))  # the columns are views
            world.outbox.release(len(found[1]))
    writer.join()

    assert numbers_of(taken) == list(range(total))


def test_metrics_go_out_with_their_rows_and_once():
    world = World(rows=16)
    world.append(20)
    world.outbox.note([(3, "speed", 1.0), (15, "angle", 2.0), (16, "speed", 3.0)])
    bodies = []
    while world.outbox.take(partial=True) is not None:
        bodies.append((world.outbox.take_notes(), world.outbox.take_notes()))

    assert bodies == [([(3, "speed", 1.0), (15, "angle", 2.0)], []), ([(0, "speed", 3.0)], [])]


def test_metrics_of_rows_that_were_given_up_go_out_without_a_row():
    world = World(rows=16, max_bytes=16 * 64 * 4)
    world.append(16)
    world.outbox.note([(2, "given up", 1.0), (NO_ROW, "never sent", 2.0), (500, "refused", 3.0)])
    world.append(112)
    world.outbox.trim()
    world.outbox.take(partial=True)

    assert world.outbox.take_notes() == [
        (NO_ROW, "given up", 1.0), (NO_ROW, "never sent", 2.0), (NO_ROW, "refused", 3.0),
    ]  # fmt: skip


def test_rows_whose_metrics_may_still_come_are_not_taken_before_them():
    world = World(rows=16)
    world.append(4)
    world.outbox.begin()
    world.append(14)
    early = [
        None if taken is None else len(taken[1])
        for taken in (world.outbox.take(partial=partial) for partial in (False, True, True))
    ]
    woken = world.woken
    world.outbox.note([(5, "speed", 1.0), (17, "angle", 2.0)])
    world.outbox.end()
    late = [(len(world.outbox.take(partial=True)[1]), world.outbox.take_notes()) for _ in range(2)]

    assert early == [None, 4, None]
    assert (woken, world.woken) == (0, 1)
    assert late == [(12, [(1, "speed", 1.0)]), (2, [(1, "angle", 2.0)])]
    assert world.outbox.is_empty


def test_a_reader_ends_a_frame_only_if_it_saw_the_same_one_before():
    world, taken = World(rows=16), []
    for _ in range(2):
        world.outbox.begin()
        world.append(4)
        world.outbox.end_stale()
        taken.append(numbers_of(world.take_all()))
    world.outbox.end_stale()
    taken.append(numbers_of(world.take_all()))

    assert taken == [[], [0, 1, 2, 3], [4, 5, 6, 7]]


def test_the_writer_says_with_the_rows_of_a_frame_that_it_ends_but_not_with_each():
    world = World()
    world.append(1)
    world.append(1)

    assert world.pauses == 1

    def pauses_again():
        world.append(1)
        return world.pauses > 1

    eventually(pauses_again, interval=0)
    assert world.pauses == 2


def masks(count, *masked):
    """Masks of three choices; `masked` are (row, choice)."""
    allowed = np.ones((count, 3), "f4")
    for place in masked:
        allowed[place] = 0
    return allowed


def taken_masks(outbox):
    return [tuple(item)[:2] for item in outbox.take_masks().tolist()]


def test_masks_go_out_with_their_rows_and_once():
    world = World()
    world.append(3, masks=masks(3, (0, 1), (2, 0), (2, 2)))
    world.append(2, masks=masks(2, (1, 1)))
    world.outbox.take(partial=True)

    assert taken_masks(world.outbox) == [(0, 1), (2, 0), (2, 2), (4, 1)]
    assert taken_masks(world.outbox) == []


def test_masks_of_a_frame_are_divided_among_its_bodies():
    world = World(rows=4)
    world.append(10, masks=masks(10, (1, 0), (3, 2), (4, 1), (9, 0)))
    found = []
    while world.outbox.take(partial=True) is not None:
        found.append(taken_masks(world.outbox))

    assert found == [[(1, 0), (3, 2)], [(0, 1)], [(1, 0)]]


def test_masks_of_rows_that_are_not_kept_do_not_go_out():
    world = World()
    keep = np.array([True, False, True])
    world.append(3, keep=keep, masks=masks(3, (0, 0), (1, 1), (2, 2)))
    world.outbox.take(partial=True)

    assert taken_masks(world.outbox) == [(0, 0), (1, 2)]


def test_masks_of_rows_that_were_given_up_are_given_up():
    world = World(rows=4, max_bytes=1)
    world.append(4, masks=masks(4, (0, 0), (3, 1)))
    world.append(3, masks=masks(3, (2, 2)))
    world.outbox.trim()
    rows = world.outbox.take(partial=True)[1]

    assert len(rows) == 3
    assert taken_masks(world.outbox) == [(2, 2)]


def test_masks_of_refused_rows_are_not_those_of_the_next():
    world = World(rows=4, max_bytes=1)
    world.append(12, masks=masks(12, (7, 0), (8, 1), (11, 2)))
    found = []
    while world.outbox.take(partial=True) is not None:
        found.append(taken_masks(world.outbox))
        world.outbox.release(4)
    world.append(4, masks=masks(4))
    world.outbox.take(partial=True)

    assert found == [[], [(3, 0)]]
    assert taken_masks(world.outbox) == []


def test_a_body_of_wide_rows_is_no_larger_than_the_hive_takes():
    outbox = Outbox(3, 1, choices=4_096, wake=lambda: None, pause=lambda: None)
    count = 700
    outbox.append(
        np.arange(count, dtype="u8"), np.zeros(count, "u8"), 1, np.zeros(count, "f4"),
        np.zeros(count, "u4"), np.zeros((count, 3), "f4"), np.zeros((count, 1), "f4"),
        masks=np.zeros((count, 4_096), "f4"),
    )  # fmt: skip
    _, columns = outbox.take(partial=False)
    columns.meta = outbox.take_masks()

    assert len(columns.meta) == 4_096 * len(columns)
    assert len(encode(columns, seq=1)) <= MAX_BODY
