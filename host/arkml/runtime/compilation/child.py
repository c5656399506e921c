"""Compilation in a process of its own, with limits on its time and its memory."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
from pathlib import Path

import wasmtime

from arkml.errors import ModuleRejected, ModuleTooComplex
from arkml.runtime.compilation import compiler
from arkml.runtime.interrupts import GUARD
from arkml.runtime.module.complexity import BYTES_PER_MB

_MB = 1 << 20
_SECONDS_PER_MB = 8
"""Seconds of processor time for each MB of module, four times what ordinary code takes."""
_BASE_BYTES = 192 * _MB
"""Address space of the threads of the compiler, which is reserved and hardly used."""
_THREADS = {"RAYON_NUM_THREADS": "4", "MALLOC_ARENA_MAX": "2"}
_KEPT = ("SYSTEMROOT",)  # Windows starts no program without it
_MESSAGE = 2_000  # characters of what the compiler says


def compile_in_child(wasm: bytes, name: str, stack: int, deadline: float) -> bytes:
    """
    Return the machine code of a module, made by a process that is started for it.

    The process has no environment variables, and limits on its processor time and its address
    space by the size of the module. `deadline` is in seconds. Raises ModuleRejected for a module
    that is not valid, or where no process starts, and ModuleTooComplex if a limit ends the process;
    KeyboardInterrupt ends it as well.
    """
    size = max(1.0, len(wasm) / _MB)
    seconds = math.ceil(_SECONDS_PER_MB * size)
    process = None
    try:
        with GUARD.held_back():  # until there is a process to end
            process = _started(stack, seconds, _BASE_BYTES + int(BYTES_PER_MB * size))
        output, messages = process.communicate(wasm, deadline)
    except OSError as error:
        raise ModuleRejected(
            f"{name} cannot be compiled: the process for it does not start: {error}"
        ) from error
    except subprocess.TimeoutExpired:
        raise ModuleTooComplex(
            f"{name} was not compiled within {deadline:g} s: make its functions smaller, or raise"
            " Limits.compile_seconds"
        ) from None
    finally:
        if process is not None:
            process.kill()
            with process:  # closes the pipes and waits for the end
                pass
    return _answer(output, name) or _raise_death(process.returncode, messages, name, seconds, size)


def _started(stack: int, seconds: int, size: int) -> subprocess.Popen[bytes]:
    packages = str(Path(wasmtime.__file__).parents[1])
    return subprocess.Popen(
        [
            sys.executable,
            *("-I", "-S", compiler.__file__),
            *(str(stack), str(seconds), str(size), packages),
        ],
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
    raise refused(name, content.decode(errors="replace"))


def _raise_death(status: int, messages: bytes, name: str, seconds: int, size: float) -> bytes:
    """Raise the error of a process that ended without an answer."""
    if status == -getattr(signal, "SIGXCPU", 0):
        reason = f"took more than {seconds:,} s of processor time"
    elif b"memory allocation" in messages or b"MemoryError" in messages:
        reason = f"took more than {BYTES_PER_MB * size / _MB:,.0f} MiB of memory"
    else:
        said = " ".join(messages.decode(errors="replace").split())[-_MESSAGE:]
        reason = f"ended its process with {status}: {said or 'no message'}"
    raise ModuleTooComplex(f"compiling {name} {reason}: make its functions smaller")


def refused(name: str, message: str) -> ModuleRejected:
    """Return the error for a module that the compiler refuses."""
    reason = " ".join(message.split())[:_MESSAGE]
    return ModuleRejected(f"{name} is not a module that this host can run: {reason}")
