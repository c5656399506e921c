"""Calls of actors in a browser, over grpc-websockets: to join, or to take over an actor."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Final, NamedTuple, TypeAlias

from starlette.responses import PlainTextResponse
from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from arkml.trials.grpc_streams import FAREWELL, QueuedSender, SharedRoom
from arkml.trials.server.web.calls import Stalled, running, status_of
from arkml.trials.server.web.connections import connection_in
from arkml.trials.server.web.frames import (
    SUBPROTOCOL,
    CallHeaders,
    CallRefused,
    CallStatus,
    HalfClose,
    SocketDecoder,
    SocketEvent,
    data_frame,
    headers_frame,
    ids_in,
    parsed,
    trailers_frame,
)
from arkml.trials.server.web.gate import grant_in
from arkml.trials.server.web.rates import ReadingPace, ReadingPaces
from arkml.trials.server.web.web_options import WebLimits
from arkml.trials.streams import Receiver, Sender
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import CommunicationState

END: Final = CommunicationState.END

_MOST_EARLY: Final = 16  # messages of an actor that was not admitted yet


class ActorOpening(NamedTuple):
    """
    The opening of a client's call, by which it becomes an actor.

    Attributes:
        headers: The headers of the call, with names in lower case.
        trial_id: Id of the trial.
        slot: Name or class of the actor.

    """

    headers: Mapping[str, str]
    trial_id: str
    slot: ActorInitialOutput


Admit: TypeAlias = Callable[
    [ActorOpening, Sender[ActorRunTrialInput]], Awaitable[Receiver[ActorRunTrialOutput]]
]
"""Admits an actor, to which the trial sends through the sender. Raises TrialError if it refuses."""


class ActorCalls:
    """
    The ASGI application of a websocket on which a browser and a trial exchange an actor's messages.

    Args:
        admit: Admits the actor, by joining the trial or by taking over an actor.
        limits: Limits of the web port.
        paces: Rate limits of requests, by address.
        room: Memory that unsent messages to all actors share.

    """

    def __init__(
        self, admit: Admit, limits: WebLimits, paces: ReadingPaces, room: SharedRoom
    ) -> None:
        self._admit = admit
        self._limits = limits
        self._paces = paces
        self._room = room

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if SUBPROTOCOL not in scope["subprotocols"]:
            refusal = PlainTextResponse(f"the subprotocol is to be {SUBPROTOCOL}\n", 400)
            await refusal(scope, receive, send)
            return
        connection = connection_in(scope)
        await self._paces.of(connection.address).admit(0)
        browser = _Browser(WebSocket(scope, receive, send), self._limits)
        call = _ActorCall(self._admit, browser, self._limits, self._room)
        try:
            await browser.accept()
            await call.run(scope)
        except WebSocketDisconnect:
            pass
        except Stalled:
            connection.abort()


class _Browser:
    """
    The websocket of one actor.

    Methods raise WebSocketDisconnect once it is closed, and Stalled if the client does not read.
    """

    def __init__(self, socket: WebSocket, limits: WebLimits) -> None:
        self._socket = socket
        self._seconds = limits.stalled_seconds
        self._decoder = SocketDecoder(limits.message_bytes)
        self._pace = ReadingPace(limits)
        self._events: deque[SocketEvent] = deque()
        self._has_headers = False
        self._is_ended = False

    async def accept(self) -> None:
        """Open the websocket."""
        await self._socket.accept(subprotocol=SUBPROTOCOL)

    async def next(self) -> SocketEvent:
        """Wait for the next part of the call. Raises CallRefused if it is malformed."""
        while not self._events:
            message = await self._socket.receive()
            if message["type"] == "websocket.disconnect":
                raise WebSocketDisconnect(message.get("code", 1005))
            data = message.get("bytes")
            if data is None:
                raise CallRefused("the messages of a grpc-websocket are binary, not text")
            await self._pace.admit(len(data))
            self._events.extend(self._decoder.receive(data))
        event = self._events.popleft()
        if isinstance(event, bytes) and self._events:
            await self._pace.admit(0)  # one websocket message may hold many of the call
        return event

    async def write(self, message: ActorRunTrialInput) -> None:
        """Send a message."""
        await self._send(data_frame(message))
        self._is_ended = message.state == END

    async def end(self, status: CallStatus, text: str) -> None:
        """Send END with the text as details, unless END was sent already, and the trailers."""
        if not self._is_ended:
            await self.write(ActorRunTrialInput(state=END, details=text or None))
        await self._send(trailers_frame(status, text))
        await self._in_time(self._socket.close())

    async def _send(self, frame: bytes) -> None:
        if not self._has_headers:
            self._has_headers = True
            await self._in_time(self._socket.send_bytes(headers_frame()))
        await self._in_time(self._socket.send_bytes(frame))

    async def _in_time(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(self._seconds):
                await sending
        except TimeoutError:
            raise Stalled(f"it left what it was sent unread for {self._seconds:g} s") from None


class _ActorCall:
    """The call of one actor, from its first message to its end."""

    def __init__(
        self, admit: Admit, browser: _Browser, limits: WebLimits, room: SharedRoom
    ) -> None:
        self._admit = admit
        self._browser = browser
        self._limits = limits
        self._overflow: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        most = limits.queued_messages, limits.queued_bytes
        self._queue: QueuedSender[ActorRunTrialInput]
        self._queue = QueuedSender(self._overflow.set_result, most, FAREWELL, room)
        self._receiver: Receiver[ActorRunTrialOutput] | None = None
        self._early: list[ActorRunTrialOutput] = []
        self._lost = ""

    async def run(self, scope: Scope) -> None:
        """Admit the actor, and transfer messages until its trial or the connection ends."""
        try:
            opening = await self._opening()
            grant_in(scope).require_slot(opening.trial_id, opening.slot)
        except CallRefused as refusal:
            await self._browser.end(refusal.status, str(refusal))
            return
        try:
            async with running(self._read(), self._play(opening)) as tasks:
                status, text = await self._ending(*tasks)
            self._lose(text or "the trial ended its stream")
            await self._browser.end(status, text)
        except Stalled as stalled:
            self._lose(str(stalled))
            raise
        finally:
            self._lose("its connection was closed")
            self._queue.drop()

    async def _opening(self) -> ActorOpening:
        """Read and return the opening of the call."""
        seconds = self._limits.handshake_seconds
        try:
            async with asyncio.timeout(seconds):
                headers, first = await self._browser.next(), await self._browser.next()
        except TimeoutError:
            raise CallRefused(
                f"the actor did not say within {seconds:g} s what it joins",
                CallStatus.DEADLINE_EXCEEDED,
            ) from None
        assert isinstance(headers, CallHeaders)  # the decoder has no other event first
        trial_ids = ids_in([headers.values.get("trial-id", "")])
        if len(trial_ids) != 1:
            raise CallRefused(f"an actor joins one trial, not {len(trial_ids)} (header trial-id)")
        message = parsed(ActorRunTrialOutput, first) if isinstance(first, bytes) else None
        if message is None or message.WhichOneof("data") != "init_output":
            raise CallRefused("the first message of an actor is to be its init_output")
        return ActorOpening(headers.values, trial_ids[0], message.init_output)

    async def _play(self, opening: ActorOpening) -> None:
        """Admit the actor, and send the trial's messages until it ends the stream."""
        receiver = await self._admit(opening, self._queue)
        self._receiver = receiver
        for message in self._early:
            receiver.receive(message)
        if self._lost:
            receiver.lose(self._lost)
        await self._queue.pump(self._browser.write)

    async def _read(self) -> None:
        """Pass the browser's messages to the trial. Ends only with an error."""
        while True:
            event = await self._browser.next()
            if isinstance(event, HalfClose):
                self._lose("it ended its stream")
            elif isinstance(event, bytes):
                message = parsed(ActorRunTrialOutput, event)
                if self._receiver is None:
                    self._keep_early(message)
                elif not self._lost:
                    self._receiver.receive(message)

    async def _ending(
        self, reading: asyncio.Task[None], playing: asyncio.Task[None]
    ) -> tuple[CallStatus, str]:
        """Wait until the call ends, and return its status and message."""
        waited = (reading, playing, self._overflow)
        await asyncio.wait(waited, return_when=asyncio.FIRST_COMPLETED)
        if self._overflow.done():
            return CallStatus.RESOURCE_EXHAUSTED, self._overflow.result()
        error = playing.exception() if playing.done() else reading.exception()
        if error is None:
            return CallStatus.OK, ""
        if isinstance(error, WebSocketDisconnect | Stalled):
            raise error
        status, text = status_of(error)
        if self._receiver is not None and not playing.done():
            self._lose(text)  # the trial may answer with END, which is sent
            self._queue.close()
            await asyncio.wait((playing, self._overflow), return_when=asyncio.FIRST_COMPLETED)
        return status, text

    def _keep_early(self, message: ActorRunTrialOutput) -> None:
        if len(self._early) >= _MOST_EARLY:
            raise CallRefused(
                f"the actor sent more than {_MOST_EARLY} messages before it was admitted",
                CallStatus.RESOURCE_EXHAUSTED,
            )
        self._early.append(message)

    def _lose(self, reason: str) -> None:
        """Report the end of the actor's stream to the trial, once."""
        if not self._lost:
            self._lost = reason
            if self._receiver is not None:
                self._receiver.lose(reason)
