"""Those that watch the states of trials."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable

from arkml.trials.core.trial import Trial
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.lifecycle_pb2 import TrialInfo, TrialListEntry, TrialListRequest

MOST_QUEUED = 100_000
"""Entries that may wait for a watcher; with more the oldest are dropped."""


class Watchers:
    """Gives each watcher the present states of all trials, and then every change (CG-2)."""

    def __init__(self, describe: Callable[[Trial], TrialInfo]) -> None:
        self._describe = describe
        self._watchers: set[_Watcher] = set()
        self._is_closed = False

    def change(self, trial: Trial, state: TrialState) -> None:
        """Tell all watchers of a new state."""
        for watcher in self._watchers:
            watcher.add(self._entry(trial, state, is_full=watcher.is_full), state)

    async def watch(
        self, request: TrialListRequest, trials: Callable[[], Iterable[Trial]]
    ) -> AsyncIterator[TrialListEntry]:
        """Iterate over the present states of `trials`, and over changes until the server closes."""
        watcher = _Watcher(frozenset(request.filter), is_full=request.full_info)
        for trial in trials():
            watcher.add(self._entry(trial, trial.state, is_full=watcher.is_full), trial.state)
        self._watchers.add(watcher)
        try:
            while not self._is_closed or watcher.entries:
                if watcher.entries:
                    yield watcher.entries.popleft()
                else:
                    watcher.arrived.clear()
                    await watcher.arrived.wait()
        finally:
            self._watchers.discard(watcher)

    def close(self) -> None:
        """End all iterations after what they have not yielded yet."""
        self._is_closed = True
        for watcher in self._watchers:
            watcher.arrived.set()

    def _entry(self, trial: Trial, state: TrialState, *, is_full: bool) -> TrialListEntry:
        info = self._describe(trial) if is_full else None
        return TrialListEntry(trial_id=trial.id, state=state, info=info)


class _Watcher:
    """The entries that one watcher has not taken yet."""

    def __init__(self, states: frozenset[TrialState], *, is_full: bool) -> None:
        self.is_full = is_full
        self.entries: deque[TrialListEntry] = deque(maxlen=MOST_QUEUED)
        self.arrived = asyncio.Event()
        self._states = states

    def add(self, entry: TrialListEntry, state: TrialState) -> None:
        """Add an entry that is asked for."""
        if not self._states or state in self._states:
            self.entries.append(entry)
            self.arrived.set()
