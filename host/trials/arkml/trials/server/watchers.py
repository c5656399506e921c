"""Streams of the states of trials to the clients that watch them."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from arkml.trials.core.trial import Trial
from arkml.trials.server.kept_trials import EndedTrial
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.lifecycle_pb2 import TrialInfo, TrialListEntry, TrialListRequest

MOST_QUEUED = 100_000
"""Maximum number of entries that wait for a watcher; beyond it the oldest are dropped."""

MOST_BYTES = 256 << 20
"""Maximum size of all waiting entries in bytes; the watcher with the most loses its oldest."""

_ENTRY_BYTES = 256
"""Estimated overhead of an entry in bytes."""


class Watchers:
    """Sends each watcher the present states of all trials, and then every change."""

    def __init__(self, describe: Callable[[Trial | EndedTrial], TrialInfo]) -> None:
        self._describe = describe
        self._watchers: set[_Watcher] = set()
        self._bytes = 0
        self._is_closed = False

    def change(self, trial: Trial, state: TrialState) -> None:
        """Send a new state to all watchers, which share one entry."""
        shared: dict[bool, TrialListEntry] = {}
        for watcher in self._watchers:
            if watcher.wants(state):
                if watcher.is_full not in shared:
                    shared[watcher.is_full] = self._entry(trial, state, is_full=watcher.is_full)
                self._give(watcher, shared[watcher.is_full])

    async def watch(
        self, request: TrialListRequest, trials: Callable[[], Iterable[Trial | EndedTrial]]
    ) -> AsyncIterator[TrialListEntry]:
        """Iterate over the present states of `trials`, then over changes until `close`."""
        watcher = _Watcher(frozenset(request.filter), is_full=request.full_info)
        self._watchers.add(watcher)
        try:
            for trial in trials():
                if watcher.wants(trial.state):
                    self._give(watcher, self._entry(trial, trial.state, is_full=watcher.is_full))
            while not self._is_closed or watcher.entries:
                if watcher.entries:
                    yield self._take(watcher)
                else:
                    watcher.arrived.clear()
                    await watcher.arrived.wait()
        finally:
            self._watchers.discard(watcher)
            self._bytes -= watcher.bytes

    def close(self) -> None:
        """End all iterations after their remaining entries."""
        self._is_closed = True
        for watcher in self._watchers:
            watcher.arrived.set()

    def _give(self, watcher: _Watcher, entry: TrialListEntry) -> None:
        """Queue an entry for a watcher; drop the oldest entries if there are too many."""
        size = entry.ByteSize() + _ENTRY_BYTES
        watcher.entries.append((entry, size))
        watcher.bytes += size
        self._bytes += size
        watcher.arrived.set()
        if len(watcher.entries) > MOST_QUEUED:
            self._take(watcher)
        while self._bytes > MOST_BYTES:
            self._take(max(self._watchers, key=lambda one: one.bytes))

    def _take(self, watcher: _Watcher) -> TrialListEntry:
        """Remove and return the oldest entry of a watcher."""
        entry, size = watcher.entries.popleft()
        watcher.bytes -= size
        self._bytes -= size
        return entry

    def _entry(
        self, trial: Trial | EndedTrial, state: TrialState, *, is_full: bool
    ) -> TrialListEntry:
        info = self._describe(trial) if is_full else None
        return TrialListEntry(trial_id=trial.id, state=state, info=info)


class _Watcher:
    """The unread entries of one watcher, each with its size in bytes."""

    def __init__(self, states: frozenset[TrialState], *, is_full: bool) -> None:
        self.is_full = is_full
        self.entries: deque[tuple[TrialListEntry, int]] = deque()
        self.bytes = 0
        self.arrived = asyncio.Event()
        self._states = states

    def wants(self, state: TrialState) -> bool:
        """Return whether the watcher asks for a state."""
        return not self._states or state in self._states
