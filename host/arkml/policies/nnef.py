"""NNEF models, each run by tract in a process of its own."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import time
import weakref
from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from struct import pack, unpack
from threading import Lock

import numpy as np

from arkml.batches import Floats
from arkml.errors import ModelRejected, Unavailable
from arkml.limits import Limits
from arkml.policies.nnef_archive import read_archive
from arkml.policies.nnef_child import LENGTH_BYTES, frame
from arkml.policies.signature import Port
from arkml.policies.vetting import MAX_FEATURES

SECONDS = 2.0
_LIMITS = Limits()
_START_SECONDS = 30.0
_MAX_TEXT = 4_096


class NnefModel:
    """
    A model in a child process. Any thread may run it, one at a time.

    fixed_batch: the batch size the file was made for, or None. `run` takes any number of rows
    anyway. Once the child has crashed or hung, every run raises Unavailable.
    """

    def __init__(
        self, archive: bytes, limits: Limits = _LIMITS, *, seconds: float = SECONDS
    ) -> None:
        """Raises ModelRejected, or Unavailable without the `tract` package."""
        names = read_archive(archive, limits)
        self._seconds = seconds
        self._lock = Lock()
        self._failure: str | None = None
        self._child = _Child()
        try:
            description = self._child.ask(frame(archive), seconds, _MAX_TEXT * 16)
            self._describe(description, names.inputs, names.outputs)
            self.run({port.name: np.zeros((1, *port.shape), np.float32) for port in self.inputs})
        except Unavailable as error:
            self.close()
            raise ModelRejected(f"the NNEF model cannot be loaded: {self._failure or error}") from error
        except ModelRejected:
            self.close()
            raise

    def run(self, feeds: Mapping[str, Floats]) -> list[Floats]:
        """
        Returns the outputs, float32, [n, *shape] each, for inputs [n, *shape] by name.

        Raises Unavailable if the model fails.
        """
        arrays = [feeds[port.name] for port in self.inputs]
        count = len(arrays[0])
        for port, array in zip(self.inputs, arrays, strict=True):
            if array.shape != (count, *port.shape) or array.dtype != np.float32:
                raise ValueError(f"{port.name} is {array.shape}, not {(count, *port.shape)}")
        if count == 0:
            return [np.zeros((0, *port.shape), np.float32) for port in self.outputs]
        sizes = [4 * count * int(np.prod(port.shape)) for port in self.outputs]
        request = frame(pack("<Q", count), *(array.tobytes() for array in arrays))
        with self._lock:
            answer = self._ask(request, sum(sizes))
        if len(answer) != sum(sizes):
            raise Unavailable(f"the NNEF model answered {len(answer)} bytes, not {sum(sizes)}")
        results, at = [], 0
        for port, size in zip(self.outputs, sizes, strict=True):
            part = np.frombuffer(answer, np.float32, size // 4, at)
            results.append(part.reshape(count, *port.shape))
            at += size
        return results

    def close(self) -> None:
        """End the child."""
        self._child.end()

    def _ask(self, request: bytes, size: int) -> bytes:
        if self._failure is not None:
            raise Unavailable(self._failure)
        try:
            return self._child.ask(request, self._seconds, size + _MAX_TEXT)
        except ModelRejected as error:
            raise Unavailable(f"the NNEF model fails: {error}") from error
        except Unavailable as error:
            self._failure = f"the NNEF model has failed: {error}"
            self.close()
            raise Unavailable(self._failure) from error

    def _describe(self, description: bytes, inputs: Sequence[str], outputs: Sequence[str]) -> None:
        facts = json.loads(description)
        self.inputs = _ports(inputs, facts[0])
        self.outputs = _ports(outputs, facts[1])
        batches = {sizes[0] for sizes in facts[0]}
        if len(batches) != 1 or {sizes[0] for sizes in facts[1]} != batches:
            raise ModelRejected(f"the NNEF model mixes batches of {', '.join(sorted(batches))}")
        batch: str = batches.pop()
        self.fixed_batch = int(batch) if batch.isdigit() else None
        if self.fixed_batch == 0:
            raise ModelRejected("the NNEF model is made for batches of no rows")


def _ports(names: Sequence[str], facts: list[list[str]]) -> tuple[Port, ...]:
    if len(names) != len(facts):
        raise ModelRejected(f"the NNEF model has {len(facts)} ports, its text names {len(names)}")
    # Cervo strips the number that tract appends.
    short = [name.removesuffix("_0") for name in names]
    if len(set(short)) != len(short):
        short = list(names)
    ports = []
    for name, sizes in zip(short, facts, strict=True):
        if not sizes or not all(size.isdigit() for size in sizes[1:]):
            raise ModelRejected(f"{name!r} is {', '.join(sizes)}, not floats of a known shape")
        port = Port(name, tuple(map(int, sizes[1:])))
        if port.width > MAX_FEATURES:
            raise ModelRejected(f"{name!r} has {port.width} elements, more than {MAX_FEATURES}")
        ports.append(port)
    return tuple(ports)


class _Child:
    """The process, and questions to it."""

    def __init__(self) -> None:
        if find_spec("tract") is None:
            raise Unavailable("NNEF models need the package tract: pip install arkml[nnef]")
        root = Path(__file__).parents[2]
        path = os.pathsep.join(filter(None, (str(root), os.environ.get("PYTHONPATH"))))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "arkml.policies.nnef_child"],
            env=os.environ | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            process_group=0,  # Ctrl-C is for the parent
        )
        self.end = weakref.finalize(self, _end, self._process)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        self._exchange(b"", _START_SECONDS, 0)

    def ask(self, request: bytes, seconds: float, most: int) -> bytes:
        """
        Returns the answer, of at most `most` bytes.

        Raises ModelRejected if the answer is an error, Unavailable if there is none in time.
        """
        answer = self._exchange(request, seconds, most + 1)
        if answer[:1] != b"\0":
            raise ModelRejected(answer[1:].decode(errors="replace"))
        return answer[1:]

    def _exchange(self, request: bytes, seconds: float, most: int) -> bytes:
        end = time.monotonic() + seconds
        unsent = memoryview(request)
        answer = bytearray()
        wanted = LENGTH_BYTES
        while len(answer) < wanted or unsent:
            left = end - time.monotonic()
            to = [self._to] if unsent else []
            readable, writable, _ = select.select([self._from], to, [], max(0.0, left))
            if not readable and not writable:
                raise Unavailable(f"its process took longer than {seconds} s")
            if writable:
                unsent = unsent[self._write(unsent) :]
            if readable:
                answer += self._read(wanted - len(answer))
                if len(answer) == LENGTH_BYTES:
                    wanted += unpack("<Q", answer)[0]
                if wanted > LENGTH_BYTES + most:
                    raise Unavailable(f"its process answered {wanted - LENGTH_BYTES} bytes")
        return bytes(memoryview(answer)[LENGTH_BYTES:])

    def _write(self, unsent: memoryview) -> int:
        try:
            return os.write(self._to, unsent)
        except BrokenPipeError:
            raise self._died() from None

    def _read(self, count: int) -> bytes:
        data = os.read(self._from, min(count, 1 << 20))
        if not data:
            raise self._died()
        return data

    def _died(self) -> Unavailable:
        try:
            code = self._process.wait(1.0)
        except subprocess.TimeoutExpired:
            return Unavailable("its process closed its pipes")
        return Unavailable(f"its process ended with status {code}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.kill()
    with process:  # closes the pipes and waits
        pass
