"""A small game for trials: an environment that counts, and actors that say how far it is."""

import asyncio
from contextlib import asynccontextmanager
from types import SimpleNamespace

from google.protobuf.wrappers_pb2 import DoubleValue, Int64Value, StringValue

from arkml.trials import (
    ActorClass,
    ActorClassList,
    ActorParameters,
    Context,
    Endpoint,
    EventType,
    ServedEndpoint,
    TrialParameters,
)

SETTINGS = SimpleNamespace(
    actor_classes=ActorClassList(ActorClass("counter", None, DoubleValue, Int64Value)),
    environment=SimpleNamespace(config_type=Int64Value),
    trial=SimpleNamespace(config_type=Int64Value),
)


async def count(session):
    """Observe the tick; with a configuration, end after so many ticks."""
    last = session.config.value if session.config is not None else 0
    session.start([("*", Int64Value(value=0))])
    async for event in session.all_events():
        if event.actions and event.type == EventType.ACTIVE:
            tick = session.get_tick_id() + 1
            session.add_reward(value=tick / 2, confidence=1.0, to=["*"])
            if tick == 1:
                session.send_message(StringValue(value="begun"), to=["*"])
            send = session.end if tick == last else session.produce_observations
            send([("*", Int64Value(value=tick))])
        elif event.actions:
            session.end([("*", Int64Value(value=-1))])


async def follow(session):
    session.start()
    async for event in session.all_events():
        if event.observation and event.type == EventType.ACTIVE:
            session.do_action(DoubleValue(value=event.observation.observation.value / 100))


def parameters(port, last=0):
    endpoint = f"grpc://127.0.0.1:{port}"
    actors = [
        ActorParameters(SETTINGS, "counter", name=name, endpoint=endpoint, implementation="follow")
        for name in ("ann", "bob")
    ]
    config = Int64Value(value=last) if last else None
    return TrialParameters(
        SETTINGS,
        environment_endpoint=endpoint,
        environment_implementation="count",
        environment_config=config,
        actors=actors,
    )


@asynccontextmanager
async def player(address, user="ann"):
    """A controller of a server, and the port of the parts of its trials."""
    async with Context(user, SETTINGS) as context:
        context.register_environment(count, "count")
        context.register_actor(follow, "follow", ["counter"])
        serving = asyncio.create_task(context.serve_all_registered(ServedEndpoint()))
        while not context.served_port:
            await asyncio.sleep(0.01)
        yield context.get_controller(Endpoint(f"grpc://{address}")), context.served_port
    await serving


async def ended(controller, trial):
    """Wait for the end of a trial."""
    async for info in controller.watch_trials():
        if info.trial_id == trial and info.state.name == "ENDED":
            return


async def running(controller, trial):
    """Wait until a trial has ticks."""
    while not (await controller.get_trial_info([trial]))[0].tick_id:
        await asyncio.sleep(0.01)


def played(address, *trials, user="ann", last=5):
    """Play trials of these ids, one after another, to their ends."""

    async def play():
        async with player(address, user) as (controller, port):
            for trial in trials:
                assert await controller.start_trial(
                    trial_id_requested=trial, trial_params=parameters(port, last)
                )
                await ended(controller, trial)

    asyncio.run(play())
