"""The upload of demonstrations to a run: rows that exist already, and arrive once."""

from __future__ import annotations

import contextlib

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, RunGone
from arkml.hive.delivery import Delivery, Ledger, join_run
from arkml.hive.outbox import Outbox
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.session_messages import JoinRequest, LeaveRequest, SessionState
from arkml.hive.transport import HiveTransport

log = SafeLogger(__name__)


class DemonstrationUpload:
    """
    A session of a run that brings it demonstrations.

    `key` identifies the rows, for example by their SHA-256. A session that joins with the same key
    continues after the rows that the hive has, so that no row arrives twice, whether the upload is
    repeated, resumed or made by two hosts at once. `learner` is the name of the run's algorithm; if
    it `is_on_policy`, no row is sent. All methods run on the client's loop.
    """

    def __init__(
        self, transport: HiveTransport, run_id: str, columns: RowColumns, *, key: str
    ) -> None:
        self.run_id = run_id
        self.index = -1
        self.sid = ""
        self.learner = ""
        self.is_on_policy = False
        features, actions = columns.features.shape[1], columns.action.shape[1]
        self._columns = columns
        self._request = JoinRequest(f"demonstrations-{key}", features, actions)
        self._outbox = Outbox(features, actions, wake=_nothing, pause=_nothing)
        self._delivery = Delivery(transport, self._outbox, self)
        self._transport = transport

    @property
    def ledger(self) -> Ledger:
        """Counts of the rows that were sent, by their fate."""
        return self._delivery.ledger

    async def send(self) -> None:
        """
        Join the run, and send the rows that it lacks, until the hive has them.

        Raises HiveError.
        """
        try:
            there = await self.join()
        except RunGone as error:  # its sessions were ended, this one after it had sent its rows
            log.info("demonstrations are not sent again: %s", error)
            return
        if self.is_on_policy:
            return
        self._delivery.seq = there
        rows, size = self._columns, self._outbox.body_rows
        for first in range(there * size, len(rows), size):
            body = rows.take(slice(first, first + size))
            self._outbox.append(
                body.agent, body.step, 0, body.reward, body.state, body.features, body.action,
                kind=RowKind.DEMONSTRATION,
            )  # fmt: skip
            while await self._delivery.send(partial=True):
                pass

    async def join(self) -> int:
        """Join, or join again; return the number of the last body that the hive has."""
        joined = await join_run(self._transport, self.run_id, self._request)
        if not self.sid:
            self._outbox.narrow(joined.parts)
        self.sid, self.index = joined.sid, joined.index
        self.learner, self.is_on_policy = joined.learner, joined.is_on_policy
        return joined.acked

    def update(self, state: SessionState) -> None:
        """Ignore the state of the session: nothing waits for its credit."""

    async def leave(self) -> None:
        """Leave the run, which stops unless others take part in it."""
        if self.sid:
            with contextlib.suppress(HiveError):
                path = f"/sessions/{self.sid}/leave"
                await self._transport.ask("POST", path, body=LeaveRequest())


def _nothing() -> None:
    """Do nothing: rows are taken by the thread that appends them."""
