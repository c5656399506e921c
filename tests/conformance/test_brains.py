"""ml-inference-v0 through wasm: loads, names, shapes and submissions."""

import struct

import pytest
from tests.conformance import models as build
from tests.conformance.brains import V0, Guest, two_inputs, wide
from tests.conformance.checked_guest import MODEL as LINEAR
from tests.conformance.scripted_guest import MODEL, step

from arkml.abi.codes import ErrorCode

WRONG, MISSING, LATER = (
    ErrorCode.INVALID_ARGUMENTS,
    ErrorCode.NOT_FOUND,
    ErrorCode.UNAVAILABLE,
)


@pytest.fixture
def guest(run):
    return Guest(run)


def test_a_load_is_unavailable_until_it_is_done_and_then_gives_its_brain(guest):
    jobs = []
    guest.services.background = jobs.append
    load = guest.load(LINEAR)
    before = [guest.poll(load) for _ in range(3)]
    jobs.pop()()
    code, brain = guest.poll(load)

    assert before == [(LATER, None)] * 3
    assert code == 0
    assert guest.poll(load) == (MISSING, None)
    assert guest.names(brain, "get_brain_input") == ["obs"]


@pytest.mark.parametrize("model", [b"", b"no model", wide(256)], ids=["empty", "none", "wide"])
def test_a_load_that_failed_errs_at_every_poll_and_is_never_unavailable(guest, model):
    load = guest.load(model)

    assert [guest.poll(load) for _ in range(5)] == [(WRONG, None)] * 5
    assert guest.run(step(V0 + "destroy_runtime", guest.runtime)) == [0]
    assert guest.poll(load) == (MISSING, None)


def test_a_tensorflow_snapshot_is_refused(guest):
    guest.run.put(MODEL, LINEAR)
    place = (guest.runtime, 1, MODEL, len(LINEAR))
    code, load = guest.run.value(4, V0 + "load_inference_async", *place)

    assert code == WRONG or guest.poll(int.from_bytes(load, "little")) == (WRONG, None)


def test_an_output_of_255_floats_is_the_widest(guest):
    brain = guest.brain(wide(255))
    row = [float(number) for number in range(255)]
    guest.submit(brain, 1, ("obs", row))

    assert guest.execute() == [1]
    assert guest.output(brain, 1) == row


def test_names_are_counted_texts_and_shapes_have_no_batch_dimension(guest):
    brain = guest.brain(two_inputs())

    assert guest.names(brain, "get_brain_input") == ["seen", "position"]
    assert guest.names(brain, "get_brain_output") == ["sum", "far"]
    assert guest.names(brain, "result_get_brain_output") == ["sum", "far"]
    assert [guest.shape(brain, "input", slot) for slot in range(2)] == [(2, 3), (2,)]
    assert [guest.shape(brain, "output", slot) for slot in range(2)] == [(2, 3), (2,)]


@pytest.mark.parametrize("which", ["input", "output"])
@pytest.mark.parametrize("slot", [2, 8, 0x8000_0000, 0xFFFF_FFFF])
def test_a_slot_that_does_not_exist_is_refused(guest, which, slot):
    brain = guest.brain(two_inputs())

    assert guest.shape(brain, which, slot) in (WRONG, MISSING)


def test_what_the_host_feeds_is_no_input_of_the_guest(guest):
    brain = guest.brain(build.noisy(2))

    assert guest.names(brain, "get_brain_input") == ["obs"]
    assert guest.submit(brain, 3, ("obs", [1, 2])) == [0, 0, 0]
    assert guest.execute() == [3]
    assert guest.output(brain, 3) != [1, 2]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_items_may_come_in_any_order(guest, order):
    brain = guest.brain(two_inputs())
    items = [("seen", [1, 2, 3, 4, 5, 6]), ("position", [7, 8])]

    assert guest.submit(brain, 9, *[items[place] for place in order]) == [0] * 4
    assert guest.execute() == [9]
    assert guest.output(brain, 9, 0) == [1, 2, 3, 4, 5, 6]
    assert guest.output(brain, 9, 1) == [70, 80]


@pytest.mark.parametrize(
    "items",
    [
        [],
        [("seen", [0] * 6)],
        [("seen", [0] * 6), ("position", [0])],
        [("seen", [0] * 7), ("position", [0, 0])],
        [("seen", []), ("position", [0, 0])],
        [("seen", [0] * 6), ("position", [0, 0]), ("other", [0])],
        [("Seen", [0] * 6), ("position", [0, 0])],
        [("seen", [0] * 6), ("position", [0] * 3), ("other", [])],
    ],
)
def test_a_wrong_submission_is_refused_at_its_end_and_discarded(guest, items):
    brain = guest.brain(two_inputs())
    codes = guest.submit(brain, 9, *items)
    after = guest.submit(brain, 4, ("seen", [0] * 6), ("position", [1, 2]))

    assert codes == [0] * (len(items) + 1) + [WRONG]
    assert after == [0] * 4
    assert guest.execute() == [4]


def test_items_and_ends_without_a_beginning_are_refused(guest):
    brain = guest.brain()
    place = (guest.runtime, brain)
    guest.run.put(MODEL, b"obs" + bytes(12))
    item = step(V0 + "submit_inference_item", *place, MODEL, 3, MODEL + 3, 3)
    codes = guest.run(step(V0 + "end_infer_submission", *place), item)

    assert codes == [WRONG, WRONG]
    assert guest.execute() == []


def test_an_end_ends_only_once(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1, 2, 3]))

    assert guest.run(step(V0 + "end_infer_submission", guest.runtime, brain)) == [WRONG]
    assert guest.execute() == [1]


def test_submissions_of_two_brains_do_not_mix(guest):
    first, second = guest.brain(), guest.brain(wide(2))
    guest.run.put(MODEL, b"obs" + struct.pack("<5f", 1, 2, 3, 4, 5))
    begin, item, end = ("begin_infer_submission", "submit_inference_item", "end_infer_submission")
    codes = guest.run(
        step(V0 + begin, guest.runtime, first, 10),
        step(V0 + begin, guest.runtime, second, 20),
        step(V0 + item, guest.runtime, second, MODEL, 3, MODEL + 15, 2),
        step(V0 + item, guest.runtime, first, MODEL, 3, MODEL + 3, 3),
        step(V0 + end, guest.runtime, first),
        step(V0 + end, guest.runtime, second),
    )

    assert codes == [0] * 6
    assert sorted(guest.execute()) == [10, 20]
    assert (guest.output(first, 10), guest.output(second, 20)) == ([4, 5], [4, 5])


def test_a_runtime_that_cannot_be_announced_is_not_made(guest):
    alive = guest.services.live_handles
    guest.run(step(V0 + "create_runtime", 4 * 65_536 - 3))

    assert guest.services.live_handles == alive
