"""Memory shared by a runner and its actors' processes, including the newest model."""

from __future__ import annotations

import mmap
import os
import tempfile

from arkml.base.closing import Closing
from arkml.errors import UsageError

ACTORS = 4_096
"""Maximum number of actors of one runner."""

Files = tuple[int, int, int]
"""Descriptors of a SharedState's files."""

_HEADER, _COUNTERS = 16, 8  # words of 8 bytes
_SIZE = 8 * (_HEADER + _COUNTERS * ACTORS)
_STOP, _QUEUED, _MODEL, _N_OPTS, _BYTES = 0, 1, 2, (3, 5), (4, 6)
_ADMITTED, _IS_WAITING, _MADE, _WAITS, _WAITED, _READ = range(6)
_NOT_HELD = -1


class ActorCounters:
    """
    The counters of one actor in memory that is shared between processes.

    The runner writes `read` and the admitted items, the actor everything else.
    """

    def __init__(self, words: memoryview) -> None:
        self._words = words

    def reset(self) -> None:
        """Clear the counters of the previous incarnation, except admitted items."""
        self._words[_IS_WAITING] = self._words[_MADE] = 0
        self._words[_WAITS] = self._words[_WAITED] = self._words[_READ] = 0

    def admit(self, items: int | None) -> None:
        """Allow `items` items in total; None for no limit."""
        self._words[_ADMITTED] = _NOT_HELD if items is None else items

    def has_room(self, made: int) -> bool:
        """Store the number of made items, and return whether another one is admitted."""
        words = self._words
        words[_MADE] = made
        admitted = words[_ADMITTED]
        return made < admitted or admitted == _NOT_HELD

    def note(self, made: int) -> None:
        """Store the number of made items."""
        self._words[_MADE] = made

    @property
    def made(self) -> int:
        """Number of items that the incarnation has made."""
        return self._words[_MADE]

    @property
    def read(self) -> int:
        """Number of the incarnation's messages that the runner has read."""
        return self._words[_READ]

    @read.setter
    def read(self, messages: int) -> None:
        self._words[_READ] = messages

    @property
    def is_waiting(self) -> bool:
        """True while the actor waits to be woken."""
        return bool(self._words[_IS_WAITING])

    @is_waiting.setter
    def is_waiting(self, value: bool) -> None:
        self._words[_IS_WAITING] = value

    @property
    def waits(self) -> tuple[int, int]:
        """Number and nanoseconds of the incarnation's waits at a full channel."""
        return self._words[_WAITS], self._words[_WAITED]

    def count_wait(self) -> None:
        """Count the beginning of a wait at a full channel."""
        self._words[_WAITS] += 1

    def add_waited(self, nanoseconds: int) -> None:
        """Add the duration of a finished wait."""
        self._words[_WAITED] += nanoseconds

    def release(self) -> None:
        """Release the memory."""
        self._words.release()


class SharedState(Closing):
    """
    Counters shared by a runner and its actors, and the newest models; each has one writer.

    The memory is in anonymous files, which vanish with the last process that has them open. Models
    alternate between two files, so that the next model does not overwrite one that is being read.
    """

    def __init__(self, files: Files) -> None:
        """Map the files with these descriptors, which then belong to this object."""
        self.files = files
        self._map = mmap.mmap(files[0], _SIZE)
        self._words = memoryview(self._map).cast("q")
        self._counters: list[ActorCounters] = []

    @classmethod
    def create(cls) -> SharedState:
        """Allocate new memory. Raises OSError."""
        numbers = anonymous_file("actors")
        os.ftruncate(numbers, _SIZE)
        return cls((numbers, anonymous_file("model-0"), anonymous_file("model-1")))

    def counters(self, index: int) -> ActorCounters:
        """Return the counters of an actor. Raises UsageError for more than 4,096 actors."""
        if not 0 <= index < ACTORS:
            raise UsageError(f"a runner has at most {ACTORS} actors: use fewer")
        first = _HEADER + _COUNTERS * index
        counters = ActorCounters(self._words[first : first + _COUNTERS])
        self._counters.append(counters)
        return counters

    @property
    def is_stopped(self) -> bool:
        """True once all actors should stop."""
        return self._words[_STOP] != 0

    def stop(self) -> None:
        """Ask all actors to stop."""
        self._words[_STOP] = 1

    @property
    def queued(self) -> int:
        """Number of unreceived messages."""
        return self._words[_QUEUED]

    @queued.setter
    def queued(self, messages: int) -> None:
        self._words[_QUEUED] = messages

    @property
    def model(self) -> int:
        """Number of the newest model, 0 without one."""
        return self._words[_MODEL] >> 1

    def write_model(self, n_opts: int, data: bytes) -> None:
        """Store a model, overwriting the second newest one. One thread calls it."""
        words, number = self._words, self.model + 1
        which = number % 2
        words[_MODEL] = 2 * number - 1  # odd: this model's file is being written
        written = 0
        while written < len(data):
            written += os.pwrite(self.files[1 + which], memoryview(data)[written:], written)
        words[_N_OPTS[which]], words[_BYTES[which]] = n_opts, len(data)
        words[_MODEL] = 2 * number

    def read_model(self) -> tuple[int, int, bytes]:
        """Return the newest model's number, optimization steps and bytes."""
        words = self._words
        while True:
            number = words[_MODEL] >> 1
            which = number % 2
            n_opts, size = words[_N_OPTS[which]], words[_BYTES[which]]
            data = _read(self.files[1 + which], size)
            if words[_MODEL] < 2 * number + 3:  # else the file was overwritten meanwhile
                return number, n_opts, data

    def close(self) -> None:
        """Release the memory. Idempotent."""
        if self._map.closed:
            return
        for counters in self._counters:
            counters.release()
        self._words.release()
        self._map.close()
        for descriptor in self.files:
            os.close(descriptor)


def anonymous_file(name: str) -> int:
    """Return the descriptor of a file that vanishes with the last process that has it open."""
    if hasattr(os, "memfd_create"):
        return os.memfd_create(f"arkml-{name}")
    with tempfile.TemporaryFile() as file:
        return os.dup(file.fileno())


def _read(descriptor: int, size: int) -> bytes:
    parts: list[bytes] = []
    have = 0
    while have < size and (part := os.pread(descriptor, size - have, have)):
        parts.append(part)
        have += len(part)
    return parts[0] if len(parts) == 1 else b"".join(parts)
