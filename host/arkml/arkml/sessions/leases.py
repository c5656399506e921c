"""Leases: the models that a guest uses, with a limit on their total size."""

from __future__ import annotations

import hashlib
from threading import Lock
from types import TracebackType

from arkml.errors import SnapshotTooLarge

SNAPSHOTS_IN_USE = 4
"""Limit on the snapshots in use together, as a multiple of the limit on one."""


HELD_BYTES = 32 << 20
"""Limit on the bytes of all models in use, if the limit on the snapshots is lower."""


class _Snapshot:
    """
    A model file in use.

    Attributes:
        digest: SHA-256 of the file.
        size: Length of the file in bytes.
        users: Number of leases of it that were not released.
        held: Bytes of memory that its loaded model takes.

    """

    __slots__ = ("digest", "held", "size", "users")

    def __init__(self, digest: bytes, size: int) -> None:
        self.digest = digest
        self.size = size
        self.users = self.held = 0


class SnapshotLeases:
    """
    The model files (snapshots) in use by the sessions and brains of one guest.

    The total bytes of the files are limited, and so are the bytes of the loaded models. Equal bytes
    count once, since they are one model. Any thread may use it.
    """

    __slots__ = ("_held_limit", "_in_use", "_limit", "_lock")

    def __init__(self, limit: int, *, held_bytes: int = HELD_BYTES) -> None:
        self._limit = limit
        self._held_limit = max(limit, held_bytes)
        # Its own: the finalizer of another guest may run while this thread holds it (decision 13).
        self._lock = Lock()
        self._in_use: tuple[_Snapshot, ...] = ()

    @property
    def used(self) -> int:
        """Total bytes of the model files in use."""
        return sum(one.size for one in self._in_use)

    @property
    def held(self) -> int:
        """Total bytes of memory that the loaded models in use take."""
        return sum(one.held for one in self._in_use)

    def take(self, snapshot: bytes) -> Lease:
        """Lease a model file. Raises SnapshotTooLarge if too many bytes would be in use."""
        digest, size = hashlib.sha256(snapshot).digest(), len(snapshot)
        with self._lock:
            one = next((one for one in self._in_use if one.digest == digest), None)
            if one is None:
                if self.used + size > self._limit:
                    raise SnapshotTooLarge(
                        f"a snapshot of {size} bytes beside {self.used} bytes of snapshots in use:"
                        f" the limit is {self._limit} bytes together"
                    )
                one = _Snapshot(digest, size)
                self._in_use += (one,)
            one.users += 1
        return Lease(self, one)

    def count(self, one: _Snapshot, held: int) -> None:
        """Count `held` bytes of memory for the model of a leased file; see `Lease.count`."""
        with self._lock:
            if not one.users:
                raise SnapshotTooLarge("the snapshot is not in use any longer")
            others = self.held - one.held
            if others + held > self._held_limit:
                raise SnapshotTooLarge(
                    f"a model that holds {held} bytes while it is loaded beside {others} bytes of"
                    f" other models in use: the limit is {self._held_limit} bytes together"
                )
            one.held = max(held, one.held)

    def give_back(self, one: _Snapshot) -> None:
        """Remove one user of a model file, and forget the file with its last user."""
        with self._lock:
            one.users -= 1
            if not one.users:
                self._in_use = tuple(other for other in self._in_use if other is not one)


class Lease:
    """
    One use of a model file, until `release`.

    As a context manager it releases itself only if the block raises.
    """

    __slots__ = ("_is_released", "_leases", "_snapshot")

    def __init__(self, leases: SnapshotLeases, snapshot: _Snapshot) -> None:
        self._leases = leases
        self._snapshot = snapshot
        self._is_released = False

    def count(self, held: int) -> None:
        """
        Count `held` bytes of memory for the loaded model.

        Raises SnapshotTooLarge if the models would hold too many bytes together (by default more
        than 256 MiB), or if the snapshot is not in use.
        """
        self._leases.count(self._snapshot, held)

    @property
    def digest(self) -> bytes:
        """SHA-256 of the model file."""
        return self._snapshot.digest

    def recount(self, held: int) -> None:
        """Count `held` bytes for a model that the embedder chose instead, without a limit."""
        self._snapshot.held = held

    def release(self) -> None:
        """End the use of the model file. Safe to call twice."""
        if not self._is_released:
            self._is_released = True
            self._leases.give_back(self._snapshot)

    def __enter__(self) -> Lease:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if kind is not None:
            self.release()
