"""
The configuration of the compiler, and the program of a process that compiles one module.

This file imports wasmtime and no other package, not even this one, so that the process starts fast:
it is run by its path. The wasm module comes by standard input. Standard output gets one byte, which
is 0 for machine code and 1 or 2 for the message of an error, the length of the rest in eight bytes,
and the machine code or the message.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import wasmtime

COMPILED, REFUSED, TOO_COMPLEX = 0, 1, 2
LENGTH_BYTES = 8
DETAILS = "WASMTIME_BACKTRACE_DETAILS"
"""Environment variable of wasmtime: with 1, messages of traps have files and lines."""

_FIBER_MARGIN = 256 << 10


def settings(stack: int) -> dict[str, bool | int]:
    """Return the compiler settings on which machine code depends; `stack` is in bytes."""
    return {
        "wasm_threads": True,  # the column memory is shared; guests may not use it
        "shared_memory": True,
        "wasm_memory64": False,
        "epoch_interruption": True,
        "memory_may_move": False,  # base addresses are kept
        "max_wasm_stack": stack,
    }


def config(stack: int, *, parallel: bool) -> wasmtime.Config:
    """Return the configuration of engines; with `parallel` they compile on all processors."""
    import wasmtime
    from wasmtime import _bindings as raw

    made = wasmtime.Config()
    for name, value in settings(stack).items():
        setattr(made, name, value)
    made.parallel_compilation = parallel
    raw.wasmtime_config_async_stack_size_set(made.ptr(), max(2 * stack, stack + _FIBER_MARGIN))
    return made


def limit(seconds: int, size: int) -> None:
    """Limit this process to `seconds` of processor time and `size` bytes more of address space."""
    try:
        import resource
    except ImportError:  # Windows
        return
    wanted = {resource.RLIMIT_CPU: seconds, resource.RLIMIT_CORE: 0}
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        wanted[resource.RLIMIT_AS] = pages * resource.getpagesize() + size
    except OSError:  # not Linux
        pass
    for kind, soft in wanted.items():
        _, hard = resource.getrlimit(kind)
        least = soft if hard == resource.RLIM_INFINITY else min(soft, hard)
        resource.setrlimit(kind, (least, hard))


def answer(kind: int, content: bytes) -> None:
    output = sys.stdout.buffer
    output.write(bytes((kind,)) + len(content).to_bytes(LENGTH_BYTES, "little"))
    output.write(content)
    output.flush()


def main(stack: str, seconds: str, size: str, packages: str) -> None:
    """Compile the wasm module on standard input; `packages` is the directory of wasmtime."""
    sys.path.append(packages)
    import wasmtime

    engine = wasmtime.Engine(config(int(stack), parallel=True))
    limit(int(seconds), int(size))
    try:
        module = wasmtime.Module(engine, sys.stdin.buffer.read())
    except wasmtime.WasmtimeError as error:
        answer(REFUSED, str(error).encode())
    else:
        answer(COMPILED, bytes(module.serialize()))
    os._exit(0)  # freeing everything first takes longer


if __name__ == "__main__":
    main(*sys.argv[1:])
