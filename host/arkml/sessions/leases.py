"""Which snapshots a guest uses, and how many bytes they have together."""

from __future__ import annotations

import hashlib
from types import TracebackType

from arkml.errors import SnapshotTooLarge

PORTION = 4
"""The snapshots that a guest uses may have so many times the bytes that one may have."""


class SnapshotLeases:
    """
    Counts the snapshots that the sessions and brains of one guest use.

    The same bytes count once, however many use them: they are one model. Belongs to the thread
    that runs the guest.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._used = 0
        self._users: dict[bytes, int] = {}

    @property
    def used(self) -> int:
        """The bytes of all snapshots in use."""
        return self._used

    def take(self, snapshot: bytes) -> Lease:
        """Use a snapshot. Raises SnapshotTooLarge if there would be too many bytes in use."""
        digest, size = hashlib.sha256(snapshot).digest(), len(snapshot)
        users = self._users.get(digest, 0)
        if not users:
            if self._used + size > self._limit:
                raise SnapshotTooLarge(
                    f"a snapshot of {size} bytes beside {self._used} bytes of snapshots in use:"
                    f" {self._limit} bytes may be in use together"
                )
            self._used += size
        self._users[digest] = users + 1
        return Lease(self, digest, size)

    def give_back(self, digest: bytes, size: int) -> None:
        """One user less of a snapshot."""
        users = self._users[digest] - 1
        if users:
            self._users[digest] = users
        else:
            del self._users[digest]
            self._used -= size


class Lease:
    """
    One use of a snapshot, until it is released.

    As a context it is released if the block fails, and otherwise left to whoever keeps it.
    """

    __slots__ = ("_digest", "_is_over", "_leases", "_size")

    def __init__(self, leases: SnapshotLeases, digest: bytes, size: int) -> None:
        self._leases = leases
        self._digest = digest
        self._size = size
        self._is_over = False

    def release(self) -> None:
        """The snapshot is not used any more. Safe to call again."""
        if not self._is_over:
            self._is_over = True
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
