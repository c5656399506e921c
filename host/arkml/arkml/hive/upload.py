"""The upload of demonstrations to a run, by which each row arrives exactly once."""

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
    A session of a run that sends it demonstrations.

    All methods run on the client's loop.

    Args:
        transport: The connection to the hive.
        run_id: Id of the run.
        columns: The rows.
        key: A text that identifies the rows, for example their SHA-256. A session that joins with
            the same key continues after the rows that the hive has, so that no row arrives twice,
            whether the upload is repeated, resumed or made by two hosts at once.

    Attributes:
        learner: Name of the run's algorithm.
        is_on_policy: True if the algorithm learns only from its own policy's rows; no row is sent
            then.

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
        """Counts of the sent rows: accepted by the hive, or refused by it."""
        return self._delivery.ledger

    async def send(self) -> None:
        """
        Join the run, send the rows that it does not have yet, and wait until the hive has them.

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
        """Join the run, or join it again; return the number of the last body that the hive has."""
        joined = await join_run(self._transport, self.run_id, self._request)
        if not self.sid:
            self._outbox.narrow(joined.parts)
        self.sid, self.index = joined.sid, joined.index
        self.learner, self.is_on_policy = joined.learner, joined.is_on_policy
        return joined.acked

    def update(self, state: SessionState) -> None:
        """Ignore the state of the session: this upload does not wait for credit."""

    async def leave(self) -> None:
        """Leave the run, which stops unless other sessions take part in it."""
        if self.sid:
            with contextlib.suppress(HiveError):
                path = f"/sessions/{self.sid}/leave"
                await self._transport.ask("POST", path, body=LeaveRequest())


def _nothing() -> None:
    """Do nothing: rows are taken by the thread that appends them."""
