"""The open chains of all sessions, and the rule for forgetting them."""

from __future__ import annotations

from collections.abc import Callable

from arkml.learning.trajectories import TrajectoryIndex

_FORGET_FROM = 4_096


class SessionChains:
    """
    An index of chains for each session and kind of rows.

    Some agents never end, and some sessions vanish without a message; both leave chains behind.
    Once there are many chains, the ones whose rows are too old are forgotten.
    """

    def __init__(self, gamma: float) -> None:
        self._gamma = gamma
        self._indexes: dict[tuple[int, int], TrajectoryIndex] = {}
        self._counted = 0  # chains and indexes
        self._forget_at = _FORGET_FROM

    def index(self, session: int, kind: int) -> TrajectoryIndex:
        """Return the index of a session's chains of a kind, which is made on first use."""
        found = self._indexes.get((session, kind))
        if found is None:
            found = self._indexes[session, kind] = TrajectoryIndex(self._gamma)
            self._counted += 1
        return found

    def count(self, opened: int, oldest: Callable[[int], int]) -> None:
        """
        Count chains that were opened in an index, less the chains that ended.

        If there are many, forgets chains whose rows are older than number `oldest(kind)`, and
        sessions without other chains.
        """
        self._counted += opened
        if self._counted <= self._forget_at:
            return
        for (_, kind), index in self._indexes.items():
            index.forget(oldest(kind))
        self._indexes = {key: index for key, index in self._indexes.items() if len(index)}
        self._counted = len(self._indexes) + sum(map(len, self._indexes.values()))
        self._forget_at = max(_FORGET_FROM, 2 * self._counted)

    def cut(self, session: int) -> None:
        """End all chains of a session that has lost rows."""
        for (owner, _), index in self._indexes.items():
            if owner == session:
                self._counted -= len(index)
                index.clear()
