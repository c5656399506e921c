"""The parent's side of the process that runs one NNEF model."""

from __future__ import annotations

import math
import mmap
import os
import select
import subprocess
import sys
import time
import weakref
from importlib.util import find_spec
from pathlib import Path
from queue import Empty, SimpleQueue
from struct import unpack, unpack_from

from arkml.base.child_time import add_child_seconds
from arkml.base.source_roots import source_roots
from arkml.errors import ModelRejected, Unavailable
from arkml.policies.nnef_child import LENGTH_BYTES, TIME_BYTES

WAIT_SECONDS = 2.0
"""Seconds to wait for the end of another one, at most, before Unavailable."""

_SHARE = 0.25  # of the time of a call: a guest pays for the wait, and is to live with the answer

_START_SECONDS = 30.0
_KEPT = ("LD_LIBRARY_PATH", "PYTHONHOME", "PYTHONPATH")  # all of the environment but these goes


class ChildPlaces:
    """
    A limit of `count` processes of a host at one time; each takes a place.

    `call_seconds` is the time that a guest's call may take, None for no limit.
    """

    def __init__(self, count: int, call_seconds: float | None = None) -> None:
        self.count = count
        self._call_seconds = math.inf if call_seconds is None else call_seconds
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(count):
            self._free.put(None)

    def take(self) -> None:
        """Take a place for a process. Raises Unavailable if none is free for some time."""
        if not self.count:
            raise Unavailable("this host runs no NNEF models (Limits.nnef_processes is 0)")
        seconds = min(WAIT_SECONDS, _SHARE * self._call_seconds)
        try:
            self._free.get(timeout=seconds)
        except Empty:
            raise Unavailable(
                f"{self.count} NNEF models are in use, each in a process of its own, and none"
                f" ended in {seconds:.3g} s (Limits.nnef_processes)"
            ) from None

    def leave(self) -> None:
        """Return a place. Takes no lock: a finalizer may call it in the middle of `take`."""
        self._free.put(None)


class Child:
    """
    A started process that waits for requests, until `end` is called or the object is dropped.

    `seconds` limits the processor time of a request. `is_late` is True once an answer did not come
    in time. Time that the process used for an answer is charged like time of this thread. Raises
    Unavailable if the process does not start, if none of `places` is free, or without the `tract`
    package.
    """

    def __init__(self, seconds: float, places: ChildPlaces) -> None:
        if find_spec("tract") is None:
            raise Unavailable("NNEF models need the package tract: pip install arkml[nnef]")
        places.take()
        self.is_late = False
        try:
            self._process = _started(seconds)
        except OSError as error:
            places.leave()
            raise Unavailable(f"the process of the NNEF model does not start: {error}") from error
        self.pid = self._process.pid
        self.end = weakref.finalize(self, _end, self._process, places)
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._to, self._from = self._process.stdin.fileno(), self._process.stdout.fileno()
        os.set_blocking(self._to, False)
        try:
            self._exchange(b"", _START_SECONDS, 0)
        except Unavailable:
            self.end()
            raise

    def ask(self, request: bytes, seconds: float, most: int) -> bytes:
        """
        Send a request and return the answer, of at most `most` bytes.

        Raises ModelRejected if the answer is an error, Unavailable if there is none within
        `seconds` or the process ends.
        """
        answer = self._exchange(request, seconds, TIME_BYTES + 1 + most)
        if len(answer) <= TIME_BYTES:
            raise Unavailable(f"its process answered {len(answer)} bytes")
        add_child_seconds(*unpack_from("<d", answer))
        if answer[TIME_BYTES]:
            raise ModelRejected(answer[TIME_BYTES + 1 :].decode(errors="replace"))
        return answer[TIME_BYTES + 1 :]

    def resident_bytes(self) -> int:
        """Return the bytes of memory that the process uses at present, 0 if it has ended."""
        try:
            pages = Path(f"/proc/{self.pid}/statm").read_text().split()[1]
        except (OSError, IndexError):
            return 0
        return int(pages) * mmap.PAGESIZE

    def _exchange(self, request: bytes, seconds: float, most: int) -> bytes:
        end = time.monotonic() + seconds
        unsent = memoryview(request)
        answer = bytearray()
        wanted = LENGTH_BYTES
        while len(answer) < wanted or unsent:
            ready = self._wait(end - time.monotonic(), may_write=bool(unsent))
            if not ready:
                self.is_late = True
                raise Unavailable(f"its process took longer than {seconds:.3g} s")
            if self._to in ready:
                unsent = unsent[self._write(unsent) :]
            if self._from in ready:
                answer += self._read(wanted - len(answer))
                if len(answer) == LENGTH_BYTES:
                    wanted += unpack("<Q", answer)[0]
                if wanted > LENGTH_BYTES + most:
                    raise Unavailable(f"its process answered {wanted - LENGTH_BYTES} bytes")
        return bytes(memoryview(answer)[LENGTH_BYTES:])

    def _wait(self, seconds: float, *, may_write: bool) -> set[int]:
        """Return the pipes that are ready, none after a time."""
        waiting = select.poll()  # `select` takes no descriptor from 1,024 on
        waiting.register(self._from, select.POLLIN)
        if may_write:
            waiting.register(self._to, select.POLLOUT)
        return {pipe for pipe, _ in waiting.poll(1_000 * max(0.0, seconds))}

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


def _started(seconds: float) -> subprocess.Popen[bytes]:
    environment = {name: os.environ[name] for name in _KEPT if name in os.environ}
    path = os.pathsep.join(filter(None, (source_roots(), environment.get("PYTHONPATH"))))
    return subprocess.Popen(
        # -P: modules are not looked for in the working directory
        [sys.executable, "-P", "-m", "arkml.policies.nnef_child", str(math.ceil(seconds))],
        env=environment | {"PYTHONPATH": path, "OPENBLAS_NUM_THREADS": "1"},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        cwd="/",
        process_group=0,  # Ctrl-C is for the parent
    )


def _end(process: subprocess.Popen[bytes], places: ChildPlaces) -> None:
    process.kill()
    with process:  # closes the pipes and waits
        pass
    places.leave()
