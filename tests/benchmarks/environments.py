"""What stepping a guest from outside costs, and what each interface adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from typing import Any

import gymnasium
import numpy as np
from tests.benchmarks import players
from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.measuring import Block, Spread, microseconds, quotients
from tests.benchmarks.rows import AtLeast, AtMost, Limit, Row, alone

from arkml import GuestEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import GuestParallelEnv

TOPIC = "environments"
PENDULUM = ROOT / "fixtures" / "guests" / "c_pendulum.wasm"
SYNC, MANY, SOME = 64, 1024, 64
THEIRS = "gymnasium SyncVectorEnv, 64 in Python"

Call = Callable[[], object]


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Pendulums whose episodes have 200 steps; all agents of one guest are stepped together, by"
        " actions that lie ready. What an interface adds is the median step with it against that of"
        " GuestEnv alone, of the same rounds.",
    )
    bench.say(f"{MANY} agents of one guest against {SYNC} environments in Python")
    yield from _against_python(bench)
    bench.say(f"interfaces on {SOME} agents")
    yield from _interfaces(bench)
    with ExitStack() as stack:
        yield from players.rows(bench, TOPIC, PENDULUM, SOME, _llapi(stack, SOME))


def _against_python(bench: Bench) -> Iterator[Row]:
    with ExitStack() as stack:
        ours = _vector(stack, MANY)
        theirs = stack.enter_context(
            closing(gymnasium.make_vec("Pendulum-v1", SYNC, vectorization_mode="sync"))
        )
        theirs.reset(seed=1)
        actions = np.zeros((SYNC, 1), np.float32)
        blocks: dict[str, Block] = {
            "ours": lambda: MANY / microseconds(ours, bench.block_seconds),
            "theirs": lambda: (
                SYNC / microseconds(lambda: theirs.step(actions), bench.block_seconds)
            ),
        }
        figures = bench.interleave(blocks)
    yield Row(
        TOPIC, f"agent steps, {MANY} agents", "million/s", Spread.of(figures["ours"]),
        AtLeast(100.0), THEIRS, Spread.of(figures["theirs"]),
        quotients(figures["ours"], figures["theirs"]),
    )  # fmt: skip


def _interfaces(bench: Bench) -> Iterator[Row]:
    with ExitStack() as stack:
        calls: dict[str, Call] = {
            "GuestEnv": _plain(stack, SOME),
            "VectorEnv": _vector(stack, SOME),
            "LLAPI": _llapi(stack, SOME),
            "PettingZoo": _parallel(stack, SOME),
        }
        blocks: dict[str, Block] = {
            name: (lambda call=call: microseconds(call, bench.block_seconds))
            for name, call in calls.items()
        }
        figures = bench.interleave(blocks)
    plain = figures["GuestEnv"]
    yield alone(TOPIC, f"GuestEnv, a step of {SOME} agents", "µs", plain)
    limits: dict[str, Limit] = {"VectorEnv": AtMost(1.3), "LLAPI": AtMost(2.0)}
    for name, limit in limits.items():
        yield Row(
            TOPIC, f"{name}, a step of {SOME} agents", "µs", Spread.of(figures[name]), limit,
            "GuestEnv", Spread.of(plain), quotients(figures[name], plain),
        )  # fmt: skip
    added = [(a - b) / SOME for a, b in zip(figures["PettingZoo"], plain, strict=True)]
    yield alone(TOPIC, "PettingZoo, beyond GuestEnv an agent step", "µs", added, AtMost(2.0))


def _options(agents: int) -> dict[str, Any]:
    return {"configure": (agents, "{seed}")}


def _plain(stack: ExitStack, agents: int) -> Call:
    env = stack.enter_context(GuestEnv(PENDULUM, **_options(agents)))
    env.reset(seed=1)
    actions = np.zeros((agents, 1), np.float32)

    def step() -> None:
        env.step(actions[: len(env.decision.deciding)] if env.decision else actions)

    return step


def _vector(stack: ExitStack, agents: int) -> Call:
    envs = stack.enter_context(closing(GuestVectorEnv(PENDULUM, **_options(agents))))
    envs.reset(seed=1)
    actions = np.zeros((agents, 1), np.float32)
    return lambda: envs.step(actions)


def _llapi(stack: ExitStack, agents: int) -> Call:
    env = stack.enter_context(closing(GuestUnityEnv(PENDULUM, **_options(agents))))
    env.reset()
    (name,) = env.behavior_specs
    actions = np.zeros((agents, 1), np.float32)

    def step() -> None:
        deciding, _ = env.get_steps(name)
        env.set_actions(name, ActionTuple(continuous=actions[: len(deciding)]))
        env.step()

    return step


def _parallel(stack: ExitStack, agents: int) -> Call:
    game = stack.enter_context(closing(GuestParallelEnv(PENDULUM, **_options(agents))))
    game.reset(seed=1)
    action = np.zeros(1, np.float32)

    def step() -> None:
        if not game.agents:
            game.reset()
        game.step(dict.fromkeys(game.agents, action))

    return step
