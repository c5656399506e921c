import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.errors import NotFound, TooManyFutures, TooManyHandles
from arkml.sessions.handles import U32_LAYOUT, U64_LAYOUT, HandleLayout, HandleRoom, HandleTable


def table(*, limit=4096, layout=U64_LAYOUT):
    return HandleTable("things", limit=limit, layout=layout)


def test_a_dropped_handle_never_names_a_later_object():
    things = table()
    first = things.insert("a")
    things.remove(first, str)
    second = things.insert("b")

    assert things.get(second, str) == "b"
    assert things.index(second) == 0
    with pytest.raises(NotFound):
        things.get(first, str)


def test_a_handle_is_generation_and_index_plus_one():
    things = table()
    first = things.insert("a")
    second = things.insert("b")
    things.remove(second, str)
    third = things.insert("c")

    assert (first, second, third) == (1, 2, 1 << 32 | 2)


@pytest.mark.parametrize("name", ["_items", "_generations"])
def test_a_table_can_be_read_and_filled_after_an_insert_that_a_signal_handler_cut_off(name):
    class Ringing(list):
        def append(self, item):
            super().append(item)
            setattr(things, name, [*self])
            raise InterruptedError

    things = table()
    things.insert("a")
    setattr(things, name, Ringing(getattr(things, name)))
    with pytest.raises(InterruptedError):
        things.insert("b")
    later = things.insert("c")

    assert dict(things)[1] == "a"
    assert things.get(later, str) == "c"


@pytest.mark.parametrize("handle", [0, 1 << 32, 2, 1 << 63 | 1, (1 << 64) - 1])
def test_what_was_never_issued_names_nothing(handle):
    things = table()
    things.insert("a")

    with pytest.raises(NotFound):
        things.get(handle, str)


def test_an_object_of_another_kind_is_not_found():
    things = table()
    handle = things.insert(3)

    with pytest.raises(NotFound, match="is a int, not a str"):
        things.get(handle, str)
    with pytest.raises(NotFound):
        things.remove(handle, str)
    assert things.get(handle, int) == 3


def test_more_live_objects_than_the_limit_are_refused_and_nothing_changes():
    things = table(limit=2)
    first = things.insert("a")
    things.insert("b")

    with pytest.raises(TooManyHandles, match="limit is 2"):
        things.insert("c")
    assert len(things) == 2
    things.remove(first, str)
    assert things.insert("c") == 1 << 32 | 1


def test_the_error_of_the_limit_can_be_chosen():
    things = HandleTable("things", limit=0, error=TooManyFutures)

    with pytest.raises(TooManyFutures):
        things.insert("a")


def test_upcoming_is_the_handle_of_the_next_insert():
    things = table()
    for handle in [things.insert("a"), things.insert("b")]:
        things.remove(handle, str)
    expected = things.upcoming()

    assert things.insert("c") == expected


def test_a_slot_whose_generations_are_used_up_is_retired():
    things = table(layout=HandleLayout(index_bits=3, generation_bits=2))
    seen = []
    for _ in range(7 * 4):
        seen.append(things.insert("a"))
        things.remove(seen[-1], str)

    with pytest.raises(TooManyHandles, match="all 7 slots have been used up"):
        things.insert("a")
    assert len(set(seen)) == 7 * 4
    assert all(0 < handle < 1 << 5 for handle in seen)


def test_the_handles_of_ml_inference_fit_into_32_bits():
    things = table(layout=U32_LAYOUT)
    last = 0
    for _ in range(4096):
        last = things.insert("a")
        things.remove(last, str)

    assert last == 4095 << 20 | 1
    assert things.insert("b") == 2


def test_only_live_slots_can_be_reached_by_index():
    things = table()
    handle = things.insert("a")
    things.remove(things.insert("b"), str)

    assert things.at(U64_LAYOUT.index(handle)) == "a"
    for index in (-1, 1, 2):
        with pytest.raises(NotFound):
            things.at(index)


def test_iteration_gives_live_objects_and_allows_removal():
    things = table()
    handles = [things.insert(letter) for letter in "abc"]
    things.remove(handles[1], str)

    assert list(things) == [(handles[0], "a"), (handles[2], "c")]
    for handle, _ in things:
        things.remove(handle, str)
    assert len(things) == 0


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.booleans(), st.integers(0, 7)), max_size=120),
    st.sampled_from([HandleLayout(3, 2), HandleLayout(2, 4), U32_LAYOUT, U64_LAYOUT]),
)
def test_every_live_handle_names_its_object_and_every_other_one_nothing(steps, layout):
    things = table(limit=5, layout=layout)
    live = {}
    dropped = set()
    for number, (inserts, choice) in enumerate(steps):
        if inserts:
            try:
                handle = things.insert(number)
            except TooManyHandles:
                continue
            assert handle not in live
            assert handle not in dropped
            live[handle] = number
        elif live:
            handle = sorted(live)[choice % len(live)]
            assert things.remove(handle, int) == live.pop(handle)
            dropped.add(handle)

        assert dict(things) == live
        assert len(things) == len(live) <= 5
        for handle in [0, *dropped]:
            with pytest.raises(NotFound):
                things.get(handle, int)


def test_tables_that_share_a_room_have_one_limit():
    room = HandleRoom(3)
    first, second = HandleTable("first", limit=room), HandleTable("second", limit=room)
    handle = first.insert("a")
    first.insert("b")
    second.insert("c")

    for table in (first, second):
        with pytest.raises(TooManyHandles, match="3 are live, the limit is 3"):
            table.upcoming()
    first.remove(handle, str)
    second.insert("d")
    assert (len(first), len(second)) == (1, 2)
