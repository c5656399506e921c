"""What the parts of a frame cost: the call, the suspension, the policy, the instance."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import onnxruntime
import wasmtime
from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block, microseconds
from tests.benchmarks.rows import Row, against, alone
from tests.benchmarks.subjects import (
    ACTIONS,
    BENCH_GUEST,
    NullHost,
    bench_guest,
    check,
    policy_path,
)

from arkml import Guest, Host
from arkml.batches import Batch
from arkml.guests.guest import calls_of

TOPIC = "costs"
FEATURES = 64
STEPS = 1_000
EMPTY = '(module (memory (export "memory") 1) (func (export "noop")))'


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Nothing is asserted here. A suspension is a frame of one agent without a policy run,"
        f" {STEPS} of them in one call. An instance is made and closed.",
    )
    yield from _calls(bench)
    yield from _instances(bench)
    for agents in (1, 64, 1024):
        yield _act(bench, agents)


def _calls(bench: Bench) -> Iterator[Row]:
    bench.say("calls and suspensions")
    seconds = bench.block_seconds
    with NullHost() as host:
        empty = host.load(EMPTY.encode())
        pushing = bench_guest(host, 1, FEATURES)
        blocks: dict[str, Block] = {
            "call": _timed(functools.partial(empty.call, "noop"), seconds),
            "plain call": _timed(_plain_call(), seconds),
            "suspension": _suspensions(pushing, seconds),
        }
        if bench.peer is not None:
            peer = bench.peer
            blocks["peer"] = lambda: float(peer.figures("null", 1, FEATURES)["noop_call_us"])
        figures = bench.interleave(blocks)
    call = figures["call"]
    yield against(TOPIC, "an empty call", "µs", call, "wasmtime-py", figures["plain call"])
    yield against(TOPIC, "an empty call", "µs", call, "peer", figures.get("peer"))
    yield alone(TOPIC, "a suspension", "µs", figures["suspension"])


def _instances(bench: Bench) -> Iterator[Row]:
    bench.say("instances")
    with Host() as host:
        program = host.compile(BENCH_GUEST)

        def make() -> None:
            host.load(program).close()

        figures = bench.interleave(
            {
                "ours": _timed(make, bench.block_seconds),
                "plain": _timed(_plain_instance(), bench.block_seconds),
            }
        )
    yield against(TOPIC, "an instance", "µs", figures["ours"], "wasmtime-py", figures["plain"])


def _act(bench: Bench, agents: int) -> Row:
    bench.say(f"policy runs of {agents} rows")
    with Host() as host:
        guest = bench_guest(host, agents, FEATURES)
        check(guest.call("push_only"))
        session = _session(guest)
        batch: Batch = session.queue.batch()
        figures = bench.interleave(
            {
                "ours": _timed(lambda: session.policy.act(batch), bench.block_seconds),
                "raw": _timed(_raw_run(batch), bench.block_seconds),
            }
        )
    name = f"policy.act, {agents} {'rows' if agents > 1 else 'row'}"
    return against(TOPIC, name, "µs", figures["ours"], "onnxruntime alone", figures["raw"])


def _session(guest: Guest) -> Any:
    calls = calls_of(guest)
    (record,) = calls.instance.regions
    return calls.services.sessions.at(record)


def _suspensions(guest: Guest, seconds: float) -> Block:
    def block() -> float:
        return microseconds(lambda: check(guest.call("frames", STEPS)), seconds) / STEPS

    return block


def _timed(call: Callable[[], object], seconds: float) -> Block:
    return lambda: microseconds(call, seconds)


def _plain_call() -> Callable[[], object]:
    engine = wasmtime.Engine()
    store = wasmtime.Store(engine)
    instance = wasmtime.Instance(store, wasmtime.Module(engine, EMPTY), [])
    exports: Any = instance.exports(store)
    return functools.partial(exports["noop"], store)


def _plain_instance() -> Callable[[], object]:
    engine = wasmtime.Engine()
    module = wasmtime.Module.from_file(engine, str(BENCH_GUEST))
    linker = wasmtime.Linker(engine)
    linker.define_unknown_imports_as_traps(module)

    def make() -> None:
        store = wasmtime.Store(engine)
        linker.instantiate(store, module)
        store.close()

    return make


def _raw_run(batch: Batch) -> Callable[[], object]:
    """Arrays of its own, bound once, nothing but the run."""
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = policy_path(FEATURES).read_bytes()
    session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    features = np.ascontiguousarray(batch.features)
    actions = np.zeros((len(batch), ACTIONS), np.float32)
    binding = session.io_binding()
    for bind, name, array in (
        (binding.bind_input, "obs", features),
        (binding.bind_output, "actions", actions),
    ):
        bind(name, "cpu", 0, np.float32, array.shape, array.ctypes.data)
    raw_run = session._sess.run_with_iobinding
    call: functools.partial[object] = functools.partial(raw_run, binding._iobinding, None)
    call.__dict__["keeps"] = (features, actions)
    return call
