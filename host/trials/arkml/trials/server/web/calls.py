"""Common parts of all web calls: request messages, errors and tasks."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from typing import Any, TypeVar

from google.protobuf.message import Message
from starlette.requests import Request
from starlette.responses import PlainTextResponse, Response

from arkml.base.loggers import SafeLogger
from arkml.trials.core.error import ActorTaken, TrialError
from arkml.trials.server.web.connections import connection_in
from arkml.trials.server.web.frames import (
    CONTENT_TYPE,
    CONTENT_TYPES,
    CallRefused,
    CallStatus,
    FrameDecoder,
    parsed,
)
from arkml.trials.server.web.options import WebLimits
from arkml.trials.server.web.rates import ReadingPaces

log = SafeLogger(__name__)

M = TypeVar("M", bound=Message)


class Stalled(Exception):
    """A client that has left data unread for too long."""


def content_refusal(request: Request) -> Response | None:
    """Return the answer to a request that is not grpc-web, None if it is."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind in CONTENT_TYPES:
        return None
    return PlainTextResponse(f"the content type is {kind!r}, not {CONTENT_TYPE}\n", status_code=415)


async def read_message(
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
    """Return the status and message to send to the client for an error."""
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
    """Run coroutines as tasks that are cancelled at the end of the block."""
    tasks = [asyncio.create_task(part) for part in parts]
    try:
        yield tasks
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
