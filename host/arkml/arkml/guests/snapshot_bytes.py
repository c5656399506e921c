"""The bytes of the snapshots of one guest, which it is charged for as long as they live."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Callable, Sequence

from arkml.policies.demands import Snapshot


class SnapshotBytes:
    """
    The snapshots of one guest that live, and their bytes.

    A model that several snapshots hold counts once. Snapshots may be dropped on any thread;
    `dropped` is called then, on that thread.
    """

    __slots__ = ("_bytes", "_dropped", "_live", "_lock", "_models", "_tell")

    def __init__(self, dropped: Callable[[], object]) -> None:
        self._tell = dropped
        self._lock = threading.RLock()
        self._live: dict[weakref.ref[object], tuple[int, Sequence[Snapshot]]] = {}
        self._models: Counter[Snapshot] = Counter()
        self._bytes = 0
        # A finalizer takes no lock, and may run in the middle of `held`: it only leaves a note.
        self._dropped: deque[weakref.ref[object]] = deque()

    def keep(self, snapshot: object, size: int, models: Sequence[Snapshot]) -> None:
        """Count a snapshot of `size` bytes, and its models, until it is dropped."""
        with self._lock:
            self._live[weakref.ref(snapshot, self._note)] = size, models
            self._bytes += size
            for model in models:
                if not self._models[model]:
                    self._bytes += len(model.data)
                self._models[model] += 1

    def _note(self, snapshot: weakref.ref[object]) -> None:
        self._dropped.append(snapshot)
        self._tell()

    def held(self) -> int:
        """Return the bytes of the snapshots that live."""
        if not self._live:
            return 0
        with self._lock:
            while self._dropped:
                size, models = self._live.pop(self._dropped.popleft())
                self._bytes -= size
                for model in models:
                    self._models[model] -= 1
                    if not self._models[model]:
                        del self._models[model]
                        self._bytes -= len(model.data)
            return self._bytes
