"""Metadata of pushed rows: both layouts reach the queue whole and in order."""

import math
import struct

import pytest
from tests.conformance.echo import Echo
from tests.conformance.scripted_guest import PAGE, step

from arkml.abi.codes import EpisodeState, ErrorCode
from arkml.abi.layout import pack
from arkml.abi.ml_v1 import METRIC_V1
from arkml.abi.ml_v3 import METRIC_V3
from arkml.guests.guest import calls_of
from arkml.runtime.columns.metadata import MOST_NAMES
from arkml.sessions.session import Session
from arkml.sessions.session_table import TrainingStart
from arkml.testing import RecordingSink

END = 4 * PAGE
ITEMS, FEATURES = 0x2000, 0x1000
HAND_OVER = "ark-ml-v1.ml__submit_training_augmented_observations"
CLEARING = "ark-ml-v1.ml__submit_{}_observations"
LAYOUTS = {1: METRIC_V1, 3: METRIC_V3}


class Pusher:
    """A session of one kind, and pushes with metadata of either version."""

    def __init__(self, run, kind):
        self.run = run
        self.kind = kind
        self.sink = RecordingSink()
        sessions = calls_of(run.guest).services.sessions
        if kind == "training":
            self.handle = sessions.open_training(TrainingStart(Echo(1, 2), 1, 2, self.sink))
        else:
            self.handle = sessions.open_inference(Echo(1, 2), 1, 2)
        self.queue = sessions.get(self.handle, Session).queue

    def push(self, version, data, count=None, at=ITEMS):
        """Push a row with metadata that is written as `data`."""
        if at == ITEMS:
            self.run.put(at, data)
        size = 32 if version == 1 else 72
        count = len(data) // size if count is None else count
        name = f"ark-ml-v{version}.ml__push_{self.kind}_observation"
        name += "_with_metadata" if version == 1 else ""
        given = (0, 0) if self.kind == "training" else ()
        place = (FEATURES, 1, *given, at, count)
        return self.run(step(name, self.handle, 7, EpisodeState.INITIAL, 0.0, *place))[0]

    def metadata(self):
        return [(item.row, item.name, item.value) for item in self.queue.metadata()]


@pytest.fixture(params=["inference", "training"])
def pusher(run, request):
    return Pusher(run, request.param)


def packed(version, *items):
    layout = LAYOUTS[version]
    return b"".join(pack(layout, {"name": name, "value": value}) for name, value in items)


@pytest.mark.parametrize("version", [1, 3])
def test_items_keep_their_row_their_order_and_their_values(pusher, version):
    expected = []
    for row in range(40):
        items = [(f"m{row}.{place}", row + place / 4) for place in range(row % 4)]
        assert pusher.push(version, packed(version, *items)) == 0
        expected += [(row, name, value) for name, value in items]

    assert pusher.metadata() == expected


def test_both_layouts_mix_in_one_batch(pusher):
    assert pusher.push(3, packed(3, ("x" * 64, 1.0), ("b", 2.0))) == 0
    assert pusher.push(1, packed(1, ("y" * 28, 3.0))) == 0
    assert pusher.push(3, b"") == 0
    assert pusher.push(1, packed(1, ("", -0.5), ("é" * 14, 5.0))) == 0
    assert pusher.push(3, packed(3, ("last", 6.0))) == 0

    assert pusher.metadata() == [
        (0, "x" * 64, 1.0), (0, "b", 2.0), (1, "y" * 28, 3.0),
        (3, "", -0.5), (3, "é" * 14, 5.0), (4, "last", 6.0),
    ]  # fmt: skip


@pytest.mark.parametrize("version", [1, 3])
def test_a_great_many_items_stay_whole_while_the_log_grows(pusher, version):
    expected = []
    for row in range(8):
        items = [(f"{row}:{place}", float(place)) for place in range(90)]
        assert pusher.push(version, packed(version, *items)) == 0
        expected += [(row, name, value) for name, value in items]

    assert pusher.metadata() == expected


@pytest.mark.parametrize("version", [1, 3])
def test_the_pointer_of_no_metadata_is_never_looked_at(pusher, version):
    for pointer in (0, 1, 4, END, 0xFFFF_FFFF):
        assert pusher.push(version, b"", 0, pointer) == 0

    assert pusher.metadata() == []
    assert len(pusher.queue.batch()) == 5


@pytest.mark.parametrize("version", [1, 3])
def test_metadata_outside_of_memory_is_refused_and_leaves_no_trace(pusher, version):
    size = 32 if version == 1 else 72
    assert pusher.push(version, packed(version, ("a", 1.0))) == 0
    bad = [(END - size + 1, 1), (END, 1), (0xFFFF_FFFF, 1), (0, END // size + 1)]
    bad += [(ITEMS, 0xFFFF_FFFF), (ITEMS, 0x0800_0000), (ITEMS, (1 << 32) // size + 1)]
    codes = [pusher.push(version, b"", count, pointer) for pointer, count in bad]
    assert pusher.push(version, packed(version, ("b", 2.0))) == 0

    assert codes == [ErrorCode.INVALID_ARGUMENTS] * len(bad)
    assert pusher.metadata() == [(0, "a", 1.0), (1, "b", 2.0)]
    assert len(pusher.queue.batch()) == 2


@pytest.mark.parametrize("version", [1, 3])
def test_metadata_may_end_where_memory_ends_and_needs_no_alignment(pusher, version):
    data = packed(version, ("end", 4.0))
    for pointer in (END - len(data), ITEMS + 0x801):
        pusher.run.put(pointer, data)
        assert pusher.push(version, b"", 1, pointer) == 0

    assert pusher.metadata() == [(0, "end", 4.0), (1, "end", 4.0)]


def test_a_length_over_the_room_of_a_name_counts_as_the_room(pusher):
    data = struct.pack("<I", 0xFFFF_FFFF) + b"n" * 64 + struct.pack("<f", 1.0)
    assert pusher.push(3, data) == 0

    assert pusher.metadata() == [(0, "n" * 64, 1.0)]


@pytest.mark.parametrize("version", [1, 3])
def test_names_that_are_not_utf8_are_read_as_well_as_can_be(pusher, version):
    room = 28 if version == 1 else 64
    head = b"" if version == 1 else struct.pack("<I", 5)
    data = head + b"a\xffb\xc3(".ljust(room, b"\0") + struct.pack("<f", 1.0)
    assert pusher.push(version, data) == 0

    assert pusher.metadata() == [(0, "a\ufffdb\ufffd(", 1.0)]


@pytest.mark.parametrize("version", [1, 3])
def test_values_are_kept_even_if_they_are_not_finite(pusher, version):
    items = [("a", math.inf), ("b", -math.inf), ("c", 3.4e38), ("d", 1e-45)]
    assert pusher.push(version, packed(version, *items, ("e", math.nan))) == 0
    found = pusher.metadata()

    assert [value for _, _, value in found[:2]] == [math.inf, -math.inf]
    assert found[2][2] == pytest.approx(3.4e38)
    assert found[3][2] > 0
    assert math.isnan(found[4][2])


@pytest.mark.parametrize("version", [1, 3])
def test_a_submit_leaves_no_metadata_behind(pusher, version):
    submit = CLEARING.format(pusher.kind)
    for actions, code in ((2, 0), (3, ErrorCode.INVALID_ARGUMENTS)):
        pusher.push(version, packed(version, ("old", 1.0)))
        place = (0x4000, actions, 0x4100, 1)

        assert pusher.run(step(submit, pusher.handle, *place)) == [code]
        assert pusher.metadata() == []
    pusher.push(version, packed(version, ("new", 2.0)))
    assert pusher.metadata() == [(0, "new", 2.0)]


def test_a_run_is_given_the_metadata_of_its_rows(run):
    pusher = Pusher(run, "training")
    pusher.push(1, packed(1, ("short", 1.0)))
    pusher.push(3, packed(3, ("long" * 16, 2.0)))
    assert run(step(HAND_OVER, pusher.handle)) == [0]
    ((seen, _),) = pusher.sink.accepted

    assert seen.metadata == [(0, "short", 1.0), (1, "long" * 16, 2.0)]
    assert seen.rows["metadata"].tolist() == [1, 1]
    assert pusher.metadata() == []


A, B, NO_NUMBER = ("a", 1.0), ("b", 2.0), ("a", math.nan)


@pytest.mark.parametrize("version", [1, 3])
def test_a_name_is_read_again_and_again_whatever_comes_between(pusher, version):
    rows = [[A], [], [A], [B], [B, B], [A], [NO_NUMBER], [A]]
    submits = [[A], [A], [B], [B, A], [A, A], [A], [NO_NUMBER], [A], [A], [], [A]]
    for submit in [*([[item] for item in submit] for submit in submits), rows, [[A]], rows, [[A]]]:
        for items in submit:
            assert pusher.push(version, packed(version, *items)) == 0
        expected = [(row, *item) for row, items in enumerate(submit) for item in items]
        for _ in range(2):
            assert repr(pusher.metadata()) == repr(expected)
        pusher.queue.end_submit()


def test_a_name_of_one_layout_is_not_taken_for_that_of_another(pusher):
    for version, value in ((1, 1.0), (3, 2.0), (1, 3.0), (1, 4.0), (3, 5.0), (3, 6.0)):
        assert pusher.push(version, packed(version, ("a", value))) == 0
        assert pusher.metadata() == [(0, "a", value)]
        pusher.queue.end_submit()


def test_a_log_knows_a_name_again_after_it_has_grown(pusher):
    for count in (1, 3, 200, 200, 1, 400):
        for row in range(count):
            assert pusher.push(1, packed(1, ("a", float(row)))) == 0
        assert pusher.metadata() == [(row, "a", float(row)) for row in range(count)]
        pusher.queue.end_submit()


def test_more_names_than_are_known_are_read_all_the_same(pusher):
    for number in (*range(MOST_NAMES + 9), 0, MOST_NAMES + 1, MOST_NAMES + 1):
        assert pusher.push(1, packed(1, (f"n{number}", 1.0))) == 0
        assert pusher.metadata() == [(0, f"n{number}", 1.0)]
        pusher.queue.end_submit()
