"""The sessions of a run: the hosts that take part in it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.runs import Role

_MAX_KEY = 128
_LAST_INDEX = (1 << 32) - 1
"""Records of the log have 32 bits for the index of a session."""


@dataclass(slots=True)
class RunSession:
    """
    One participant of a run.

    A host that joins with a `join_key` of before gets the session of before. A session that has
    `left` may join again, one that has `ended`, because its run was stopped for all, may not.
    `seen` is the time of its last request, by the monotonic clock. `is_worker` is true for a
    rollout worker that the hive has started.
    """

    sid: str
    index: int
    join_key: str
    role: Role
    left: bool = False
    ended: bool = False
    is_worker: bool = False
    seen: float = field(default_factory=time.monotonic)

    def as_json(self) -> dict[str, Any]:
        """Return the values that outlive the process."""
        return {
            "sid": self.sid,
            "index": self.index,
            "join_key": self.join_key,
            "role": self.role,
            "left": self.left,
            "ended": self.ended,
            "is_worker": self.is_worker,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunSession:
        """Return the session that `as_json` described. Raises HiveError."""
        try:
            session = cls(**{**values, "role": Role(values["role"])}, seen=float("-inf"))
        except (KeyError, TypeError, ValueError) as error:
            raise HiveError(f"{values!r} is not a session: {error}") from error
        kinds = (str, int, str, bool, bool, bool)
        flags = (session.left, session.ended, session.is_worker)
        fields = (session.sid, session.index, session.join_key, *flags)
        if tuple(map(type, fields)) != kinds or not 0 <= session.index <= _LAST_INDEX:
            raise HiveError(f"{values!r} is not a session: it has other values than one")
        return session


class Sessions:
    """The sessions of one run."""

    def __init__(self, sessions: list[RunSession]) -> None:
        self._sessions = sessions

    def __iter__(self) -> Iterator[RunSession]:
        return iter(self._sessions)

    def find(self, join_key: str) -> RunSession | None:
        """Return the session that joined with that key, None without one."""
        return next((one for one in self._sessions if one.join_key == join_key), None)

    def add(self, join_key: object, role: Role, *, is_worker: bool = False) -> RunSession:
        """Add a session. Raises HiveRefused for an invalid key."""
        if not isinstance(join_key, str) or not 8 <= len(join_key) <= _MAX_KEY:
            raise HiveRefused(f"join_key is {join_key!r}: it takes 8 to {_MAX_KEY} letters", 422)
        index = max((one.index for one in self._sessions), default=-1) + 1
        session = RunSession(secrets.token_hex(16), index, join_key, role, is_worker=is_worker)
        self._sessions.append(session)
        return session

    def remove(self, session: RunSession) -> None:
        """Remove a session that could not join."""
        self._sessions.remove(session)

    def count_alive(self, lease: float, *, workers: bool = True) -> int:
        """
        Return the number of sessions with a request in the last `lease` seconds.

        Those of rollout workers count with `workers` only.
        """
        since = time.monotonic() - lease
        return sum(
            not one.left and one.seen >= since and (workers or not one.is_worker)
            for one in self._sessions
        )

    @property
    def has_vanished(self) -> bool:
        """True if a session other than a rollout worker's has not left, alive or not."""
        return any(not one.left and not one.is_worker for one in self._sessions)

    def end(self) -> None:
        """End all sessions for good."""
        for session in self._sessions:
            session.left = session.ended = True
