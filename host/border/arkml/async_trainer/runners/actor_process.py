"""The process of one actor: `python -m arkml.async_trainer.runners.actor_process`."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import select
import struct
import sys
import threading
import time
from collections.abc import Callable
from multiprocessing import spawn
from typing import Any

from arkml.async_trainer.actor import run_actor
from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.message_codec import encode, encode_message
from arkml.async_trainer.runners.runner import CHANNEL, ActorJob, OnFull, channel_full
from arkml.async_trainer.runners.shared_state import ActorCounters, SharedState
from arkml.errors import UsageError
from arkml.workers.program import REFUSED as STATUS_REFUSED
from arkml.workers.program import end_with_parent

NO_GUARD = (
    "actors in processes import the main module of the program, which starts actors when it is"
    ' imported: put the call below `if __name__ == "__main__":`'
)
"""Error message for a main module that starts actors whenever it is imported."""

FRAME = struct.Struct("<BQ")
"""Header of a frame: its kind and its size in bytes."""

MESSAGE, ENDED, REFUSED = range(3)
"""Kinds of frames: a message, an ActorEnded, and a sentence about a job that cannot start."""

_CHECK_EVERY = 0.1


def check_main_guard() -> None:
    """Raise UsageError in an actor's process that is importing the main module again."""
    if getattr(multiprocessing.current_process(), "_inheriting", False):
        raise UsageError(NO_GUARD)


class _Frames:
    """Frames on their way to the runner."""

    def __init__(self, pipe: int, is_orphan: threading.Event) -> None:
        self._pipe = pipe
        self._is_orphan = is_orphan

    def write(self, kind: int, data: bytes) -> None:
        """Write a frame; the runner ignores an incomplete one."""
        view = memoryview(FRAME.pack(kind, len(data)) + data)
        try:
            while view:
                view = view[os.write(self._pipe, view) :]
        except BrokenPipeError:
            self._is_orphan.set()


class ProcessLink:
    """The connection of the actor in this process to its runner."""

    def __init__(
        self,
        state: SharedState,
        counters: ActorCounters,
        wake: int,
        frames: _Frames,
        is_orphan: threading.Event,
        on_full: OnFull,
    ) -> None:
        self._state = state
        self._counters = counters
        self._wake = wake
        self._frames = frames
        self._is_orphan = is_orphan
        self._on_full = on_full
        self._model = self._sent = self._items = 0

    @property
    def is_stopped(self) -> bool:
        """True once the actor should stop."""
        return self._state.is_stopped or self._is_orphan.is_set()

    def first_model(self) -> tuple[int, Any] | None:
        """Wait for the first model; return it with its optimization steps, or None if stopped."""
        if not self._wait_for(lambda: self._state.model > 0):
            return None
        self._model, n_opts, data = self._state.read_model()
        return n_opts, pickle.loads(data)

    def newest_model(self, newer_than: int) -> tuple[int, Any] | None:
        """Return the newest model if it has more optimization steps, else None. Never waits."""
        if self._state.model == self._model:
            return None
        self._model, n_opts, data = self._state.read_model()
        return (n_opts, pickle.loads(data)) if n_opts > newer_than else None

    def may_step(self, made: int) -> bool:
        """Wait until more than `made` items are admitted; return False if stopped."""
        if self._counters.has_room(made):
            return not self.is_stopped
        return self._wait_for(lambda: self._counters.has_room(made))

    def send(self, message: PushedItemMessage) -> None:
        """Send a message; at a full channel, wait or raise as the job says."""
        data = encode_message(message)
        if self._is_full():
            if self._on_full == "raise":
                raise channel_full(message)
            self._counters.count_wait()
            began = time.perf_counter_ns()
            self._wait_for(lambda: not self._is_full())
            self._counters.add_waited(time.perf_counter_ns() - began)
        self._sent += 1
        self._items += len(message.pushed_items)
        self._counters.note(self._items)
        self._frames.write(MESSAGE, data)

    def _is_full(self) -> bool:
        """Return whether the channel is full; it always has room for the last messages."""
        on_the_way = self._sent - self._counters.read
        return self._state.queued + on_the_way >= CHANNEL and not self.is_stopped

    def _wait_for(self, condition: Callable[[], bool]) -> bool:
        """Wait until the condition holds; return False if stopped."""
        self._counters.is_waiting = True
        try:
            while not self.is_stopped:
                if condition():
                    return True
                if select.select([self._wake], [], [], _CHECK_EVERY)[0] and not os.read(
                    self._wake, 4_096
                ):
                    self._is_orphan.set()
        finally:
            self._counters.is_waiting = False
        return False


def main() -> int:
    """Run the actor whose job is in the files named, by descriptor, on the command line."""
    files = [int(word) for word in sys.argv[1:]]
    for descriptor in files:
        os.set_inheritable(descriptor, False)  # not for programs that the environment starts
    job_file, wake, pipe, numbers, first, second = files
    is_orphan = threading.Event()
    end_with_parent(is_orphan.set)
    frames = _Frames(pipe, is_orphan)
    with SharedState((numbers, first, second)) as state:
        try:
            index, preparation, data = _read_job(job_file)
            job = _prepared(preparation, data)
        except BaseException as error:  # noqa: BLE001  the main module may raise anything
            frames.write(REFUSED, _refusal(error).encode())
            return STATUS_REFUSED
        link = ProcessLink(state, state.counters(index), wake, frames, is_orphan, job.on_full)
        frames.write(ENDED, encode(run_actor(job, link)))
    return 0


def _read_job(job_file: int) -> tuple[int, dict[str, Any], bytes]:
    with os.fdopen(job_file, "rb") as file:
        file.seek(0)
        index, preparation, data = pickle.load(file)
    return index, preparation, data


def _prepared(preparation: dict[str, Any], data: bytes) -> ActorJob:
    """Import the main module as multiprocessing does, and return the job."""
    process: Any = multiprocessing.current_process()
    process._inheriting = True  # noqa: SLF001  multiprocessing refuses to start processes then
    try:
        spawn.prepare(preparation)
        job: ActorJob = pickle.loads(data)
    finally:
        del process._inheriting  # noqa: SLF001
    return job


def _refusal(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    if NO_GUARD in text or "bootstrapping phase" in text:
        return NO_GUARD
    return (
        f"an actor cannot begin in a process of its own: {text}; its classes must be importable"
        " there, from a module or from the file of the main module"
    )


if __name__ == "__main__":
    sys.exit(main())
