"""Rate limits for reading from clients."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Final

from arkml.trials.server.web.web_options import WebLimits

_MOST_ADDRESSES: Final = 10_000


class TokenBucket:
    """
    A token bucket, which limits an amount to `rate` a second.

    After a pause, the amount of one second passes at once. Times are in seconds of one steady
    clock.
    """

    def __init__(self, rate: float, now: float) -> None:
        self._rate = rate
        self._level = rate
        self._at = now

    def take(self, amount: float, now: float) -> float:
        """Take an amount at `now`, and return the seconds to wait for it."""
        self._refill(now)
        self._level -= amount
        return max(0.0, -self._level / self._rate)

    def is_full(self, now: float) -> bool:
        """Return whether the bucket is full again after a pause."""
        self._refill(now)
        return self._level >= self._rate

    def _refill(self, now: float) -> None:
        self._level = min(self._rate, self._level + (now - self._at) * self._rate)
        self._at = now


class ReadingPace:
    """Rate limits of one client, for messages and for bytes."""

    def __init__(self, limits: WebLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        now = clock()
        self._messages = TokenBucket(limits.messages_per_second, now)
        self._bytes = TokenBucket(limits.bytes_per_second, now)

    async def admit(self, size: int) -> None:
        """Wait until the rate limits allow to read a message of `size` bytes."""
        now = self._clock()
        seconds = max(self._messages.take(1, now), self._bytes.take(size, now))
        if seconds > 0:
            await asyncio.sleep(seconds)

    @property
    def is_rested(self) -> bool:
        """True if both rate limits would let a second's amount pass at once."""
        now = self._clock()
        return self._messages.is_full(now) and self._bytes.is_full(now)


class ReadingPaces:
    """Rate limits of requests, one for each address."""

    def __init__(self, limits: WebLimits, clock: Callable[[], float] = time.monotonic) -> None:
        self._limits = limits
        self._clock = clock
        self._paces: dict[str, ReadingPace] = {}

    def of(self, address: str) -> ReadingPace:
        """
        Return the rate limits of an address.

        If there are too many addresses, unused ones are forgotten first, and then the oldest.
        """
        if len(self._paces) >= _MOST_ADDRESSES and address not in self._paces:
            self._paces = {key: one for key, one in self._paces.items() if not one.is_rested}
            if len(self._paces) >= _MOST_ADDRESSES:
                del self._paces[next(iter(self._paces))]
        pace = self._paces.get(address)
        if pace is None:
            pace = self._paces[address] = ReadingPace(self._limits, self._clock)
        return pace
