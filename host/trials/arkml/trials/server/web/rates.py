"""The pace at which a web port reads."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from arkml.trials.server.web.options import WebLimits

_MOST_ADDRESSES: Final = 10_000


class TokenBucket:
    """
    Holds back what comes faster than `rate` a second.

    At first, and after a pause, a second's worth passes at once. Times are seconds of one steady
    clock.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = rate
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount and return the seconds to wait for it."""
        self._refill(now)
        self._level -= amount
        return max(0.0, -self._level / self._rate)

    def is_full(self, now: float) -> bool:
        """Return whether nothing was taken for a while."""
        self._refill(now)
        return self._level >= self._rate

    def _refill(self, now: float) -> None:
        self._level = min(self._rate, self._level + (now - self._at) * self._rate)
        self._at = now


class ReadingPace:
    """The reading of one client's messages, by their number and by their bytes."""

    def __init__(self, limits: WebLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        now = clock()
        self._messages = TokenBucket(limits.messages_per_second, now)
        self._bytes = TokenBucket(limits.bytes_per_second, now)

    async def admit(self, size: int) -> None:
        """Wait until a message of `size` bytes may be read."""
        now = self._clock()
        seconds = max(self._messages.take(1, now), self._bytes.take(size, now))
        if seconds > 0:
            await asyncio.sleep(seconds)

    @property
    def is_rested(self) -> bool:
        """True after a second without messages, or more if there were many."""
        now = self._clock()
        return self._messages.is_full(now) and self._bytes.is_full(now)


class ReadingPaces:
    """The pace of requests by the addresses that they come from."""

    def __init__(self, limits: WebLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._paces: dict[str, ReadingPace] = {}

    def of(self, address: str) -> ReadingPace:
        """
        Return the pace of an address.

        Those of addresses that rest are forgotten if there are many, and then the oldest one.
        """
        if len(self._paces) >= _MOST_ADDRESSES and address not in self._paces:
            self._paces = {key: one for key, one in self._paces.items() if not one.is_rested}
            if len(self._paces) >= _MOST_ADDRESSES:
                del self._paces[next(iter(self._paces))]
        pace = self._paces.get(address)
        if pace is None:
            pace = self._paces[address] = ReadingPace(self._limits, self._clock)
        return pace
