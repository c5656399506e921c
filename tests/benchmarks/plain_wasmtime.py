"""A host as one writes it with wasmtime-py alone: a Python function for each import."""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnxruntime
import wasmtime
from tests.benchmarks.companion import serve
from tests.benchmarks.measuring import microseconds
from tests.benchmarks.subjects import ACTIONS, BENCH_GUEST, check, policy_path

I32, I64, F32 = wasmtime.ValType.i32(), wasmtime.ValType.i64(), wasmtime.ValType.f32()
MASK = 0xFFFF_FFFF
INVALID_ARGUMENTS, NOT_FOUND = 5, 6


@dataclass(slots=True)
class Session:
    features: int
    actions: int
    rows: list[bytes] = field(default_factory=list)
    states: list[int] = field(default_factory=list)


class PlainHost:
    """One guest with the four functions it imports. All guests share the policy."""

    def __init__(self, engine: wasmtime.Engine, policy: onnxruntime.InferenceSession) -> None:
        self._policy = policy
        self._session: Session | None = None
        self.linker = wasmtime.Linker(engine)
        functions: list[tuple[str, list[wasmtime.ValType], Callable[..., int]]] = [
            ("start_inference", [I32] * 6, self.start),
            ("push_inference_observation", [I64, I64, I32, F32, I32, I32, F32], self.push),
            ("submit_inference_observations", [I64, I32, I32, I32, I32], self.submit),
            ("stop_inference", [I64], self.stop),
        ]
        for name, parameters, function in functions:
            kind = wasmtime.FuncType(parameters, [I32])
            self.linker.define_func("ark-ml-v1", f"ml__{name}", kind, function, access_caller=True)

    def start(self, caller: Any, *arguments: int) -> int:
        features, actions, _, _, _, out = arguments
        self._session = Session(features, actions)
        caller["memory"].write(caller, (1).to_bytes(8, "little"), out & MASK)
        return 0

    def push(self, caller: Any, handle: int, *arguments: Any) -> int:
        session = self._session
        if handle != 1 or session is None:
            return NOT_FOUND
        _, state, _, pointer, count, _ = arguments
        memory, pointer = caller["memory"], pointer & MASK
        end = pointer + 4 * count
        if count != session.features or not 0 <= state <= 3 or end > memory.data_len(caller):
            return INVALID_ARGUMENTS
        session.rows.append(bytes(memory.read(caller, pointer, end)))
        session.states.append(state)
        return 0

    def submit(self, caller: Any, handle: int, *arguments: int) -> int:
        session = self._session
        if handle != 1 or session is None:
            return NOT_FOUND
        actions_at, actions, values_at, values = (number & MASK for number in arguments)
        count = len(session.rows)
        if actions != count * session.actions or values != count:
            return INVALID_ARGUMENTS
        rows = np.frombuffer(b"".join(session.rows), np.float32).reshape(count, session.features)
        answer = self._policy.run(["actions"], {"obs": rows})[0]
        for row, state in enumerate(session.states):
            if state in (1, 2):
                answer[row] = 0
        memory = caller["memory"]
        memory.write(caller, answer.tobytes(), actions_at)
        memory.write(caller, bytes(4 * count), values_at)
        session.rows.clear()
        session.states.clear()
        return 0

    def stop(self, _caller: Any, _handle: int) -> int:
        self._session = None
        return 0


def steppers(instances: int, features: int) -> list[Callable[[], int]]:
    """A function for each of `instances` guests that runs a frame of it."""
    engine = wasmtime.Engine()
    module = wasmtime.Module.from_file(engine, str(BENCH_GUEST))
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1
    model = policy_path(features).read_bytes()
    policy = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
    made: list[Callable[[], int]] = []
    for _ in range(instances):
        store = wasmtime.Store(engine)
        exports: Any = PlainHost(engine, policy).linker.instantiate(store, module).exports(store)
        check(exports["setup"](store, 1, features, ACTIONS, 0))
        made.append(_stepper(exports["frame"], store))
    return made


def _stepper(function: Any, store: wasmtime.Store) -> Callable[[], int]:
    def step() -> int:
        code: int = function(store)
        return code

    return step


def main(instances: int, features: int, seconds: float) -> None:
    steps = steppers(instances, features)

    def frame() -> None:
        check(*[step() for step in steps])

    serve(lambda: microseconds(frame, seconds) / instances)


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
