"""Files of states with other values inside, sealed again as a forger would."""

from __future__ import annotations

import copy
import hashlib
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache, partial
from typing import Any

import msgspec
import numpy as np
from hypothesis import strategies as st
from tests.integration.guest_text import function, i32, module
from tests.integration.snapshot_guest import MANY_SESSIONS, MODELS
from tests.integration.test_policy_changes import adding

from arkml import Fleet, Guest, GuestSnapshot, Host
from arkml.abi.codes import ExperimentStatus, SnapshotFormat
from arkml.errors import AbiError, GuestError, StateRefused, Unavailable
from arkml.guests.guest import calls_of
from arkml.limits import MIB
from arkml.sessions import results
from arkml.sessions.brains import Brain
from arkml.sessions.futures import Future, ResultType
from arkml.sessions.guest_run import ExperimentInfo, ExperimentShape, Metric
from arkml.sessions.runtimes import Load, Runtime

Case = list[tuple[int, Any]]
"""Numbers of values in the file, and what takes their places, or an edit: a byte, and where."""

_HEAD = b"arkml-state\n\x01"
_MOST = 64 * MIB
_SUM = adding((1, 0))
_ROW = np.float32((2, 1))
_ODD: list[Any] = [
    None, True, -1, 0, 1, 3, 5, 4_096, 2**31, 2**32, 2**33, 2**63, 0.5, "", "x", "i32", "x" * 2_000,
    b"", b"\0", b"\1" * 8, bytes(8), bytes(16), b"\xff" * 8, b"\xff" * 4_096, bytes(65_536),
    [], [None], [0, 0], {}, {"x": 0}, {0: 0}, b"\x91\x01", b"\xc3", b"\x82", b"\x90",
    b"\0\x10" + bytes(6), b"\0\0\0\0\1" + bytes(3), b"\0\0\xc0\x7f", b"string", "bool",
]  # fmt: skip
_EDITS = st.tuples(st.integers(0, 200), st.integers(0, 255))
CASES = st.lists(
    st.tuples(st.integers(0, 400), st.sampled_from(_ODD) | _EDITS), min_size=1, max_size=3
)

_PUSH = "ark-ml-v1.ml__push_inference_observation_with_metadata"
_NOTE, _HANDLES, _FEATURES = 0xA0, 0x100, 0x90
_MORE = module(
    function(
        "note",
        f"""(call ${_PUSH} (i64.load {i32(_HANDLES)}) (local.get $id) {i32(0)} (f32.const 0.5)
          {i32(_FEATURES)} {i32(1)} {i32(_NOTE)} {i32(1)})""",
        params="(param $id i64)",
        result="i32",
    ),
    """(type $f (func (result i32)))
    (table $calls 3 12 funcref) (table $any 1 8 externref)
    (elem (table $calls) (i32.const 0) func $turn $crash)
    (elem $passive funcref (ref.func $turn))
    (func $crash (result i32) unreachable)
    (func (export "put") (param i32) (table.set $calls (local.get 0) (ref.func $turn)))
    (func (export "init") (param i32)
      (table.init $calls $passive (local.get 0) (i32.const 0) (i32.const 1)))
    (func (export "enlarge") (param i32)
      (drop (table.grow $calls (ref.null func) (local.get 0)))
      (drop (table.grow $any (ref.null extern) (local.get 0))))
    (func (export "jump") (param i32) (result i32)
      (call_indirect $calls (type $f) (local.get 0)))""",
    uses=(_PUSH,),
    memory="",
).split(b"\n")
_IMPORT, _REST = _MORE[1], b"\n".join(_MORE[2:])
GUEST = b"(module\n" + _IMPORT + MANY_SESSIONS.removeprefix(b"(module").rstrip()[:-1] + _REST
"""Sessions, rows, globals, memory and tables: and the handlers that the check calls itself."""

_RESULTS: dict[ResultType[Any], tuple[str, str, Any]] = {
    results.BOOL: ("ark-ml-v1", "bool", True),
    results.BYTES: ("ark-ml-v1", "vec_u8", b"policy"),
    results.METRICS_V1: ("ark-ml-v1", "vec_metric", [Metric("return", 1.5)]),
    results.EXPERIMENTS: (
        "ark-ml-v1",
        "vec_experiment_info",
        [ExperimentInfo("walk", "a1", 1, 2, 3, ExperimentStatus.RUNNING, 4)],
    ),
    results.SHAPE: ("ark-ml-v2", "ark_experiment_config", ExperimentShape(3, 2)),
    results.METRICS_V3: ("ark-ml-v3", "vec_metric", [Metric("loss", 0.5)]),
    results.TEXT: ("ark-ml-v4", "string", "text"),
}
"""The import module, the ending of the functions and a value of each kind of result."""


@contextmanager
def states() -> Iterator[Callable[[Case], None]]:
    """
    Give the check of a state.

    It is refused in a sentence and the guest has its state from before, or has failed; or the guest
    has it, and twice goes on from it in the same way.
    """
    with Host() as host:
        module = host.compile(GUEST)

        def check(case: Case) -> None:
            try:
                state = GuestSnapshot.load(_forged(case), most_bytes=_MOST)
            except StateRefused:
                return
            with host.load(module) as guest, host.fleet(module, 2) as fleet:
                _fill(guest)
                _take(guest, guest, state)
                _take(fleet, fleet.guests[1], state)
                _end(guest)

        yield check


def _take(subject: Guest | Fleet, guest: Guest, state: GuestSnapshot) -> None:
    before = bytes(guest.snapshot())
    try:
        subject.restore(state)
    except StateRefused:
        if guest.failure is None:
            assert bytes(guest.snapshot()) == before
        else:
            _require_free(guest)
        return
    whole = guest.snapshot()
    subject.restore(GuestSnapshot.load(bytes(whole)))
    assert bytes(guest.snapshot()) == bytes(whole)
    first = list(_acts(subject, guest))
    if guest.failure is None:
        subject.restore(whole)
        assert list(_acts(subject, guest)) == first


def _end(guest: Guest) -> None:
    """Drop all that a guest has: nothing is charged for it any longer."""
    if guest.failure is None:
        guest.restore(_empty())
    _require_free(guest)


def _require_free(guest: Guest) -> None:
    services = calls_of(guest).services
    assert services.session_bytes == services.requests.held == 0


def _acts(subject: Guest | Fleet, guest: Guest) -> Iterator[object]:
    """Do what a guest may do next, and yield what is seen."""
    yield from _answers(guest)
    for call in (
        ("turn",), ("push", 1, 7, 1.0, 1), ("note", 9), ("submit", 1, 1, 1), ("submit", 0, 3, 1),
        ("init", 1), ("enlarge", 2), ("jump", 0), ("jump", 1), ("open", 5, 1),
    ):  # fmt: skip
        if guest.failure is not None:
            return
        with suppress(GuestError):
            found = subject.call(*call)
            yield found if isinstance(subject, Guest) else found.values[1]
    if guest.failure is None:
        yield bytes(guest.snapshot())


def _answers(guest: Guest) -> Iterator[object]:
    """Yield what the handlers of futures and of brains answer for the handles in a state."""
    services, sink = calls_of(guest).services, _Sink()
    for handle, item in list(services.handles):
        for kind, (version, ending, _) in _RESULTS.items():
            if isinstance(item, Future) and item.type is kind:
                calls: Any = services.handler(version)
                yield getattr(calls, f"poll_future_{ending}")(handle)
                with suppress(AbiError):
                    take = getattr(calls, f"take_future_{ending}")
                    yield take(handle) if kind is results.TEXT else take(handle, sink)
    yield sink.written
    brains: Any = services.handler("ark-ml-inference-v0")
    for handle, item in list(services.brains):
        if isinstance(item, Load):
            with suppress(AbiError):
                yield brains.poll_load_inference_async(handle)
    for handle, item in list(services.brains):
        if isinstance(item, Brain):
            yield brains.result_get_brain_agents(item.runtime, handle)
            for step in (
                partial(brains.end_infer_submission, item.runtime, handle),
                partial(brains.begin_infer_submission, item.runtime, handle, 7),
                partial(brains.submit_inference_item, item.runtime, handle, "obs", _ROW),
                partial(brains.end_infer_submission, item.runtime, handle),
                partial(brains.execute_inference, item.runtime),
                partial(brains.result_get_brain_agent_output, item.runtime, handle, 7, 0),
            ):
                with suppress(AbiError):
                    yield step()
    runtime = brains.create_runtime()
    if runtime:
        assert runtime < 1 << 32
        yield runtime
        brains.destroy_runtime(runtime)
    for handle, item in list(services.brains):
        assert handle < 1 << 32
        if isinstance(item, Runtime):
            brains.destroy_runtime(handle)


class _Sink:
    """The memory of a guest, as a handler sees it."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def _forged(case: Case) -> bytes:
    body = msgspec.msgpack.decode(_body())
    for number, value in case:
        places = list(_places(body))
        owner, key = places[number % len(places)]
        is_edit = isinstance(value, tuple)
        owner[key] = _edited(owner[key], *value) if is_edit else copy.deepcopy(value)
    content = zlib.compress(msgspec.msgpack.encode(body), 1)
    return _HEAD + hashlib.sha256(content).digest() + content


def _edited(value: Any, at: int, byte: int) -> Any:
    """Return a value with another byte, or item, or a number that is a little larger or smaller."""
    match value:
        case bytes() if value:
            at %= len(value)
            return value[:at] + bytes([byte]) + value[at + 1 :]
        case int():
            return value + byte - 128
        case [*items] if items and byte & 1:
            return [*items, copy.deepcopy(items[at % len(items)])]
        case [*items] if items:
            return items[: at % len(items)] + items[at % len(items) + 1 :]
        case _:
            return value


def _places(value: Any) -> Iterator[tuple[Any, Any]]:
    """Return each place in an object, as what holds it and its key there."""
    match value:
        case dict():
            keys: Any = list(value)
        case list():
            keys = range(min(len(value), 8))
        case _:
            return
    for key in keys:
        yield value, key
        yield from _places(value[key])


@cache
def _body() -> bytes:
    """Return the contents of a file that has something of everything."""
    with Host() as host, host.load(GUEST) as guest:
        _fill(guest)
        return zlib.decompress(bytes(guest.snapshot())[len(_HEAD) + 32 :])


@cache
def _empty() -> GuestSnapshot:
    with Host() as host, host.load(GUEST) as guest:
        return GuestSnapshot.load(bytes(guest.snapshot()))


def _fill(guest: Guest) -> None:
    """Let a guest have something of everything."""
    for number in range(len(MODELS)):
        guest.call("open", number, number)
        guest.call("push", number, 5, 1.0, 2 if number == len(MODELS) - 1 else 1)
        guest.call("submit", number, 1, 2 if number == len(MODELS) - 1 else 1)
    guest.call("close", 1)
    guest.write_memory(_NOTE, b"mark/fuzz".ljust(28, b"\0") + b"\0\0\x80\x3f")
    guest.call("push", 0, 5, 1.0, 1)
    guest.call("note", 6)
    guest.call("enlarge", 3)
    guest.call("put", 4)
    services = calls_of(guest).services
    for kind, (_, _, value) in _RESULTS.items():
        _, future = services.futures.open(kind)
        future.resolve(value)
    _, failed = services.futures.open(results.BYTES)
    failed.fail(Unavailable("none"))
    services.futures.open(results.TEXT)
    brains: Any = services.handler("ark-ml-inference-v0")
    runtime = brains.create_runtime()
    brain = brains.poll_load_inference_async(
        brains.load_inference_async(runtime, SnapshotFormat.ONNX, _SUM)
    )
    for agent in (3, 4):
        brains.begin_infer_submission(runtime, brain, agent)
        brains.submit_inference_item(runtime, brain, "obs", _ROW)
        brains.end_infer_submission(runtime, brain)
        if agent == 3:
            brains.execute_inference(runtime)
    brains.begin_infer_submission(runtime, brain, 5)
    brains.submit_inference_item(runtime, brain, "odd", _ROW)
    brains.load_inference_async(runtime, SnapshotFormat.ONNX, _SUM)
    brains.load_inference_async(runtime, SnapshotFormat.ONNX, b"no model")
    brains.destroy_runtime(brains.create_runtime())
