"""What is stepped for `environments`: guests behind each interface, and environments of others."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack, closing
from itertools import cycle
from pathlib import Path
from typing import Any

import gymnasium
from tests.benchmarks import actions
from tests.benchmarks.companion import ROOT

from arkml import GuestEnv
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import GuestParallelEnv
from arkml.envs.step_arrays import StepArrays

EPISODE = 200  # steps, after which PettingZoo's agents start over

Call = Callable[[], object]


GUESTS = ROOT / "fixtures" / "guests"
LOGGING = GUESTS / "c_cartpole_logging.wasm"
"""Cart-poles that log a line after each episode."""


def path(game: str) -> Path:
    return GUESTS / actions.STEPPED[game].guest


def plain(stack: ExitStack, game: str, agents: int) -> Call:
    """A step of GuestEnv."""
    env = stack.enter_context(GuestEnv(path(game), configure=(agents, "{seed}")))
    env.reset(seed=1)
    following = actions.ours(game, agents)

    def step() -> None:
        assert env.decision is not None
        env.step(next(following)[: len(env.decision.acting_agents)])

    return step


def vector(stack: ExitStack, game: str, agents: int) -> Call:
    """A step of the agents of one guest as places of a vector environment."""
    envs = GuestVectorEnv(path(game), configure=(agents, "{seed}"))
    return _stepped(stack, envs, actions.ours(game, agents))


def written(stack: ExitStack, game: str, agents: int) -> Call:
    """A step as `vector`'s, into arrays that stay the same."""
    envs = GuestVectorEnv(path(game), configure=(agents, "{seed}"))
    stack.callback(envs.close)
    envs.reset()
    following, out = actions.ours(game, agents), StepArrays.empty(envs)
    return lambda: envs.step(next(following), out=out)


def fleet(
    stack: ExitStack,
    game: str,
    guests: int,
    module: Path | None = None,
    *,
    threads: int | None = 1,
) -> Call:
    """A step of guests with one agent each as places of a vector environment; None: all cores."""
    envs = GuestFleetVectorEnv(
        module or path(game), num_envs=guests, configure=(1, "{seed}"), threads=threads
    )
    return _stepped(stack, envs, actions.ours(game, guests))


def renewal(stack: ExitStack, game: str, guests: int) -> Call:
    """A new instance in a fleet, up to its first submit, in one place after another."""
    env = stack.enter_context(FleetEnv(path(game), guests, configure=(1, "{seed}")))
    env.reset(seed=1)
    places = cycle(range(guests))
    return lambda: env.renew([next(places)])


def python(stack: ExitStack, game: str, count: int) -> Call:
    """A step of Gymnasium's own environments, one after another."""
    envs = gymnasium.make_vec(actions.STEPPED[game].peer, count, vectorization_mode="sync")
    return _stepped(stack, envs, actions.theirs(game, count))


def pool(stack: ExitStack, game: str, count: int, **options: int) -> Call:
    """A step of EnvPool's."""
    import envpool  # what `make bench` installs, and nothing else needs

    envs = envpool.make_gymnasium(actions.STEPPED[game].peer, num_envs=count, **options)
    return _stepped(stack, envs, actions.theirs(game, count))


def low_level(stack: ExitStack, game: str, agents: int) -> Call:
    """A step of ML-Agents' low-level API in this process."""
    env = stack.enter_context(closing(GuestUnityEnv(path(game), configure=(agents, "{seed}"))))
    env.reset()
    (name,) = env.behavior_specs
    following = actions.ours(game, agents)

    def step() -> None:
        deciding, _ = env.get_steps(name)
        env.set_actions(name, ActionTuple(continuous=next(following)[: len(deciding)]))
        env.step()

    return step


def parallel(stack: ExitStack, game: str, agents: int) -> Call:
    """A step of PettingZoo's agents; those that end are followed by others, up to a reset."""
    env = GuestParallelEnv(
        path(game), spawn="show", max_cycles=EPISODE, configure=(agents, "{seed}")
    )
    stack.enter_context(closing(env))
    env.reset(seed=1)
    following = actions.ours(game, agents)

    def step() -> None:
        if not env.agents:
            env.reset()
        env.step(dict(zip(env.agents, next(following), strict=False)))

    return step


def _stepped(stack: ExitStack, envs: Any, following: Any) -> Call:
    stack.callback(envs.close)
    envs.reset()
    return lambda: envs.step(next(following))
