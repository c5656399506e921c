"""A cache of objects that are expensive to make, shared by the whole process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Generic, TypeVar
from weakref import WeakValueDictionary

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")


class RecentCache(Generic[Key, Value]):
    """
    A cache that makes the value of each key once, for all threads.

    A value stays cached as long as it is used elsewhere. The last `count` values stay in any case,
    while the sum of what `weigh` returns for them, for example bytes, is at most `weight`. If
    `make` raises, nothing is kept.
    """

    def __init__(
        self, count: int, weight: int = 0, weigh: Callable[[Value], int] = lambda _: 0
    ) -> None:
        self._count = count
        self._weight = weight
        self._weigh = weigh
        self._used: WeakValueDictionary[Key, Value] = WeakValueDictionary()
        self._recent: OrderedDict[Key, Value] = OrderedDict()
        self._making: dict[Key, threading.Lock] = {}
        self._lock = threading.Lock()

    def get(self, key: Key, make: Callable[[], Value]) -> Value:
        """
        Return the value of `key`, made by `make` if it is not cached. Raises the errors of `make`.
        """
        with self._lock:
            if (value := self._find(key)) is not None:
                return value
            making = self._making.setdefault(key, threading.Lock())
        with making:
            with self._lock:
                if (value := self._find(key)) is not None:
                    return value
            try:
                value = make()
                with self._lock:
                    self._used[key] = value
                    self._find(key)
                return value
            finally:
                with self._lock:
                    self._making.pop(key, None)

    def _find(self, key: Key) -> Value | None:
        """Return the value and make it the most recent one, or None."""
        value = self._used.get(key)
        if value is None:
            return None
        recent = self._recent
        recent[key] = value
        recent.move_to_end(key)
        while len(recent) > self._count or sum(map(self._weigh, recent.values())) > self._weight:
            recent.popitem(last=False)
        return value
