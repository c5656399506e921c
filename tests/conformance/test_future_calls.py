"""The futures table of the ABI, case by case, with futures that the test gives to the guest."""

import struct
from itertools import permutations

import pytest
from tests.conformance.checked_guest import ACTIONS, FEATURES, FUTURES
from tests.conformance.echo import Echo
from tests.conformance.scripted_guest import Cell, step

from arkml.abi.codes import ErrorCode, ExperimentStatus
from arkml.abi.layout import unpack
from arkml.abi.ml_v1 import EXPERIMENT_INFO, METRIC_V1
from arkml.abi.ml_v3 import METRIC_V3
from arkml.errors import (
    ApiNotAvailable,
    HttpRequestFailed,
    InvalidArguments,
    NotFound,
    Unavailable,
)
from arkml.guests.guest import calls_of
from arkml.sessions.results import ExperimentInfo, Metric
from arkml.sessions.session import TrainingSession
from arkml.sessions.session_table import TrainingStart

KEYS = list(FUTURES)
IDS = ["-".join(key) for key in KEYS]
WRITTEN = [key for key in KEYS if key[1] != "string"]  # a string leaves as a pending vector
COUNTED = [key for key in KEYS if key[1].startswith("vec")]
ITEM = {
    ("ark-ml-v1", "bool"): 1, ("ark-ml-v1", "vec_u8"): 1, ("ark-ml-v1", "vec_metric"): 32,
    ("ark-ml-v1", "training_handle"): 8, ("ark-ml-v1", "vec_experiment_info"): 232,
    ("ark-ml-v2", "ark_experiment_config"): 8, ("ark-ml-v3", "vec_metric"): 72,
}  # fmt: skip
DROP = "ark-ml-v1.ml__drop_future"
each_type = pytest.mark.parametrize("key", KEYS, ids=IDS)


def poll(checked, key, handle, *, at=None):
    """The code, and whether it is ready and how long (None for a PollSimple)."""
    size = 8 if key in COUNTED else 1
    room = checked.room(size) if at is None else at
    code = checked.call(f"{key[0]}.ml__poll_future_{key[1]}", handle, room, writes=[(room, size)])
    data = checked.read(room, size)
    if code:
        assert data == checked.fill * size
        return code, None, None
    assert data[:1] in (b"\0", b"\1")
    assert data[1:4] in (b"", b"\0\0\0")
    return code, data[0] == 1, int.from_bytes(data[4:], "little") if size == 8 else None


def take(checked, key, handle, items, *, at=None):
    """The code, and what was written: None if nothing."""
    size = 4 if key[1] == "string" else items * ITEM[key]
    room = checked.room(size) if at is None else at
    count = (items,) if key in COUNTED else ()
    name = f"{key[0]}.ml__take_future_{key[1]}"
    before = checked.read(room, size)
    code = checked.call(name, handle, room, *count, writes=[(room, size)])
    data = checked.read(room, size)
    return code, None if data == before else data


def is_gone(checked, key, handle):
    codes = {
        poll(checked, key, handle)[0],
        take(checked, key, handle, 0)[0],
        checked.call(DROP, handle),
    }
    return codes == {ErrorCode.NOT_FOUND} and checked.alive()[1] == 0


@each_type
def test_an_unknown_a_taken_and_a_dropped_future_are_not_found(checked, key):
    taken, dropped = checked.future(key), checked.future(key)
    assert take(checked, key, taken, FUTURES[key][2])[0] == 0
    assert checked.call(DROP, dropped) == 0

    assert is_gone(checked, key, 99)
    assert is_gone(checked, key, taken)
    assert is_gone(checked, key, dropped)


@pytest.mark.parametrize(("key", "other"), list(permutations(KEYS, 2)))
@pytest.mark.parametrize("state", ["pending", "ready", "failed"])
def test_a_future_of_another_type_is_an_invalid_argument_and_kept(checked, key, other, state):
    handle, future = checked.pending(other)
    if state == "ready":
        future.resolve(FUTURES[other][1])
    elif state == "failed":
        future.fail(NotFound("lost"))

    assert poll(checked, key, handle)[0] == ErrorCode.INVALID_ARGUMENTS
    assert take(checked, key, handle, 1) == (ErrorCode.INVALID_ARGUMENTS, None)
    assert poll(checked, other, handle)[0] == ErrorCode.SUCCESS
    assert checked.call(DROP, handle) == 0


@each_type
def test_a_pending_future_is_not_ready_unavailable_and_kept(checked, key):
    handle, future = checked.pending(key)
    length = 0 if key in COUNTED else None

    assert poll(checked, key, handle) == (0, False, length)
    for _ in range(3):
        assert take(checked, key, handle, 1) == (ErrorCode.UNAVAILABLE, None)
    for outside in (checked.size, 0xFFFF_FFFF):
        assert take_outside(checked, key, handle, outside) == ErrorCode.UNAVAILABLE
    future.fail(NotFound("lost"))
    assert poll(checked, key, handle) == (0, True, length)


def take_outside(checked, key, handle, pointer, items=1):
    count = (items,) if key in COUNTED else ()
    return checked.call(f"{key[0]}.ml__take_future_{key[1]}", handle, pointer, *count)


@each_type
def test_a_ready_future_with_a_bad_pointer_is_consumed_and_nothing_is_written(checked, key):
    for pointer in (checked.size, checked.size - 1 + (key[1] == "bool"), 0xFFFF_FFFF, 0x8000_0000):
        handle = checked.future(key)

        code = take_outside(checked, key, handle, pointer, FUTURES[key][2])
        assert code == ErrorCode.INVALID_ARGUMENTS
        assert is_gone(checked, key, handle)


@pytest.mark.parametrize("key", COUNTED, ids="-".join)
def test_a_ready_future_with_a_wrong_length_is_consumed_and_nothing_is_written(checked, key):
    right = FUTURES[key][2]
    for items in {0, right - 1, right + 1, right * 2}:
        handle = checked.future(key)

        assert poll(checked, key, handle) == (0, True, right)
        assert take(checked, key, handle, items) == (ErrorCode.INVALID_ARGUMENTS, None)
        assert is_gone(checked, key, handle)


@each_type
@pytest.mark.parametrize(
    ("error", "code"),
    [
        (HttpRequestFailed("500"), ErrorCode.HTTP_REQUEST_FAILED),
        (NotFound("no such run"), ErrorCode.NOT_FOUND),
        (Unavailable("gone"), ErrorCode.UNAVAILABLE),
        (InvalidArguments("wrong"), ErrorCode.INVALID_ARGUMENTS),
        (ApiNotAvailable("old"), ErrorCode.API_NOT_AVAILABLE),
        (RuntimeError("a bug"), ErrorCode.INTERNAL_ERROR),
    ],
)
def test_a_failed_future_is_ready_without_items_and_taking_it_brings_its_error(
    checked, key, error, code
):
    handle, future = checked.pending(key)
    future.fail(error)

    assert poll(checked, key, handle) == (0, True, 0 if key in COUNTED else None)
    assert take(checked, key, handle, FUTURES[key][2]) == (code, None)
    assert is_gone(checked, key, handle)


@each_type
@pytest.mark.parametrize("state", ["pending", "ready", "failed"])
def test_dropping_a_live_future_always_succeeds(checked, key, state):
    handle, future = checked.pending(key)
    if state == "ready":
        future.resolve(FUTURES[key][1])
    elif state == "failed":
        future.fail(RuntimeError("a bug"))

    assert checked.call(DROP, handle) == 0
    assert is_gone(checked, key, handle)
    if state == "pending":  # whoever worked on it need not know
        future.resolve(FUTURES[key][1])
        assert is_gone(checked, key, handle)


@pytest.mark.parametrize("key", COUNTED, ids="-".join)
def test_an_empty_vector_is_taken_with_a_dangling_pointer(checked, key):
    handle, future = checked.pending(key)
    future.resolve(b"" if key[1] == "vec_u8" else [])

    assert poll(checked, key, handle) == (0, True, 0)
    assert take(checked, key, handle, 0, at=8) == (0, None)
    assert is_gone(checked, key, handle)


@pytest.mark.parametrize(("value", "byte"), [(True, b"\1"), (False, b"\0")])
def test_a_bool_is_one_byte(checked, value, byte):
    handle = checked.future(("ark-ml-v1", "bool"), value)

    assert take(checked, ("ark-ml-v1", "bool"), handle, 1) == (0, byte)


def test_bytes_come_as_they_are(checked):
    data = bytes(range(256)) * 3
    handle = checked.future(("ark-ml-v1", "vec_u8"), data)

    assert poll(checked, ("ark-ml-v1", "vec_u8"), handle) == (0, True, len(data))
    assert take(checked, ("ark-ml-v1", "vec_u8"), handle, len(data)) == (0, data)


@pytest.mark.parametrize(
    ("version", "struct_", "room"), [("v1", METRIC_V1, 28), ("v3", METRIC_V3, 64)]
)
def test_metric_names_are_cut_between_characters(checked, version, struct_, room):
    names = ["", "loss", "x" * room, "x" * (room + 9), "x" * (room - 1) + "ä", "\U0001f600" * 40]
    key = (f"ark-ml-{version}", "vec_metric")
    handle = checked.future(key, [Metric(name, place / 2) for place, name in enumerate(names)])
    code, data = take(checked, key, handle, len(names))
    size = ITEM[key]
    metrics = [unpack(struct_, data[i : i + size]) for i in range(0, len(data), size)]
    found = [metric["name"] for metric in metrics]
    if version == "v1":
        found = [name.rstrip(b"\0").decode() for name in found]

    whole = ["", "loss", "x" * room, "x" * room, "x" * (room - 1), "\U0001f600" * (room // 4)]
    assert (code, found) == (0, whole)
    assert [metric["value"] for metric in metrics] == [place / 2 for place in range(len(names))]


def test_experiment_names_have_128_bytes_and_ids_64(checked):
    key = ("ark-ml-v1", "vec_experiment_info")
    times = {"started_at": 2**62, "ended_at": -1, "max_duration": 2**64 - 1}
    info = ExperimentInfo(
        name="ä" * 70, id="x" * 63 + "ä", experiment_status=ExperimentStatus.UNHEALTHY,
        worker_count=2**32 - 1, **times,
    )  # fmt: skip
    code, data = take(checked, key, checked.future(key, [info]), 1)
    found = unpack(EXPERIMENT_INFO, data)

    assert code == 0
    assert (found["name"], found["id"]) == ("ä" * 64, "x" * 63)
    assert found["experiment_status"] == 7
    assert found["worker_count"] == 2**32 - 1
    assert {name: found[name] for name in times} == times


def test_the_shape_of_an_experiment_is_two_numbers(checked):
    key = ("ark-ml-v2", "ark_experiment_config")

    assert take(checked, key, checked.future(key), 1) == (0, struct.pack("<II", 5, 6))


def test_a_taken_training_handle_names_a_session(checked):
    key = ("ark-ml-v1", "training_handle")
    code, data = take(checked, key, checked.future(key), 1)
    handle = int.from_bytes(data, "little")
    count = checked.room(4)

    assert code == 0
    assert (
        calls_of(checked.guest).services.sessions.get(handle, TrainingSession).num_actions
        == ACTIONS
    )
    name = "ark-ml-v1.ml__experiment_feature_count"
    assert checked.call(name, handle, count, writes=[(count, 4)]) == 0
    assert checked.read(count, 4) == struct.pack("<I", FEATURES)
    assert checked.push(handle, training=True) == 0


def test_a_training_handle_that_was_taken_wrongly_leaves_the_run(checked):
    key = ("ark-ml-v1", "training_handle")
    handle = checked.future(key)

    assert take_outside(checked, key, handle, checked.size - 7) == ErrorCode.INVALID_ARGUMENTS
    assert checked.alive() == (0, 0)
    assert checked.sink.left == [False]


def test_a_run_whose_session_finds_no_room_is_left(checked):
    key, wide = ("ark-ml-v1", "training_handle"), 1 << 24
    start = TrainingStart(Echo(wide, ACTIONS), wide, ACTIONS, checked.sink)
    code, _ = take(checked, key, checked.future(key, start), 1)

    assert code == ErrorCode.UNAVAILABLE
    assert checked.alive() == (0, 0)
    assert checked.sink.left == [False]


def test_a_string_is_fetched_like_any_vector(run):
    handle, future = calls_of(run.guest).services.futures.open(FUTURES["ark-ml-v4", "string"][0])
    future.resolve("größer")
    run.put(64, b"?" * 64)
    codes = run(
        step("ark-ml-v4.ml__take_future_string", handle, 64),
        step("ark-core-v4.core__take_host_return_vec", 72, Cell(64)),
        step("ark-ml-v4.ml__take_future_string", handle, 64),
    )

    size = len("größer".encode())
    assert codes == [0, 0, ErrorCode.NOT_FOUND]
    assert run.u32(64) == size
    assert run.guest.read_memory(64, 64)[8:] == "größer".encode() + b"?" * (56 - size)


def test_an_empty_string_has_a_size_too(run):
    handle, future = calls_of(run.guest).services.futures.open(FUTURES["ark-ml-v4", "string"][0])
    future.resolve("")
    codes = run(
        step("ark-ml-v4.ml__take_future_string", handle, 64),
        step("ark-core-v4.core__take_host_return_vec", 1, 0),
        step("ark-core-v4.core__take_host_return_vec", 1, 0),
    )

    assert codes == [0, 0, ErrorCode.NOT_FOUND]
    assert run.u32(64) == 0
