"""The sessions of a run: the hosts that take part in it."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator, Mapping
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
    One session of a run: a host that takes part in it.

    Attributes:
        sid: The id that requests name.
        index: The number of the session in its run.
        join_key: The key that the host joined with; joining with it again returns this session.
        role: The role of the session.
        left: True once the session has left; it may join again.
        ended: True once the run was stopped for all sessions; it may not join again.
        is_worker: True for a rollout worker that the hive has started.
        has_demonstrated: True if it has sent demonstrations, which its host does not send again.
        is_forgotten: True once the run no longer knows the session.
        seen: The time of its last request, in seconds of a monotonic clock.

    """

    sid: str
    index: int
    join_key: str
    role: Role
    left: bool = False
    ended: bool = False
    is_worker: bool = False
    has_demonstrated: bool = False
    is_forgotten: bool = False
    seen: float = field(default_factory=time.monotonic)

    def as_json(self) -> dict[str, Any]:
        """Return the values that are stored in the run's document, as JSON values."""
        return {
            "sid": self.sid,
            "index": self.index,
            "join_key": self.join_key,
            "role": self.role,
            "left": self.left,
            "ended": self.ended,
            "is_worker": self.is_worker,
            "has_demonstrated": self.has_demonstrated,
        }

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> RunSession:
        """Return the session that `as_json` described. Raises HiveError."""
        try:
            session = cls(**{**values, "role": Role(values["role"])}, seen=float("-inf"))
        except (KeyError, TypeError, ValueError) as error:
            raise HiveError(f"{values!r} is not a session: {error}") from error
        kinds = (str, int, str, bool, bool, bool, bool)
        flags = (session.left, session.ended, session.is_worker, session.has_demonstrated)
        fields = (session.sid, session.index, session.join_key, *flags)
        if (
            tuple(map(type, fields)) != kinds
            or session.is_forgotten is not False
            or not 0 <= session.index <= _LAST_INDEX
        ):
            raise HiveError(f"{values!r} is not a session: it has other values than one")
        return session

    def is_alive(self, lease: float) -> bool:
        """Return whether the session has not left, and has sent a request within `lease` s."""
        return not self.left and self.seen >= time.monotonic() - lease


class Sessions:
    """
    The sessions of one run, by the keys that they joined with.

    `given` is the number of sessions that the run has had so far, which is the next index.
    """

    def __init__(self, sessions: Iterable[RunSession], given: int = 0) -> None:
        self._by_key = {one.join_key: one for one in sessions}
        self.given = max([given, *(one.index + 1 for one in self)])
        self._since = time.monotonic()

    def __iter__(self) -> Iterator[RunSession]:
        return iter(self._by_key.values())

    def find(self, join_key: str) -> RunSession | None:
        """Return the session that joined with this key, None if there is none."""
        return self._by_key.get(join_key)

    def add(self, join_key: object, role: Role, *, is_worker: bool = False) -> RunSession:
        """
        Add a session and return it.

        Args:
            join_key: The key that the host joins with.
            role: The role of the session.
            is_worker: True for a rollout worker that the hive has started.

        Raises:
            HiveRefused: The key is invalid.

        """
        if not isinstance(join_key, str) or not 8 <= len(join_key) <= _MAX_KEY:
            raise HiveRefused(f"join_key is {join_key!r}: it takes 8 to {_MAX_KEY} letters", 422)
        sid = secrets.token_hex(16)
        session = RunSession(sid, self.given, join_key, role, is_worker=is_worker)
        self.given += 1
        self._by_key[join_key] = session
        return session

    def remove(self, session: RunSession) -> None:
        """Remove a session that could not join, or is forgotten."""
        session.is_forgotten = True
        del self._by_key[session.join_key]

    def count_alive(self, lease: float, *, workers: bool = True) -> int:
        """
        Return the number of sessions with a request in the last `lease` seconds.

        Sessions of rollout workers count with `workers` only.
        """
        return sum(one.is_alive(lease) and (workers or not one.is_worker) for one in self)

    def forget(self, lease: float, seconds: float, most: int) -> None:
        """
        Forget sessions that are not alive.

        Times count from the start of this process at the earliest.

        Args:
            lease: Seconds after its last request for which a session is alive.
            seconds: Silent seconds after which a session is forgotten, unless it has sent
                demonstrations; 0 for no limit.
            most: The number of newest sessions to remember; 0 to remember any number.

        """
        now = time.monotonic()
        idle = sorted(
            (one for one in self if not one.is_alive(lease)),
            key=lambda one: (one.has_demonstrated, max(one.seen, self._since)),
        )
        surplus = len(idle) - most if most else 0
        for rank, session in enumerate(idle):
            age = now - max(session.seen, self._since)
            is_late = 0 < seconds < age and not session.has_demonstrated
            # A restart of the hive leaves every host as much time to come back as any silence.
            if is_late or (rank < surplus and (session.left or age > lease)):
                self.remove(session)

    @property
    def has_vanished(self) -> bool:
        """
        True if a session has not left, even if it no longer sends requests.

        Sessions of rollout workers do not count.
        """
        return any(not one.left and not one.is_worker for one in self)

    def end(self) -> None:
        """End all sessions for good."""
        for session in self:
            session.left = session.ended = True
