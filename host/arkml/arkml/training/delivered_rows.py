"""Counts of the rows of a guest, or of a fleet, that the hive has acknowledged."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from arkml.training.outcome import membership_of

if TYPE_CHECKING:
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import Guest
    from arkml.hive.run_session import RunSession

_SHORTEST = 0.5  # seconds between two measurements of the rate


class DeliveredRows:
    """
    Counts the delivered rows of a guest or fleet over all its sessions of a run.

    `update` sets the attributes: the total of `rows`, the present `rows_per_second`, the `session`
    in use (None before the first) and the newest policy `version` that has arrived (0 before the
    first).
    """

    def __init__(self, subject: Guest | Fleet) -> None:
        self.rows = 0
        self.rows_per_second = 0.0
        self.session: RunSession | None = None
        self.version = 0
        self._subject = subject
        self._earlier: list[RunSession] = []  # sessions that deliver their last rows
        self._settled = 0  # rows of those that have ended
        self._measured = 0, time.monotonic()

    def update(self) -> None:
        """Update the counts. One thread at a time may call it, while the guest runs on another."""
        membership = membership_of(self._subject)
        if membership is None:
            return
        self.version = 0 if membership.latest is None else membership.latest[0]
        session = membership.session
        if session is not None and session is not self.session:
            self._earlier += [] if self.session is None else [self.session]
            self.session = session
        ended = [one for one in self._earlier if one.ended.done()]
        self._settled += sum(one.ledger.accepted for one in ended)
        self._earlier = [one for one in self._earlier if one not in ended]
        live = self._earlier if self.session is None else [*self._earlier, self.session]
        self.rows = self._settled + sum(one.ledger.accepted for one in live)
        (before, since), now = self._measured, time.monotonic()
        if now - since >= _SHORTEST:
            self.rows_per_second = (self.rows - before) / (now - since)
            self._measured = self.rows, now
