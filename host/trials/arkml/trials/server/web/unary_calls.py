"""Calls of grpc-web with one answer."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, NamedTuple

from google.protobuf.message import Message
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from arkml.trials.server.web.access import Grant
from arkml.trials.server.web.calls import content_refusal, read_message, status_of
from arkml.trials.server.web.frames import (
    CONTENT_TYPE,
    CallRefused,
    CallStatus,
    data_frame,
    ids_in,
    trailers_frame,
)
from arkml.trials.server.web.gate import grant_in
from arkml.trials.server.web.options import WebLimits
from arkml.trials.server.web.rates import ReadingPaces


class UnaryCall(NamedTuple):
    """A call with its request message, the trials in its metadata, and its client's rights."""

    method: str
    request: Any
    trial_ids: Sequence[str]
    grant: Grant


class UnaryMethod(NamedTuple):
    """A method with its request type and the function that answers it."""

    takes: type[Message]
    answer: Callable[[UnaryCall], Awaitable[Message]]


class UnaryCalls:
    """The ASGI application of the unary calls of a service; the path names the method."""

    def __init__(
        self, methods: Mapping[str, UnaryMethod], limits: WebLimits, paces: ReadingPaces
    ) -> None:
        self._methods = methods
        self._limits = limits
        self._paces = paces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        refusal = content_refusal(request)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        try:
            content = await self._answer(request)
        except ClientDisconnect:
            return
        except Exception as error:  # noqa: BLE001 - the client gets a status for any
            content = trailers_frame(*status_of(error))
        await Response(content, media_type=CONTENT_TYPE)(scope, receive, send)

    async def _answer(self, request: Request) -> bytes:
        name = request.path_params["method"]
        method = self._methods.get(name)
        if method is None:
            raise CallRefused(f"there is no method {name!r} here", CallStatus.UNIMPLEMENTED)
        grant = grant_in(request.scope)
        message = await read_message(request, method.takes, self._limits, self._paces)
        trial_ids = ids_in(request.headers.getlist("trial-id"))
        reply = await method.answer(UnaryCall(name, message, trial_ids, grant))
        return data_frame(reply) + trailers_frame(CallStatus.OK)
