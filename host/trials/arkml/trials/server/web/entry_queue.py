"""Queued states of trials for one watcher."""

from __future__ import annotations

import asyncio
from collections import deque

from arkml.trials.wire.lifecycle_pb2 import TrialListEntry

MOST_ENTRIES = 100_000
"""Maximum number of entries that stay in a queue."""


class EntryQueue:
    """
    A queue of the states of trials for one watcher.

    Beyond `most` entries only the last state of each trial is kept, and of these only the newest
    MOST_ENTRIES. Who puts entries waits for `room`, so that entries of much more than `most_bytes`
    never wait. So a watcher that does not read costs bounded memory.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most = most
        self._most_bytes = most_bytes
        self._bytes = 0
        self._limit = most
        self._entries: deque[TrialListEntry] = deque()
        self._is_ended = False
        self._arrived, self._taken = asyncio.Event(), asyncio.Event()

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: TrialListEntry) -> None:
        """Queue an entry."""
        self._entries.append(entry)
        self._bytes += entry.ByteSize()
        self._arrived.set()
        if len(self._entries) > self._limit:
            last: dict[str, TrialListEntry] = {}
            for one in self._entries:
                last.pop(one.trial_id, None)
                last[one.trial_id] = one
            self._entries = deque(list(last.values())[-MOST_ENTRIES:])
            self._bytes = sum(one.ByteSize() for one in self._entries)
            self._limit = max(self._most, 2 * len(self._entries))

    async def room(self) -> None:
        """Wait while the queued entries take more than `most_bytes`."""
        while self._bytes > self._most_bytes:
            self._taken.clear()
            await self._taken.wait()

    def end(self) -> None:
        """End the stream after the queued entries."""
        self._is_ended = True
        self._arrived.set()

    async def next(self) -> TrialListEntry | None:
        """Wait for an entry and remove it; return None after the end."""
        while not self._entries:
            if self._is_ended:
                return None
            self._arrived.clear()
            await self._arrived.wait()
        entry = self._entries.popleft()
        self._bytes -= entry.ByteSize()
        self._taken.set()
        return entry
