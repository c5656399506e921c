"""Delivery of rows to a hive: bodies of rows are numbered, and sent until they are acknowledged."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import httpx
import numpy as np
import numpy.typing as npt

from arkml.base.loggers import SafeLogger
from arkml.base.terminal import harmless
from arkml.errors import HiveError, HiveRefused, HiveUnreachable, ProtocolError, RunGone
from arkml.hive.outbox import Outbox
from arkml.hive.protocol.audit import checksum, is_audited, row_hashes
from arkml.hive.protocol.rows import (
    CONTENT_TYPE,
    HEADER_SIZE,
    META,
    RowColumns,
    RowKind,
    decode,
    encode,
    parse_header,
)
from arkml.hive.protocol.runs import MAX_NAMES
from arkml.hive.protocol.session_messages import (
    Joined,
    JoinRequest,
    NamesReply,
    NamesRequest,
    OutOfTurn,
    RowsReply,
    SessionState,
)
from arkml.hive.tracing import HEADER, tracing
from arkml.hive.transport import GONE, RETRIED, HiveTransport, read, reason

log = SafeLogger(__name__)

FIRST_PAUSE, LAST_PAUSE = 0.05, 2.0  # seconds between two tries
_FORBIDDEN = (401, 403)
_MOST_REFUSED = 1_024
_SHOWN, _REASON = 80, 200  # characters of a metric's name, and of a hive's reason against it


@dataclass(slots=True)
class Ledger:
    """
    Counts of a session's rows: accepted by the hive, refused by it, or discarded by the host.

    `checksum` is the XOR of the hashes of all accepted rows, 0 unless they are hashed (see
    `protocol.audit`). `renewed` is the number of times that the session was joined again.
    """

    accepted: int = 0
    refused: int = 0
    discarded: int = 0
    checksum: int = 0
    renewed: int = 0


class _Lost(NamedTuple):
    """What a body says of rows before it: dropped ones, not finite ones, and clipped values."""

    dropped: int
    non_finite: int
    outside: int


@dataclass(slots=True)
class _Body:
    """Rows that are sent under one number; the columns are views of the data."""

    seq: int
    kind: RowKind
    columns: RowColumns
    data: bytes
    lost: _Lost


class RowSender(Protocol):
    """The session whose rows are sent."""

    run_id: str
    index: int
    sid: str

    async def join(self) -> int:
        """Join the run, or join it again; return the number of the last body that the hive has."""
        ...

    def update(self, state: SessionState) -> None:
        """Adopt the state in an answer of the hive, such as its credit."""
        ...


class Delivery:
    """
    Sends the rows of an outbox to a hive, one body at a time.

    `settled` is the number of rows that are accepted by the hive, refused by it, or discarded.

    Args:
        transport: The connection to the hive.
        outbox: The rows to send.
        sender: The session whose rows they are.

    """

    def __init__(self, transport: HiveTransport, outbox: Outbox, sender: RowSender) -> None:
        self.settled = 0
        self.ledger = Ledger()
        self.seq = 0
        """The number of the last body."""
        self._transport = transport
        self._outbox = outbox
        self._sender = sender
        self._names: dict[str, int] = {}
        self._refused: set[str] = set()
        self._are_names_lost = False
        self._is_sending = False
        self._tracing = tracing("arkml-host")

    async def send(self, *, partial: bool) -> bool:
        """
        Send the oldest full body, or with `partial` all rows that wait, and await the answer.

        Returns False if there is nothing to send. Raises HiveRefused and RunGone once the hive
        accepts no more rows of the session.
        """
        self._outbox.trim()
        taken = self._outbox.take(partial=partial)
        if taken is None:
            return False
        kind, columns = taken
        columns.meta = await self._meta()
        self.seq += 1
        outbox = self._outbox
        lost = _Lost(outbox.take_dropped(), outbox.take_non_finite(), outbox.take_outside())
        data = self._encoded(kind, columns, lost)
        # Views of the copy: the outbox reuses its columns after the next `trim`.
        sent = decode(parse_header(data), memoryview(data)[HEADER_SIZE:], check=False)
        self._is_sending = True
        try:
            await self._deliver(_Body(self.seq, kind, sent, data, lost))
        finally:
            self._is_sending = False
        return True

    def relieve(self) -> None:
        """Drop the oldest rows if more wait than may, while the hive is slow to answer a body."""
        if self._is_sending:  # otherwise rows that were taken may not be copied yet
            self._outbox.trim()

    def _encoded(self, kind: RowKind, columns: RowColumns, lost: _Lost) -> bytes:
        return encode(
            columns,
            seq=self.seq,
            kind=kind,
            dropped=lost.dropped,
            sent_ns=time.monotonic_ns(),
            non_finite=lost.non_finite,
            outside=lost.outside,
        )

    async def _meta(self) -> npt.NDArray[Any]:
        """Return the metadata of the rows taken last, with numbers for names: META, [m]."""
        masks = self._outbox.take_masks()
        notes = self._outbox.take_notes()
        if not notes:
            return masks
        unknown = [
            name
            for name in dict.fromkeys(name for _, name, _ in notes)
            if name not in self._names and name not in self._refused
        ]
        if unknown and len(self._refused) < _MOST_REFUSED:
            await self._number(unknown[:MAX_NAMES])
        known = [
            (row, self._names[name], value) for row, name, value in notes if name in self._names
        ]
        return np.concatenate([masks, np.array(known, META)])

    async def _number(self, names: list[str]) -> None:
        """
        Ask the hive for the numbers of these names of metrics, such as "speed".

        Each refused name is logged once; a failed request is logged once until one succeeds.
        """
        path = f"/runs/{self._sender.run_id}/names"
        try:
            reply = await self._transport.fetch("POST", path, NamesReply, body=NamesRequest(names))
            if lacking := [name for name in names if name not in reply.ids | reply.refused]:
                raise ProtocolError(f"the hive gave no number for {lacking[0][:80]!r}")
        except HiveError as error:
            if not self._are_names_lost:
                shown = names[0][:_SHOWN]
                log.warning("%d metrics, %r first, are lost: %s", len(names), shown, error)
            self._are_names_lost = True
            return
        self._are_names_lost = False
        for name in names:
            if name not in reply.refused:
                self._names[name] = reply.ids[name]
                continue
            self._refused.add(name)
            why = harmless(reply.refused[name][:_REASON])
            log.warning("metric %r is not kept: %s", name[:_SHOWN], why)
        if len(self._refused) >= _MOST_REFUSED:
            log.warning("the hive refused %d metrics: no more are sent", len(self._refused))

    async def _deliver(self, body: _Body) -> None:
        """Send a body until the hive has it, or refuses it for good."""
        headers = {"content-type": CONTENT_TYPE}
        if self._tracing is None:
            await self._repeat(body, headers)
            return
        with self._tracing.span("send rows", kind="client") as span:
            if span.is_recording():
                span.set_attribute("arkml.run", self._sender.run_id)
                span.set_attribute("arkml.rows", len(body.columns))
            headers[HEADER] = self._tracing.header(span)
            await self._repeat(body, headers)

    async def _repeat(self, body: _Body, headers: dict[str, str]) -> None:
        pause = FIRST_PAUSE
        while True:
            try:
                path = f"/sessions/{self._sender.sid}/rows"
                answer = await self._transport.send(
                    "POST", path, content=body.data, headers=headers
                )
                if await self._is_settled(body, answer):
                    return
            except (HiveUnreachable, ProtocolError) as error:
                log.debug("%s", error)
            self._outbox.trim()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST_PAUSE)

    async def _is_settled(self, body: _Body, answer: httpx.Response) -> bool:
        """Return true if this answer settles the body; otherwise prepare it to be sent again."""
        status = answer.status_code
        if status == 200:
            self._acknowledge(body, read(answer, RowsReply))
            return True
        if status in RETRIED:
            log.debug("the hive answered %d: %s", status, reason(answer))
            return False
        if status in _FORBIDDEN:
            raise HiveRefused(reason(answer), status)
        if status in GONE:
            await self._rejoin(body)
            return False
        if status == 409:
            self._renumber(body, read(answer, OutOfTurn).expected)
            return False
        log.warning(
            "%d rows are lost: the hive answered %d: %s",
            len(body.columns), status, reason(answer),
        )  # fmt: skip
        self.ledger.discarded += len(body.columns)
        self.settled += len(body.columns)
        self._outbox.release(len(body.columns))
        body.columns = body.columns.take(slice(0))
        body.data = self._encoded(body.kind, body.columns, body.lost)
        return False

    async def _rejoin(self, body: _Body) -> None:
        """Join again after the hive forgot the session; it recognizes a body that it has."""
        self.ledger.renewed += 1
        try:
            acked = await self._sender.join()
        except HiveUnreachable:
            return
        except HiveRefused as error:
            if error.status not in RETRIED:
                raise
            return
        if acked > body.seq:
            self._renumber(body, acked + 1)

    def _renumber(self, body: _Body, expected: int) -> None:
        """Send the body under the number that the hive expects."""
        if expected == body.seq:
            return
        body.seq = self.seq = expected
        body.data = self._encoded(body.kind, body.columns, body.lost)

    def _acknowledge(self, body: _Body, reply: RowsReply) -> None:
        columns, ledger = body.columns, self.ledger
        count = len(columns)
        kept = columns.take(_kept_rows(reply, count)) if reply.refused_n else columns
        ledger.accepted += count - reply.refused_n
        ledger.refused += reply.refused_n
        if is_audited():
            ledger.checksum ^= checksum(row_hashes(self._sender.index, body.kind, kept))
        self.settled += count
        self._outbox.release(count)
        self._sender.update(reply)


def _kept_rows(reply: RowsReply, count: int) -> npt.NDArray[np.bool_]:
    """
    Return the rows that are not known to be refused: bool, [count].

    An answer names only the first refused rows. Raises ProtocolError.
    """
    if reply.refused_n > count:
        raise ProtocolError(f"the hive refused {reply.refused_n} of {count} rows")
    kept = np.ones(count, bool)
    for row, _ in reply.refused:
        if not 0 <= row < count:
            raise ProtocolError(f"the hive refused row {row} of {count}")
        kept[row] = False
    return kept


async def join_run(transport: HiveTransport, run_id: str, request: JoinRequest) -> Joined:
    """
    Join a run, or join it again with the same key.

    Args:
        transport: The connection to the hive.
        run_id: Id of the run.
        request: The request, with the key.

    Returns:
        The session.

    Raises:
        RunGone: The run was ended or deleted.
        HiveUnreachable: There was no answer.
        HiveRefused: The hive refused the request.
        ProtocolError: The answer is not a hive's.

    """
    try:
        return await transport.fetch("POST", f"/runs/{run_id}/sessions", Joined, body=request)
    except HiveRefused as error:
        if error.status in GONE:
            raise RunGone(f"run {run_id} is gone: {error}") from error
        raise
