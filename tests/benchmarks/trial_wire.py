"""Trials over gRPC, by our server or by a bare program of the same messages; run as a module."""

from __future__ import annotations

import asyncio
import sys
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any, Protocol

import grpc
from tests.benchmarks.companion import serve
from tests.generated_stubs import actor_pb2_grpc, environment_pb2_grpc, lifecycle_pb2_grpc

from arkml.trials.server.server import Server
from arkml.trials.server.server_options import TrialsOptions
from arkml.trials.wire.actor_pb2 import (
    ActorInitialInput,
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from arkml.trials.wire.common_pb2 import (
    Action,
    ActorParams,
    CommunicationState,
    EnvironmentParams,
    Observation,
    TrialParams,
)
from arkml.trials.wire.environment_pb2 import (
    ActionSet,
    EnvInitialInput,
    EnvInitialOutput,
    EnvRunTrialInput,
    EnvRunTrialOutput,
    ObservationSet,
)
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest

NORMAL = CommunicationState.NORMAL
OBSERVED, ACTED = b"o" * 64, b"a" * 16
"""Contents of an observation and an action: 16 and 4 floats."""

SECONDS = 0.5
HOST = "127.0.0.1"

stubs: Any = actor_pb2_grpc, environment_pb2_grpc, lifecycle_pb2_grpc  # generated without types
ACTORS, ENVIRONMENTS, LIFECYCLES = stubs


class Environment(environment_pb2_grpc.EnvironmentSPServicer):
    """Sends each actor an observation of its own, and counts ticks."""

    def __init__(self, actors: int) -> None:
        self.ticks = 0
        observations = [OBSERVED + bytes([number % 256]) for number in range(actors)]
        self._observed = EnvRunTrialOutput(
            state=NORMAL,
            observation_set=ObservationSet(
                tick_id=-1, timestamp=1, observations=observations, actors_map=range(actors)
            ),
        )

    async def RunTrial(self, _: Any, context: Any) -> None:  # noqa: N802
        await context.read()
        await context.write(EnvRunTrialOutput(state=NORMAL, init_output=EnvInitialOutput()))
        await context.write(self._observed)
        while (message := await context.read()) is not grpc.aio.EOF:
            if message.WhichOneof("data") == "action_set":
                self.ticks += 1
                await context.write(self._observed)


async def act(
    channel: Any,
    trial_id: str,
    name: str,
    content: bytes = ACTED,
    note: Callable[[Observation], object] = lambda _: None,
) -> None:
    """Join as an actor, and act until the stream ends; `note` is called with observations."""
    call = ACTORS.ClientActorSPStub(channel).RunTrial(metadata=(("trial-id", trial_id),))
    slot = ActorInitialOutput(actor_name=name)
    await call.write(ActorRunTrialOutput(state=NORMAL, init_output=slot))
    action = ActorRunTrialOutput(
        state=NORMAL, action=Action(tick_id=-1, timestamp=1, content=content)
    )
    while (message := await call.read()) is not grpc.aio.EOF:
        if message.WhichOneof("data") == "observation":
            note(message.observation)
            await call.write(action)


class BareHub(actor_pb2_grpc.ClientActorSPServicer):
    """Passes the messages of one trial on, without a thought."""

    def __init__(self, channel: Any, actors: int) -> None:
        self._call = ENVIRONMENTS.EnvironmentSPStub(channel).RunTrial()
        self._contexts: list[Any] = []
        self._missing = self._count = actors
        self._tick = 0
        self._task: asyncio.Task[None] | None = None

    async def RunTrial(self, _: Any, context: Any) -> None:  # noqa: N802
        await context.read()
        await context.write(ActorRunTrialInput(state=NORMAL, init_input=ActorInitialInput()))
        self._contexts.append(context)
        if len(self._contexts) == self._count:
            self._task = asyncio.create_task(self._observe())
        while (await context.read()) is not grpc.aio.EOF:
            self._missing -= 1
            if not self._missing:
                self._missing = self._count
                actions = ActionSet(tick_id=self._tick, timestamp=1, actions=[ACTED] * self._count)
                await self._call.write(EnvRunTrialInput(state=NORMAL, action_set=actions))

    async def _observe(self) -> None:
        await self._call.write(EnvRunTrialInput(state=NORMAL, init_input=EnvInitialInput()))
        await self._call.read()
        while (message := await self._call.read()) is not grpc.aio.EOF:
            observed = message.observation_set
            for context, number in zip(self._contexts, observed.actors_map, strict=True):
                content = observed.observations[number]
                observation = Observation(tick_id=self._tick, timestamp=1, content=content)
                await context.write(ActorRunTrialInput(state=NORMAL, observation=observation))
            self._tick += 1


@asynccontextmanager
async def serving(add: Any, servicer: Any) -> AsyncIterator[str]:
    """Serve one service; yield its address."""
    server = grpc.aio.server()
    add(servicer, server)
    port = server.add_insecure_port(f"{HOST}:0")
    await server.start()
    try:
        yield f"{HOST}:{port}"
    finally:
        await server.stop(0)


@asynccontextmanager
async def playing(kind: str, count: int) -> AsyncIterator[Environment]:
    """Play one trial of `count` actors by "ours" or the "bare" program."""
    environment = Environment(count)
    add = ENVIRONMENTS.add_EnvironmentSPServicer_to_server
    async with (
        serving(add, environment) as address,
        hub(kind, address, count) as (at, trial_id),
        grpc.aio.insecure_channel(at) as channel,
    ):
        actors = [asyncio.create_task(act(channel, trial_id, f"actor {n}")) for n in range(count)]
        while environment.ticks < 10:
            await asyncio.sleep(0.01)
        yield environment
        for actor in actors:
            actor.cancel()
        await asyncio.gather(*actors, return_exceptions=True)


@asynccontextmanager
async def hub(kind: str, environment: str, count: int) -> AsyncIterator[tuple[str, str]]:
    """Serve a trial; yield the address for its actors, and its id."""
    if kind == "bare":
        async with grpc.aio.insecure_channel(environment) as channel:
            add = ACTORS.add_ClientActorSPServicer_to_server
            async with serving(add, BareHub(channel, count)) as address:
                yield address, ""
        return
    params = TrialParams(
        environment=EnvironmentParams(endpoint=f"grpc://{environment}"),
        actors=[
            ActorParams(name=f"actor {n}", actor_class="player", endpoint="cogment://client")
            for n in range(count)
        ],
    )
    async with Server(TrialsOptions(params=params)) as server:
        port, _ = await server.listen(HOST, 0)
        reply = await server.trials.start(TrialStartRequest())
        yield f"{HOST}:{port}", reply.trial_id
        await server.trials.terminate([reply.trial_id], is_hard=True)


class Ticking(Protocol):
    """Counts ticks."""

    ticks: int


def serve_ticks(playing: AbstractAsyncContextManager[Ticking]) -> None:
    """Serve ticks a second while something is played."""
    loop = asyncio.new_event_loop()

    async def ticks(ticking: Ticking) -> float:
        before, start = ticking.ticks, time.perf_counter()
        await asyncio.sleep(SECONDS)
        return (ticking.ticks - before) / (time.perf_counter() - start)

    ticking = loop.run_until_complete(playing.__aenter__())
    serve(lambda: loop.run_until_complete(ticks(ticking)))
    loop.run_until_complete(playing.__aexit__(None, None, None))


if __name__ == "__main__":
    serve_ticks(playing(sys.argv[1], int(sys.argv[2])))
