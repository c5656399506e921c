"""Calls to environments, actors, datalogs and hooks over gRPC."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any, Final
from urllib.parse import quote

import grpc

from arkml.base.descriptors import share_for_connections
from arkml.base.host_names import grpc_proxy_options, proxy_note
from arkml.trials.core.error import TrialError
from arkml.trials.core.parameters import TrialEndpoint
from arkml.trials.grpc_aio import insecure_channel
from arkml.trials.grpc_methods import stub
from arkml.trials.grpc_streams import (
    ENDED,
    FAREWELL,
    QueuedSender,
    SharedRoom,
    cancel,
    failure,
    read_all,
)
from arkml.trials.server.server_options import TrialLimits, grpc_options
from arkml.trials.streams import PacedSender, Receiver, Sender
from arkml.trials.wire import actor_pb2, datalog_pb2, environment_pb2, hooks_pb2
from arkml.trials.wire.actor_pb2 import ActorRunTrialInput, ActorRunTrialOutput
from arkml.trials.wire.datalog_pb2 import RunTrialDatalogInput, RunTrialDatalogOutput
from arkml.trials.wire.environment_pb2 import EnvRunTrialInput, EnvRunTrialOutput
from arkml.trials.wire.hooks_pb2 import PreTrialParams

DATALOG_SECONDS: Final = 600.0
"""Seconds that a datalog has after a trial to read its samples and end its stream."""

_OWN_CONNECTION = ("grpc.use_local_subchannel_pool", 1)


class SharedChannels:
    """
    One gRPC channel for each endpoint, shared by all who use it at the same time.

    A channel is closed after its last use. After each failure to connect, gRPC waits longer before
    the next attempt, so a kept channel would ignore a restarted process for minutes. For the same
    reason a new channel does not share a connection with an earlier one, which grpcio may not have
    closed yet.

    The number of channels is limited like the number of a port's connections, since each takes a
    file descriptor.
    """

    def __init__(self, limits: TrialLimits) -> None:
        self._options = grpc_options(limits)
        self._most = share_for_connections()
        self._channels: dict[str, tuple[grpc.aio.Channel, int]] = {}

    @contextlib.asynccontextmanager
    async def use(self, endpoint: TrialEndpoint) -> AsyncIterator[grpc.aio.Channel]:
        """
        Enter a context with the channel to an endpoint.

        Raises TrialError if there are too many channels.
        """
        authority = endpoint.authority
        if authority in self._channels:
            channel, users = self._channels[authority]
        elif len(self._channels) >= self._most:
            raise TrialError(
                f"{authority} is not called: this server calls {self._most} endpoints already, the"
                " most for its limit of open files (ulimit -n)"
            )
        else:
            options = [*self._options, *grpc_proxy_options(authority), _OWN_CONNECTION]
            channel, users = insecure_channel(authority, options), 0
        self._channels[authority] = channel, users + 1
        try:
            yield channel
        finally:
            _, users = self._channels.pop(authority)
            if users > 1:
                self._channels[authority] = channel, users - 1
            else:
                await channel.close()


class GrpcCallers:
    """
    The calls of trials to actors, environments and hooks at `grpc://` endpoints, in one loop.

    Messages that wait for peers that do not read are counted in `room`.
    """

    def __init__(self, limits: TrialLimits, room: SharedRoom) -> None:
        self._limits = limits
        self._room = room
        self._channels = SharedChannels(limits)
        self._tasks: set[asyncio.Task[None]] = set()

    def environment(
        self,
        endpoint: TrialEndpoint,
        implementation: str,  # noqa: ARG002  init_input has it
        trial_id: str,
        receiver: Receiver[EnvRunTrialOutput],
    ) -> Sender[EnvRunTrialInput]:
        """
        Open a stream to an environment, and return its sending end, without waiting.

        Args:
            endpoint: Address of the environment.
            implementation: Name of its implementation.
            trial_id: Id of the trial.
            receiver: Receiver of its messages.

        """
        file = environment_pb2.DESCRIPTOR
        return self._open(
            lambda channel: stub(channel, file, "EnvironmentSP").RunTrial,
            endpoint,
            trial_id,
            receiver,
        )

    def actor(
        self,
        endpoint: TrialEndpoint,
        implementation: str,  # noqa: ARG002  init_input has it
        trial_id: str,
        receiver: Receiver[ActorRunTrialOutput],
    ) -> Sender[ActorRunTrialInput]:
        """
        Open a stream to an actor, and return its sending end, without waiting.

        Args:
            endpoint: Address of the actor.
            implementation: Name of its implementation.
            trial_id: Id of the trial.
            receiver: Receiver of its messages.

        """
        file = actor_pb2.DESCRIPTOR
        return self._open(
            lambda channel: stub(channel, file, "ServiceActorSP").RunTrial,
            endpoint,
            trial_id,
            receiver,
        )

    def datalog(
        self,
        endpoint: TrialEndpoint,
        trial_id: str,
        user_id: str,
        receiver: Receiver[RunTrialDatalogOutput],
    ) -> PacedSender[RunTrialDatalogInput]:
        """
        Open a stream to a datalog, and return its sending end, without waiting.

        Args:
            endpoint: Address of the datalog.
            trial_id: Id of the trial.
            user_id: Id of the user who started it.
            receiver: Receiver that is notified of the end of the stream.

        """
        file = datalog_pb2.DESCRIPTOR
        return self._open(
            lambda channel: stub(channel, file, "DatalogSP").RunTrialDatalog,
            endpoint,
            trial_id,
            receiver,
            ("user-id", _printable(user_id)),
            farewell=DATALOG_SECONDS,
        )

    async def pre_trial(
        self, endpoint: TrialEndpoint, params: PreTrialParams, trial_id: str, user_id: str
    ) -> PreTrialParams:
        """
        Call a pre-trial hook, and return the parameters as the hook has changed them.

        Args:
            endpoint: Address of the hook.
            params: The parameters before.
            trial_id: Id of the trial.
            user_id: Id of the user who starts it.

        Raises:
            TrialError: The hook cannot be called, or fails.

        """
        metadata = (("trial-id", trial_id), ("user-id", _printable(user_id)))
        try:
            async with self._channels.use(endpoint) as channel:
                hooks = stub(channel, hooks_pb2.DESCRIPTOR, "TrialHooksSP")
                reply = await hooks.OnPreTrial(params, metadata=metadata)
        except grpc.aio.AioRpcError as error:
            raise TrialError(_noted(endpoint, failure(error))) from error
        assert isinstance(reply, PreTrialParams)
        return reply

    async def close(self) -> None:
        """End all streams, by force after some seconds."""
        if self._tasks:
            await asyncio.wait(self._tasks, timeout=FAREWELL)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _open(
        self,
        method: Callable[[grpc.aio.Channel], Any],
        endpoint: TrialEndpoint,
        trial_id: str,
        receiver: Receiver[Any],
        *metadata: tuple[str, str],
        farewell: float = FAREWELL,
    ) -> QueuedSender[Any]:
        """
        Open a stream by a function that returns the method of a channel.

        `farewell` is the time in seconds that the peer has to read the last messages.
        """
        sender: QueuedSender[Any]
        sender = QueuedSender(receiver.lose, self._limits.queued, farewell, self._room)
        given = (("trial-id", trial_id), *metadata)
        work = self._run(method, endpoint, given, receiver, sender, farewell)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return sender

    async def _run(
        self,
        method: Callable[[grpc.aio.Channel], Any],
        endpoint: TrialEndpoint,
        metadata: tuple[tuple[str, str], ...],
        receiver: Receiver[Any],
        sender: QueuedSender[Any],
        farewell: float,
    ) -> None:
        """Transfer the messages of one stream, and report its end to the receiver."""
        reason = _noted(endpoint, "did not end its stream")
        try:
            async with self._channels.use(endpoint) as channel:
                call = method(channel)(metadata=metadata)
                reason = _noted(endpoint, await _converse(call, receiver, sender, farewell))
        except TrialError as error:
            reason = str(error)
        finally:
            receiver.lose(reason)
            sender.drop()


async def _converse(
    call: Any, receiver: Receiver[Any], sender: QueuedSender[Any], farewell: float
) -> str:
    """
    Transfer messages until both sides have ended the stream.

    Returns the end of a sentence about the stream.
    """

    async def write() -> None:
        with contextlib.suppress(TimeoutError):
            await sender.pump(call.write)
            await call.done_writing()
            await asyncio.sleep(farewell)
        call.cancel()

    writing = asyncio.create_task(write())
    try:
        reason = await read_all(call, receiver.receive)
        if reason is ENDED and (code := await call.code()) is not grpc.StatusCode.OK:
            return f"failed: {code.name}: {await call.details()}"
        return reason
    finally:
        cancel(call)
        writing.cancel()
        with contextlib.suppress(asyncio.CancelledError, Exception):
            await writing  # the sentence already reports the failure of the stream


def _noted(endpoint: TrialEndpoint, reason: str) -> str:
    """Return a sentence about an endpoint. It names the proxy if the call failed through one."""
    is_away = grpc.StatusCode.UNAVAILABLE.name in reason
    return f"{endpoint.authority} {reason}{proxy_note(endpoint.authority) if is_away else ''}"


def _printable(text: str) -> str:
    """Percent-encode all but printable ASCII, as metadata cannot carry it."""
    return "".join(one if " " <= one <= "~" else quote(one) for one in text)
