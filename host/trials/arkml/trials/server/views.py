"""The spectators of one hosted trial."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

from arkml.trials.core.trial import Trial
from arkml.trials.wire.players_pb2 import View


class Lookers:
    """
    Shows each tick of a trial to all spectators.

    Each spectator has at most one unread view: a newer one replaces it.
    """

    def __init__(self, trial: Trial) -> None:
        self._trial = trial
        self._lookers: set[_Looker] = set()

    def __len__(self) -> int:
        return len(self._lookers)

    def show(self, view: View) -> None:
        """Show a view to all spectators."""
        for looker in self._lookers:
            looker.take(view)

    def close(self) -> None:
        """Show the last view of the ended trial to all spectators."""
        if self._lookers:
            self.show(self._trial.view())

    async def look(self) -> AsyncGenerator[View, None]:
        """Yield the present tick and later ones until the trial ends; a slow reader misses some."""
        hosted = self._trial.hosted
        assert hosted is not None
        looker = _Looker()
        looker.take(self._trial.view())
        self._lookers.add(looker)
        hosted.is_shown = True
        try:
            while True:
                await looker.arrived.wait()
                yield looker.next()
                if looker.view is None and self._trial.is_over:
                    return
        finally:
            self._lookers.discard(looker)
            hosted.is_shown = bool(self._lookers)


class _Looker:
    """The newest unread view of one spectator."""

    def __init__(self) -> None:
        self.view: View | None = None
        self.arrived = asyncio.Event()

    def take(self, view: View) -> None:
        """Store a view in place of an unread one."""
        self.view = view
        self.arrived.set()

    def next(self) -> View:
        """Remove and return the view that has arrived."""
        assert self.view is not None
        view, self.view = self.view, None
        self.arrived.clear()
        return view
