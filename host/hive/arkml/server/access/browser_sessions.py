"""Sessions of browsers: ids in cookies, each of which stands for a token for some hours."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from arkml.server.access.callers import Caller, digest_of
from arkml.server.access.credentials import Credentials

IDLE_SECONDS = 12 * 3_600
"""Seconds without a request after which a session is over."""

_MOST_A_TOKEN = 64


@dataclass(slots=True)
class _Session:
    source: bytes  # the digest of the token
    used: float


class BrowserSessions:
    """
    The sessions of browsers, by the digests of their ids. Belongs to one event loop.

    A session ends IDLE_SECONDS after its last request, when it is ended explicitly, and when its
    token is revoked or expires. A token has at most 64 sessions: a new session replaces the one
    that was unused for longest. Sessions do not outlive the process (decision 22).
    """

    def __init__(
        self, credentials: Credentials, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._credentials = credentials
        self._clock = clock
        self._sessions: dict[bytes, _Session] = {}

    def begin(self, source: bytes) -> str:
        """Return the id of a new session for the token whose SHA-256 is `source`."""
        self._forget()
        own = [key for key, one in self._sessions.items() if one.source == source]
        if len(own) >= _MOST_A_TOKEN:
            del self._sessions[min(own, key=lambda key: self._sessions[key].used)]
        session_id = secrets.token_urlsafe(32)
        self._sessions[digest_of(session_id)] = _Session(source, self._clock())
        return session_id

    def find(self, session_id: str) -> Caller | None:
        """Return the caller of a session, and count this as a use; None for an ended session."""
        key = digest_of(session_id.encode(errors="replace"))
        caller = self._caller(key)
        if caller is None:
            return None
        self._sessions[key].used = self._clock()
        return replace(caller, is_page=True, is_valid=partial(self._is_valid, key))

    def end(self, session_id: str) -> None:
        """End a session. Safe to call for an ended one."""
        self._sessions.pop(digest_of(session_id.encode(errors="replace")), None)

    def _caller(self, key: bytes) -> Caller | None:
        session = self._sessions.get(key)
        if session is None:
            return None
        caller = self._credentials.find(session.source)
        if caller is None or self._clock() - session.used >= IDLE_SECONDS:
            del self._sessions[key]
            return None
        return caller

    def _is_valid(self, key: bytes) -> bool:
        return self._caller(key) is not None

    def _forget(self) -> None:
        """Drop the sessions that have ended."""
        for key in list(self._sessions):
            self._caller(key)
