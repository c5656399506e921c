"""
Byte vectors that a call leaves with the host: its return slice, and one that the guest can take.
"""

from __future__ import annotations

from collections.abc import Callable

from arkml.sessions.brain_memory import PORTION

_SPARE = 2 * PORTION  # what stays granted while it is not in use, for the next call


class CallVectors:
    """
    The return slice and the pending vector of one guest.

    Both count toward `Limits.guest_bytes`: the slice until the next call, the pending vector until
    the guest takes it or another one replaces it. `require` raises GuestMemoryFull if the requested
    bytes would exceed that limit; it is called for portions of many bytes, because most vectors are
    small and each submit may have one. Used by the thread that runs the guest.
    """

    __slots__ = ("_pending", "_require", "_returned", "granted")

    def __init__(self, require: Callable[[int], None]) -> None:
        self._require = require
        self._returned: bytes | None = None
        self._pending: bytes | None = None
        self.granted = 0
        """Bytes that count: the vectors, and the unused rest of requested portions."""

    @property
    def returned(self) -> bytes | None:
        """The bytes that the call passed to `return_slice`, or None."""
        return self._returned

    @property
    def pending(self) -> bytes | None:
        """The bytes that `core__take_host_return_vec` gives to the guest, or None."""
        return self._pending

    def keep_returned(self, data: bytes) -> None:
        """Store a return slice, replacing the last one. Raises GuestMemoryFull."""
        self._make_room(len(data) + len(self._pending or b""))
        self._returned = data

    def keep_pending(self, data: bytes) -> None:
        """Store a pending vector, replacing the last one. Raises GuestMemoryFull."""
        self._make_room(len(data) + len(self._returned or b""))
        self._pending = data

    def drop_pending(self) -> None:
        """Forget the pending vector."""
        self._pending = None
        self._make_room(len(self._returned or b""))

    def clear(self) -> None:
        """Forget both vectors, as each call begins."""
        self._returned = self._pending = None
        if self.granted > _SPARE:
            self.granted = 0

    def _make_room(self, size: int) -> None:
        if size > self.granted or self.granted - size > _SPARE:
            granted = -(-size // PORTION) * PORTION
            if granted > self.granted:
                self._require(granted - self.granted)
            self.granted = granted
