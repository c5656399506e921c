"""Pointers and lengths: every import, through wasm, with memory watched from end to end."""

import pytest
from tests.conformance.arguments import arrange, expected_code
from tests.conformance.checked_guest import ROWS, future_of, name_of

from arkml.abi.codes import ErrorCode
from arkml.abi.layout import slots
from arkml.abi.schema import Block, OutBlock, Outcome, OutSlice, Slice, Str

IDS = [name_of(*row) for row in ROWS]
OUTSIDE = (0x8000_0000, 0xFFFF_FFFF, 0xFFFF_FFF0)


def pointers(function):
    """Names of the slots that are addresses."""
    found = []
    for param in function.params:
        match param.type:
            case Str() | Slice() | OutSlice():
                found.append(f"{param.name}_ptr")
            case Block() | OutBlock():
                found.append(param.name)
            case kind if type(kind).__name__ in ("Ref", "Out"):
                found.append(param.name)
    return found + [s.name for s in slots(function) if s.name.startswith("__ark")]


def lengths(function):
    """Names of the slots that count the items of a slice."""
    return [
        f"{param.name}_len"
        for param in function.params
        if isinstance(param.type, (Str, Slice, OutSlice))
    ]


# They need a pending vector and an input: test_core.py has them.
LATER = ("take_host_return_vec", "get_input_slice")
OTHERS = [row for row in ROWS if row[1].name not in LATER]
POINTERS = [(*row, slot) for row in OTHERS for slot in pointers(row[1])]
POINTER_IDS = [f"{name_of(api, function)}-{slot}" for api, function, slot in POINTERS]
LENGTHS = [(*row, slot) for row in OTHERS for slot in lengths(row[1])]
LENGTH_IDS = [f"{name_of(api, function)}-{slot}" for api, function, slot in LENGTHS]


def refusal(function):
    """What a function answers to a bad pointer; None where it has no way to say so."""
    if function.name == "log":  # a guest asserts it
        return ErrorCode.SUCCESS
    return None if function.outcome is Outcome.NONE else ErrorCode.INVALID_ARGUMENTS


def remaining(checked, api, function):
    """What is alive after a refused call: a ready future that is taken wrongly is gone."""
    handles, futures = checked.alive()
    is_take = future_of(api, function) and function.name.startswith("take")
    return handles, futures - bool(is_take)


def outputs(checked, call):
    return {slot: checked.read(*room) for slot, room in call.rooms.items()}


@pytest.mark.parametrize(("api", "function"), ROWS, ids=IDS)
def test_good_arguments_are_answered_and_only_the_result_is_written(make_checked, api, function):
    written = []
    for fill in (b"?", b"!"):
        checked = make_checked(fill=fill)
        call = arrange(checked, api, function)
        code = checked.make(api, function, call)

        assert code == expected_code(function)
        written.append(outputs(checked, call))

    if code in (None, 0) and function.name != "time_utc":
        assert written[0] == written[1]


@pytest.mark.parametrize(("api", "function"), ROWS, ids=IDS)
def test_pointers_need_no_alignment(make_checked, api, function):
    aligned, odd = make_checked(), make_checked()
    call, odd_call = arrange(aligned, api, function), arrange(odd, api, function, odd=1)

    assert odd.make(api, function, odd_call) == aligned.make(api, function, call)
    if function.name != "time_utc":
        assert outputs(odd, odd_call) == outputs(aligned, call)


@pytest.mark.parametrize(("api", "function", "slot"), POINTERS, ids=POINTER_IDS)
def test_what_is_pointed_to_may_end_where_memory_ends(make_checked, api, function, slot):
    checked = make_checked()
    call = arrange(checked, api, function, last=slot)

    assert checked.make(api, function, call) == expected_code(function)


@pytest.mark.parametrize(("api", "function", "slot"), POINTERS, ids=POINTER_IDS)
def test_a_pointer_outside_of_memory_is_refused_and_nothing_is_written(
    make_checked, api, function, slot
):
    for where in ("one byte over the end", *OUTSIDE):
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[slot] = checked.size - call.sizes[slot] + 1 if isinstance(where, str) else where
        call.rooms.clear()
        left = remaining(checked, api, function)

        assert checked.make(api, function, call) == refusal(function)
        assert checked.alive() == left


@pytest.mark.parametrize(("api", "function", "slot"), LENGTHS, ids=LENGTH_IDS)
def test_a_length_that_reaches_over_memory_or_over_32_bits_is_refused(
    make_checked, api, function, slot
):
    for length in (0xFFFF_FFFF, 0x8000_0000, 0x4000_0000, 0x2000_0001, 0x1_0000, 0x0F0F_0F10):
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[slot] = length
        call.rooms.clear()
        left = remaining(checked, api, function)

        assert checked.make(api, function, call) == refusal(function)
        assert checked.alive() == left


@pytest.mark.parametrize(("api", "function", "slot"), LENGTHS, ids=LENGTH_IDS)
def test_the_pointer_of_an_empty_slice_is_never_looked_at(make_checked, api, function, slot):
    answers = set()
    pointer = slot.removesuffix("_len") + "_ptr"
    for where in (None, 0, 1, 4, 8, 65_536, 0xFFFF_FFFF):
        checked = make_checked()
        call = arrange(checked, api, function)
        call.values[slot] = 0
        call.rooms.pop(pointer, None)
        if where is not None:
            call.values[pointer] = where
        answers.add((checked.make(api, function, call), checked.alive()))

    assert len(answers) == 1
