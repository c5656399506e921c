"""The inside of a worker program: its job, its events, and the link to its parent process."""

from __future__ import annotations

import atexit
import contextlib
import hashlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from arkml.base.files import read_file
from arkml.base.parent_watch import watch_parent
from arkml.base.release import RELEASE
from arkml.errors import Unavailable, UsageError
from arkml.workers.process_environment import PARENT

REFUSED = 2
"""Exit status of a program that refuses its job."""

_ORPHANED = 5.0
"""Seconds that a program has to end by itself after its parent has ended."""

_CHECK_EVERY = 0.25


class Program:
    """
    The job of this process, the messages that follow it, and its way to report events.

    `is_stopping` is set when the standard input is closed or the parent process ends.
    """

    def __init__(self) -> None:
        self.job: dict[str, Any] = {}
        self.messages: SimpleQueue[dict[str, Any]] = SimpleQueue()
        """What the parent has sent after the job, in the order of `Worker.send`."""
        self.is_stopping = threading.Event()
        self._unread = bytearray()  # a line that has not ended yet
        self._events = os.fdopen(os.dup(1), "w", encoding="utf-8")
        self._printing = threading.Lock()

    def read(self, part: bytes) -> None:
        """Handle bytes of the standard input that follow the job; each line is a message."""
        self._unread += part
        if b"\n" not in part:
            return
        *lines, self._unread = self._unread.split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):  # nothing but a placement writes to it
                self.messages.put(json.loads(line))

    def report(self, event: Mapping[str, Any]) -> None:
        """Print an event. Any thread may call it. Does nothing once the output is closed."""
        line = json.dumps(dict(event), separators=(",", ":"))
        with self._printing, contextlib.suppress(OSError, ValueError):
            self._events.write(line + "\n")
            self._events.flush()


def run_program(main: Callable[[Program], int], on_stop: Callable[[], None] | None = None) -> int:
    """
    Read the job, and return the exit status of `main`, or `REFUSED` for a refused job.

    The job is the first line of the standard input. A job is refused if it comes from another
    version of this package, or if its module has different content here; the event `ended` then has
    the reason. The program ends as `end_with_parent` describes. The standard output is reserved for
    events; other output, such as of `print`, goes to the standard error.
    """
    program = Program()
    os.dup2(2, 1)
    try:
        program.job, rest = _read_job()
        program.read(rest)
        check_same_package(program.job)
        check_same_module(program.job)
    except (UsageError, Unavailable) as error:
        program.report({"event": "ended", "reason": str(error)})
        return REFUSED

    def stop() -> None:
        program.is_stopping.set()
        if on_stop is not None:
            on_stop()

    end_with_parent(stop, program.read)
    return main(program)


def end_with_parent(
    on_stop: Callable[[], None], on_read: Callable[[bytes], object] = lambda _: None
) -> None:
    """
    Call `on_stop` once, in another thread, when the standard input closes or the parent ends.

    `on_read` gets bytes read from the standard input until then, in a thread.

    This process's group is killed when the process ends, and at the latest five seconds after the
    end of the parent.
    """
    parent = int(os.environ.get(PARENT, os.getppid()))

    def stop() -> None:
        on_stop()
        while os.getppid() == parent:
            time.sleep(_CHECK_EVERY)
        time.sleep(_ORPHANED)
        _kill_group()

    def end() -> None:
        if os.getppid() != parent:
            _kill_group()
        _kill_others()  # the parent may be ending as well, and not kill them

    atexit.register(end)
    watch_parent(0, parent, stop, on_read)


def check_same_package(job: Mapping[str, Any]) -> None:
    """Check the package `version` in a job. Raises Unavailable."""
    here = RELEASE
    if (version := job.get("version", here)) != here:
        raise Unavailable(
            f"the job was made by arkml {version}, and the package here is arkml {here}: install"
            " one version on all nodes"
        )


def check_same_module(job: Mapping[str, Any]) -> None:
    """Compare a job's file `module` with its `module_hash`. Raises Unavailable."""
    path, wanted = job.get("module"), job.get("module_hash")
    if not path or not wanted:
        return
    try:
        have = hashlib.sha256(read_file(Path(path))).hexdigest()
    except OSError as error:
        raise Unavailable(f"the module {path} cannot be read here: {error.strerror}") from error
    if have != wanted:
        raise Unavailable(
            f"the module {path} has the SHA-256 {have} here, and {wanted} where the worker was"
            " started: put one file on all nodes"
        )


def _kill_group() -> None:
    """Kill this process and, if it leads a process group as workers do, the whole group."""
    is_leader = os.getpgrp() == os.getpid()
    (os.killpg if is_leader else os.kill)(os.getpid(), signal.SIGKILL)


def _kill_others() -> None:
    """Kill the other processes of the group that this process leads, if /proc lists them."""
    own = os.getpid()
    if os.getpgrp() != own:
        return
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError):
            pid = int(folder.name)
            if pid != own and os.getpgid(pid) == own:
                os.kill(pid, signal.SIGKILL)


def _read_job() -> tuple[dict[str, Any], bytes]:
    """Read the first line of the standard input; return its object, and the bytes read after it."""
    read = bytearray()
    while part := os.read(0, 65_536):
        read += part
        if b"\n" in part:
            break
    line, _, rest = bytes(read).partition(b"\n")
    try:
        job = json.loads(line)
    except ValueError:
        job = None
    if not isinstance(job, dict):
        raise UsageError(
            "the standard input has no job: a worker program is started by a placement, which"
            " writes one JSON object in a line"
        )
    return job, rest
