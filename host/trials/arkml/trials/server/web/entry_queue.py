"""A queue of changed states of trials, for one watcher."""

from __future__ import annotations

import asyncio
from collections import deque

from arkml.trials.wire.lifecycle_pb2 import TrialListEntry

MOST_ENTRIES = 100_000
"""Maximum number of entries that stay in a queue."""

MOST_BYTES = 256 << 20
"""Size of all entries in the queues of a port, above which a queue takes in no more than it has."""

_ENTRY_BYTES = 256
"""Estimated overhead of an entry in bytes."""


class EntryRoom:
    """
    The memory that the queues of all watchers of a web port use.

    Attributes:
        bytes: Size of the entries that wait in all queues.

    """

    def __init__(self) -> None:
        self.bytes = 0


class EntryQueue:
    """
    A queue of changed states of trials, for one watcher.

    Memory is bounded for watchers that do not read, for each and for all together. Beyond `most`
    entries, only the last state of each trial is kept, and of these only the newest MOST_ENTRIES.
    Before `put`, the caller awaits `room`, which waits while the queue has more than `most_bytes`,
    and while it has any entry and the queues of all watchers are full.

    Args:
        most: Number of entries beyond which only last states are kept.
        most_bytes: Size of waiting entries beyond which `room` waits.
        shared: The memory of all queues; `drop` gives back this queue's part.

    """

    def __init__(self, most: int, most_bytes: int, shared: EntryRoom) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._shared = shared
        self._bytes = 0
        self._limit = most
        self._entries: deque[TrialListEntry] = deque()
        self._is_ended = False
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: TrialListEntry) -> None:
        """Queue the entry with a trial's state."""
        self._entries.append(entry)
        self._count(_size(entry))
        self._arrived.set()
        if len(self._entries) > self._limit:
            last: dict[str, TrialListEntry] = {}
            for one in self._entries:
                last.pop(one.trial_id, None)
                last[one.trial_id] = one
            self._entries = deque(list(last.values())[-MOST_ENTRIES:])
            self._count(sum(map(_size, self._entries)) - self._bytes)
            self._limit = max(self._most, 2 * len(self._entries))

    async def room(self) -> None:
        """Wait until the queue has room for another entry."""
        while self._is_full:
            self._taken.clear()
            await self._taken.wait()

    def drop(self) -> None:
        """Drop the queued entries, and give their memory back."""
        self._entries.clear()
        self._count(-self._bytes)

    def end(self) -> None:
        """End the stream after the queued entries."""
        self._is_ended = True
        self._arrived.set()

    async def next(self) -> TrialListEntry | None:
        """Wait for an entry, and remove and return it; return None after the end."""
        while not self._entries:
            if self._is_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        entry = self._entries.popleft()
        self._count(-_size(entry))
        self._taken.set()
        return entry

    @property
    def _is_full(self) -> bool:
        if self._shared.bytes > MOST_BYTES and self._entries:
            return True
        return self._bytes > self._most_bytes

    def _count(self, size: int) -> None:
        self._bytes += size
        self._shared.bytes += size


def _size(entry: TrialListEntry) -> int:
    return entry.ByteSize() + _ENTRY_BYTES
