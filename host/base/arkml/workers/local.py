"""Worker programs on this machine."""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from queue import SimpleQueue
from typing import IO, Any

from arkml.base.closing import Closing
from arkml.base.release import RELEASE
from arkml.errors import Unavailable, UsageError
from arkml.workers.process_environment import worker_environment
from arkml.workers.process_group import ProcessGroup, ended_by

OnLine = Callable[[str, str], None]
"""Function that gets the name of a worker and a line of its standard error."""

_MAX_EVENTS = 1_000
_MAX_LINE = 1 << 20
_QUOTED = 300  # characters of the last line of the standard error
_OUTPUT_TIMEOUT = 1.0  # seconds to read the output of an ended process
_KILLED_WITHIN = 5.0


class LocalWorker:
    """
    A worker program in its own process group, which is killed after it, or with this process.

    The latest thousand events are kept. A thread calls `on_line` with the name of the worker and
    each line of its standard error.
    """

    def __init__(self, module: str, job: bytes, name: str, on_line: OnLine | None = None) -> None:
        """Start the program. Raises OSError."""
        self.name = name
        self._on_line = on_line
        self._group = ProcessGroup(
            [sys.executable, "-m", module],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            bufsize=0,
            env=worker_environment(),
        )
        self._process = self._group.process
        self._events: deque[dict[str, Any]] = deque(maxlen=_MAX_EVENTS)
        self._last_line = ""
        self._reason = ""
        self._is_stopped = False
        self._lines: SimpleQueue[bytes | None] = SimpleQueue()  # for the standard input
        self._unwritten = 0
        self._changing = threading.Lock()
        self._timer: threading.Timer | None = None
        self._ended = threading.Event()
        threads = [
            self._thread("events", self._read_events, self._process.stdout),
            self._thread("output", self._read_output, self._process.stderr),
            self._thread("input", self._write_lines, self._process.stdin),
        ]
        self._put(job)
        self._thread("end", self._wait_for_end, threads)

    @property
    def status(self) -> int | None:
        """Exit status, negative for a signal; None while the program runs."""
        return None if self.is_alive else self._group.status

    @property
    def is_alive(self) -> bool:
        """True until the program has ended."""
        return not self._ended.is_set()

    @property
    def reason(self) -> str:
        """A sentence about an unexpected end, otherwise empty."""
        status = self.status
        if status is None or self._is_stopped or status == 0:
            return ""
        if self._reason:
            return self._reason
        message = "" if status < 0 else f": {self._last_line or 'no message'}"
        return f"{self.name} {ended_by(status)}{message}"

    def events(self) -> list[dict[str, Any]]:
        """Return the JSON objects printed since the last call. Never waits."""
        events = []
        with contextlib.suppress(IndexError):
            while True:
                events.append(self._events.popleft())
        return events

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message, a JSON object, for the program. Never waits. Raises UsageError."""
        line = json_line(message)
        with self._changing:
            if not self._is_stopped and self.is_alive:
                self._put(line)

    def stop(self, seconds: float) -> None:
        """Ask the program to end, and kill it after `seconds`. Does not wait."""
        with self._changing:
            if self._is_stopped or not self.is_alive:
                return
            self._is_stopped = True
            if self._unwritten:  # the thread writes to the standard input
                self._group.kill()
                return
            assert self._process.stdin is not None
            self._process.stdin.close()
            self._timer = threading.Timer(seconds, self.kill)
            self._timer.daemon = True
            self._timer.start()

    def kill(self) -> None:
        """Kill the program and its process group. Does not wait."""
        with self._changing:
            self._is_stopped = True
        self._group.kill()

    def wait(self, seconds: float) -> bool:
        """Wait at most `seconds` for the program to end. Returns False if it is still running."""
        return self._ended.wait(seconds)

    def _thread(self, name: str, target: Any, argument: Any) -> threading.Thread:
        thread = threading.Thread(
            target=target, args=(argument,), name=f"arkml-{self.name}-{name}", daemon=True
        )
        thread.start()
        return thread

    def _put(self, line: bytes) -> None:
        self._unwritten += 1
        self._lines.put(line)

    def _write_lines(self, file: IO[bytes]) -> None:
        """Write lines to the standard input, until the program has ended."""
        while (line := self._lines.get()) is not None:
            view = memoryview(line)
            with contextlib.suppress(OSError, ValueError):  # it has ended, or is to end
                while view:
                    view = view[file.write(view) :]
            with self._changing:
                self._unwritten -= 1

    def _read_events(self, output: IO[bytes]) -> None:
        for line in _lines(output):
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict):
                    if event.get("event") == "ended":
                        self._reason = str(event.get("reason") or "")
                    self._events.append(event)

    def _read_output(self, output: IO[bytes]) -> None:
        for line in _lines(output):
            text = line.decode(errors="replace").strip()
            self._last_line = text[-_QUOTED:] or self._last_line
            if self._on_line is not None and text:
                self._on_line(self.name, text)

    def _wait_for_end(self, threads: list[threading.Thread]) -> None:
        self._group.wait()
        self._lines.put(None)
        with self._changing:
            if self._timer is not None:
                self._timer.cancel()
        deadline = time.monotonic() + _OUTPUT_TIMEOUT
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        assert self._process.stdin is not None
        with contextlib.suppress(OSError):
            self._process.stdin.close()
        self._ended.set()


class LocalPlacement(Closing):
    """Starts worker programs on this machine; `on_line` gets the lines of all workers."""

    def __init__(self, on_line: OnLine | None = None) -> None:
        self._on_line = on_line
        self._workers: list[LocalWorker] = []
        self._is_closed = False
        self._lock = threading.Lock()

    def start(self, module: str, job: Mapping[str, Any], name: str) -> LocalWorker:
        """
        Start `python -m MODULE`, which reads `job` as a line of JSON from its standard input.

        The version of this package is added to the job.

        Args:
            module: Name of the module, such as "arkml.training.rollout_worker".
            job: JSON object.
            name: Name of the worker in messages, such as "worker 1".

        Raises:
            UsageError: The job cannot be encoded as JSON.
            Unavailable: The program cannot be started.

        """
        line = job_line(job)
        with self._lock:
            if self._is_closed:
                raise Unavailable(f"{name} cannot be started: the placement is closed")
            try:
                worker = LocalWorker(module, line, name, self._on_line)
            except OSError as error:
                raise Unavailable(f"{name} cannot be started: {error.strerror}") from error
            self._workers = [one for one in self._workers if one.is_alive] + [worker]
        return worker

    def close(self, seconds: float = 5.0) -> None:
        """End all programs, by force after `seconds`, and release resources. Idempotent."""
        with self._lock:
            self._is_closed = True
            workers, self._workers = self._workers, []
        for worker in workers:
            worker.stop(seconds)
        deadline = time.monotonic() + seconds
        for worker in workers:
            if not worker.wait(max(0.0, deadline - time.monotonic())):
                worker.kill()
        for worker in workers:
            worker.wait(_KILLED_WITHIN)


def job_line(job: Mapping[str, Any]) -> bytes:
    """Encode a job as a line of JSON, with the version of this package. Raises UsageError."""
    return json_line({"version": RELEASE, **job})


def json_line(values: Mapping[str, Any]) -> bytes:
    """Encode a job or a message for a worker as a line of JSON. Raises UsageError."""
    try:
        text = json.dumps(dict(values), separators=(",", ":"))
    except (TypeError, ValueError) as error:
        raise UsageError(f"a worker takes JSON values only: {error}") from error
    return text.encode() + b"\n"


def _lines(file: IO[bytes]) -> Iterator[bytes]:
    """Yield the lines of a raw file until its end; lines over a MiB come in parts."""
    assert isinstance(file, io.RawIOBase)
    with io.BufferedReader(file) as lines:
        while line := lines.readline(_MAX_LINE):
            yield line
