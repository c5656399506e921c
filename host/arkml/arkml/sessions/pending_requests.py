"""Requests of a guest to hives that are not finished: their number, and their memory."""

from __future__ import annotations

import threading
from collections.abc import Callable

from arkml.errors import TooManyRequests

REQUEST_BYTES = 4_096
"""Bytes of a request beside its texts, by estimate."""


class PendingRequests:
    """
    Counts the requests of one guest, with their bytes and the bytes of results not taken yet.

    A request counts until it is done, even if the guest has dropped its future. `admit` returns
    whether the guest may have this many more bytes. Any thread may use it.
    """

    __slots__ = ("_admit", "_held", "_most", "_pending", "lock")

    def __init__(self, most: int, admit: Callable[[int], bool]) -> None:
        self._most = most
        self._admit = admit
        self._pending = 0
        self._held = 0
        self.lock = threading.RLock()
        """Held while `held` grows. A finalizer may find it taken."""

    def __len__(self) -> int:
        """Return the number of requests that are not done."""
        return self._pending

    @property
    def held(self) -> int:
        """Bytes of unfinished requests, and of results that were not taken yet."""
        return self._held

    def begin(self, size: int) -> None:
        """Count a request of `size` bytes. Raises TooManyRequests."""
        with self.lock:
            if self._pending >= self._most:
                raise TooManyRequests(
                    f"{self._pending} requests to hives are not done, the limit is {self._most}"
                )
            self._pending += 1
            self._held += size

    def end(self, size: int) -> None:
        """Stop counting a finished request of `size` bytes."""
        with self.lock:
            self._pending -= 1
            self._held -= size

    def keep(self, size: int) -> bool:
        """
        Count a result of `size` bytes and return True, or return False if the limit forbids it.
        """
        with self.lock:
            if not self._admit(size):
                return False
            self._held += size
            return True

    def release(self, size: int) -> None:
        """Stop counting a result of `size` bytes, which was taken or dropped."""
        with self.lock:
            self._held -= size
