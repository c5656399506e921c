"""The snapshots that a guest uses, and the limit on their total size."""

from __future__ import annotations

import hashlib
from threading import Lock
from types import TracebackType

from arkml.errors import SnapshotTooLarge

SNAPSHOTS_IN_USE = 4
"""Limit on the snapshots in use together, as a multiple of the limit on one."""


HELD_BYTES = 32 << 20
"""Limit on the bytes of all models in use, if the limit on the snapshots is lower."""


_UNUSED = 0, 0


class SnapshotLeases:
    """
    The snapshots in use by the sessions and brains of one guest.

    The bytes of the snapshots are limited together, and so are the bytes of their loaded models.
    Equal bytes count once, since they are one model. Any thread may use it.
    """

    __slots__ = ("_held_limit", "_in_use", "_limit", "_lock", "_used")

    def __init__(self, limit: int, *, held_bytes: int = HELD_BYTES) -> None:
        self._limit = limit
        self._held_limit = max(limit, held_bytes)
        self._lock = Lock()
        self._used = 0
        self._in_use: dict[bytes, tuple[int, int]] = {}
        """Users of each snapshot, and the bytes that its loaded model holds, by its digest."""

    @property
    def used(self) -> int:
        """Total bytes of the snapshots in use."""
        return self._used

    @property
    def held(self) -> int:
        """Total bytes that the loaded models in use hold."""
        return sum(held for _, held in list(self._in_use.values()))

    def take(self, snapshot: bytes) -> Lease:
        """Lease a snapshot. Raises SnapshotTooLarge if too many bytes would be in use."""
        digest, size = hashlib.sha256(snapshot).digest(), len(snapshot)
        with self._lock:
            users, held = self._in_use.get(digest, _UNUSED)
            if not users:
                if self._used + size > self._limit:
                    raise SnapshotTooLarge(
                        f"a snapshot of {size} bytes beside {self._used} bytes of snapshots in use:"
                        f" the limit is {self._limit} bytes together"
                    )
                self._used += size
            self._in_use[digest] = users + 1, held
        return Lease(self, digest, size)

    def count(self, digest: bytes, held: int) -> None:
        """
        Count the `held` bytes of the model of a snapshot.

        Raises SnapshotTooLarge if the models would hold too many bytes together (by default more
        than 256 MiB), or if the snapshot is not in use.
        """
        with self._lock:
            users, before = self._in_use.get(digest, _UNUSED)
            if not users:
                raise SnapshotTooLarge("the snapshot is not in use any longer")
            others = sum(size for key, (_, size) in self._in_use.items() if key != digest)
            if others + held > self._held_limit:
                raise SnapshotTooLarge(
                    f"a model that holds {held} bytes while it is loaded beside {others} bytes of"
                    f" other models in use: the limit is {self._held_limit} bytes together"
                )
            self._in_use[digest] = users, max(held, before)

    def recount(self, digest: bytes, held: int) -> None:
        """Count the bytes of the model that the host uses in the place of the one before."""
        with self._lock:
            users, _ = self._in_use.get(digest, _UNUSED)
            if users:
                self._in_use[digest] = users, held

    def give_back(self, digest: bytes, size: int) -> None:
        """Count one user less of a snapshot, and forget it with the last."""
        with self._lock:
            users, held = self._in_use[digest]
            if users > 1:
                self._in_use[digest] = users - 1, held
            else:
                del self._in_use[digest]
                self._used -= size


class Lease:
    """
    One use of a snapshot, until `release`.

    As a context manager it releases itself only if the block raises.
    """

    __slots__ = ("_digest", "_is_released", "_leases", "_size")

    def __init__(self, leases: SnapshotLeases, digest: bytes, size: int) -> None:
        self._leases = leases
        self._digest = digest
        self._size = size
        self._is_released = False

    def count(self, held: int) -> None:
        """Count the `held` bytes of the loaded model. Raises SnapshotTooLarge."""
        self._leases.count(self._digest, held)

    @property
    def digest(self) -> bytes:
        """The SHA-256 of the snapshot."""
        return self._digest

    def recount(self, held: int) -> None:
        """Count the bytes of another model, which the embedder chose: refuses none."""
        self._leases.recount(self._digest, held)

    def release(self) -> None:
        """End the use of the snapshot. Safe to call twice."""
        if not self._is_released:
            self._is_released = True
            self._leases.give_back(self._digest, self._size)

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
