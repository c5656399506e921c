"""Rows on their way to a hive: numbered, sent until they are there, counted."""

from __future__ import annotations

import asyncio
import logging
import random
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

import httpx
import numpy as np
import numpy.typing as npt

from arkml.errors import HiveError, HiveRefused, HiveUnreachable, ProtocolError
from arkml.hive.answers import Standing, refused_rows, understood, whole
from arkml.hive.outbox import Outbox
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import (
    CONTENT_TYPE,
    HEADER_SIZE,
    META,
    Columns,
    Kind,
    decode,
    encode,
    parse_header,
)
from arkml.hive.protocol.runs import MAX_NAMES
from arkml.hive.transport import GONE, RETRIED, HiveTransport, parsed, reason

log = logging.getLogger(__name__)

FIRST_PAUSE, LAST_PAUSE = 0.05, 2.0  # seconds between two tries
_FORBIDDEN = (401, 403)
_MOST_REFUSED = 1_024
_MAX_NAME = (1 << 32) - 1
_EMPTY = np.zeros(0, META)


@dataclass(slots=True)
class Ledger:
    """
    What became of the rows of a session.

    `checksum` is the XOR of the hashes of all rows the hive has accepted (see `protocol.audit`).
    `renewed` counts how often the session was joined again.
    """

    accepted: int = 0
    refused: int = 0
    discarded: int = 0
    checksum: int = 0
    renewed: int = 0


@dataclass(slots=True)
class _Body:
    """Rows that are on their way under one number; the columns are views of the data."""

    seq: int
    kind: Kind
    columns: Columns
    data: bytes
    dropped: int


class Membership(Protocol):
    """The part in a run that rows are sent for."""

    run_id: str
    index: int
    sid: str

    async def join(self) -> int:
        """Join, or join again; the number of the last body that the hive has."""
        ...

    def settle(self, standing: Standing) -> None:
        """Take over what every answer to a session says."""
        ...


class Delivery:
    """
    Takes rows out of an outbox and sends them, one body at a time.

    `arrived` is how many of the rows that it took are settled: at the hive, or refused by it.
    """

    def __init__(self, link: HiveTransport, outbox: Outbox, member: Membership) -> None:
        self.arrived = 0
        self.ledger = Ledger()
        self.seq = 0
        """The number of the last body."""
        self._link = link
        self._outbox = outbox
        self._member = member
        self._names: dict[str, int] = {}
        self._refused: set[str] = set()
        self._is_sending = False

    async def send(self, *, partial: bool) -> bool:
        """
        Send the oldest body, with `partial` one that is not full too; whether there was one.

        Raises HiveRefused and RunGone when the session can go on no more.
        """
        self._outbox.trim()
        found = self._outbox.take(partial=partial)
        if found is None:
            return False
        kind, columns = found
        columns.meta = await self._meta()
        self.seq += 1
        dropped = self._outbox.untold()
        data = self._encoded(kind, columns, dropped)
        sent = decode(parse_header(data), memoryview(data)[HEADER_SIZE:], check=False)
        self._is_sending = True
        try:
            await self._deliver(_Body(self.seq, kind, sent, data, dropped))
        finally:
            self._is_sending = False
        return True

    def relieve(self) -> None:
        """Give up the oldest rows while there are too many and a hive takes its time."""
        if self._is_sending:  # otherwise rows that were taken may not be copied yet
            self._outbox.trim()

    def _encoded(self, kind: Kind, columns: Columns, dropped: int) -> bytes:
        return encode(
            columns, seq=self.seq, kind=kind, dropped=dropped, sent_ns=time.monotonic_ns()
        )

    async def _meta(self) -> npt.NDArray[Any]:
        """The metrics noted so far, by the ids that the hive gave their names."""
        notes = self._outbox.take_notes()
        if not notes:
            return _EMPTY
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
        return np.array(known, META)

    async def _number(self, names: list[str]) -> None:
        """Have the hive number these names. Those that it refuses are told once."""
        path = f"/runs/{self._member.run_id}/names"
        try:
            found = await self._link.fetch("POST", path, body={"names": names})
            ids, refused = understood(lambda: (dict(found["ids"]), dict(found.get("refused", {}))))
            self._names.update(
                {name: whole(ids, name, most=_MAX_NAME) for name in names if name not in refused}
            )
        except HiveError as error:
            log.warning("metrics %s are lost: %s", ", ".join(sorted(names)), error)
            return
        for name in names:
            if name in refused:
                self._refused.add(name)
                log.warning("metric %r is not kept: %s", name, str(refused[name])[:200])
        if len(self._refused) >= _MOST_REFUSED:
            log.warning("the hive refused %d metrics: no more are sent", len(self._refused))

    async def _deliver(self, body: _Body) -> None:
        """Send a body until the hive has it, or says that it will never take it."""
        pause = FIRST_PAUSE
        headers = {"content-type": CONTENT_TYPE}
        while True:
            try:
                path = f"/sessions/{self._member.sid}/rows"
                answer = await self._link.send("POST", path, content=body.data, headers=headers)
                if await self._understood(body, answer):
                    return
            except (HiveUnreachable, ProtocolError) as error:
                log.debug("%s", error)
            self._outbox.trim()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(2 * pause, LAST_PAUSE)

    async def _understood(self, body: _Body, answer: httpx.Response) -> bool:
        """Whether the body is settled by this answer."""
        status = answer.status_code
        if status == 200:
            self._acknowledge(body, parsed(answer))
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
            self._renumber(body, whole(parsed(answer), "expected", least=1))
            return False
        log.warning(
            "%d rows are lost: the hive answered %d: %s",
            len(body.columns), status, reason(answer),
        )  # fmt: skip
        self.ledger.discarded += len(body.columns)
        self.arrived += len(body.columns)
        self._outbox.release(len(body.columns))
        body.columns = body.columns.take(slice(0))
        body.data = self._encoded(body.kind, body.columns, body.dropped)
        return False

    async def _rejoin(self, body: _Body) -> None:
        """The hive does not know the session: join again; a body it has already comes twice."""
        self.ledger.renewed += 1
        try:
            acked = await self._member.join()
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
        body.data = self._encoded(body.kind, body.columns, body.dropped)

    def _acknowledge(self, body: _Body, answer: Mapping[str, Any]) -> None:
        columns, ledger = body.columns, self.ledger
        count = len(columns)
        standing = Standing.of(answer)
        refused, marks = refused_rows(answer, count)
        kept = columns.take(marks) if refused else columns
        ledger.accepted += count - refused
        ledger.refused += refused
        ledger.checksum ^= checksum(row_hashes(self._member.index, body.kind, kept))
        self.arrived += count
        self._outbox.release(count)
        self._member.settle(standing)
