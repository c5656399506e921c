"""Environments, actors, hooks and controllers as programs over the generated stubs of gRPC."""

import asyncio
import contextlib
import re

import grpc
import pytest
from tests.driven_trial import (
    END,
    LAST,
    LAST_ACK,
    action,
    joining,
    observations,
    ready,
    trial_params,
    word,
)
from tests.generated_stubs import (
    actor_pb2_grpc,
    environment_pb2_grpc,
    hooks_pb2_grpc,
    lifecycle_pb2_grpc,
)
from tests.waiting import PATIENCE

from arkml.trials.server.server import Server
from arkml.trials.wire.actor_pb2 import ActorRunTrialOutput
from arkml.trials.wire.common_pb2 import TrialState
from arkml.trials.wire.environment_pb2 import EnvRunTrialOutput
from arkml.trials.wire.hooks_pb2 import PreTrialParams
from arkml.trials.wire.lifecycle_pb2 import (
    TerminateTrialRequest,
    TrialInfoRequest,
    TrialListRequest,
    TrialStartRequest,
)

EVERY_STATE = ["INITIALIZING", "PENDING", "RUNNING", "TERMINATING", "ENDED"]


class Peer:
    """
    One end of a stream, with what it was sent so far: messages, and their words as `lines`.

    `stream` reads and writes messages of gRPC.
    """

    def __init__(self, stream):
        self.stream = stream
        self.messages = []
        self.lines = []
        self.trial_id = None
        if hasattr(stream, "invocation_metadata"):  # of a server, which gRPC frees with the call
            self.trial_id = dict(stream.invocation_metadata())["trial-id"]

    async def say(self, message):
        await self.stream.write(message)

    async def hear(self):
        """Return the next message, None at the end."""
        async with asyncio.timeout(PATIENCE):
            message = await self.stream.read()
        if message is grpc.aio.EOF:
            return None
        self.messages.append(message)
        self.lines.append(word(message))
        return message

    def leave(self):
        """Cancel the stream, also after a write that failed: grpc.aio counts that one as done."""
        if not self.stream.cancel():
            self.stream._cython_call.cancel("it left")

    async def hear_until(self, line):
        """Read until a message whose words begin with `line`; return it."""
        while (message := await self.hear()) is not None:
            if self.lines[-1].startswith(line):
                return message
        raise AssertionError(f"{line!r} did not come, but {self.lines}")

    async def hear_all(self):
        """Read to the end."""
        while await self.hear() is not None:
            pass


async def play_environment(peer, *, ends_after=None):
    """Observe tick by tick until the trial ends, or announce the end after `ends_after` ticks."""
    first = await peer.hear_until("init")
    count = len(first.init_input.actors_in_trial)
    await peer.say(ready())
    await peer.say(observations(count))
    is_last = False
    while (message := await peer.hear()) is not None:
        if message.state == END:
            return
        if message.state == LAST:
            is_last = True
        elif message.HasField("action_set"):
            if ends_after is not None and message.action_set.tick_id + 1 >= ends_after:
                await peer.say(EnvRunTrialOutput(state=LAST))
                is_last = True
            await peer.say(observations(count))
            if is_last:
                await peer.say(EnvRunTrialOutput(state=LAST_ACK))


async def play_actor(peer):
    """Act on each observation until the trial ends."""
    is_last = False
    while (message := await peer.hear()) is not None:
        if message.state == END:
            return
        if message.state == LAST:
            is_last = True
        elif message.HasField("observation"):
            await peer.say(ActorRunTrialOutput(state=LAST_ACK) if is_last else action())


class Programs:
    """
    A server of environments, service actors and a hook.

    `peers` are the streams that it had, `calls` the metadata and parameters of the hook's calls.
    """

    def __init__(self, *, environment=play_environment, actor=play_actor, hook=None, port=0):
        self._environment, self._actor, self._hook = environment, actor, hook
        self.peers = []
        self.calls = []
        self.server = grpc.aio.server()
        programs = self

        class Environment(environment_pb2_grpc.EnvironmentSPServicer):
            async def RunTrial(self, _, context):  # noqa: N802
                await programs.play(programs._environment, context)

        class Actor(actor_pb2_grpc.ServiceActorSPServicer):
            async def RunTrial(self, _, context):  # noqa: N802
                await programs.play(programs._play_service, context)

        class Hook(hooks_pb2_grpc.TrialHooksSPServicer):
            async def OnPreTrial(self, request, context):  # noqa: N802
                seen = PreTrialParams.FromString(request.SerializeToString()).params
                programs.calls.append((dict(context.invocation_metadata()), seen))
                return await programs._hook(request, context)

        environment_pb2_grpc.add_EnvironmentSPServicer_to_server(Environment(), self.server)
        actor_pb2_grpc.add_ServiceActorSPServicer_to_server(Actor(), self.server)
        hooks_pb2_grpc.add_TrialHooksSPServicer_to_server(Hook(), self.server)
        self.port = self.server.add_insecure_port(f"127.0.0.1:{port}")

    @property
    def endpoint(self):
        return f"grpc://127.0.0.1:{self.port}"

    async def play(self, program, context):
        self.peers.append(Peer(context))
        await program(self.peers[-1])

    async def _play_service(self, peer):
        await peer.hear_until("init")
        await peer.say(joining())
        await self._actor(peer)


class Collected:
    """A Sender that keeps what it gets, as lines."""

    def __init__(self):
        self.lines = []
        self.is_closed = False

    def send(self, message):
        self.lines.append(word(message))

    def close(self):
        self.is_closed = True


class Controls:
    """A server of trials at a port, and a channel to it."""

    def __init__(self, server, port, channel):
        self.server, self.port, self.channel = server, port, channel
        self.lifecycle = lifecycle_pb2_grpc.TrialLifecycleSPStub(channel)
        self.actors = actor_pb2_grpc.ClientActorSPStub(channel)

    async def start(self, params=None, **fields):
        reply = await self.lifecycle.StartTrial(
            TrialStartRequest(params=params, **{"user_id": "u", **fields})
        )
        return reply.trial_id

    async def terminate(self, *trial_ids, hard=False):
        request = TerminateTrialRequest(hard_termination=hard)
        metadata = [("trial-id", one) for one in trial_ids]
        await self.lifecycle.TerminateTrial(request, metadata=metadata)

    async def info(self, *trial_ids, **fields):
        metadata = [("trial-id", one) for one in trial_ids]
        reply = await self.lifecycle.GetTrialInfo(TrialInfoRequest(**fields), metadata=metadata)
        return list(reply.trial)

    async def state(self, trial_id):
        found = await self.info(trial_id)
        return TrialState.Name(found[0].state)

    def call(self, *trial_ids):
        """Return a peer whose stream has been opened, without a first message."""
        metadata = [("trial-id", one) for one in trial_ids]
        return Peer(self.actors.RunTrial(metadata=metadata))

    async def join(self, trial_id, name=None, *, actor_class=None):
        """Return a peer that has joined."""
        peer = self.call(trial_id)
        await peer.say(joining(name, actor_class=actor_class))
        await peer.hear_until("init")
        return peer

    async def watch(self):
        """Watch from now on; return a task of the states of the next trial until it has ended."""
        call = self.lifecycle.WatchTrials(TrialListRequest())
        marker = await self.start(trial_params(1))
        await self.terminate(marker, hard=True)
        await call.read()

        async def states():
            names = []
            async with asyncio.timeout(PATIENCE):
                while names[-1:] != ["ENDED"]:
                    entry = await call.read()
                    if entry.trial_id != marker:
                        names.append(TrialState.Name(entry.state))
            return names

        return asyncio.create_task(states())

    async def reached(self, trial_id, state):
        """Wait until a trial has a state, or has passed it."""
        async with asyncio.timeout(PATIENCE):
            async for entry in self.lifecycle.WatchTrials(TrialListRequest()):
                if entry.trial_id == trial_id and entry.state >= TrialState.Value(state):
                    return


@contextlib.asynccontextmanager
async def served(options=None, **programs):
    """
    Serve trials and programs at ports of loopback; yield controls and programs.

    `options` returns the options of the server for the programs.
    """
    async with contextlib.AsyncExitStack() as stack:
        made = Programs(**programs)
        await made.server.start()
        stack.push_async_callback(made.server.stop, None)
        server = Server(options(made) if options else None)
        await stack.enter_async_context(server)
        port, _ = await server.listen("127.0.0.1", 0)
        address = f"127.0.0.1:{port}"
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        yield Controls(server, port, channel), made


def playing(programs, actors=2, **fields):
    """Parameters of a trial whose environment is one of `programs`."""
    return trial_params(actors, programs.endpoint, **fields)


@contextlib.asynccontextmanager
async def refused(sentence, code=grpc.StatusCode.FAILED_PRECONDITION):
    """Expect a call to be refused with a sentence."""
    with pytest.raises(grpc.aio.AioRpcError) as raised:
        yield
    assert raised.value.code() is code
    assert re.search(sentence, raised.value.details()), raised.value.details()
