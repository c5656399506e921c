"""Players of trials that a guest plays: clients, or a bare program, and people; run as a module."""

from __future__ import annotations

import asyncio
import random
import sys
import time
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import AbstractAsyncContextManager, AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import grpc
import numpy as np
from tests.benchmarks.companion import Companion, serve
from tests.benchmarks.guest_ticks import GUEST, HostedTicks, configuration, hosted, hosted_params
from tests.benchmarks.trial_wire import ACTORS, HOST, NORMAL, act, serve_ticks, serving
from tests.generated_stubs import actor_pb2_grpc, players_pb2_grpc

from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
from arkml.trials import Server
from arkml.trials.wire.actor_pb2 import (
    ActorInitialInput,
    ActorInitialOutput,
    ActorRunTrialInput,
    ActorRunTrialOutput,
)
from arkml.trials.wire.common_pb2 import Action, Reward, RewardSource
from arkml.trials.wire.common_pb2 import Observation as Observed
from arkml.trials.wire.guest_pb2 import Action as Moved
from arkml.trials.wire.guest_pb2 import Observation
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest

RATE = 60.0  # ticks a second of people
PEOPLE, TICKS, PRESSES = 2, 120, 30
BETWEEN_PRESSES = 0.1, 0.15  # seconds, at least and at most
STANDING = Moved(continuous=[0.0]).SerializeToString()

REACH = GUEST.with_name("c_reach_seeded.wasm")  # walkers are 15 at most
FEATURES, SEED = 4, 7
MOVED = Moved(continuous=[0.5, -0.5]).SerializeToString()

stubs: Any = players_pb2_grpc
PLAYERS = stubs


class BareHub(actor_pb2_grpc.ClientActorSPServicer):
    """Sends the messages of a guest's trial to its actors, tick by tick, without a guest."""

    def __init__(self, actors: int) -> None:
        self.ticks = 0
        self._contexts: list[Any] = []
        self._missing = self._count = actors
        shown = Observation(present=True, values=[0.5] * FEATURES, agent=1)
        self._content = shown.SerializeToString()

    async def RunTrial(self, _: Any, context: Any) -> None:  # noqa: N802
        await context.read()
        await context.write(ActorRunTrialInput(state=NORMAL, init_input=ActorInitialInput()))
        self._contexts.append(context)
        if len(self._contexts) == self._count:
            await self._observe()
        while (await context.read()) is not grpc.aio.EOF:
            self._missing -= 1
            if not self._missing:
                self._missing = self._count
                self.ticks += 1
                await self._observe()

    async def _observe(self) -> None:
        source = RewardSource(sender_name="env", value=0.5, confidence=1.0)
        for number, context in enumerate(self._contexts):
            name = f"reach_{number}"
            reward = Reward(tick_id=self.ticks, receiver_name=name, value=0.5, sources=[source])
            await context.write(ActorRunTrialInput(state=NORMAL, reward=reward))
            observed = Observed(tick_id=self.ticks, timestamp=1, content=self._content)
            await context.write(ActorRunTrialInput(state=NORMAL, observation=observed))


@asynccontextmanager
async def wired(kind: str, count: int) -> AsyncIterator[Any]:
    """Play one trial of `count` clients over gRPC by a guest, or by the bare program."""
    async with AsyncExitStack() as stack:
        ticking: Any
        if kind == "bare":
            ticking = BareHub(count)
            add = ACTORS.add_ClientActorSPServicer_to_server
            address, trial_id = await stack.enter_async_context(serving(add, ticking)), ""
        else:
            server, address = await stack.enter_async_context(
                served(REACH, (count, SEED), rate=0.0)
            )
            ticking = HostedTicks(server)
            trial_id = await started(server, "reach", count)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        for number in range(count):
            player = act(channel, trial_id, f"reach_{number}", MOVED)
            await stack.enter_async_context(running(player))
        while ticking.ticks < 10:
            await asyncio.sleep(0.01)
        yield ticking


@asynccontextmanager
async def running(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run a coroutine beside what is done meanwhile."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


@asynccontextmanager
async def served(
    module: Path, configure: tuple[int, ...], rate: float
) -> AsyncIterator[tuple[Server, str]]:
    """Serve trials of a guest over gRPC; yield the server and its address."""
    options = GuestTrialsOptions(
        module=module, environment={"configure": configure}, tick_rate=rate
    )
    with GuestHosting(options) as hosting:
        async with Server(hosting=hosting) as server:
            port, _ = await server.listen(HOST, 0)
            yield server, f"{HOST}:{port}"


async def started(server: Server, kind: str, clients: int) -> str:
    """Start a trial whose first actors of a class are clients; return its id."""
    params = hosted_params()
    for number in range(clients):
        params.actors.add(name=f"{kind}_{number}", actor_class=kind, endpoint="cogment://client")
    return (await server.trials.start(TrialStartRequest(params=params))).trial_id


@asynccontextmanager
async def late_ticks(actors: int, trials: int) -> AsyncIterator[Callable[[], Any]]:
    """
    Yield how late ticks of two people are, in ms at 99 %, beside trials of stand-ins.

    The people are in a process of their own.
    """
    async with AsyncExitStack() as stack:
        hosting = await stack.enter_async_context(hosted(actors, trials))
        server = hosting.server
        port, _ = await server.listen(HOST, 0)
        trial_id = await started(server, "red", PEOPLE)
        arguments = "guest_players", "people", f"{HOST}:{port}", trial_id
        players = await asyncio.to_thread(Companion, *arguments)
        stack.push_async_callback(asyncio.to_thread, players.__exit__, None, None, None)
        yield lambda: asyncio.to_thread(players.measure)


@asynccontextmanager
async def people(address: str, trial_id: str) -> AsyncIterator[Callable[[], Any]]:
    """Play a trial as two people; yield how late its ticks arrive, in ms at 99 %."""
    async with AsyncExitStack() as stack:
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        arrived: list[list[float]] = [[] for _ in range(PEOPLE)]
        for number, times in enumerate(arrived):

            def note(_: Observed, times: list[float] = times) -> None:
                times.append(time.perf_counter())

            player = act(channel, trial_id, f"red_{number}", STANDING, note)
            await stack.enter_async_context(running(player))

        async def measure() -> float:
            for times in arrived:
                times.clear()
            while min(map(len, arrived)) < TICKS:
                await asyncio.sleep(0.1)
            late = np.concatenate([np.diff(times) - 1 / RATE for times in arrived])
            return 1e3 * float(np.percentile(late, 99))

        yield measure


@asynccontextmanager
async def presses(actors: int) -> AsyncIterator[Callable[[], Any]]:
    """Yield the time from presses to rows of the guest, in ms at 95 %, of a take-over by gRPC."""
    async with AsyncExitStack() as stack:
        server, address = await stack.enter_async_context(
            served(GUEST, configuration(actors), rate=RATE)
        )
        trial_id = await started(server, "red", 0)
        while any(trial.tick < 1 for trial in server.orchestrator.live_trials()):
            await asyncio.sleep(0.01)
        channel = await stack.enter_async_context(grpc.aio.insecure_channel(address))
        metadata = (("trial-id", trial_id), ("user-id", "ann"))
        call = PLAYERS.PlayersSPStub(channel).TakeOver(metadata=metadata)
        slot = ActorInitialOutput(actor_name="red_0")
        await call.write(ActorRunTrialOutput(state=NORMAL, init_output=slot))
        chance = random.Random(7)

        async def press(value: float) -> None:
            content = Moved(continuous=[value]).SerializeToString()
            action = Action(tick_id=-1, content=content)
            await call.write(ActorRunTrialOutput(state=NORMAL, action=action))

        async def observed() -> tuple[int, list[float]]:
            """Return the time of the next row, in nanoseconds since 1970, and its features."""
            while True:
                message = await call.read()
                if message.HasField("observation"):
                    shown = Observation.FromString(message.observation.content)
                    return message.observation.timestamp, list(shown.values)

        async def standing(seconds: float) -> list[float]:
            """Return the features after some time without a key."""
            await press(0.0)
            until = time.time_ns() + int(seconds * 1e9)
            while (row := await observed())[0] < until:
                pass
            return row[1]

        async def measure() -> float:
            spent = []
            for number in range(PRESSES):
                before = await standing(chance.uniform(*BETWEEN_PRESSES))
                pressed = time.time_ns()
                await press(1.0 if number % 2 else -1.0)
                while (row := await observed())[1] == before:
                    pass
                spent.append((row[0] - pressed) / 1e6)
            return float(np.percentile(spent, 95))

        yield measure
        call.cancel()


def serve_measured(measured: AbstractAsyncContextManager[Callable[[], Any]]) -> None:
    """Serve the figure of a measurement."""
    loop = asyncio.new_event_loop()
    measure = loop.run_until_complete(measured.__aenter__())
    serve(lambda: float(loop.run_until_complete(measure())))
    loop.run_until_complete(measured.__aexit__(None, None, None))


if __name__ == "__main__":
    match sys.argv[1:]:
        case "late", actors, trials:
            serve_measured(late_ticks(int(actors), int(trials)))
        case "people", address, trial_id:
            serve_measured(people(address, trial_id))
        case "presses", actors:
            serve_measured(presses(int(actors)))
        case kind, count:
            serve_ticks(wired(kind, int(count)))
