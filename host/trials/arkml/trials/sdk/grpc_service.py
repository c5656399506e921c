"""A client of a server's gRPC services, for trials and for people in them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from functools import partial
from typing import Any, Final

import grpc
import grpc.aio

from arkml.base.host_names import grpc_proxy_options, proxy_note
from arkml.base.loggers import SafeLogger
from arkml.trials.core.error import ActorTaken, TrialError
from arkml.trials.grpc_aio import insecure_channel
from arkml.trials.grpc_methods import stub
from arkml.trials.grpc_streams import QueuedSender, cancel, read_all
from arkml.trials.streams import Receiver, Sender
from arkml.trials.user_ids import USER_ID, encoded_user_id
from arkml.trials.wire import actor_pb2, lifecycle_pb2, players_pb2
from arkml.trials.wire.actor_pb2 import (
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from arkml.trials.wire.common_pb2 import CommunicationState, VersionRequest
from arkml.trials.wire.lifecycle_pb2 import (
    TerminateTrialRequest,
    TrialInfoReply,
    TrialInfoRequest,
    TrialListEntry,
    TrialListRequest,
    TrialStartReply,
    TrialStartRequest,
)
from arkml.trials.wire.players_pb2 import DescribeRequest, Description, LookRequest, View

_log = SafeLogger(__name__)

LEAVING_SECONDS: Final = 10.0
"""Seconds that a server has to end a stream after this program has left it."""

_ANSWER_SECONDS = 60.0
"""Seconds that a server has to answer a request."""

_START_SECONDS = 600.0
"""Seconds that it has to start a trial: each pre-trial hook may take half a minute there."""


class GrpcTrials:
    """
    A TrialService and a PlayersService over gRPC.

    The connection opens at the first request and belongs to the event loop of that request; `close`
    ends it with all its streams.

    Args:
        authority: `HOST:PORT` of the server.
        metadata: Pairs to send with the requests of controllers.

    """

    def __init__(self, authority: str, metadata: Sequence[tuple[str, str | bytes]] = ()) -> None:
        self._authority = authority
        self._metadata = tuple(metadata)
        self._channel: Any = None
        self._streams: set[asyncio.Task[None]] = set()

    async def start(self, request: TrialStartRequest) -> TrialStartReply:
        """Start a trial; the reply has an empty id if the requested id is in use."""
        reply: TrialStartReply = await self._asked(
            self._lifecycle().StartTrial, request, self._metadata, seconds=_START_SECONDS
        )
        return reply

    async def terminate(self, trial_ids: Sequence[str], *, is_hard: bool) -> None:
        """Request the end of trials; with `is_hard` they end at once."""
        request = TerminateTrialRequest(hard_termination=is_hard)
        metadata = (*self._metadata, *_metadata(trial_ids))
        await self._asked(self._lifecycle().TerminateTrial, request, metadata)

    async def info(self, trial_ids: Sequence[str], request: TrialInfoRequest) -> TrialInfoReply:
        """Return the details of the trials with these ids, or of all trials if there are no ids."""
        metadata = (*self._metadata, *_metadata(trial_ids))
        reply: TrialInfoReply = await self._asked(self._lifecycle().GetTrialInfo, request, metadata)
        return reply

    def watch(self, request: TrialListRequest) -> AsyncIterator[TrialListEntry]:
        """Iterate over the present states of all trials, and then over each change of a state."""
        return self._streamed(
            lambda: self._lifecycle().WatchTrials(request, metadata=self._metadata)
        )

    async def versions(self) -> dict[str, str]:
        """Return the version of each component of the server, by name."""
        info = await self._asked(self._lifecycle().Version, VersionRequest(), self._metadata)
        return {version.name: version.version for version in info.versions}

    async def join(
        self, trial_id: str, slot: ActorInitialOutput, sender: Sender[ActorRunTrialInput]
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Join a trial as an actor, and return once the actor is admitted.

        Args:
            trial_id: Id of the trial.
            slot: Name or class of the actor.
            sender: Stream to the actor. The trial sends init_input first.

        Returns:
            The stream to the trial.

        Raises:
            TrialError: The server refuses or cannot be reached.

        """
        method = stub(self._opened(), actor_pb2.DESCRIPTOR, "ClientActorSP").RunTrial
        return await self._enter(method, trial_id, slot, sender)

    async def describe(self) -> Description:
        """
        Return a description of the server: the guest that its trials play, and its live trials.
        """
        description: Description = await self._asked(self._players().Describe, DescribeRequest())
        return description

    async def take_over(
        self,
        trial_id: str,
        slot: ActorInitialOutput,
        user_id: str,
        sender: Sender[ActorRunTrialInput],
    ) -> Receiver[ActorRunTrialOutput]:
        """
        Take over an actor, and return once the person is admitted as its player.

        Args:
            trial_id: Id of the trial.
            slot: Name or class of the actor.
            user_id: Name of the person.
            sender: Stream to the person.

        Returns:
            The stream to the trial.

        Raises:
            ActorTaken: The actor has another player.
            TrialError: The server refuses for another reason, or cannot be reached.

        """
        method = self._players().TakeOver
        user = (USER_ID, encoded_user_id(user_id))
        return await self._enter(method, trial_id, slot, sender, user)

    def look(self, trial_id: str) -> AsyncIterator[View]:
        """Iterate over the ticks of a trial until it ends."""
        metadata = _metadata([trial_id])
        return self._streamed(lambda: self._players().Look(LookRequest(), metadata=metadata))

    async def close(self) -> None:
        """Close the connection and all its streams."""
        for stream in self._streams:
            stream.cancel()
        await asyncio.gather(*self._streams, return_exceptions=True)
        if self._channel is not None:
            channel, self._channel = self._channel, None
            await channel.close()

    async def _streamed(self, opened: Callable[[], Any]) -> AsyncIterator[Any]:
        """Iterate over the messages of a call, which is opened at the first step."""
        call = opened()
        try:
            async for message in call:
                yield message
        except grpc.aio.AioRpcError as error:
            raise self._refused(error) from error
        finally:
            cancel(call)

    async def _enter(
        self,
        method: Any,
        trial_id: str,
        slot: ActorInitialOutput,
        sender: Sender[ActorRunTrialInput],
        *metadata: tuple[str, str],
    ) -> Receiver[ActorRunTrialOutput]:
        """Open a stream of an actor, and return once the trial has introduced it."""
        lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        outgoing: QueuedSender[ActorRunTrialOutput] = QueuedSender(lost.set_result)
        outgoing.send(ActorRunTrialOutput(state=CommunicationState.NORMAL, init_output=slot))
        call = method(aiter(outgoing), metadata=(*_metadata([trial_id]), *metadata))
        try:
            first = await self._introduction(trial_id, call, outgoing, lost)
        except BaseException:
            outgoing.close()
            cancel(call)
            raise
        sender.send(first)
        lost.add_done_callback(partial(self._give_up, call))
        stream = asyncio.create_task(self._read(call, sender, outgoing))
        self._streams.add(stream)
        stream.add_done_callback(self._streams.discard)
        return _Joined(call, outgoing, stream)

    async def _introduction(
        self,
        trial_id: str,
        call: Any,
        outgoing: QueuedSender[ActorRunTrialOutput],
        lost: asyncio.Future[str],
    ) -> ActorRunTrialInput:
        """Return the first message, init_input. Raises TrialError if the server refuses."""
        while True:
            try:
                message = await call.read()
            except grpc.aio.AioRpcError as error:
                raise self._refused(error) from error
            if message is None:
                raise TrialError(f"trial {trial_id} sent a message that could not be decoded")
            if message is grpc.aio.EOF:
                status = await call.code()
                details = await call.details()
                raise TrialError(f"trial {trial_id} let no actor in: {details or status}")
            state = message.state
            if state == CommunicationState.HEARTBEAT:
                outgoing.send(ActorRunTrialOutput(state=state))
                if lost.done():
                    raise TrialError(f"trial {trial_id} let no actor in: {lost.result()}")
            elif state == CommunicationState.END:
                raise TrialError(f"Trial [{trial_id}] - Ended before start [{message.details}]")
            else:
                first: ActorRunTrialInput = message
                return first

    def _give_up(self, call: Any, lost: asyncio.Future[str]) -> None:
        """End the stream of a server that does not read what it is sent."""
        _log.warning("the server at %s is given up: %s", self._authority, lost.result())
        cancel(call)

    async def _read(
        self,
        call: Any,
        sender: Sender[ActorRunTrialInput],
        outgoing: QueuedSender[ActorRunTrialOutput],
    ) -> None:
        try:
            reason = await read_all(call, sender.send)
            _log.info("%s %s", self._authority, reason)
        finally:
            cancel(call)
            outgoing.close()
            sender.close()

    async def _asked(
        self,
        method: Any,
        request: Any,
        metadata: tuple[tuple[str, str | bytes], ...] = (),
        *,
        seconds: float | None = None,
    ) -> Any:
        """Return the reply to a request, for which the server has `_ANSWER_SECONDS` or others."""
        try:
            return await method(request, metadata=metadata, timeout=seconds or _ANSWER_SECONDS)
        except grpc.aio.AioRpcError as error:
            raise self._refused(error) from error

    def _refused(self, error: Any) -> TrialError:
        if error.code() is grpc.StatusCode.UNAVAILABLE:
            note = proxy_note(self._authority)
            return TrialError(
                f"the server at {self._authority} is not reached: {error.details()}{note}"
            )
        if error.code() is grpc.StatusCode.DEADLINE_EXCEEDED:
            return TrialError(f"the server at {self._authority} has not answered in time")
        if error.code() is grpc.StatusCode.ALREADY_EXISTS:
            return ActorTaken(error.details())
        return TrialError(error.details() or f"the server refused with {error.code().name}")

    def _lifecycle(self) -> Any:
        return stub(self._opened(), lifecycle_pb2.DESCRIPTOR, "TrialLifecycleSP")

    def _players(self) -> Any:
        return stub(self._opened(), players_pb2.DESCRIPTOR, "PlayersSP")

    def _opened(self) -> Any:
        if self._channel is None:
            options = grpc_proxy_options(self._authority)
            self._channel = insecure_channel(self._authority, options)
        return self._channel


class _Joined:
    """The Receiver of a joined actor's messages."""

    def __init__(
        self, call: Any, outgoing: QueuedSender[ActorRunTrialOutput], stream: asyncio.Task[None]
    ) -> None:
        self._call = call
        self._outgoing = outgoing
        self._stream = stream
        self.receive = outgoing.send

    def lose(self, reason: str) -> None:  # noqa: ARG002
        self._outgoing.close()
        if not self._stream.done():
            loop = asyncio.get_running_loop()
            timer = loop.call_later(LEAVING_SECONDS, cancel, self._call)
            self._stream.add_done_callback(lambda _: timer.cancel())


def _metadata(trial_ids: Sequence[str]) -> tuple[tuple[str, str], ...]:
    return tuple(("trial-id", trial_id) for trial_id in trial_ids)
