"""The pace of logins: each failed login makes the next ones from its address wait longer."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address

_FREE = 5
"""Failed logins of an address before it has to wait."""

_LONGEST = 60.0
_FORGET_AFTER = 900.0
"""Seconds of the longest wait, and seconds after which a failed login no longer counts."""

_MOST_ADDRESSES = 1_024
_FREE_IN_ALL, _PER_SECOND = 100.0, 2.0
"""Failed logins that all addresses together may make at once, and how many more a second."""


class LoginPace:
    """
    The waits of logins after failed ones, for each address and for all together.

    Used by one event loop. Keeps the last 1,024 addresses that failed; addresses of one IPv6
    network of 64 bits count as one.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._failures: OrderedDict[str, tuple[int, float]] = OrderedDict()  # count, last time
        self._in_all, self._counted = 0.0, clock()

    def wait(self, address: str) -> float:
        """Return the seconds after which a login from an address may be tried, 0 for at once."""
        now = self._clock()
        count, last = self._failures.get(_network(address), (0, now))
        if now - last > _FORGET_AFTER:
            count = 0
        own = 0.0
        if count >= _FREE:
            own = min(2.0 ** min(count - _FREE, 16), _LONGEST) - (now - last)
        surplus = self._surplus(now) - _FREE_IN_ALL
        return max(0.0, own, (surplus + 1.0) / _PER_SECOND if surplus >= 0 else 0.0)

    def fail(self, address: str) -> None:
        """Count a failed login from an address, so that the next one waits longer."""
        now, network = self._clock(), _network(address)
        count, last = self._failures.pop(network, (0, now))
        self._failures[network] = (1 if now - last > _FORGET_AFTER else count + 1, now)
        if len(self._failures) > _MOST_ADDRESSES:
            self._failures.popitem(last=False)
        self._in_all, self._counted = self._surplus(now) + 1.0, now

    def succeed(self, address: str) -> None:
        """Forget the failed logins of an address."""
        self._failures.pop(_network(address), None)

    def _surplus(self, now: float) -> float:
        return max(0.0, self._in_all - (now - self._counted) * _PER_SECOND)


def _network(address: str) -> str:
    """Return the part of an address that one person has: 64 bits of IPv6, all of IPv4."""
    try:
        parsed = ip_address(address)
    except ValueError:
        return address[:64]
    if not isinstance(parsed, IPv6Address):
        return str(parsed)
    if parsed.ipv4_mapped is not None:
        return str(parsed.ipv4_mapped)
    return parsed.exploded[:19]
