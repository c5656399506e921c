"""The metadata of a submit: columns of a log are what its items are, one after another."""

import struct
import sys

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.abi.layout import pack, unpack
from arkml.abi.ml_v1 import METRIC_V1
from arkml.abi.ml_v3 import METRIC_V3
from arkml.batches import Metadata, MetadataLog
from arkml.runtime.columns.metadata import read_log

LAYOUTS = {32: METRIC_V1, 72: METRIC_V3}
NAMES = st.sampled_from(["", "a", "speed", "mask/0/1", "mask/1/0", "n" * 28, "é" * 14])
VALUES = st.floats(width=32)


def one_layout(size):
    """Items of one size, well formed or not."""
    layout = LAYOUTS[size]
    packed = st.builds(
        lambda name, value: pack(layout, {"name": name, "value": value}), NAMES, VALUES
    )
    return st.lists(packed | st.binary(min_size=size, max_size=size), max_size=4)


@st.composite
def same_names(draw):
    """Rows that have items of the same names in the same order, or one that is an exception."""
    names = draw(st.lists(NAMES, min_size=2, max_size=4))
    rows = draw(st.lists(st.just(names), min_size=2, max_size=4))
    if draw(st.booleans()):
        rows[-1] = names[::-1]
    return [
        [pack(METRIC_V1, {"name": name, "value": draw(VALUES)}) for name in row] for row in rows
    ]


ROWS_OF_ITEMS = st.one_of(
    same_names(),
    st.lists(one_layout(32), max_size=6),
    st.lists(one_layout(72), max_size=6),
    st.lists(one_layout(32) | one_layout(72), max_size=6),
)


def written(rows):
    """The log that the shim writes for the items of each row, and their numbers."""
    log = b"".join(
        struct.pack("<4I", row, len(items), len(items[0]), 0) + b"".join(items)
        for row, items in enumerate(rows)
        if items
    )
    counts = np.array([len(items) for items in rows], np.uint32)
    return np.frombuffer(log, np.uint32), counts


def read_alone(data):
    fields = unpack(LAYOUTS[len(data)], data)
    name = fields["name"]
    if isinstance(name, bytes):
        name = name.partition(b"\0")[0].decode("utf-8", "replace")
    return name, struct.pack("<d", fields["value"])


def items_of(log):
    return [(item.row, item.name, struct.pack("<d", item.value)) for item in log]


@given(ROWS_OF_ITEMS)
@settings(deadline=None, max_examples=300)
def test_items_of_any_layout_are_read_as_each_is_alone(rows):
    log = read_log(*written(rows))
    expected = [(row, *read_alone(item)) for row, items in enumerate(rows) for item in items]

    assert items_of(log) == expected
    assert len(log) == len(expected)
    assert len(set(log.names)) == len(log.names)
    assert [log.names[code] for code in log.codes] == [name for _, name, _ in expected]


def test_a_log_is_a_copy_of_what_a_guest_may_write_over():
    words, counts = written([[pack(METRIC_V1, {"name": "speed", "value": 2.0})]])
    words = words.copy()
    log = read_log(words, counts)
    words[:] = 0

    assert items_of(log) == [(0, "speed", struct.pack("<d", 2.0))]


def test_a_log_has_its_items_by_index_and_by_the_beginning_of_their_names():
    log = MetadataLog.of(
        [Metadata(0, "mask/0/1", 1.0), Metadata(0, "speed", 2.0), Metadata(3, "mask/0/0", 0.0)]
    )
    masks, others = log.split("mask/")

    assert [(item.row, item.name) for item in masks] == [(0, "mask/0/1"), (3, "mask/0/0")]
    assert [(item.row, item.name) for item in others] == [(0, "speed")]
    assert (log[1].name, log[-1].row, len(log[:2])) == ("speed", 3, 2)
    assert [len(part) for part in others.split("mask/")] == [0, 1]
    assert [part.names for part in (masks, others)] == [("mask/0/1", "mask/0/0"), ("speed",)]
    with pytest.raises(IndexError):
        log[3]


def test_the_names_of_a_log_with_many_are_not_kept():
    items = [Metadata(0, f"{number} of many", 1.0) for number in range(65)]
    few, many = MetadataLog.of(items[:64]), MetadataLog.of(items)
    kept = []
    for log in (few, many):
        before = sys.getrefcount(log.names)
        log.split("1")
        kept.append(sys.getrefcount(log.names) > before)

    assert kept == [True, False]
