"""Bodies of requests, read up to a limit of their size."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.documents import parse_object
from arkml.hive.protocol.rows import HEADER_SIZE, MAX_BODY, Header, parse_header
from arkml.server.error_answers import refusal

_MOST_JSON = 8 << 20


class BodyRoute:
    """A route that takes bytes, as plain ASGI. `answer` may leave a part of the body unread."""

    def __init__(self, answer: Callable[[Scope, Receive], Awaitable[Response]]) -> None:
        self._answer = answer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            answer = await self._answer(scope, receive)
        except Exception as error:  # noqa: BLE001 -- it is the answer to the sender
            answer = _refuse(scope, error)
        await answer(scope, receive, send)


async def read_rows(declared: int | None, receive: Receive) -> tuple[Header, bytes]:
    """
    Return the header of rows, and the whole body with it.

    `declared` is the size that the request gives, None for none. The header is checked before the
    rest is read. Raises HiveRefused and ProtocolError.
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


def _refuse(scope: Scope, error: Exception) -> Response:
    """Return the refusal of a request, of whose body a part may be unread."""
    answer = refusal(error)
    size = declared_size(scope)
    if size is None or size > 2 * MAX_BODY:
        answer.headers["connection"] = "close"  # the rest of the body is not worth reading
    return answer


def declared_size(scope: Scope) -> int | None:
    """Return the size of the body that a request gives, None for none."""
    size = dict(scope["headers"]).get(b"content-length", b"")
    return int(size) if size.isdigit() else None
