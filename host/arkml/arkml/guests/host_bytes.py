"""The limit on the bytes that all guests of a host may use together."""

from __future__ import annotations

from collections import deque
from threading import Lock

from arkml.errors import GuestMemoryFull, InstanceLimitExceeded


class HostBytes:
    """
    Grants the guests of a host their parts of `most` bytes; None sets no limit.

    When a guest is loaded, it is given all the bytes that its wasm memory may grow to, for example
    256 MiB, because wasm grows without asking the host; it is given other bytes as it needs them.
    Any thread may use it.
    """

    def __init__(self, most: int | None) -> None:
        self.most = most
        self._lock = Lock()
        self._given: dict[int, int] = {}
        self._total = 0
        self._left: deque[int] = deque()  # guests that are freed, maybe by a finalizer

    def require_room(self, count: int, each: int) -> None:
        """
        Raise InstanceLimitExceeded unless `count` more guests of `each` bytes fit into the limit.
        """
        with self._lock:
            self._require_room(count, each)

    def admit(self, guest: int, size: int) -> None:
        """Grant a new guest the bytes of its memory. Raises InstanceLimitExceeded."""
        if self.most is None:
            return
        with self._lock:
            self._require_room(1, size)
            self._given[guest] = size
            self._total += size

    def give(self, guest: int, size: int) -> None:
        """
        Set the total of bytes granted to a guest; one that has left gets none.

        Raises GuestMemoryFull.
        """
        if self.most is None:
            return
        with self._lock:
            self._take_back()
            before = self._given.get(guest)
            if before is None:
                return
            if size > before and self._total - before + size > self.most:
                raise GuestMemoryFull(
                    f"the guests of this host have or may have {self._total} bytes: {size - before}"
                    f" more are over its limit of {self.most} (Limits.host_bytes)"
                )
            self._total += size - before
            self._given[guest] = size

    def leave(self, guest: int) -> None:
        """
        Take back all bytes of a guest, at once or later. Takes no lock: finalizers may call it.
        """
        if self.most is not None:
            self._left.append(guest)

    def _require_room(self, count: int, each: int) -> None:
        self._take_back()
        if self.most is not None and self._total + count * each > self.most:
            raise InstanceLimitExceeded(
                f"the guests of this host have or may have {self._total} bytes: {count} more, whose"
                f" memory may have {each} bytes, are over its limit of {self.most}"
                " (Limits.host_bytes); with a smaller Limits.memory_bytes, or a maximum in the"
                " module, a guest may have less"
            )

    def _take_back(self) -> None:
        while self._left:
            self._total -= self._given.pop(self._left.popleft(), 0)
