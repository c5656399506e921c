"""
A trial of modules made by seed, each compiled in its own process if the host's bounds allow it.

    python -m tests.fuzz.costly_modules COUNT [FIRST SEED]

Prints one JSON object a line: seed, bytes, outcome (refused, quick or slow: compiled here or by a
process of its own), check (CPU seconds of the bounds), compile (those of wasmtime), growth (bytes
of memory) and shape, the parts that it was made of.
"""

from __future__ import annotations

import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections.abc import Callable, Iterator

import wasmtime
from tests import module_bombs as parts

from arkml.errors import ModuleError
from arkml.limits import Limits
from arkml.runtime.compilation.compiler import config
from arkml.runtime.module.complexity import check
from arkml.runtime.module.normalize import normalize

_STACK = 512 << 10
_SPACE = 6 << 30
_SECONDS = 120
_MOST_BYTES = 200_000  # of one module
_END = b"\x0b"


def _scaled(chance: random.Random, most: float) -> int:
    """Draw a number from 1 to `most`, small ones as often as large ones."""
    return max(1, int(most ** chance.random()))


def _pieces(chance: random.Random, local_count: int) -> Iterator[tuple[str, bytes]]:
    changes = parts.changes(min(local_count, 300))
    makers: dict[str, Callable[[int], bytes]] = {
        "changes": lambda n: parts.change(0) * n,
        "loops": lambda n: b"\x03\x40" * n + changes + _END * n,
        "blocks": lambda n: b"\x02\x40" * n + b"\x20\0\x0d\0" + _END * n,
        "ifs": lambda n: changes + b"\x20\0\x04\x40\x0b" * n,
        "branches": lambda n: b"\x03\x40" + changes + b"\x20\0\x0d\0" * n + _END,
        "table": lambda n: b"\x03\x40\x20\0\x0e" + parts.number(n) + bytes(n + 1) + _END,
        "indirect": lambda n: b"\x41\0\x11\0\0" * n,
        "growths": lambda n: b"\x20\0\x40\0\x21\0" * n,
        "loads": lambda n: b"\x20\0\x28\2\0\x21\0" * n,
        "floats": lambda n: b"\x20\0\xb2\x91\xa8\x21\0" * n,
        "calls": lambda n: b"\x10\0" * n,
    }
    for _ in range(chance.randint(1, 3)):
        name = chance.choice(list(makers))
        count = _scaled(chance, 20_000)
        yield f"{name} {count}", makers[name](count)


def generated(seed: int) -> tuple[bytes, str]:
    """Return a module, and what it is made of."""
    chance = random.Random(seed)
    while True:
        shape: list[str] = []
        bodies: list[bytes] = []
        for _ in range(_scaled(chance, 20)):
            locals_ = _scaled(chance, 2_000)
            code = b""
            shape.append(f"locals {locals_}")
            for name, piece in _pieces(chance, locals_):
                shape.append(name)
                code += piece
            bodies.append(parts.body(code, locals_))
        copies = _scaled(chance, 200)
        whole = parts.module(bodies * copies, table=True, memory=True)
        if len(whole) <= _MOST_BYTES:
            return whole, f"{copies} x ({', '.join(shape)})"


def use(seed: int) -> dict[str, object]:
    """Bound a module and compile it if it is allowed; return what was measured."""
    data, shape = generated(seed)
    row: dict[str, object] = {"seed": seed, "bytes": len(data), "shape": shape, "compile": 0.0}
    started = time.process_time()
    try:
        normalized = normalize(data, Limits())
        is_quick = check(normalized.binary)
    except ModuleError as error:
        row["outcome"] = f"refused: {error}"
        return row | {"check": time.process_time() - started}
    row |= {"check": time.process_time() - started, "outcome": "quick" if is_quick else "slow"}
    engine = wasmtime.Engine(config(_STACK, parallel=False))
    started = time.process_time()
    wasmtime.Module(engine, normalized.wasm)
    return row | {"compile": time.process_time() - started}


def judge(seed: int) -> dict[str, object]:
    """Return what a fork measured, or how it ended."""
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1_024
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        status = 1
        try:
            resource.setrlimit(resource.RLIMIT_AS, (_SPACE, _SPACE))
            resource.setrlimit(resource.RLIMIT_CPU, (_SECONDS, _SECONDS))
            resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
            os.write(writer, json.dumps(use(seed)).encode())
            status = 0
        finally:
            os._exit(status)
    os.close(writer)
    ready, _, _ = select.select([reader], [], [], 10 * _SECONDS)
    answer = os.read(reader, 1 << 16) if ready else b""
    os.close(reader)
    if not ready:
        os.kill(child, signal.SIGKILL)
    _, status, usage = os.wait4(child, 0)
    row = json.loads(answer) if answer else {"seed": seed, "outcome": f"crashed: status {status}"}
    return row | {"growth": max(0, usage.ru_maxrss * 1_024 - before)}


def main() -> None:
    count, first = int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0
    for seed in range(first, first + count):
        print(json.dumps(judge(seed)), flush=True)


if __name__ == "__main__":
    main()
