"""Who takes part in a run."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from arkml.errors import HiveError, HiveRefused
from arkml.hive.protocol.runs import Role

_LONGEST_KEY = 128
_LAST_INDEX = (1 << 32) - 1
"""Records have 32 bits for the session that they are of."""


@dataclass(slots=True)
class Session:
    """
    One participant of a run.

    `join_key` is how it says that it is the same as before. It has `left` until it joins again,
    and is `ended` for good once its run was stopped for everybody. `seen` is when it was heard
    of last, by the monotonic clock.
    """

    sid: str
    index: int
    join_key: str
    role: Role
    left: bool = False
    ended: bool = False
    seen: float = field(default_factory=time.monotonic)

    def as_json(self) -> dict[str, Any]:
        """All that outlives the process."""
        return {
            "sid": self.sid,
            "index": self.index,
            "join_key": self.join_key,
            "role": self.role,
            "left": self.left,
            "ended": self.ended,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Session:
        """What `as_json` made, not heard of yet. Raises HiveError."""
        try:
            found = cls(**{**values, "role": Role(values["role"])}, seen=float("-inf"))
        except (KeyError, TypeError, ValueError) as error:
            raise HiveError(f"{values!r} is no session: {error}") from error
        kinds = (str, int, str, bool, bool)
        types = (found.sid, found.index, found.join_key, found.left, found.ended)
        if tuple(map(type, types)) != kinds or not 0 <= found.index <= _LAST_INDEX:
            raise HiveError(f"{values!r} is no session: it holds other values than one has")
        return found


class Sessions:
    """The sessions of one run."""

    def __init__(self, sessions: list[Session]) -> None:
        self._sessions = sessions

    def __iter__(self) -> Iterator[Session]:
        return iter(self._sessions)

    def find(self, join_key: str) -> Session | None:
        """The session that joined with that key."""
        return next((one for one in self._sessions if one.join_key == join_key), None)

    def add(self, join_key: object, role: Role) -> Session:
        """A new session. Raises HiveRefused for a key that is none."""
        if not isinstance(join_key, str) or not 8 <= len(join_key) <= _LONGEST_KEY:
            raise HiveRefused(
                f"join_key is {join_key!r}: it takes 8 to {_LONGEST_KEY} letters", 422
            )
        index = max((one.index for one in self._sessions), default=-1) + 1
        session = Session(secrets.token_hex(16), index, join_key, role)
        self._sessions.append(session)
        return session

    def remove(self, session: Session) -> None:
        """As if it had never joined."""
        self._sessions.remove(session)

    def alive(self, lease: float) -> int:
        """How many were heard of within the lease and have not left."""
        since = time.monotonic() - lease
        return sum(1 for one in self._sessions if not one.left and one.seen >= since)

    def end(self) -> None:
        """The run was stopped for everybody."""
        for session in self._sessions:
            session.left = session.ended = True
