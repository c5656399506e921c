"""Calls of grpc-web, with one answer or a stream of answers."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import (
    AsyncGenerator,
    AsyncIterator,
    Awaitable,
    Callable,
    Coroutine,
    Mapping,
    Sequence,
)
from typing import Any, Final, NamedTuple, TypeVar

from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import PlainTextResponse, Response
from starlette.types import Receive, Scope, Send

from arkml.base.loggers import SafeLogger
from arkml.trials.core.error import ActorTaken, TrialError
from arkml.trials.server.web.access import Grant
from arkml.trials.server.web.connections import connection_in
from arkml.trials.server.web.frames import (
    CONTENT_TYPE,
    CONTENT_TYPES,
    CallRefused,
    CallStatus,
    FrameDecoder,
    data_frame,
    ids_in,
    parsed,
    trailers_frame,
)
from arkml.trials.server.web.gate import grant_in
from arkml.trials.server.web.rates import ReadingPaces
from arkml.trials.server.web.web_options import WebLimits

log = SafeLogger(__name__)

_ENDING: Final = (CallStatus.UNAVAILABLE, "the server is ending")

M = TypeVar("M", bound=Message)


class Stalled(Exception):
    """An error for a client that has left data unread for too long."""


class WebCall(NamedTuple):
    """
    A call of a grpc-web method.

    Attributes:
        method: Name of the method.
        request: The request message.
        trial_ids: Ids of trials in the call's metadata.
        grant: Rights of the client.

    """

    method: str
    request: Any
    trial_ids: Sequence[str]
    grant: Grant


class WebMethod(NamedTuple):
    """
    A method of a service that browsers can call.

    Attributes:
        takes: Type of the request message.
        answer: Returns the answer, or a generator of answers. The generator is asked for the next
            one as soon as the client has read the last one.
        admit: Called with the client's rights and the ids of trials before the message is read.
            Raises CallRefused for a call that is not permitted.

    """

    takes: type[Message]
    answer: Callable[[WebCall], Awaitable[Message] | AsyncGenerator[Message, None]]
    admit: Callable[[Grant, Sequence[str]], object] = lambda _, __: None


class ServiceCalls:
    """
    The ASGI application of the methods of a service; the last part of the path names one.

    Args:
        methods: The methods by name.
        limits: Limits of the web port.
        paces: Rate limits of requests, by address.

    """

    def __init__(
        self, methods: Mapping[str, WebMethod], limits: WebLimits, paces: ReadingPaces
    ) -> None:
        self._methods = methods
        self._limits = limits
        self._paces = paces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
        if kind not in CONTENT_TYPES:
            text = f"the content type is {kind!r}, not {CONTENT_TYPE}\n"
            await PlainTextResponse(text, status_code=415)(scope, receive, send)
            return
        try:
            answer = await self._answer(request)
            if isinstance(answer, Message):
                content = data_frame(answer) + trailers_frame(CallStatus.OK)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - the client gets a status for any
            answer, content = None, trailers_frame(*status_of(error))
        if isinstance(answer, AsyncGenerator):
            try:
                await _stream(answer, scope, receive, _Writer(send, self._limits.stalled_seconds))
            except Stalled:
                connection_in(scope).abort()
        else:
            await Response(content, media_type=CONTENT_TYPE)(scope, receive, send)

    async def _answer(self, request: Request) -> Message | AsyncGenerator[Message, None]:
        name = request.path_params["method"]
        method = self._methods.get(name)
        if method is None:
            raise CallRefused(f"there is no method {name!r} here", CallStatus.UNIMPLEMENTED)
        grant = grant_in(request.scope)
        trial_ids = ids_in(request.headers.getlist("trial-id"))
        method.admit(grant, trial_ids)
        message = await _read_message(request, method.takes, self._limits, self._paces)
        answer = method.answer(WebCall(name, message, trial_ids, grant))
        return answer if isinstance(answer, AsyncGenerator) else await answer


async def _stream(
    messages: AsyncGenerator[Message, None], scope: Scope, receive: Receive, writer: _Writer
) -> None:
    """Send messages until there are none left, the client has gone, or the server stops."""
    await writer.begin()
    async with running(
        _send_all(messages, writer), _gone(receive), connection_in(scope).ending.wait()
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


async def _read_message(
    request: Request, kind: type[M], limits: WebLimits, paces: ReadingPaces
) -> M:
    """Return the one message of a request. Raises CallRefused for an invalid body."""
    decoder, messages, size = FrameDecoder(limits.message_bytes), list[bytes](), 0
    try:
        async with asyncio.timeout(limits.handshake_seconds):
            async for part in request.stream():
                messages += decoder.feed(part)
                size += len(part)
                if len(messages) > 1:
                    break
    except TimeoutError:
        raise CallRefused(
            f"the request did not arrive within {limits.handshake_seconds:g} s",
            CallStatus.DEADLINE_EXCEEDED,
        ) from None
    if len(messages) != 1:
        raise CallRefused(f"a call takes one message, not {len(messages) or 'none'}")
    decoder.finish()
    await paces.of(connection_in(request.scope).address).admit(size)
    return parsed(kind, messages[0])


def status_of(error: BaseException) -> tuple[CallStatus, str]:
    """Return the gRPC status and the message by which the client is told an error."""
    if isinstance(error, CallRefused):
        return error.status, str(error)
    if isinstance(error, ActorTaken):
        return CallStatus.ALREADY_EXISTS, str(error)
    if isinstance(error, TrialError):
        return CallStatus.FAILED_PRECONDITION, str(error)
    log.error("a call from the web failed", exc_info=error)
    return CallStatus.INTERNAL, "the server failed: its log has the reason"


@contextlib.asynccontextmanager
async def running(*parts: Coroutine[Any, Any, Any]) -> AsyncIterator[list[asyncio.Task[Any]]]:
    """Run coroutines as tasks, which are canceled at the end of the block."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
