"""
Bodies of requests and answers: rows, from the request to the log of their run, and JSON.

The host checks rows before it sends them; the server checks them again, since a host is a network
peer. A refused row leaves a gap (decision 7). Their route is plain ASGI: every millisecond here is
a few hundred rows.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
from msgspec.structs import asdict
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arkml.abi.codes import EpisodeState
from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.rows import (
    CONTENT_TYPE,
    HEADER_SIZE,
    MAX_BODY,
    Header,
    Place,
    RowColumns,
    RowKind,
    decode,
    encode,
    parse_header,
)
from arkml.hive.protocol.runs import Role
from arkml.hive.protocol.session_messages import OutOfTurn, RowsReply
from arkml.hive.protocol.wire import WireStruct
from arkml.server.access.callers import CALLER, AccessRole, Caller
from arkml.server.error_answers import refusal
from arkml.server.hive import Hive
from arkml.server.run import Run
from arkml.server.sessions import RunSession

JSON = "application/json"

APPENDED = "arkml.appended"
"""The key of a request's scope under which middleware finds the appended body."""

_MAX_REASONS = 64
_MOST_JSON = 8 << 20
"""Bytes of a body of JSON at most."""


class Appended(NamedTuple):
    """A body of rows that is in the log of a run, with the position in the log after it."""

    run: Run
    session: RunSession
    header: Header
    end: Place


class BodyRoute:
    """
    A route that receives bytes, as a plain ASGI application without the cost of a framework.

    `answer` reads the body and returns the response; it may leave a part of the body unread.
    """

    def __init__(self, answer: Callable[[Scope, Receive], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except Exception as error:  # noqa: BLE001 -- it is the answer to the sender
            answer = _refuse(scope, error)
        await answer(scope, receive, send)


def declared_size(scope: Scope) -> int | None:
    """Return the size of a request's body in bytes, by its header; None if it gives none."""
    size = dict(scope["headers"]).get(b"content-length", b"")
    return int(size) if size.isdigit() else None


def _refuse(scope: Scope, error: Exception) -> Response:
    """Return the refusal of a request, of whose body a part may be unread."""
    answer = refusal(error)
    size = declared_size(scope)
    if size is None or size > 2 * MAX_BODY:
        answer.headers["connection"] = "close"  # the rest of the body is not worth reading
    return answer


class Uploads(BodyRoute):
    """The route `POST /v1/sessions/{sid}/rows`, by which a host sends the rows of its session."""

    def __init__(self, hive: Hive) -> None:
        super().__init__(self._take)
        self._hive = hive

    async def _take(self, scope: Scope, receive: Receive) -> Response:
        caller: Caller = scope[CALLER]
        if caller.grant is None:
            caller.require(AccessRole.ACT, "POST", "/sessions/{sid}/rows")
        run, session = self._hive.session(scope["path_params"]["sid"])
        if caller.grant is not None:
            caller.grant.require_run(run.document.id)
        run.lifecycle.use(session)
        if session.role is Role.EVALUATE:
            raise HiveRefused("a session that evaluates keeps its rows", 422)
        kind = dict(scope["headers"]).get(b"content-type", b"").split(b";")[0].strip()
        if kind != CONTENT_TYPE.encode():
            raise HiveRefused(f"rows are {CONTENT_TYPE}, not {kind.decode('latin-1')!r}", 415)
        header, body = await read_rows(declared_size(scope), receive)
        run.document.check_widths(header.features, header.actions, 422, images=header.images)
        if header.seq < 1:
            raise HiveRefused("bodies are counted from 1", 422)
        log = run.lifecycle.log
        if not log.is_open:
            await run.start()
        run.lifecycle.use(session)
        run.require_turn()
        session.has_demonstrated |= header.kind is RowKind.DEMONSTRATION
        expected = log.acked(session.index) + 1
        if header.seq > expected:
            text = f"body {header.seq} comes before body {expected}"
            return reply(OutOfTurn(text, expected), 409)
        is_new = header.seq == expected
        checked = check_rows(header, body, len(run.document.names))
        end = await run.append(
            session, checked.header, checked.body,
            refused=checked.refused, version=checked.version, is_new=is_new,
        )  # fmt: skip
        if end is not None:
            self._hive.refused_rows.update(checked.kinds)
            scope[APPENDED] = Appended(run, session, checked.header, end)
        answer = RowsReply(
            accepted=checked.header.rows if is_new else 0,
            refused=checked.reasons,  # of a repetition, those of the first time may be lost
            refused_n=checked.refused,
            duplicate=not is_new,
            **asdict(run.session_state(session)),
        )
        return reply(answer)


async def read_rows(declared: int | None, receive: Receive) -> tuple[Header, bytes]:
    """
    Read a body of rows from a request, and return its header and all of its bytes.

    The header is checked before the rest is read.

    Args:
        declared: The size in bytes that the request gives, None if it gives none.
        receive: The ASGI callable that yields the body.

    Raises:
        HiveRefused: The body is too large, too slow or incomplete.
        ProtocolError: The header is malformed, or the body has another size.

    """
    if declared is not None and declared > MAX_BODY:
        raise HiveRefused(f"a body of {declared} bytes, {MAX_BODY} at most", 413)
    data = bytearray()  # a list of many small parts would take seventy times as much
    header, more = None, True
    while more:
        message = await receive()
        if message["type"] == "http.disconnect":
            raise HiveRefused("the sender went away", 400)
        data += message.get("body", b"")
        more = message.get("more_body", False)
        size = len(data)
        if header is None and size >= HEADER_SIZE:
            header = parse_header(bytes(data[:HEADER_SIZE]))
            said = HEADER_SIZE + header.payload
            if declared is not None and declared != said:
                raise HiveRefused(f"a body of {declared} bytes, its header says {said}", 400)
        if size > MAX_BODY:
            raise HiveRefused(f"a body of more than {MAX_BODY} bytes", 413)
        if header is not None and size > HEADER_SIZE + header.payload:
            raise HiveRefused("the body is longer than its header says", 400)
    if header is None or len(data) != HEADER_SIZE + header.payload:
        raise HiveRefused(f"a body of {len(data)} bytes is shorter than its header says", 400)
    return header, bytes(data)


class CheckedRows(NamedTuple):
    """
    The accepted rows of a body, with a header of their own.

    Attributes:
        body: The rows; the original body if no row was refused.
        header: The header of `body`.
        refused: The number of refused rows.
        reasons: The first refused rows: the index of each, and the reason.
        kinds: The number of refused rows by reason, for example "not finite".
        version: The policy version of the last row, 0 without rows.

    """

    body: bytes
    header: Header
    refused: int
    reasons: list[tuple[int, str]]
    kinds: dict[str, int]
    version: int = 0


def check_rows(header: Header, body: bytes, names: int) -> CheckedRows:
    """
    Check each row of a body.

    Args:
        header: The header of the body.
        body: The rows.
        names: The number of metrics that the run has named.

    Raises:
        ProtocolError: The body is damaged, or holds a metric without a name.

    """
    columns = decode(header, memoryview(body)[HEADER_SIZE:])
    if header.metas and int(columns.meta["name"].max()) >= names:
        raise ProtocolError(f"metric {int(columns.meta['name'].max())} has no name")
    version = int(columns.version[-1]) if header.rows else 0
    faults = {
        "not finite": _not_finite(columns),
        "no such state": columns.state > max(EpisodeState),
        "out of order": _out_of_order(columns),
    }
    refused = np.logical_or.reduce(list(faults.values()))
    if not refused.any():
        return CheckedRows(body, header, 0, [], {}, version)
    kept = encode(
        columns.take(~refused),
        seq=header.seq,
        kind=header.kind,
        dropped=header.dropped,
        sent_ns=header.sent_ns,
        non_finite=header.non_finite + int(faults["not finite"].sum()),
        outside=header.outside,
    )
    numbers = np.flatnonzero(refused)
    reasons = [
        (int(row), next(reason for reason, rows in faults.items() if rows[row]))
        for row in numbers[:_MAX_REASONS]
    ]
    kinds, counted = dict[str, int](), np.zeros(len(columns), bool)
    for reason, rows in faults.items():
        kinds[reason] = int((rows & ~counted).sum())
        counted |= rows
    return CheckedRows(kept, parse_header(kept), len(numbers), reasons, kinds, version)


def _not_finite(columns: RowColumns) -> npt.NDArray[np.bool_]:
    """Return a mask of rows with a number that is not finite: bool, [n]."""
    # A sum takes a third of the time of a test of each number, and nearly always suffices.
    with np.errstate(all="ignore"):
        total = columns.features.sum() + columns.action.sum() + columns.reward.sum()
    if np.isfinite(total):
        return np.zeros_like(columns.reward, bool)
    wrong = ~np.isfinite(columns.reward)
    for array in (columns.features, columns.action):
        wrong |= ~np.isfinite(array).all(axis=1)
    return wrong


def _out_of_order(columns: RowColumns) -> npt.NDArray[np.bool_]:
    """Return a mask of rows whose step is not above the step of the agent's last row: bool, [n]."""
    order = np.argsort(columns.agent, kind="stable")
    agent, step, state = columns.agent[order], columns.step[order], columns.state[order]
    wrong = np.zeros_like(agent, bool)
    back = (agent[1:] == agent[:-1]) & (step[1:] <= step[:-1])
    wrong[order[1:]] = back & (state[1:] != EpisodeState.INITIAL)
    return wrong


async def read_object(request: Request) -> dict[str, Any]:
    """Return the JSON object in a request. Raises HiveRefused."""
    data = bytearray()
    async for part in request.stream():
        data += part
        if len(data) > _MOST_JSON:
            raise HiveRefused(f"a body of more than {_MOST_JSON} bytes", 413)
    try:
        return parse_object(bytes(data or b"{}"))
    except ProtocolError as error:
        raise HiveRefused(f"the body cannot be taken: {error}", 400) from None


def reply(struct: WireStruct, status: int = 200) -> Response:
    """Return a message as a JSON response with an HTTP status."""
    return Response(struct.as_bytes(), status, media_type=JSON)
