"""The snapshots that a guest uses, and the limit on their total size."""

from __future__ import annotations

import hashlib
from types import TracebackType

from arkml.errors import SnapshotTooLarge

PORTION = 4
"""Limit on the snapshots in use together, as a multiple of the limit on one."""


class SnapshotLeases:
    """
    The snapshots in use by the sessions and brains of one guest.

    Equal bytes count once, since they are one model. Not thread-safe: it is used by the thread
    that runs the guest.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._users: dict[bytes, int] = {}

    @property
    def used(self) -> int:
        """Total bytes of the snapshots in use."""
        return self._used

    def take(self, snapshot: bytes) -> Lease:
        """Lease a snapshot. Raises SnapshotTooLarge if too many bytes would be in use."""
        digest, size = hashlib.sha256(snapshot).digest(), len(snapshot)
        users = self._users.get(digest, 0)
        if not users:
            if self._used + size > self._limit:
                raise SnapshotTooLarge(
                    f"a snapshot of {size} bytes beside {self._used} bytes of snapshots in use:"
                    f" the limit is {self._limit} bytes together"
                )
            self._used += size
        self._users[digest] = users + 1
        return Lease(self, digest, size)

    def give_back(self, digest: bytes, size: int) -> None:
        """Count one user less of a snapshot."""
        users = self._users[digest] - 1
        if users:
            self._users[digest] = users
        else:
            del self._users[digest]
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

    def release(self) -> None:
        """End the use of the snapshot. Safe to call again."""
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
