"""Core functions and vectors that the host keeps until the guest fetches them."""

import logging

import pytest
from tests.conformance.checked_guest import MODEL
from tests.conformance.scripted_guest import PAGE, Cell, step

from arkml.abi.codes import ErrorCode
from arkml.errors import GuestTrap
from arkml.guests.guest import calls_of

CORE = "ark-core-v{}.core__{}"
RETURN = CORE.format(0, "return_slice")
INPUT = CORE.format(0, "get_input_slice")
EXTENSION = CORE.format(1, "has_extension")
PANIC = CORE.format(2, "register_panic")
LOG = CORE.format(3, "log")
TAKE = CORE.format(4, "take_host_return_vec")
PACK = "ark-ml-v1.ml__onnx_to_cervo"
WRONG, MISSING = ErrorCode.INVALID_ARGUMENTS, ErrorCode.NOT_FOUND
CERVO = b"CRVO\0\0\0\1" + MODEL
AT = 1024


@pytest.fixture
def packed(run):
    """A scripted guest with a model at AT, whose container can be made by one step."""
    run.put(0, b"?" * PAGE)
    run.put(AT, MODEL)
    return run, step(PACK, AT, len(MODEL), 64)


@pytest.mark.parametrize("module", ["ark-ml-v1.ml", "ark-ml-inference-v0.ml_inference"])
def test_a_vector_is_fetched_by_its_size(run, module):
    run.put(0, b"?" * PAGE)
    run.put(AT, MODEL)
    room = AT + len(MODEL) + 1
    codes = run(
        step(f"{module}__onnx_to_cervo", AT, len(MODEL), 64),
        step(TAKE, room, len(CERVO)),
    )
    memory = run.guest.read_memory(0, PAGE)

    assert codes == [0, 0]
    assert run.u32(64) == len(CERVO)
    assert memory[room : room + len(CERVO)] == CERVO
    assert memory[:64] + memory[68:AT] == b"?" * (AT - 4)
    assert memory[room + len(CERVO) :] == b"?" * (PAGE - room - len(CERVO))


def test_a_vector_is_fetched_once(packed):
    run, pack = packed
    fetch = step(TAKE, 2 * AT, len(CERVO))

    assert run(pack, fetch, fetch, step(TAKE, 1, 0)) == [0, 0, MISSING, MISSING]


def test_without_a_vector_there_is_nothing_to_fetch(run):
    assert run(step(TAKE, 64, 4), step(TAKE, 1, 0), step(TAKE, 64, 0)) == [MISSING] * 3


@pytest.mark.parametrize("length", [0, 1, len(CERVO) - 1, len(CERVO) + 1, 0xFFFF_FFFF])
def test_a_wrong_length_is_refused_and_nothing_is_written(packed, length):
    run, pack = packed

    assert run(pack, step(TAKE, 8192, length)) == [0, WRONG]
    assert run.guest.read_memory(8192, 8192) == b"?" * 8192


@pytest.mark.parametrize("pointer", [4 * PAGE - len(CERVO) + 1, 4 * PAGE, 0xFFFF_FFFF, 0xFFFF_FFF0])
def test_a_bad_pointer_is_refused_and_nothing_is_written(packed, pointer):
    run, pack = packed

    assert run(pack, step(TAKE, pointer, len(CERVO))) == [0, WRONG]
    assert run.guest.read_memory(8192, 8192) == b"?" * 8192


def test_a_vector_may_be_fetched_to_the_very_end_of_memory(packed):
    run, pack = packed
    room = 4 * PAGE - len(CERVO)

    assert run(pack, step(TAKE, room, len(CERVO))) == [0, 0]
    assert run.guest.read_memory(room, len(CERVO)) == CERVO


def test_a_newer_vector_takes_the_place_of_an_older_one(packed):
    run, pack = packed
    handle, future = calls_of(run.guest).services.futures.open(_text())
    future.resolve("new")
    codes = run(pack, step("ark-ml-v4.ml__take_future_string", handle, 64), step(TAKE, 8192, 3))

    assert codes == [0, 0, 0]
    assert run.guest.read_memory(8192, 3) == b"new"


def test_a_vector_that_could_not_be_announced_is_not_pending(packed):
    run, _ = packed

    assert run(step(PACK, AT, len(MODEL), 4 * PAGE - 3), step(TAKE, 8192, len(CERVO))) == [
        WRONG,
        MISSING,
    ]


def _text():
    from arkml.sessions import results

    return results.TEXT


def test_no_extension_exists(run):
    ids = [0, 1, 5, 0xAED6_0109_4F07_3C83, (1 << 64) - 1]

    assert run(*[step(EXTENSION, number) for number in ids]) == [0] * 5


def test_a_returned_slice_is_copied_at_once(run):
    run.put(64, b"result")
    codes = run(step(RETURN, 64, 1, 6), step("memory.fill", 64, 0x21, 6))

    assert codes == [0, 0]
    assert run.guest.return_slice == b"result"


@pytest.mark.parametrize(("count", "size"), [(0, 4), (4, 4), (2, 4), (0xFFFF_FFFF, 4)])
def test_the_size_of_a_returned_slice_is_its_third_argument(run, count, size):
    run.put(64, b"result")

    assert run(step(RETURN, 64, count, size)) == [0]
    assert run.guest.return_slice == b"resu"


@pytest.mark.parametrize("pointer", [0, 1, 8, 0xFFFF_FFFF])
def test_an_empty_slice_may_be_returned_from_anywhere(run, pointer):
    assert run(step(RETURN, pointer, 5, 0)) == [0]
    assert run.guest.return_slice == b""


def test_a_slice_outside_of_memory_is_not_returned(run):
    end = 4 * PAGE
    bad = [(end - 3, 4), (end, 1), (0xFFFF_FFFF, 1), (0xFFFF_FFF0, 0x20), (16, 0xFFFF_FFFF)]

    assert run(*[step(RETURN, pointer, 1, size) for pointer, size in bad]) == [WRONG] * 5
    assert run.guest.return_slice is None


def test_a_refused_slice_leaves_the_one_before(run):
    run.put(64, b"result")

    assert run(step(RETURN, 64, 6, 6), step(RETURN, 4 * PAGE, 1, 1)) == [0, WRONG]
    assert run.guest.return_slice == b"result"


def test_the_input_is_copied_in_pieces(run):
    run.put(64, b"?" * 64)
    codes, reply = run.entry(
        step(INPUT, 64, 3, 0), step(INPUT, 70, 2, 3), step(INPUT, 80, 5, 0), data=b"input"
    )

    assert (codes, reply.status) == ([0, 0, 0], 0)
    assert run.guest.read_memory(64, 24) == b"inp???ut????????input???"


def test_no_more_than_the_input_can_be_copied(run):
    run.put(64, b"?" * 64)
    wrong = [(6, 0), (1, 5), (5, 1), (1, 0xFFFF_FFFF), (0xFFFF_FFFF, 1), (0xFFFF_FFFF, 0xFFFF_FFFF)]
    codes, _ = run.entry(*[step(INPUT, 64, *pair) for pair in wrong], data=b"input")

    assert codes == [WRONG] * 6
    assert run.guest.read_memory(64, 64) == b"?" * 64


def test_nothing_may_be_copied_from_any_place_of_the_input_to_anywhere(run):
    codes, _ = run.entry(step(INPUT, 1, 0, 0), step(INPUT, 0xFFFF_FFFF, 0, 5), data=b"input")

    assert codes == [0, 0]


def test_the_input_is_not_copied_outside_of_memory(run):
    end = 4 * PAGE
    places = [end - 4, end, 0xFFFF_FFFF, 0xFFFF_FFFC]
    codes, _ = run.entry(*[step(INPUT, place, 5, 0) for place in places], data=b"input")

    assert codes == [WRONG] * 4


def test_an_entry_point_without_input_has_none(run):
    run.put(64, b"?" * 8)
    run.entry(step(INPUT, 64, 1, 0), data=b"input")

    assert run(step(INPUT, 64, 1, 0)) == [WRONG]


@pytest.mark.parametrize("level", [0, 1, 2, 3, 4, 5, 77, 0xFFFF_FFFF])
@pytest.mark.parametrize("text", [b"", b"hello", b"\xff\xfe", "ä".encode(), b"a\0b"])
def test_logging_always_succeeds(run, level, text):
    run.put(64, text or b"?")

    assert run(step(LOG, level, 64, len(text))) == [0]


@pytest.mark.parametrize("place", [(4 * PAGE, 1), (4 * PAGE - 1, 2), (16, 0xFFFF_FFFF)])
def test_logging_from_outside_of_memory_succeeds_too(run, place):
    assert run(step(LOG, 2, *place)) == [0]


def test_a_log_line_goes_to_the_logger_of_the_guest(run, caplog):
    run.put(64, b"good morning")
    with caplog.at_level(logging.DEBUG, "arkml.guest"):
        run(*[step(LOG, level, 64, 12) for level in range(5)])

    seen = [(r.name, r.levelno) for r in caplog.records if "good morning" in r.message]
    assert [level for _, level in seen] == [logging.ERROR, logging.WARNING, logging.INFO, 10]
    assert {name for name, _ in seen} == {"arkml.guest.scripted"}


def test_a_panic_shows_in_the_error_of_the_trap_that_follows(run):
    run.put(64, b"out of cheese")
    run.put(128, b"src/lib.rs")
    with pytest.raises(GuestTrap) as trap:
        run(step(PANIC, 64, 13, 128, 10, 12, 5), step("trap"))

    assert trap.value.panic == "out of cheese, src/lib.rs:12:5"
    assert "out of cheese" in str(trap.value)


def test_a_panic_without_a_trap_is_no_failure(run):
    run.put(64, b"just kidding")

    assert run(step(PANIC, 64, 12, 64, 4, 1, 1)) == [0]
    assert run(step(EXTENSION, 1)) == [0]


def test_a_panic_with_invalid_utf8_is_shown_as_well_as_can_be(run):
    run.put(64, b"bad \xff end")
    with pytest.raises(GuestTrap) as trap:
        run(step(PANIC, 64, 9, 1, 0, 0, 0), step("trap"))

    assert "bad \ufffd end" in trap.value.panic


def test_a_debug_context_is_shown_until_it_is_removed(run):
    run.put(64, b"levelcave")
    add, remove = CORE.format(4, "add_debug_context"), CORE.format(4, "remove_debug_context")
    with pytest.raises(GuestTrap) as trap:
        run(
            step(add, 64, 5, 69, 4),
            step(add, 69, 4, 64, 5),
            step(remove, 69, 4),
            step(remove, 69, 4),
            step(PANIC, 64, 5, 64, 5, 1, 2),
            step("trap"),
        )

    assert "level=cave" in trap.value.panic
    assert "cave=level" not in trap.value.panic


def test_a_cell_is_read_when_its_call_is_made(run):
    run.put(64, (6).to_bytes(8, "little"))
    run.put(72, b"result")

    assert run(step(RETURN, 72, 1, Cell(64))) == [0]
    assert run.guest.return_slice == b"result"
