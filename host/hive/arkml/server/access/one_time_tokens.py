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
    Tokens that are taken once, within LIFE_SECONDS. Used by one event loop.

    Each stands for the token with the digest `source`, whose rights a session that begins with it
    has, and with which it ends. There are 64 at most: a new one takes the
    place of the oldest.
    """

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._issued: dict[bytes, tuple[float, bytes]] = {}

    def issue(self, source: bytes) -> str:
        """Return a new token, which is not valid for a `source` that is empty."""
        now = self._clock()
        live = {key: one for key, one in self._issued.items() if one[0] > now}
        self._issued = dict(list(live.items())[1 - _MOST :])
        token = secrets.token_urlsafe(32)
        self._issued[digest_of(token)] = now + LIFE_SECONDS, source
        return token

    def take(self, digest: bytes) -> bytes | None:
        """Return the source of the token with that digest, once; None for an invalid token."""
        until, source = self._issued.pop(digest, (0.0, b""))
        return source if source and until > self._clock() else None
