"""The gRPC services of a server, for controllers, actors that join, and people."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, Final, NoReturn, TypeAlias

import grpc
from google.protobuf.message import DecodeError

from arkml.trials.core.error import ActorTaken, TrialError
from arkml.trials.grpc_streams import FAREWELL, UNREADABLE, QueuedSender, SharedRoom, read_all
from arkml.trials.server.orchestrator import Orchestrator
from arkml.trials.server.server_options import TrialLimits
from arkml.trials.service import PlayersService, version_info
from arkml.trials.streams import Receiver, Sender
from arkml.trials.user_ids import USER_ID, user_id_in
from arkml.trials.wire.actor_pb2 import ActorInitialOutput, ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest
from arkml.trials.wire.lifecycle_pb2 import (
    TerminateTrialReply,
    TerminateTrialRequest,
    TrialInfoReply,
    TrialInfoRequest,
    TrialListEntry,
    TrialListRequest,
    TrialStartReply,
    TrialStartRequest,
)
from arkml.trials.wire.players_pb2 import DescribeRequest, Description, LookRequest, View

HANDSHAKE_SECONDS: Final = 10.0
"""Seconds that an actor has to send its first message."""

CROSSING_SECONDS: Final = 1.0
"""Seconds that a peer has to end its side after the last message to it."""

_MOST_DETAILS: Final = 1_000  # characters: metadata have a limit of 16 KiB, percent-encoded

_Admit: TypeAlias = Callable[
    [str, ActorInitialOutput, Sender[ActorRunTrialInput]],
    Awaitable[Receiver[ActorRunTrialOutput]],
]


class _Described:
    """The methods that all services share."""

    def __init__(self, trials: Orchestrator) -> None:
        self._trials = trials

    async def Version(self, _: VersionRequest, __: Any) -> VersionInfo:  # noqa: N802
        """Return the versions of the server's components."""
        return version_info(await self._trials.versions())

    async def Status(self, request: StatusRequest, _: Any) -> StatusReply:  # noqa: N802
        """Return the requested statuses."""
        return StatusReply(statuses=self._trials.statuses(request.names))


class LifecycleService(_Described):
    """The service TrialLifecycleSP, which starts, ends and describes trials."""

    async def StartTrial(  # noqa: N802
        self, request: TrialStartRequest, context: Any
    ) -> TrialStartReply:
        """Start a trial, and answer with its id, which is empty if the requested id is in use."""
        try:
            return await self._trials.start(request)
        except TrialError as error:
            await _refuse(context, error)

    async def TerminateTrial(  # noqa: N802
        self, request: TerminateTrialRequest, context: Any
    ) -> TerminateTrialReply:
        """Request the end of the trials named in the metadata."""
        try:
            await self._trials.terminate(trial_ids(context), is_hard=request.hard_termination)
        except TrialError as error:
            await _refuse(context, error)
        return TerminateTrialReply()

    async def GetTrialInfo(  # noqa: N802
        self, request: TrialInfoRequest, context: Any
    ) -> TrialInfoReply:
        """Describe the trials named in the metadata, or all."""
        try:
            return await self._trials.info(trial_ids(context), request)
        except TrialError as error:
            await _refuse(context, error)

    async def WatchTrials(  # noqa: N802
        self, request: TrialListRequest, _: Any
    ) -> AsyncIterator[TrialListEntry]:
        """Stream the present states of all trials, and then each change of a state."""
        async with contextlib.aclosing(self._trials.watch(request)) as entries:  # type: ignore[type-var]
            async for entry in entries:
                yield entry


class ClientActorService(_Described):
    """
    The gRPC service ClientActorSP, by which actors join trials.

    Messages that wait for actors that do not read are counted in `room`.
    """

    def __init__(self, trials: Orchestrator, room: SharedRoom) -> None:
        super().__init__(trials)
        self._room = room

    async def RunTrial(self, _: Any, context: Any) -> None:  # noqa: N802
        """Transfer the messages of an actor until its part in the trial ends."""
        await _carry(context, self._trials.options.limits, self._room, self._trials.join)


class PlayersServicer:
    """
    The gRPC service PlayersSP, by which people take over actors and watch trials.

    Messages that wait for people who do not read are counted in `room`.
    """

    def __init__(self, players: PlayersService, limits: TrialLimits, room: SharedRoom) -> None:
        self._players = players
        self._limits = limits
        self._room = room

    async def Describe(self, _: DescribeRequest, context: Any) -> Description:  # noqa: N802
        """Describe the guest and the live trials."""
        try:
            return await self._players.describe()
        except TrialError as error:
            await _refuse(context, error)

    async def TakeOver(self, _: Any, context: Any) -> None:  # noqa: N802
        """Transfer the messages of a person until either side ends the stream."""
        names = _metadata(context, USER_ID)

        async def admit(
            trial_id: str, slot: ActorInitialOutput, sender: Sender[ActorRunTrialInput]
        ) -> Receiver[ActorRunTrialOutput]:
            return await self._players.take_over(trial_id, slot, user_id_in(names), sender)

        await _carry(context, self._limits, self._room, admit)

    async def Look(self, _: LookRequest, context: Any) -> AsyncIterator[View]:  # noqa: N802
        """Stream the ticks of the trial named in the metadata."""
        try:
            views: Any = self._players.look(_one_trial(context, "a reader sees"))
            async with contextlib.aclosing(views):
                async for view in views:
                    yield view
        except TrialError as error:
            await _refuse(context, error)


async def _carry(context: Any, limits: TrialLimits, room: SharedRoom, admit: _Admit) -> None:
    """
    Transfer the messages of an actor that `admit` admits, until its part in the trial ends.

    A message from the actor after the end of the stream would be an error, and gRPC drops unread
    messages before an error. The stream therefore ends once the actor has ended its side, or after
    a moment.
    """
    lost: list[str] = []
    sender: QueuedSender[ActorRunTrialInput]
    sender = QueuedSender(lost.append, limits.queued, FAREWELL, room)
    try:
        receiver = await _admitted(context, sender, admit)
        reading = asyncio.create_task(_read(context, receiver))
        try:
            await sender.pump(context.write)
            await asyncio.wait([reading], timeout=CROSSING_SECONDS)
        except TimeoutError:
            lost.append("it did not read what it was sent")
            receiver.lose(lost[0])
            await _refuse(context, TrialError(lost[0]))
        finally:
            reading.cancel()
            receiver.lose("its stream was cut off")
    finally:
        sender.drop()


async def _admitted(
    context: Any, sender: Sender[ActorRunTrialInput], admit: _Admit
) -> Receiver[ActorRunTrialOutput]:
    """Return the receiver of an actor that is admitted; refuse the call of another one."""
    try:
        # Before any refusal: a write that fails as the call ends has gRPC's client in Python put
        # INTERNAL in the place of the reason (github.com/grpc/grpc/issues/36066).
        first = await _first_message(context)
        trial_id = _one_trial(context, "an actor joins")
        return await admit(trial_id, first.init_output, sender)
    except TrialError as error:
        await _refuse(context, error)


def _one_trial(context: Any, doing: str) -> str:
    ids = trial_ids(context)
    if len(ids) != 1:
        raise TrialError(f"{doing} one trial, not {len(ids)} (metadata trial-id)")
    return ids[0]


async def _first_message(context: Any) -> ActorRunTrialOutput:
    try:
        async with asyncio.timeout(HANDSHAKE_SECONDS):
            first = await context.read()
    except TimeoutError:
        raise TrialError(f"the actor sent nothing for {HANDSHAKE_SECONDS:g} s") from None
    except DecodeError as error:
        raise TrialError(f"it {UNREADABLE}: {error}") from None
    if first is grpc.aio.EOF or first.WhichOneof("data") != "init_output":
        raise TrialError("the first message of an actor is to be its init_output")
    assert isinstance(first, ActorRunTrialOutput)
    return first


async def _read(context: Any, receiver: Receiver[ActorRunTrialOutput]) -> None:
    receiver.lose(f"it {await read_all(context, receiver.receive)}")


def trial_ids(context: Any) -> list[str]:
    """Return the trial ids in the metadata of a call."""
    values = _metadata(context, "trial-id")
    return [one.strip() for value in values for one in value.split(",") if one.strip()]


def _metadata(context: Any, name: str) -> list[str]:
    """
    Return the values of a metadata key.

    Call it before the first await, as gRPC may free them.
    """
    return [value for key, value in context.invocation_metadata() or () if key == name]


async def _refuse(context: Any, error: TrialError) -> NoReturn:
    details = str(error)
    if len(details) > _MOST_DETAILS:
        details = f"{details[:_MOST_DETAILS]}..."
    is_taken = isinstance(error, ActorTaken)
    code = grpc.StatusCode.ALREADY_EXISTS if is_taken else grpc.StatusCode.FAILED_PRECONDITION
    await context.abort(code, details)
    raise AssertionError("abort raises")
