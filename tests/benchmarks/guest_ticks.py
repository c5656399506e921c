"""Trials that a guest plays with stand-ins, and the same guests stepped alone; run as a module."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from pathlib import Path

import numpy as np
from tests.benchmarks.companion import serve
from tests.benchmarks.trial_wire import serve_ticks

from arkml import Host
from arkml.envs.core.guest_env import GuestEnv
from arkml.guest_trials.guest_hosting import GuestHosting
from arkml.guest_trials.guest_trials_options import GuestTrialsOptions
from arkml.guest_trials.prompt import prompt_ticks
from arkml.trials import Server
from arkml.trials.core.hosting import HOSTED
from arkml.trials.datalog.datalog import Datalog
from arkml.trials.wire.common_pb2 import TrialParams
from arkml.trials.wire.lifecycle_pb2 import TrialStartRequest

GUEST = Path(__file__).parents[2] / "fixtures" / "guests" / "c_walkers_seeded.wasm"
SECONDS = 1.0


class HostedTicks:
    """The ticks of all trials of `server` together."""

    def __init__(self, server: Server) -> None:
        self.server = server

    @property
    def ticks(self) -> int:
        return sum(trial.tick for trial in self.server.orchestrator.live_trials())


def configuration(agents: int) -> tuple[int, ...]:
    """Return the numbers by which walkers are that many, and walk on for ever."""
    return (agents, 0, 1, 0, 0)


def hosted_params() -> TrialParams:
    """Return the parameters of a trial that the guest plays, without actors."""
    params = TrialParams()
    params.environment.endpoint, params.environment.implementation = "local://", HOSTED
    return params


@asynccontextmanager
async def hosted(actors: int, trials: int) -> AsyncIterator[HostedTicks]:
    """Play trials whose actors are all stand-ins, with a log."""
    async with AsyncExitStack() as stack:
        stack.enter_context(prompt_ticks())
        hosting = stack.enter_context(
            GuestHosting(
                GuestTrialsOptions(module=GUEST, environment={"configure": configuration(actors)})
            )
        )
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        log = stack.enter_context(Datalog(Path(folder)))
        server = await stack.enter_async_context(Server(trial_log=log, hosting=hosting))
        ids = [
            (await server.trials.start(TrialStartRequest(params=hosted_params()))).trial_id
            for _ in range(trials)
        ]
        while any(trial.tick < 1 for trial in server.orchestrator.live_trials()):
            await asyncio.sleep(0.01)
        yield HostedTicks(server)
        await server.trials.terminate(ids, is_hard=True)


def serve_memory(actors: int, trials: int) -> None:
    """Play trials for a second, and print the MB of this process beside those of a single one."""
    single, many = (asyncio.run(_resident(actors, count)) for count in (1, trials))
    serve(lambda: many - single)


async def _resident(actors: int, trials: int) -> float:
    """Return the MB of this process while trials are played."""
    async with hosted(actors, trials):
        await asyncio.sleep(SECONDS)
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 1e6


def serve_steps(actors: int, trials: int) -> None:
    """Step the same guests in turn, without any trial, and print steps a second."""
    with ExitStack() as stack:
        host = stack.enter_context(Host())
        envs = [
            stack.enter_context(GuestEnv(GUEST, configure=configuration(actors), host=host))
            for _ in range(trials)
        ]
        for seed, env in enumerate(envs):
            env.reset(seed=seed)
        actions = np.zeros((actors, 1), np.float32)

        def block() -> float:
            steps, began = 0, time.perf_counter()
            while (spent := time.perf_counter() - began) < SECONDS:
                for env in envs:
                    env.step(actions)
                steps += len(envs)
            return steps / spent

        serve(block)


if __name__ == "__main__":
    kind, count, number = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    if kind == "alone":
        serve_steps(count, number)
    elif kind == "memory":
        serve_memory(count, number)
    else:
        serve_ticks(hosted(count, number))
