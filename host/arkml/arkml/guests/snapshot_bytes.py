"""The bytes of guests' snapshots, charged to each guest as long as the snapshots live."""

from __future__ import annotations

import threading
import weakref
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from typing import NamedTuple

from arkml.policies.demands import Snapshot
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.lockstep import Lockstep

Models = Sequence[tuple[int, Sequence[Snapshot]]]
"""The models that a snapshot has of its guests, with their numbers."""


class Share(NamedTuple):
    """
    The guests of one snapshot, and the bytes that each has in it.

    Attributes:
        numbers: The numbers of the guests, unique in their host.
        places: Their positions in the lockstep.
        sizes: Bytes of each, without models.
        models: Their models; snapshots with the same object have the same ones.

    """

    numbers: Sequence[int]
    places: Sequence[int]
    sizes: Sequence[int]
    models: Models


class SnapshotBytes:
    """
    Sums of the bytes that each guest of a lockstep has in snapshots that still exist.

    A model that several snapshots of a guest hold counts once. Snapshots may be dropped on any
    thread; before the next call, guests whose memory may grow by the freed bytes are noted in
    `Lockstep.touched`.

    The shares of live snapshots are the truth: each is added and removed in one step. The sums are
    derived from the shares, and are computed anew if a signal handler has interrupted a change, by
    an exception or by asking for a sum: `_is_whole` is False then.
    """

    def __init__(self, lockstep: Lockstep, call_guard: CallGuard) -> None:
        self._lockstep = lockstep
        self._lock = threading.RLock()
        self._live: dict[weakref.ref[object], Share] = {}
        self._is_whole = True
        self._changes = 0  # of the sums, that have begun
        self._bytes: dict[int, int] = {}  # by number
        self._held: Counter[tuple[int, Snapshot]] = Counter()  # by how many lists of models
        self._lists: Counter[int] = Counter()  # snapshots with a list of models, by its id
        self._dropped = call_guard.dropped
        call_guard.settle = self._settle

    def keep(self, snapshot: object, share: Share) -> None:
        """Charge the guests of a snapshot for their bytes in it, until the snapshot is dropped."""
        with self._lock:
            self._settle()
            self._is_whole = False
            self._changes = change = self._changes + 1
            # A finalizer may run anywhere, and takes no lock. This one is a function of C, which no
            # signal handler cuts off.
            self._live[weakref.ref(snapshot, self._dropped.append)] = share
            self._add(share)
            self._is_whole = change == self._changes

    def held(self, number: int) -> int:
        """Return the number of bytes of a guest's live snapshots; `number` is the guest's."""
        if not self._live:
            return 0
        if self._dropped or not self._is_whole:
            self._settle()
        return self._bytes.get(number, 0)

    def _settle(self) -> None:
        """Stop counting snapshots that were dropped."""
        with self._lock:
            was_whole, self._is_whole = self._is_whole, False
            self._changes = change = self._changes + 1
            while self._dropped:
                snapshot = self._dropped[0]
                if (share := self._live.get(snapshot)) is not None:
                    self._lockstep.touched.update(self._lockstep.tight.intersection(share.places))
                    if self._live.pop(snapshot, None) is not None and was_whole:
                        self._take(share)
                with suppress(ValueError):  # a signal handler has settled it meanwhile
                    self._dropped.remove(snapshot)
            if not was_whole:
                for sums in (self._bytes, self._held, self._lists):
                    sums.clear()
                for share in self._live.values():
                    self._add(share)
            self._is_whole = change == self._changes

    def _add(self, share: Share) -> None:
        for number, size in zip(share.numbers, share.sizes, strict=True):
            self._change(number, size)
        key = id(share.models)
        self._lists[key] += 1
        if self._lists[key] == 1:
            for number, each in share.models:
                for model in each:
                    self._held[number, model] += 1
                    if self._held[number, model] == 1:
                        self._change(number, len(model.data))

    def _take(self, share: Share) -> None:
        key = id(share.models)
        self._lists[key] -= 1
        if not self._lists[key]:
            del self._lists[key]
            for number, each in share.models:
                for model in each:
                    self._held[number, model] -= 1
                    if not self._held[number, model]:
                        del self._held[number, model]
                        self._change(number, -len(model.data))
        for number, size in zip(share.numbers, share.sizes, strict=True):
            self._change(number, -size)

    def _change(self, number: int, size: int) -> None:
        total = self._bytes.pop(number, 0) + size
        if total:
            self._bytes[number] = total
