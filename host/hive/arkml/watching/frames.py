"""The frames of a watched guest as lines of JSON: what its agents observe, do and get."""

from __future__ import annotations

import numpy as np

from arkml.batches import Batch
from arkml.guests.trace_player import ReplayedSubmit
from arkml.hive.protocol.replay_messages import ShownBehavior, ShownFrame, ShownSubmit
from arkml.replays.shown_rows import MOST_ROWS, EpisodeReturns, RowMeanings

_MOST_NUMBERS = 30_000  # of a frame, as of an image of 84 x 84 x 4
_MOST_SUBMITS = 16


class WatchedFrames:
    """
    Collects the batches of each frame, and converts them to the form that is shown.

    `section` is the section `arkml.spec` of the module, if it has one.
    """

    def __init__(self, section: bytes | None) -> None:
        self._meanings = RowMeanings({}, section)
        self._returns = EpisodeReturns()
        self._submits: list[ReplayedSubmit] = []
        self._left = 0

    @property
    def behaviors(self) -> list[ShownBehavior]:
        """The meanings of the rows that have come so far."""
        return self._meanings.behaviors

    @property
    def notes(self) -> list[str]:
        """Sentences about parts that are not shown."""
        return self._meanings.notes

    @property
    def has_rows(self) -> bool:
        """True if the present frame has rows of agents."""
        return bool(self._submits)

    def add(self, batch: Batch) -> None:
        """Add a batch that was answered to the present frame; its views are copied."""
        session = int(np.ravel(batch.keys)[0]) if np.size(batch.keys) else 0
        submit = ReplayedSubmit(
            session, True, batch.rows.copy(), batch.features.copy(), batch.actions.copy(),
            batch.values.copy(), 0,
        )  # fmt: skip
        self._submits.append(submit)

    def take(self, number: int, *, is_shown: bool) -> ShownFrame | None:
        """Return the present frame, None if it is not shown, and begin the next one."""
        submits, self._submits = self._submits, []
        totals = self._returns.add(submits)  # of all frames, whether or not they are shown
        if not is_shown:
            return None
        shown: list[ShownSubmit] = []
        room = _MOST_NUMBERS
        for submit, total in zip(submits[:_MOST_SUBMITS], totals, strict=False):
            session = self._returns.session_of(submit.handle)
            one, size = self._meanings.submit(submit, session, total, rows=MOST_ROWS, room=room)
            room -= size
            if one is not None:
                shown.append(one)
        return ShownFrame(number, "", shown)
