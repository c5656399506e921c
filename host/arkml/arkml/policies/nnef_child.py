"""
The process that runs one NNEF model with tract, for a parent that survives its crashes.

The process has no network where the system allows that, few files, and a limit on the processor
time of each request, which is its argument, in seconds.

The process exchanges messages ("frames") over stdin and stdout, each eight bytes of length and then
the content, and ends when stdin is closed. It sends an empty frame when it is ready; the first
request is the archive. Every later request is a number of rows, eight bytes, and the float32 arrays
of all inputs; an answer is the processor time since the previous answer as a float64, then a zero
byte and the arrays of all outputs, or a one byte and an error text.
"""

from __future__ import annotations

import ctypes
import json
import os
import resource
import sys
import threading
import time
from queue import SimpleQueue
from struct import pack, unpack
from typing import Any, BinaryIO

LENGTH_BYTES = 8
TIME_BYTES = 8
GROWTH_BYTES = 512 << 20
"""Bytes that loading and running a model may add to the address space."""

FILES = 32
"""Files that the process may have open."""

_BLOCK_ROWS = 1_024
_NEW_USER, _NEW_NETWORK = 0x10000000, 0x40000000  # CLONE_NEWUSER, CLONE_NEWNET


def frame(*parts: bytes) -> bytes:
    """Return one message of these parts, with its length in front."""
    return pack("<Q", sum(map(len, parts))) + b"".join(parts)


def main() -> None:
    """Serve requests until stdin is closed."""
    import numpy as np
    import tract

    seconds = int(sys.argv[1])
    _leave_network()  # with one thread still
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # what tract prints must not look like an answer
    requests: SimpleQueue[bytes] = SimpleQueue()
    threading.Thread(target=_read, args=(sys.stdin.buffer, requests), daemon=True).start()
    _limit_resources()
    _send(answers, b"")
    model: _Model | None = None
    charged = 0.0
    while True:
        request = requests.get()
        _limit_time(seconds)
        try:
            if model is None:
                model = _Model(tract, np, request)
                answer = [model.description()]
            else:
                answer = model.run(request)
        except (tract.TractError, ValueError, MemoryError) as error:
            answer = [b"\1", _reason(error).encode()[:1_000]]
        else:
            answer.insert(0, b"\0")
        used = time.process_time()
        _send(answers, pack("<d", used - charged), *answer)
        charged = used


def _limit_resources() -> None:
    with open("/proc/self/statm", encoding="ascii") as file:  # noqa: PTH123
        used = int(file.read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + GROWTH_BYTES, used + GROWTH_BYTES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_NOFILE, (FILES, FILES))


def _limit_time(seconds: int) -> None:
    """End this process if it uses the processor for longer than `seconds` and one more from now."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    most = int(used.ru_utime + used.ru_stime) + seconds + 1
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (most, hard))


def _leave_network() -> None:
    """Move to a namespace without network interfaces, if the system lets a user do so."""
    library = ctypes.CDLL(None)
    library.unshare(_NEW_USER | _NEW_NETWORK)  # its error is expected and changes nothing


def _read(stream: BinaryIO, requests: SimpleQueue[bytes]) -> None:
    """Read requests until the parent ends, and then end the process, busy or not."""
    while len(head := stream.read(LENGTH_BYTES)) == LENGTH_BYTES:
        (length,) = unpack("<Q", head)
        requests.put(stream.read(length))
    os._exit(0)


def _reason(error: Exception) -> str:
    """Return the innermost cause in tract's report, which ends with a backtrace."""
    report = str(error).split("Stack backtrace:")[0].splitlines()
    causes = [line.strip() for line in report if any(map(str.isalnum, line))]
    return causes[-1] if causes else type(error).__name__


def _send(stream: BinaryIO, *parts: bytes) -> None:
    stream.write(frame(*parts))
    stream.flush()


class _Model:
    """A loaded model."""

    def __init__(self, tract: Any, np: Any, archive: bytes) -> None:
        file = os.memfd_create("model")
        with os.fdopen(file, "wb") as stream:
            stream.write(archive)
            stream.flush()
            model = tract.nnef().with_onnx().load(f"/proc/self/fd/{file}")
        self._np = np
        self._inputs = [_sizes(model.input_fact(i)) for i in range(model.input_count())]
        self._outputs = [_sizes(model.output_fact(i)) for i in range(model.output_count())]
        self._runnable = model.into_runnable()
        first = self._inputs[0][0] if self._inputs and self._inputs[0] else ""
        self._block = int(first) if first.isdigit() else None

    def description(self) -> bytes:
        """Return the dimensions of inputs and outputs as JSON."""
        return json.dumps([self._inputs, self._outputs]).encode()

    def run(self, request: bytes) -> list[bytes]:
        """Run the rows of a request in blocks; a model for a fixed batch takes whole ones only."""
        np = self._np
        (count,) = unpack("<Q", request[:LENGTH_BYTES])
        arrays = []
        at = LENGTH_BYTES
        for _, *sizes in self._inputs:
            shape = (count, *map(int, sizes))
            array = np.frombuffer(request, np.float32, int(np.prod(shape)), at).reshape(shape)
            at += array.nbytes
            arrays.append(array)
        step = self._block or _BLOCK_ROWS
        results = [
            [result.to_numpy() for result in self._runnable.run(self._rows(arrays, start, step))]
            for start in range(0, count, step)
        ]
        return [
            np.concatenate(parts)[:count].astype(np.float32, copy=False).tobytes()
            for parts in zip(*results, strict=True)
        ]

    def _rows(self, arrays: list[Any], start: int, step: int) -> list[Any]:
        parts = [array[start : start + step] for array in arrays]
        missing = step - len(parts[0]) if self._block is not None else 0
        if missing == 0:
            return parts
        np = self._np
        return [
            np.concatenate((part, np.zeros((missing, *part.shape[1:]), "f4"))) for part in parts
        ]


def _sizes(fact: Any) -> list[str]:
    """Return the dimensions, and the element type if that is not float32."""
    *sizes, kind = str(fact).replace(" ", "").split(",")
    return sizes if kind.lower() == "f32" else [*sizes, kind]


if __name__ == "__main__":
    main()
