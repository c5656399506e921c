"""What stepping a guest from outside costs, and what each interface adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec

from tests.benchmarks import players, stepping
from tests.benchmarks.actions import STEPPED
from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block, Spread, mean_microseconds, quotients
from tests.benchmarks.rows import AtLeast, AtMost, Limit, Row, alone
from tests.benchmarks.stepping import Call

TOPIC = "environments"
SYNC, MANY, SOME = 64, 1024, 64
STEPS = stepping.EPISODE + 1  # of a block, in which each pendulum ends once
FLEET, CROWD = f"{SYNC} guests", f"{MANY} agents of a guest"
PYTHON, ENVPOOL = f"gymnasium SyncVectorEnv, {SYNC} in Python", f"EnvPool, {SYNC} in C++"
ENVPOOL_ALONE = f"EnvPool with one thread, {SYNC} in C++"
RIVALS = (PYTHON, ENVPOOL, ENVPOOL_ALONE)
BOUNDS: Mapping[str, Mapping[str, tuple[float, ...]]] = {  # against each rival
    "pendulum": {FLEET: (3.0, 0.5, 0.4), CROWD: (35.0, 5.0, 4.0)},
    "cart-pole": {FLEET: (0.5, 0.15, 0.15), CROWD: (1.5, 0.5, 0.4)},
}
NOTE = (
    "Each game is stepped by random actions, drawn beforehand, the same for all; a figure is that"
    f" of {STEPS} consecutive steps, with the ends and beginnings of episodes. The pendulums end"
    f" together every {stepping.EPISODE} steps; a cart-pole, which is pushed with its whole force"
    " as Gymnasium's is, falls after about 22, so in each step some end and others begin; the"
    " step in which one begins counts, with ours and theirs. EnvPool runs with its own choice of"
    " threads, and with one. The cost of an interface is its step against that of GuestEnv alone,"
    " in the same rounds; PettingZoo's agents that end are followed by others, and every"
    f" {stepping.EPISODE} steps by a new instance. Earlier editions of this page stepped"
    " pendulums only, with actions of zero, and gave the median step, in which no episode ends:"
    " that was faster, above all for many agents, and the limits were higher (5x, 2x, 100x and 5x,"
    " and 50x against our player)."
)


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(TOPIC, NOTE)
    if find_spec("envpool") is None:
        bench.note(TOPIC, "EnvPool is not installed: its rows are missing.")
    for game in STEPPED:
        bench.say(f"{game}: {SYNC} guests, and {MANY} agents of one, against {SYNC} others")
        yield from _against_others(bench, game)
        bench.say(f"{game}: interfaces on {SOME} agents")
        yield from _interfaces(bench, game)
        yield from players.rows(bench, TOPIC, game, SOME)


def _against_others(bench: Bench, game: str) -> Iterator[Row]:
    """Steps of all agents a second, of ours and of theirs in the same rounds."""
    with ExitStack() as stack:
        calls: dict[str, tuple[int, Call]] = {
            FLEET: (SYNC, stepping.fleet(stack, game, SYNC)),
            CROWD: (MANY, stepping.vector(stack, game, MANY)),
            PYTHON: (SYNC, stepping.python(stack, game, SYNC)),
        }
        if find_spec("envpool") is not None:
            calls[ENVPOOL] = (SYNC, stepping.pool(stack, game, SYNC))
            calls[ENVPOOL_ALONE] = (SYNC, stepping.pool(stack, game, SYNC, num_threads=1))
        figures = bench.interleave(
            {name: partial(_rate, agents, call) for name, (agents, call) in calls.items()}
        )
    for ours, bounds in BOUNDS[game].items():
        for theirs, bound in zip(RIVALS, bounds, strict=True):
            if theirs in figures:
                yield Row(
                    TOPIC, f"{game}: agent steps, {ours}", "million/s",
                    Spread.of(figures[ours]), AtLeast(bound), theirs,
                    Spread.of(figures[theirs]), quotients(figures[ours], figures[theirs]),
                )  # fmt: skip


def _rate(agents: int, call: Call) -> float:
    """Millions of agent steps a second."""
    return agents / mean_microseconds(call, STEPS)


INTERFACES: Mapping[str, Callable[[ExitStack, str, int], Call]] = {
    "GuestEnv": stepping.plain,
    "VectorEnv": stepping.vector,
    "LLAPI": stepping.low_level,
    "PettingZoo": stepping.parallel,
}
LIMITS: Mapping[str, Mapping[str, Limit]] = {
    "pendulum": {"VectorEnv": AtMost(1.3), "LLAPI": AtMost(2.0), "PettingZoo": AtMost(8.0)},
    "cart-pole": {"VectorEnv": AtMost(2.5), "LLAPI": AtMost(2.0), "PettingZoo": AtMost(3.0)},
}


def _interfaces(bench: Bench, game: str) -> Iterator[Row]:
    limits = LIMITS[game]
    with ExitStack() as stack:
        blocks: dict[str, Block] = {
            name: partial(mean_microseconds, make(stack, game, SOME), STEPS)
            for name, make in INTERFACES.items()
        }
        figures = bench.interleave(blocks)
    plain = figures["GuestEnv"]
    yield alone(TOPIC, f"{game}: GuestEnv, a step of {SOME} agents", "µs", plain)
    for name in ("VectorEnv", "LLAPI", "PettingZoo"):
        yield Row(
            TOPIC, f"{game}: {name}, a step of {SOME} agents", "µs", Spread.of(figures[name]),
            limits[name], "GuestEnv", Spread.of(plain), quotients(figures[name], plain),
        )  # fmt: skip
