"""Trials whose parts are written with our Python SDK; run as a module."""

from __future__ import annotations

import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from types import SimpleNamespace
from typing import Any

from google.protobuf.wrappers_pb2 import BytesValue
from tests.benchmarks.trial_wire import ACTED, HOST, OBSERVED, serve_ticks

from arkml.trials import ActorParameters, Context, Endpoint, ServedEndpoint, Server, TrialParameters
from arkml.trials.sdk.message_specs import ActorClass, ActorClassList

SETTINGS: Any = SimpleNamespace(
    actor_classes=ActorClassList(ActorClass("player", None, BytesValue, BytesValue)),
    trial=SimpleNamespace(config_type=None),
    environment=SimpleNamespace(config_type=None),
)


class Counted:
    """The implementations of trials, which count their ticks together."""

    def __init__(self) -> None:
        self.ticks = 0

    async def environment(self, session: Any) -> None:
        observed = [
            (actor.actor_name, BytesValue(value=OBSERVED + bytes([number % 256])))
            for number, actor in enumerate(session.get_active_actors())
        ]
        session.start(observed)
        async for event in session.all_events():
            if event.actions:
                self.ticks += 1
                session.produce_observations(observed)

    async def actor(self, session: Any) -> None:
        session.start()
        action = BytesValue(value=ACTED)
        async for event in session.all_events():
            if event.observation:
                session.do_action(action)


@asynccontextmanager
async def playing(kind: str, actors: int, trials: int) -> AsyncIterator[Counted]:
    """Play trials in this process ("local"), or over gRPC with itself ("grpc")."""
    async with AsyncExitStack() as stack:
        server = await stack.enter_async_context(Server())
        context = await stack.enter_async_context(Context("bench", SETTINGS))
        counted = Counted()
        context.register_environment(counted.environment)
        context.register_actor(counted.actor, "player")
        if kind == "local":
            endpoint, place = "local://", server
            await context.serve_all_registered(server)
        else:
            port, _ = await server.listen(HOST, 0)
            place = Endpoint(f"grpc://{HOST}:{port}")
            serving = asyncio.create_task(context.serve_all_registered(ServedEndpoint(port=0)))
            while not context.served_port:
                await asyncio.sleep(0.01)
            stack.callback(serving.cancel)
            endpoint = f"grpc://{HOST}:{context.served_port}"
        controller = context.get_controller(place)
        params = TrialParameters(
            SETTINGS,
            environment_endpoint=endpoint,
            actors=[
                ActorParameters(SETTINGS, "player", name=f"player {number}", endpoint=endpoint)
                for number in range(actors)
            ],
        )
        ids = [await controller.start_trial(trial_params=params) for _ in range(trials)]
        while counted.ticks < 10 * trials:
            await asyncio.sleep(0.01)
        yield counted
        await controller.terminate_trial(ids, hard=True)


if __name__ == "__main__":
    serve_ticks(playing(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
