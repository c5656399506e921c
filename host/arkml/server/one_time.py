"""Tokens that are good for one login, and the sessions of browsers that logged in with one."""

from __future__ import annotations

import hashlib
import hmac
import secrets
import time

_MINUTES = 10.0
_IDLE = 12 * 3_600.0
_MOST = 64


class OneTimeTokens:
    """Tokens that each open one session within ten minutes. Only their hashes are kept."""

    def __init__(self) -> None:
        self._until: dict[bytes, float] = {}

    def issue(self) -> str:
        """Return a new token."""
        token = secrets.token_urlsafe(32)
        self._until[_hash(token)] = time.monotonic() + _MINUTES * 60
        while len(self._until) > _MOST:
            del self._until[next(iter(self._until))]
        return token

    def take(self, token: str) -> bool:
        """Return whether a token is good. It is not, the next time."""
        until = self._until.pop(_hash(token), 0.0)
        return time.monotonic() < until


class PageSessions:
    """The sessions of browsers, by the hash of the id in their cookie, for 12 h without use."""

    def __init__(self) -> None:
        self._seen: dict[bytes, float] = {}

    def open(self) -> str:
        """Return the id of a new session."""
        while len(self._seen) >= _MOST:
            del self._seen[min(self._seen, key=self._seen.__getitem__)]
        name = secrets.token_urlsafe(32)
        self._seen[_hash(name)] = time.monotonic()
        return name

    def is_open(self, name: str) -> bool:
        """Return whether there is that session, and note that it is used."""
        key = _hash(name)
        seen = self._seen.get(key)
        if seen is None or time.monotonic() - seen > _IDLE:
            self._seen.pop(key, None)
            return False
        self._seen[key] = time.monotonic()
        return True

    def close(self, name: str) -> None:
        """End a session."""
        self._seen.pop(_hash(name), None)


def same_secret(one: str, other: str) -> bool:
    """Return whether two secrets are equal, in a time that does not depend on where they differ."""
    return hmac.compare_digest(one.encode(), other.encode())


def _hash(secret: str) -> bytes:
    return hashlib.sha256(secret.encode()).digest()
