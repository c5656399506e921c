"""Tokens that are good for one login, for links that `arkml train --page` prints."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

from arkml.server.access.callers import digest_of

LIFE_SECONDS = 600
_MOST = 64


class OneTimeTokens:
    """
    Tokens for one login each, valid for LIFE_SECONDS. Used by one event loop.

    A one-time token stands for a lasting token, whose SHA-256 is its `source`. The session that
    begins with it has the rights of the lasting token, and ends with that token. There are 64
    one-time tokens at most: a new one replaces the oldest.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._issued: dict[bytes, tuple[float, bytes]] = {}

    def issue(self, source: bytes) -> str:
        """
        Return a new token that stands for `source`; if `source` is empty, no login accepts it.
        """
        now = self._clock()
        live = {key: one for key, one in self._issued.items() if one[0] > now}
        self._issued = dict(list(live.items())[1 - _MOST :])
        token = secrets.token_urlsafe(32)
        self._issued[digest_of(token)] = now + LIFE_SECONDS, source
        return token

    def take(self, digest: bytes) -> bytes | None:
        """Use up the token with this SHA-256, and return its source; None for an invalid token."""
        until, source = self._issued.pop(digest, (0.0, b""))
        return source if source and until > self._clock() else None
