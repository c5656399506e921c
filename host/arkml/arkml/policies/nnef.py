"""NNEF models, each run by tract in a separate process."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from struct import pack
from threading import Lock

import numpy as np

from arkml.batches import Floats
from arkml.errors import AbiError, ModelRejected, Unavailable
from arkml.limits import Limits
from arkml.policies.load_time import PATIENCE
from arkml.policies.nnef_archive import read_archive
from arkml.policies.nnef_child import frame
from arkml.policies.nnef_process import Child, ChildPlaces
from arkml.policies.ports import Port
from arkml.policies.run_limit import RunLimit
from arkml.policies.vetting import MAX_FEATURES

SECONDS = 2.0
CHILD_BYTES = 48 << 20
"""Bytes of a child process before it loads a model, by measurement."""

_LIMITS = Limits()
_MAX_TEXT = 4_096


class NnefModel:
    """
    A model in a child process. Any thread may run it, one at a time.

    fixed_batch: the batch size that the file is made for, or None; `run` takes any number of rows
    either way. seconds: limits the processor time of loading, and the wall time of a run. places:
    limits the number of the host's child processes; None sets no limit. A child that crashed, or
    did not answer in time, is ended; the guest of that run gets no other child, and the next run of
    another guest starts one. `session_bytes` are the bytes of the child.
    """

    def __init__(
        self,
        archive: bytes,
        limits: Limits = _LIMITS,
        *,
        seconds: float = SECONDS,
        places: ChildPlaces | None = None,
    ) -> None:
        """
        Load the model.

        Raises ModelRejected, or Unavailable without the `tract` package, without room for another
        child, or if the machine is too busy.
        """
        names = read_archive(archive, limits)
        self.seconds = seconds
        own = ChildPlaces(limits.nnef_processes, limits.run_seconds)
        self._places = own if places is None else places
        self._archive = archive
        self._lock = Lock()
        self._failure: str | None = None
        until = time.monotonic() + PATIENCE * seconds
        self._child, description = self._started()
        try:
            self._describe(description, names.inputs, names.outputs)
            zeros = {port.name: np.zeros((1, *port.shape), np.float32) for port in self.inputs}
            self._run(zeros, max(0.0, until - time.monotonic()))
            self.session_bytes = max(CHILD_BYTES + 2 * len(archive), self._child.resident_bytes())
        except Unavailable as error:
            self.close()
            raise self._unloadable(error, self._child) from error
        except ModelRejected:
            self.close()
            raise

    def _started(self) -> tuple[Child, bytes]:
        """Return a child that has loaded the archive, and its description of the model."""
        child = Child(self.seconds, self._places)
        try:
            request, most = frame(self._archive), _MAX_TEXT * 16
            return child, child.ask(request, PATIENCE * self.seconds, most)
        except Unavailable as error:
            child.end()
            raise self._unloadable(error, child) from error
        except ModelRejected:
            child.end()
            raise

    def _unloadable(self, error: Unavailable, child: Child) -> AbiError:
        """Return the error of a load that failed: the model's fault, unless the child was late."""
        text = f"the NNEF model cannot be loaded: {self._failure or error}"
        # A child that has used up the processor's time has ended.
        return Unavailable(text) if child.is_late else ModelRejected(text)

    def run(self, feeds: Mapping[str, Floats], limit: RunLimit | None = None) -> list[Floats]:
        """
        Run the model, and return its outputs, float32, [n, *shape] each.

        feeds: float32, [n, *shape], by input name. Raises Unavailable if the model fails, or takes
        longer than its own limit or `limit` allows; then `limit` allows no further run.
        """
        if limit is None:
            return self._run(feeds, self.seconds)
        limit.require()
        seconds = limit.seconds(self.seconds)
        return self._run(feeds, seconds, limit)

    def _run(
        self, feeds: Mapping[str, Floats], seconds: float, limit: RunLimit | None = None
    ) -> list[Floats]:
        arrays = [feeds[port.name] for port in self.inputs]
        count = len(arrays[0])
        for port, array in zip(self.inputs, arrays, strict=True):
            if array.shape != (count, *port.shape) or array.dtype != np.float32:
                raise ValueError(
                    f"{port.name} has shape {array.shape}, expected {(count, *port.shape)}"
                )
        if count == 0:
            return [np.zeros((0, *port.shape), np.float32) for port in self.outputs]
        sizes = [4 * count * int(np.prod(port.shape)) for port in self.outputs]
        request = frame(pack("<Q", count), *(array.tobytes() for array in arrays))
        with self._lock:
            answer = self._ask(request, sum(sizes), seconds, limit)
        if len(answer) != sum(sizes):
            raise Unavailable(f"the NNEF model answered {len(answer)} bytes, expected {sum(sizes)}")
        results, at = [], 0
        for port, size in zip(self.outputs, sizes, strict=True):
            part = np.frombuffer(answer, np.float32, size // 4, at)
            results.append(part.reshape(count, *port.shape))
            at += size
        return results

    @property
    def pid(self) -> int:
        """The process id of the child."""
        return self._child.pid

    def close(self) -> None:
        """End the child."""
        self._child.end()

    def _ask(self, request: bytes, size: int, seconds: float, limit: RunLimit | None) -> bytes:
        if self._failure is not None:  # of another guest's run
            self._child, _ = self._started()
            self._failure = None
        try:
            return self._child.ask(request, seconds, size + _MAX_TEXT)
        except ModelRejected as error:
            raise Unavailable(f"the NNEF model fails: {error}") from error
        except Unavailable as error:
            self._failure = str(error)
            self.close()
            text = f"the NNEF model has failed: {error}"
            if limit is not None:
                limit.fail(text)
            raise Unavailable(text) from error

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
            raise ModelRejected("the NNEF model is made for batches of 0 rows")


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
            raise ModelRejected(f"{name!r} is {', '.join(sizes)}, expected floats of a known shape")
        port = Port(name, tuple(map(int, sizes[1:])))
        if port.width > MAX_FEATURES:
            raise ModelRejected(f"{name!r} has {port.width} elements, more than {MAX_FEATURES}")
        ports.append(port)
    return tuple(ports)
