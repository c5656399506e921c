"""What guests in lockstep have said until their runs note it."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.batches import Metadata, MetadataLog
from arkml.envs.core import unnoted_metadata
from arkml.envs.core.unnoted_metadata import UnnotedMetadata
from arkml.hive.protocol.runs import MAX_NAMES

GUESTS = 4
SAID = st.lists(st.tuples(st.integers(0, GUESTS - 1), st.sampled_from("abc")), max_size=4)
EVENTS = st.lists(
    st.one_of(SAID, st.tuples(st.sampled_from(["hand_over", "forget"]), st.integers(0, 3))),
    max_size=200,
)


def log_of(said, values):
    """A log with a row for each guest that has said something, and these guests."""
    guests = sorted({guest for guest, _ in said})
    items = [
        Metadata(guests.index(guest), name, value)
        for (guest, name), value in zip(said, values, strict=False)
    ]
    return np.array(guests, np.intp), MetadataLog.of(items)


@given(EVENTS)
@settings(deadline=None, max_examples=150)
def test_a_run_notes_the_newest_value_of_each_name_that_its_guest_has_said(events):
    noted, expected = [], []
    latest = [{} for _ in range(GUESTS)]
    unnoted = UnnotedMetadata(GUESTS, lambda guest, said: noted.append((guest, dict(said))))
    values = iter(np.arange(1_000.0).tolist())
    for event in events:
        if isinstance(event, list):
            drawn = [next(values) for _ in event]
            unnoted.add(*log_of(event, drawn))
            for (guest, name), value in zip(event, drawn, strict=True):
                latest[guest][name] = value
            continue
        what, guest = event
        if what == "hand_over":
            unnoted.hand_over(guest)
            expected += [(guest, latest[guest])] if latest[guest] else []
        else:
            unnoted.forget([guest])
        latest[guest] = {}

    assert noted == expected


def test_all_is_noted_where_more_names_come_than_a_run_keeps():
    noted = []
    unnoted = UnnotedMetadata(GUESTS, lambda guest, said: noted.append((guest, len(said))))
    for number in range(MAX_NAMES + 1):
        unnoted.add(*log_of([(1, f"name {number}")], [1.0]))

    assert len(unnoted) == 1
    assert noted == [(1, MAX_NAMES)]


def test_nothing_is_noted_of_guests_that_are_forgotten():
    noted = []
    unnoted = UnnotedMetadata(GUESTS, lambda guest, said: noted.append((guest, len(said))))
    for number in range(MAX_NAMES + 5):
        speaking = (1, 2) if number > MAX_NAMES - 2 else (0, 1, 2)
        unnoted.add(*log_of([(guest, f"name {number}") for guest in speaking], [1.0] * 3))
        if number == MAX_NAMES - 2:
            unnoted.forget([0])
    unnoted.forget([1, 3])
    unnoted.hand_over(1)

    assert [guest for guest, _ in noted] == [2]


def test_logs_do_not_wait_without_end():
    unnoted = UnnotedMetadata(GUESTS, lambda *_: None)
    for _ in range(10 * unnoted_metadata._MOST_WAITING):
        unnoted.add(*log_of([(1, "name")], [1.0]))

    assert len(unnoted._waiting) < unnoted_metadata._MOST_WAITING
