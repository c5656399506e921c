"""The runner of actors in processes of this machine."""

from __future__ import annotations

import contextlib
import os
import pickle
import selectors
import subprocess
import sys
import threading
import time
from collections import deque
from contextlib import ExitStack
from dataclasses import dataclass, field
from multiprocessing import spawn
from typing import Any

from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.actor_process import (
    ENDED,
    FRAME,
    MESSAGE,
    check_main_guard,
)
from arkml.async_trainer.runners.message_codec import (
    decode_arrived,
    encode,
    encode_job,
    encode_model,
)
from arkml.async_trainer.runners.runner import ActorEnded, ActorJob, ActorStat, Waits
from arkml.async_trainer.runners.shared_state import ActorCounters, SharedState, anonymous_file
from arkml.base.closing import Closing
from arkml.errors import Unavailable, UsageError
from arkml.workers.process_environment import worker_environment
from arkml.workers.process_group import ProcessGroup, ended_by

_PROGRAM = "arkml.async_trainer.runners.actor_process"
_CHUNK = 1 << 20
_CHECK_EVERY = 0.1
_EXITING = 5.0
"""Seconds that a process has to exit after its actor has ended."""


@dataclass(slots=True)
class _Process:
    """The process of one incarnation."""

    job: ActorJob
    counters: ActorCounters
    group: ProcessGroup
    pipe: int
    wake: int
    began: float = field(default_factory=time.perf_counter)
    data: bytearray = field(default_factory=bytearray)
    has_ended: bool = False
    is_at_end: bool = False
    kill_at: float | None = None
    """Time at which to kill the process, once its actor has ended."""

    def ended(self, reason: str) -> ActorEnded:
        stat = ActorStat(self.counters.made, time.perf_counter() - self.began)
        return ActorEnded(self.job.actor, self.job.incarnation, stat, reason)

    def add_waits(self, waits: Waits) -> None:
        count, nanoseconds = self.counters.waits
        waits.count += count
        waits.seconds += nanoseconds / 1e9

    def close(self) -> None:
        assert self.group.process.stdin is not None
        self.group.process.stdin.close()
        os.close(self.pipe)
        os.close(self.wake)


class ProcessRunner(Closing):
    """
    Runs each actor in a process, with one computing thread.

    Processes are spawned, never forked, and import the main module as multiprocessing does. Each
    sends messages through a pipe, which a thread reads. A model is pickled once and written to
    memory that all processes share.
    """

    def __init__(self) -> None:
        """Raise UsageError if an actor's process is importing the main module."""
        check_main_guard()
        self._past_waits = Waits()
        self._state = SharedState.create()
        self._counters: dict[int, tuple[int, ActorCounters]] = {}
        self._processes: list[_Process] = []
        self._arrived: deque[tuple[ActorJob, bytes] | ActorEnded] = deque()
        self._refusal = ""
        self._is_refused = self._is_closing = self._is_closed = False
        self._changed = threading.Condition()
        self._selector = selectors.DefaultSelector()
        self._thread: threading.Thread | None = None

    @property
    def waits(self) -> Waits:
        """Number and total seconds of actors' waits at a full channel."""
        with self._changed:
            waits = Waits(self._past_waits.count, self._past_waits.seconds)
            for process in self._processes:
                if not process.has_ended:
                    process.add_waits(waits)
        return waits

    def start(self, job: ActorJob) -> None:
        """
        Start an incarnation of an actor.

        Raises UsageError if pickle cannot encode the job, and Unavailable if no process can be
        started.
        """
        data = encode_job(job)
        index, counters = self._counters_of(job.actor)
        counters.reset()
        name = f"actor {job.actor}"
        preparation = spawn.get_preparation_data(name)
        del preparation["authkey"]  # a secret for multiprocessing's connections: unused here
        try:
            process = self._started(job, counters, encode((index, preparation, data)))
        except OSError as error:
            raise Unavailable(f"{name} cannot be started: {error.strerror}") from error
        with self._changed:
            self._processes.append(process)
            self._selector.register(process.pipe, selectors.EVENT_READ, process)
            if self._thread is None:
                self._thread = threading.Thread(
                    target=self._watch, name="arkml-actors", daemon=True
                )
                self._thread.start()

    def publish(self, n_opts: int, model_info: Any) -> None:
        """
        Send a model to all actors, including later ones; older models are dropped.

        Raises UsageError if pickle cannot encode the model.
        """
        self._state.write_model(n_opts, encode_model(model_info))
        self._wake()

    def admit(self, actor: int, items: int) -> None:
        """Allow the present incarnation of an actor to make `items` items in total."""
        self._counters_of(actor)[1].admit(items)
        self._wake()

    def receive(self, seconds: float) -> list[PushedItemMessage | ActorEnded]:
        """
        Return messages and ends of actors, waiting for at most `seconds` if there are none.

        Raises UsageError, once, if a process cannot begin, for example without a main guard.
        """
        if not self._arrived and seconds <= 0:
            return []
        with self._changed:
            self._changed.wait_for(lambda: self._arrived, seconds)
            if self._refusal and not self._is_refused and not self._state.is_stopped:
                self._is_refused = True
                raise UsageError(self._refusal)
            arrived = list(self._arrived)
            self._arrived.clear()
            self._state.queued = 0
        self._wake()
        return [decode_arrived(one) for one in arrived]

    def stop(self) -> None:
        """Ask all actors to stop. Does nothing after `close`."""
        if not self._is_closed:
            self._state.stop()
            self._wake()

    def close(self, seconds: float = 5.0) -> None:
        """End all actors, by force after `seconds`, and release resources. Idempotent."""
        if self._is_closed:
            return
        self.stop()
        self._is_closed = True
        with self._changed:
            self._changed.wait_for(lambda: not self._processes, seconds)
            for process in self._processes:
                process.group.kill()
            self._changed.wait_for(lambda: not self._processes, _EXITING)
            self._is_closing = True
        if self._thread is not None:
            self._thread.join()
        self._selector.close()
        self._state.close()

    def _counters_of(self, actor: int) -> tuple[int, ActorCounters]:
        if actor not in self._counters:
            index = len(self._counters)
            counters = self._state.counters(index)
            counters.admit(None)
            self._counters[actor] = index, counters
        return self._counters[actor]

    def _started(self, job: ActorJob, counters: ActorCounters, data: bytes) -> _Process:
        """Start a process. Raises OSError."""
        with ExitStack() as opened:

            def own(descriptor: int) -> int:
                opened.callback(os.close, descriptor)
                return descriptor

            job_file = own(anonymous_file("job"))
            with os.fdopen(os.dup(job_file), "wb") as file:
                file.write(data)
            wake_read, wake_write = os.pipe()
            pipe_read, pipe_write = os.pipe()
            own(wake_read), own(pipe_write)
            files = (job_file, wake_read, pipe_write, *self._state.files)
            group = ProcessGroup(
                [sys.executable, "-m", _PROGRAM, *map(str, files)],
                stdin=subprocess.PIPE,  # its end tells the actor that this process is gone
                env=worker_environment(),
                pass_fds=files,
            )
        os.set_blocking(pipe_read, False)
        os.set_blocking(wake_write, False)
        return _Process(job, counters, group, pipe_read, wake_write)

    def _wake(self) -> None:
        """Wake waiting actors to check their conditions again."""
        with self._changed:
            for process in self._processes:
                if process.counters.is_waiting:
                    with contextlib.suppress(OSError):  # it is full, or the process has ended
                        os.write(process.wake, b"x")

    def _watch(self) -> None:
        """Read messages and detect the ends of processes, in the runner's thread."""
        check_at = 0.0
        while not self._is_closing:
            for key, _ in self._selector.select(_CHECK_EVERY):
                self._read(key.data)
            if (now := time.monotonic()) >= check_at:
                check_at = now + _CHECK_EVERY
                self._check_processes(now)

    def _read(self, process: _Process) -> bool:
        """Read from a pipe; return False if it is empty now."""
        try:
            data = os.read(process.pipe, _CHUNK)
        except BlockingIOError:
            return False
        if not data:
            self._selector.unregister(process.pipe)
            process.is_at_end = True
            self._check_process(process, time.monotonic())
            return False
        process.data += data
        while (frame := _next_frame(process.data)) is not None:
            self._take(process, *frame)
        return True

    def _take(self, process: _Process, kind: int, data: bytes) -> None:
        with self._changed:
            if kind == MESSAGE:
                self._arrived.append((process.job, data))
                process.counters.read += 1
                self._state.queued += 1
            elif kind == ENDED:
                self._end(process, pickle.loads(data))
            else:
                self._refusal = self._refusal or data.decode()
                self._end(process, process.ended(data.decode()))
            self._changed.notify_all()

    def _end(self, process: _Process, ended: ActorEnded) -> None:
        process.add_waits(self._past_waits)
        process.has_ended = True
        process.kill_at = time.monotonic() + _EXITING
        self._arrived.append(ended)

    def _check_processes(self, now: float) -> None:
        for process in tuple(self._processes):
            self._check_process(process, now)

    def _check_process(self, process: _Process, now: float) -> None:
        status = process.group.poll()
        if status is None:
            if process.is_at_end and process.kill_at is None:
                process.kill_at = now + _EXITING
            if process.kill_at is not None and now >= process.kill_at:
                process.group.kill()
            return
        if not process.is_at_end:
            while self._read(process):
                pass
        with self._changed:
            if process not in self._processes:  # it has been found at the end of the pipe
                return
            if not process.has_ended:
                reason = f"the process of actor {process.job.actor} {ended_by(status)}"
                self._end(process, process.ended(reason))
            if not process.is_at_end:
                self._selector.unregister(process.pipe)
            self._processes.remove(process)
            process.close()
            self._changed.notify_all()


def _next_frame(data: bytearray) -> tuple[int, bytes] | None:
    """Remove and return the first frame, None if it is incomplete."""
    if len(data) < FRAME.size:
        return None
    kind, size = FRAME.unpack_from(data)
    end = FRAME.size + size
    if len(data) < end:
        return None
    content = bytes(memoryview(data)[FRAME.size : end])
    del data[:end]
    return kind, content
