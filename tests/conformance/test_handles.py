"""Handles through wasm: only what is alive, of the right kind and generation, is ever found."""

import pytest
from tests.conformance.arguments import arrange
from tests.conformance.checked_guest import FUTURES, ROWS, future_of, name_of
from tests.conformance.echo import Echo
from tests.conformance.scripted_guest import Cell, step

from arkml.abi.codes import ErrorCode
from arkml.abi.schema import U32, Handle
from arkml.errors import GuestTrap
from arkml.guests.guest import calls_of
from arkml.sessions import results
from arkml.sessions.session_table import TrainingStart
from arkml.testing import RecordingSink

V0 = "ark-ml-inference-v0.ml_inference__"
HANDLES = [
    (api, function, param)
    for api, function in ROWS
    for param in function.params
    if isinstance(param.type, Handle)
]
IDS = [f"{name_of(api, function)}-{param.name}" for api, function, param in HANDLES]
V0_HANDLES = [row for row in HANDLES if row[2].type.scalar is U32]


def closed(checked, kind, key):
    """A handle of that kind that was alive, in a slot that is used again by another object."""
    match kind:
        case "InferenceHandle":
            old = checked.inference()
            assert checked.call("ark-ml-v1.ml__stop_inference", old) == 0
            return old, checked.inference()
        case "TrainingHandle":
            old = checked.training()
            assert checked.call("ark-ml-v1.ml__stop_training", old) == 0
            return old, checked.training()
        case "FutureHandle":
            old = checked.future(key)
            assert checked.call("ark-ml-v1.ml__drop_future", old) == 0
            return old, checked.future(key)
        case "RuntimeHandle":
            old = checked.runtime()
            assert checked.call(V0 + "destroy_runtime", old) == 0
            return old, checked.runtime()
        case "RawInferenceHandle":
            runtime = checked.runtime()
            old = checked.brain(runtime)
            assert checked.call(V0 + "unload_inference", runtime, old) == 0
            return old, checked.brain(runtime)
        case "LoadInferenceHandle":
            runtime = checked.runtime()
            old = checked.load(runtime)
            assert checked.call(V0 + "destroy_runtime", runtime) == 0
            return old, checked.load(checked.runtime())
        case _:
            raise ValueError(kind)


def others(checked, kind):
    """Live handles of every other kind that has as many bits."""
    if kind in ("RuntimeHandle", "RawInferenceHandle", "LoadInferenceHandle"):
        runtime = checked.runtime()
        found = {"RuntimeHandle": runtime, "RawInferenceHandle": checked.brain(runtime)}
        found["LoadInferenceHandle"] = checked.load(runtime)
    else:
        found = {"InferenceHandle": checked.inference(), "TrainingHandle": checked.training()}
        found["FutureHandle"] = checked.future(("ark-ml-v1", "bool"))
    return [handle for name, handle in found.items() if name != kind]


def refused(checked, api, function, call):
    """Whether the call is answered with NotFound and leaves everything as it is."""
    call.rooms.clear()
    alive = checked.alive()
    code = checked.make(api, function, call)
    return code == ErrorCode.NOT_FOUND and checked.alive() == alive


@pytest.mark.parametrize(("api", "function", "param"), HANDLES, ids=IDS)
def test_a_number_that_names_nothing_is_not_found(make_checked, api, function, param):
    checked = make_checked()
    call = arrange(checked, api, function)
    live = call.values[param.name]
    whole = (1 << 8 * param.type.scalar.size) - 1
    index_bits = 20 if param.type.scalar is U32 else 32
    for wrong in (
        *(0, live + 7, live ^ 1 << index_bits, live | whole >> index_bits << index_bits),
        *(whole, whole >> 1, 1 << whole.bit_length() - 1, (1 << index_bits) - 1, 1 << index_bits),
    ):
        call.values[param.name] = wrong

        assert refused(checked, api, function, call), f"{wrong:#x}"


@pytest.mark.parametrize(("api", "function", "param"), HANDLES, ids=IDS)
def test_a_closed_handle_never_names_a_later_object(make_checked, api, function, param):
    checked = make_checked()
    key = future_of(api, function) or ("ark-ml-v1", "bool")
    old, new = closed(checked, param.type.name, key)
    call = arrange(checked, api, function)
    call.values[param.name] = old

    assert new not in (0, old)
    assert refused(checked, api, function, call)


@pytest.mark.parametrize(("api", "function", "param"), HANDLES, ids=IDS)
def test_a_handle_of_another_kind_is_not_found(make_checked, api, function, param):
    checked = make_checked()
    call = arrange(checked, api, function)
    for other in others(checked, param.type.name):
        call.values[param.name] = other

        assert refused(checked, api, function, call)


BRAINS = [row for row in V0_HANDLES if row[2].type.name == "RawInferenceHandle"]


@pytest.mark.parametrize(("api", "function", "param"), BRAINS, ids=lambda x: getattr(x, "name", ""))
def test_a_brain_of_another_runtime_is_not_found(make_checked, api, function, param):
    checked = make_checked()
    call = arrange(checked, api, function)
    call.values[param.name] = checked.brain(checked.runtime())

    assert refused(checked, api, function, call)


WITH_FUTURES = [
    pytest.param(*row, key, id=f"{name_of(*row[:2])}-{key[0]}-{key[1]}")
    for row in HANDLES
    for key in FUTURES
    if row[2].type.scalar is not U32 and future_of(*row[:2]) != key
]


@pytest.mark.parametrize(("api", "function", "param", "key"), WITH_FUTURES)
def test_a_future_is_no_session_and_answers_only_functions_of_its_type(
    make_checked, api, function, param, key
):
    checked = make_checked()
    call = arrange(checked, api, function)
    future = call.values[param.name] = checked.future(key)
    call.rooms.clear()
    alive = checked.alive()
    expected = ErrorCode.INVALID_ARGUMENTS if future_of(api, function) else ErrorCode.NOT_FOUND
    if function.name == "drop_future":
        expected, alive = ErrorCode.SUCCESS, (alive[0], alive[1] - 1)

    assert checked.make(api, function, call) == expected
    assert checked.alive() == alive
    if function.name != "drop_future":
        assert checked.call("ark-ml-v1.ml__drop_future", future) == 0


def test_a_guest_cannot_use_the_handles_of_another(make_checked):
    mine, other = make_checked(), make_checked()
    handles = [other.inference(), other.training(), other.future(("ark-ml-v1", "bool"))]
    inference, training, future = handles
    calls = [
        ("ark-ml-v1.ml__stop_inference", inference),
        ("ark-ml-v1.ml__stop_training", training),
        ("ark-ml-v1.ml__drop_future", future),
        (V0 + "destroy_runtime", other.runtime()),
    ]

    assert [mine.call(*call) for call in calls] == [ErrorCode.NOT_FOUND] * 4
    assert other.alive() == (3, 1)


def test_start_stop_start_gives_a_handle_that_the_old_one_does_not_match(make_checked):
    checked = make_checked()
    seen = set()
    for _ in range(50):
        handle = checked.inference()
        assert checked.push(handle) == 0
        assert checked.call("ark-ml-v1.ml__stop_inference", handle) == 0
        assert checked.push(handle) == ErrorCode.NOT_FOUND
        assert checked.call("ark-ml-v1.ml__stop_inference", handle) == ErrorCode.NOT_FOUND
        seen.add(handle)

    assert len(seen) == 50
    assert all(handle & 0xFFFF_FFFF for handle in seen)


def test_rows_of_a_stopped_session_are_not_in_the_next_one(make_checked):
    checked = make_checked()
    old = checked.inference()
    assert [checked.push(old, agent=agent) for agent in range(5)] == [0] * 5
    assert checked.call("ark-ml-v1.ml__stop_inference", old) == 0
    new = checked.inference()

    room = checked.room(12)
    submit = "ark-ml-v1.ml__submit_inference_observations"
    assert checked.push(new) == 0
    assert checked.call(submit, new, room, 2, room + 8, 1, writes=[(room, 12)]) == 0


def test_a_32_bit_handle_has_a_12_bit_generation_and_its_slot_is_retired_in_the_end(run):
    cells = range(64, 64 + 8 * 100, 8)
    pairs = [(step(V0 + "create_runtime", c), step(V0 + "destroy_runtime", Cell(c))) for c in cells]
    steps = [part for pair in pairs for part in pair]
    handles = []
    for _ in range(44):
        assert run(*steps) == [0] * 200
        handles += [run.u32(cell) for cell in cells]

    assert len(set(handles)) == 4400
    assert {handle & 0xF_FFFF for handle in handles[:4096]} == {1}
    assert {handle & 0xF_FFFF for handle in handles[4096:]} == {2}
    assert calls_of(run.guest).services.live_handles == 0


def test_handles_of_ml_inference_have_their_index_in_the_low_20_bits(make_checked):
    checked = make_checked()
    runtime = checked.runtime()
    found = [runtime, checked.brain(runtime), checked.load(runtime), checked.runtime()]

    assert len({handle & 0xF_FFFF for handle in found}) == 4
    assert all(0 < handle < 1 << 32 for handle in found)


def test_destroying_a_runtime_kills_its_brains_and_loads_and_no_others(make_checked):
    checked = make_checked()
    runtime, kept = checked.runtime(), checked.runtime()
    brain, load, other = checked.brain(runtime), checked.load(runtime), checked.brain(kept)
    assert checked.call(V0 + "destroy_runtime", runtime) == 0

    room = checked.room(4)
    assert checked.call(V0 + "poll_load_inference_async", load, room) == ErrorCode.NOT_FOUND
    assert checked.call(V0 + "unload_inference", runtime, brain) == ErrorCode.NOT_FOUND
    assert checked.call(V0 + "unload_inference", kept, brain) == ErrorCode.NOT_FOUND
    assert checked.call(V0 + "unload_inference", kept, other) == 0
    assert checked.alive() == (1, 0)


def test_the_handles_of_a_guest_that_failed_are_freed(run):
    services, sink = calls_of(run.guest).services, RecordingSink()
    training = services.sessions.open_training(TrainingStart(Echo(3, 2), 3, 2, sink))
    services.futures.open(results.BOOL)
    before = services.live_handles, services.live_futures
    with pytest.raises(GuestTrap):
        run(step(V0 + "create_runtime", 64), step("trap"))

    assert training
    assert before == (1, 1)
    assert (services.live_handles, services.live_futures) == (0, 0)
    assert sink.left == [False]
