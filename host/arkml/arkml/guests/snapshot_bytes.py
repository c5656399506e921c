"""The bytes of the snapshots of guests, which each is charged for as long as they live."""

from __future__ import annotations

import threading
import weakref
from collections import Counter, deque
from collections.abc import Sequence
from typing import NamedTuple

from arkml.policies.demands import Snapshot
from arkml.runtime.lockstep import Lockstep

Models = Sequence[tuple[int, Sequence[Snapshot]]]
"""The models that a snapshot has of its guests, with their numbers."""


class Share(NamedTuple):
    """
    What one snapshot has of each of its guests.

    Attributes:
        numbers: The numbers of the guests, unique among those of a host.
        places: Their places in the lockstep.
        sizes: Bytes of each, without models.
        models: Their models; snapshots with the same object have the same ones.

    """

    numbers: Sequence[int]
    places: Sequence[int]
    sizes: Sequence[int]
    models: Models


class SnapshotBytes:
    """
    The snapshots that live of guests of one lockstep, and the bytes that each guest has in them.

    A model that several snapshots of a guest hold counts once. Snapshots may be dropped on any
    thread: guests whose memory may grow by what they had are then noted in `Lockstep.touched`.
    """

    def __init__(self, lockstep: Lockstep) -> None:
        self._lockstep = lockstep
        self._lock = threading.RLock()
        self._live: dict[weakref.ref[object], Share] = {}
        self._bytes: dict[int, int] = {}  # by number
        self._held: Counter[tuple[int, Snapshot]] = Counter()  # by how many lists of models
        self._lists: Counter[int] = Counter()  # snapshots with a list of models, by its id
        # A finalizer takes no lock, and may run in the middle of `held`: it only leaves a note.
        self._dropped: deque[weakref.ref[object]] = deque()

    def keep(self, snapshot: object, share: Share) -> None:
        """Count what a snapshot has of its guests, until it is dropped."""
        with self._lock:
            self._live[weakref.ref(snapshot, self._note)] = share
            total = self._bytes
            for number, size in zip(share.numbers, share.sizes, strict=True):
                total[number] = total.get(number, 0) + size
            key = id(share.models)
            self._lists[key] += 1
            if self._lists[key] == 1:
                self._count(share.models)

    def _note(self, snapshot: weakref.ref[object]) -> None:
        places = self._live[snapshot].places  # first: another thread may settle the note
        self._dropped.append(snapshot)
        self._lockstep.touched.update(self._lockstep.tight.intersection(places))

    def held(self, number: int) -> int:
        """Return the bytes that a guest has in snapshots that live."""
        if not self._live:
            return 0
        if self._dropped:
            self._settle()
        return self._bytes.get(number, 0)

    def _settle(self) -> None:
        """Count no more what has been dropped."""
        with self._lock:
            while self._dropped:
                share = self._live.pop(self._dropped.popleft())
                key = id(share.models)
                self._lists[key] -= 1
                if not self._lists[key]:
                    del self._lists[key]
                    self._discount(share.models)
                total = self._bytes
                for number, size in zip(share.numbers, share.sizes, strict=True):
                    left = total.pop(number) - size
                    if left:
                        total[number] = left

    def _count(self, models: Models) -> None:
        held = self._held
        for number, each in models:
            for model in each:
                held[number, model] += 1
                if held[number, model] == 1:
                    self._bytes[number] += len(model.data)

    def _discount(self, models: Models) -> None:
        held = self._held
        for number, each in models:
            for model in each:
                held[number, model] -= 1
                if not held[number, model]:
                    del held[number, model]
                    self._bytes[number] -= len(model.data)
