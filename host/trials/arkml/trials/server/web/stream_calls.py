"""Calls of grpc-web with a stream of answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Callable, Sequence
from typing import Any, Final, NamedTuple

from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arkml.trials.server.web.access import Grant
from arkml.trials.server.web.calls import (
    Stalled,
    content_refusal,
    read_message,
    running,
    status_of,
)
from arkml.trials.server.web.connections import connection_in
from arkml.trials.server.web.frames import (
    CONTENT_TYPE,
    CallStatus,
    data_frame,
    ids_in,
    trailers_frame,
)
from arkml.trials.server.web.gate import grant_in
from arkml.trials.server.web.options import WebLimits
from arkml.trials.server.web.rates import ReadingPaces

_ENDING: Final = (CallStatus.UNAVAILABLE, "the server is ending")


class StreamCall(NamedTuple):
    """A call with its request message, the trials in its metadata, and its client's rights."""

    request: Any
    trial_ids: Sequence[str]
    grant: Grant


class StreamMethod(NamedTuple):
    """
    A method with its request type, its check of rights, and its generator of answers.

    `admit` raises CallRefused for a call that is not permitted. `answer` is asked for the next
    message as soon as the client has read the last one.
    """

    takes: type[Message]
    admit: Callable[[Grant, Sequence[str]], object]
    answer: Callable[[StreamCall], AsyncGenerator[Message, None]]


class StreamCalls:
    """The ASGI application of one method with a stream of answers."""

    def __init__(self, method: StreamMethod, limits: WebLimits, paces: ReadingPaces) -> None:
        self._method = method
        self._limits = limits
        self._paces = paces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refusal = content_refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            grant = grant_in(scope)
            trial_ids = ids_in(request.headers.getlist("trial-id"))
            self._method.admit(grant, trial_ids)
            message = await read_message(request, self._method.takes, self._limits, self._paces)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - the client gets a status for any
            answer = Response(trailers_frame(*status_of(error)), media_type=CONTENT_TYPE)
            await answer(scope, receive, send)
            return
        writer = _Writer(send, self._limits.stalled_seconds)
        try:
            await self._stream(StreamCall(message, trial_ids, grant), scope, receive, writer)
        except Stalled:
            connection_in(scope).abort()

    async def _stream(
        self, call: StreamCall, scope: Scope, receive: Receive, writer: _Writer
    ) -> None:
        """Send messages until there are none left, the client has gone, or the server stops."""
        await writer.begin()
        async with running(
            _send_all(self._method.answer(call), writer),
            _gone(receive),
            connection_in(scope).ending.wait(),
        ) as (sending, leaving, ending):
            await asyncio.wait((sending, leaving, ending), return_when=asyncio.FIRST_COMPLETED)
            if leaving.done():
                return
            end = sending.result() if sending.done() else _ENDING
        await writer.end(*end)


class _Writer:
    """Writes the answer to one call in parts. Raises Stalled if the client does not read."""

    def __init__(self, send: Send, seconds: float) -> None:
        self._send = send
        self._seconds = seconds

    async def begin(self) -> None:
        headers = [(b"content-type", CONTENT_TYPE.encode())]
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def write(self, part: bytes, *, is_last: bool = False) -> None:
        message = {"type": "http.response.body", "body": part, "more_body": not is_last}
        try:
            async with asyncio.timeout(self._seconds):
                await self._send(message)
        except TimeoutError:
            raise Stalled(f"it left what it was sent unread for {self._seconds:g} s") from None

    async def end(self, status: CallStatus, message: str) -> None:
        await self.write(trailers_frame(status, message), is_last=True)


async def _send_all(
    messages: AsyncGenerator[Message, None], writer: _Writer
) -> tuple[CallStatus, str]:
    """Send messages, and return the status and message of their end. Raises Stalled."""
    try:
        async with contextlib.aclosing(messages):
            async for message in messages:
                await writer.write(data_frame(message))
    except Stalled:
        raise
    except Exception as error:  # noqa: BLE001 - the client gets a status for any
        return status_of(error)
    return CallStatus.OK, ""


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
