"""The gRPC server of a context, for its actors, environments, hook and datalog."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import Callable
from typing import Any, Final

import grpc
import grpc.aio
from google.protobuf.message import DecodeError

from arkml.base.host_names import authority_of, bare_host
from arkml.base.release import RELEASE
from arkml.trials.core.error import TrialError
from arkml.trials.grpc_aio import new_server
from arkml.trials.grpc_methods import serve
from arkml.trials.grpc_streams import UNREADABLE, QueuedSender, read_all
from arkml.trials.sdk.addresses import ServedEndpoint
from arkml.trials.sdk.datalog_session import DatalogSession
from arkml.trials.sdk.implementations import RegisteredImplementations
from arkml.trials.service import version_info
from arkml.trials.streams import Receiver, Sender
from arkml.trials.wire import actor_pb2, datalog_pb2, environment_pb2, hooks_pb2
from arkml.trials.wire.common_pb2 import StatusReply, StatusRequest, VersionInfo, VersionRequest
from arkml.trials.wire.hooks_pb2 import PreTrialParams

STOPPING_SECONDS: Final = 1.0
"""Seconds that the streams of cancelled sessions have to end."""


class ServedImplementations:
    """
    A gRPC server of a context's implementations.

    `port` is the port it listens at, known before `run`. Stopping cancels all running sessions.
    """

    def __init__(
        self, implementations: RegisteredImplementations, endpoint: ServedEndpoint
    ) -> None:
        self._implementations = implementations
        self._server = new_server([])
        self._add_services()
        address = authority_of(bare_host(endpoint.host), endpoint.port)
        try:
            self.port: int = self._server.add_insecure_port(address)
        except RuntimeError as error:
            raise TrialError(f"{address} cannot be served on: {error}") from error

    async def run(self) -> None:
        """Serve until cancelled or stopped."""
        await self._server.start()
        try:
            # gRPC takes a cancelled wait for its own end: each later stop would be cancelled, too.
            await asyncio.shield(self._server.wait_for_termination())
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Refuse new streams, cancel the sessions, which notify their trials, and stop."""
        await asyncio.gather(self._server.stop(STOPPING_SECONDS), self._implementations.close())

    def _add_services(self) -> None:
        parts, server = self._implementations, self._server
        if parts.actors:
            serve(server, actor_pb2.DESCRIPTOR, "ServiceActorSP", _Actors(parts))
        if parts.environments:
            serve(server, environment_pb2.DESCRIPTOR, "EnvironmentSP", _Environments(parts))
        if parts.has_hook:
            serve(server, hooks_pb2.DESCRIPTOR, "TrialHooksSP", _Hook(parts))
        if parts.has_datalog:
            serve(server, datalog_pb2.DESCRIPTOR, "DatalogSP", _Datalog(parts))


class _Service:
    """The two methods of every Cogment service."""

    def __init__(self, implementations: RegisteredImplementations) -> None:
        self._implementations = implementations

    async def Version(self, request: VersionRequest, context: Any) -> VersionInfo:  # noqa: ARG002, N802
        """Return the versions of this program's components."""
        return version_info({"arkml": RELEASE, "grpc": grpc.__version__})

    async def Status(self, request: StatusRequest, context: Any) -> StatusReply:  # noqa: ARG002, N802
        """Return the requested statuses."""
        load = os.getloadavg()[0] / (os.cpu_count() or 1) * 100
        statuses = {
            "overall_load": str(min(int(load), 254)),
            "nb_sessions": str(self._implementations.session_count),
        }
        asked = set(request.names)
        wanted = {name: text for name, text in statuses.items() if asked & {name, "*"}}
        return StatusReply(statuses=wanted)


class _Actors(_Service):
    async def RunTrial(self, requests: Any, context: Any) -> None:  # noqa: ARG002, N802
        """Take part in a trial as an actor."""
        await _run(context, self._implementations.open_actor)


class _Environments(_Service):
    async def RunTrial(self, requests: Any, context: Any) -> None:  # noqa: ARG002, N802
        """Take part in a trial as its environment."""
        await _run(context, self._implementations.open_environment)


class _Hook(_Service):
    async def OnPreTrial(self, request: PreTrialParams, context: Any) -> PreTrialParams:  # noqa: N802
        """Call the hook."""
        user_id = dict(context.invocation_metadata()).get("user-id", "")
        trial_id = await _trial_id(context)
        try:
            return await self._implementations.pre_trial(request, trial_id, user_id)
        except TrialError as error:
            await context.abort(grpc.StatusCode.UNKNOWN, str(error))
            raise


class _Datalog(_Service):
    async def RunTrialDatalog(self, requests: Any, context: Any) -> None:  # noqa: ARG002, N802
        """Receive the samples of a trial."""
        user_id = dict(context.invocation_metadata()).get("user-id", "")
        trial_id = await _trial_id(context)
        try:
            first = await context.read()
        except DecodeError:
            first = grpc.aio.EOF
        if first is grpc.aio.EOF or not first.HasField("trial_params"):
            text = "a datalog is sent the parameters of its trial first"
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, text)

        async def feed(session: DatalogSession) -> None:
            try:
                while (message := await context.read()) is not grpc.aio.EOF:
                    await session.take(message.sample)
                await session.take(None)
            except DecodeError as error:
                await session.take(TrialError(f"the server {UNREADABLE}: {error}"))

        try:
            await self._implementations.log_trial(trial_id, user_id, first.trial_params, feed)
        except TrialError as error:
            await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))


async def _run(context: Any, open_stream: Callable[[str, str, Sender[Any]], Receiver[Any]]) -> None:
    """Connect a gRPC stream with an implementation's stream until it ends."""
    trial_id = await _trial_id(context)
    lost: list[str] = []
    outgoing: QueuedSender[Any] = QueuedSender(lost.append)
    receiver = open_stream("", trial_id, outgoing)
    reader = asyncio.create_task(_read(context, receiver))
    try:
        with contextlib.suppress(TimeoutError):
            await outgoing.pump(context.write)
        if lost:
            receiver.lose(lost[0])
            await context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, lost[0])
    finally:
        outgoing.close()
        reader.cancel()
        receiver.lose("the stream was closed")


async def _read(context: Any, receiver: Receiver[Any]) -> None:
    receiver.lose(f"the trial {await read_all(context, receiver.receive)}")


async def _trial_id(context: Any) -> str:
    trial_id = dict(context.invocation_metadata()).get("trial-id", "")
    if not trial_id:
        await context.abort(grpc.StatusCode.INVALID_ARGUMENT, "the metadata have no trial-id")
    return str(trial_id)
