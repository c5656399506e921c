"""Compilation in a separate process, with limits on its time and its memory."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import wasmtime

from arkml.base.source_roots import source_roots
from arkml.errors import ModuleRejected, ModuleTooComplex
from arkml.runtime.compilation import compiler, estimator
from arkml.runtime.interrupts import GUARD
from arkml.runtime.module.complexity import BYTES_PER_MB

_MB = 1 << 20
_SECONDS_PER_MB = 8
"""Seconds of processor time for each MB of module, four times the time of ordinary code."""
_BYTES_PER_MB = BYTES_PER_MB * 4 // 3
"""
Bytes of address space for each MB of module, beside _BASE_BYTES.

They are more than a module may take by the estimate: programs of Go take up to 330 MiB a MB.
"""
_BASE_BYTES = 192 * _MB
"""Address space of the threads of the compiler, which is reserved and hardly used."""
_ESTIMATE_BYTES = 8
"""Bytes of memory for each byte of a module while its cost is estimated, beside _BASE_BYTES."""
_THREADS = {"OPENBLAS_NUM_THREADS": "1", "RAYON_NUM_THREADS": "4", "MALLOC_ARENA_MAX": "2"}
_KEPT = ("SYSTEMROOT", compiler.DETAILS)  # Windows starts no program without the first
_MESSAGE = 2_000  # characters of what the compiler says


def compile_in_child(wasm: bytes, name: str, stack: int, deadline: float) -> bytes:
    """
    Return the machine code of a module, made by a process that is started for it.

    The process gets almost no environment variables, and limits on its processor time and address
    space that follow from the size of the module. `deadline` is in seconds. Raises ModuleRejected
    for an invalid module, or if no process starts, and ModuleTooComplex if a limit ends the
    process; KeyboardInterrupt ends it as well.
    """
    size = max(1.0, len(wasm) / _MB)
    limits = math.ceil(_SECONDS_PER_MB * size), _BASE_BYTES + int(_BYTES_PER_MB * size)
    return _answered(wasm, name, [compiler.__file__, str(stack)], limits, deadline)


def check_in_child(wasm: bytes, name: str, deadline: float) -> None:
    """
    Estimate the cost of compiling a large module, in a process as `compile_in_child` starts one.

    `deadline` is in seconds. Raises the errors of `compile_in_child`.
    """
    size = len(wasm)
    limits = math.ceil(_SECONDS_PER_MB * max(1.0, size / _MB)), _BASE_BYTES + _ESTIMATE_BYTES * size
    _answered(wasm, name, [estimator.__file__, source_roots()], limits, deadline)


def _answered(
    wasm: bytes, name: str, program: list[str], limits: tuple[int, int], deadline: float
) -> bytes:
    """Return the answer of a program to a module; `limits` are the program's seconds and bytes."""
    seconds, most = limits
    process = None
    try:
        with GUARD.held_back():  # until there is a process to end
            process = _started([*program, str(seconds), str(most)])
        output, messages = process.communicate(wasm, deadline)
    except OSError as error:
        raise ModuleRejected(
            f"{name} cannot be compiled: the process for it does not start: {error}"
        ) from error
    except subprocess.TimeoutExpired:
        raise ModuleTooComplex(
            f"{name} was not compiled in time: make its functions smaller, or raise"
            " Limits.compile_seconds"
        ) from None
    finally:
        if process is not None:
            process.kill()
            with process:  # closes the pipes and waits for the end
                pass
    found = _answer(output, name)
    if found is None:
        raise _death(process.returncode, messages, name, limits)
    return found


def _started(program: list[str]) -> subprocess.Popen[bytes]:
    packages = str(Path(wasmtime.__file__).parents[1])
    return subprocess.Popen(
        [sys.executable, "-I", "-S", *program, packages],  # without site, to start fast
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=_THREADS | {key: os.environ[key] for key in _KEPT if key in os.environ},
        start_new_session=True,  # Ctrl-C is for the host, which ends this process
    )


def _answer(output: bytes, name: str) -> bytes | None:
    """Return the machine code, None if the process ended before. Raises ModuleRejected."""
    start = 1 + compiler.LENGTH_BYTES
    content = output[start:]
    if len(output) < start or len(content) != int.from_bytes(output[1:start], "little"):
        return None
    if output[0] == compiler.COMPILED:
        return content
    if output[0] == compiler.TOO_COMPLEX:
        raise ModuleTooComplex(content.decode())
    raise refused(name, content.decode(errors="replace"))


def _death(status: int, messages: bytes, name: str, limits: tuple[int, int]) -> ModuleTooComplex:
    """Return the error for a process that ended without an answer, such as one out of memory."""
    seconds, most = limits
    if status == -getattr(signal, "SIGXCPU", 0):
        reason = f"took more than {seconds:,} s of processor time"
    elif b"memory allocation" in messages or b"MemoryError" in messages:
        reason = f"took more than {(most - _BASE_BYTES) / _MB:,.0f} MiB of memory"
    else:
        said = " ".join(messages.decode(errors="replace").split())[-_MESSAGE:]
        reason = f"ended its process with {status}: {said or 'no message'}"
    return ModuleTooComplex(f"compiling {name} {reason}: make its functions smaller")


def refused(name: str, message: str) -> ModuleRejected:
    """Return the error for a module that the compiler refused with a message."""
    reason = " ".join(message.split())[:_MESSAGE]
    if "legacy_exceptions" in message:
        reason = (
            "it has exceptions of the old kind: build it with the new ones (clang and emcc:"
            " -fwasm-exceptions -mllvm -wasm-use-legacy-eh=false), translate it"
            " (wasm-opt --translate-to-exnref), or build it without (-fno-exceptions)"
        )
    return ModuleRejected(f"{name} is not a module that this host can run: {reason}")
