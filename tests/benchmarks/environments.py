"""What stepping a guest from outside costs, and what each interface adds to it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from importlib.util import find_spec

import numpy as np
from tests.benchmarks import native, players, stepping
from tests.benchmarks.actions import STEPPED
from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block, Spread, mean_microseconds, quotients
from tests.benchmarks.rows import AtLeast, AtMost, Limit, Row, alone
from tests.benchmarks.stepping import Call

TOPIC = "environments"
SYNC, MANY, SOME = 64, 1024, 64
STEPS = stepping.EPISODE + 1  # of a block, in which each pendulum ends once
FLEET, CROWD = f"{SYNC} guests", f"{MANY} agents of a guest"
CORES, LARGE = "guests on all cores", 1_000
PYTHON, ENVPOOL = f"gymnasium SyncVectorEnv, {SYNC} in Python", f"EnvPool, {SYNC} in C++"
ENVPOOL_ALONE = f"EnvPool with one thread, {SYNC} in C++"
RIVALS = (PYTHON, ENVPOOL, ENVPOOL_ALONE)
BOUNDS: Mapping[str, Mapping[str, tuple[float, ...]]] = {  # against each rival
    "pendulum": {FLEET: (3.0, 0.5, 0.9), CROWD: (35.0, 5.0, 4.0)},
    "cart-pole": {FLEET: (0.5, 0.15, 0.15), CROWD: (1.5, 0.5, 0.4)},
}
COUNTS: Mapping[str, Mapping[int, Limit]] = {  # cart-poles beside pendulums, which end together
    "agents of a guest": {64: AtLeast(0.3), 1024: AtLeast(0.6), 4096: AtLeast(0.6)},
    "guests": {64: AtLeast(0.7), 1000: AtLeast(0.7)},
}
ON_CORES: Mapping[str, Limit] = {"pendulum": AtLeast(1.0), "cart-pole": AtLeast(0.15)}
FLOOR = "its C source in a native loop"
OF_NATIVE = 0.2
OF_SILENT = 0.3
NOTE = (
    "Each game is stepped by random actions, drawn beforehand, the same for all; a figure is that"
    f" of {STEPS} consecutive steps, with the ends and beginnings of episodes. The pendulums end"
    f" together every {stepping.EPISODE} steps; a cart-pole, which is pushed with its whole force"
    " as Gymnasium's is, falls after about 22, so in each step some end and others begin; the"
    " step in which one begins counts, with ours and theirs. EnvPool runs with its own choice of"
    " threads, and with one; guests run on one thread where nothing else is said. The cost of an"
    " interface is its step against that of GuestEnv alone,"
    " in the same rounds, and what it adds is their difference; PettingZoo's agents that end are"
    f" followed by others, and every {stepping.EPISODE} steps by a new instance. In a fleet a new"
    " instance takes the place of a guest that has finished or failed; the next episode of one that"
    " plays on needs none. Earlier editions"
    " of this page stepped pendulums only, with actions of zero, and gave the median step, in which"
    " no episode ends: that was faster, above all for many agents, and the limits were higher (5x,"
    " 2x, 100x and 5x, and 50x against our player). That of PettingZoo on cart-poles was 3x until"
    " the step of GuestEnv, which it is compared with, took two thirds of its time."
)


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(TOPIC, NOTE)
    if find_spec("envpool") is None:
        bench.note(TOPIC, "EnvPool is not installed: its rows are missing.")
    bench.say("cart-poles beside pendulums")
    yield from _with_ends(bench)
    bench.say(f"new instances in {FLEET}, and {FLEET} that log")
    yield from _renewals(bench)
    yield from _logging(bench)
    if native.is_possible():
        bench.say(f"{MANY} cart-poles beside {FLOOR}")
        yield from _beside_native(bench)
    else:
        bench.note(TOPIC, "clang is not installed: the row of the native loop is missing.")
    for game in STEPPED:
        bench.say(f"{game}: {SYNC} guests, and {MANY} agents of one, against {SYNC} others")
        yield from _against_others(bench, game)
        for guests in (SYNC, LARGE):
            yield from _on_all_cores(bench, game, guests)
        yield from players.rows(bench, TOPIC, game, SOME)
    bench.say(f"interfaces on {SOME} agents")
    yield from _interfaces(bench)


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


def _on_all_cores(bench: Bench, game: str, guests: int) -> Iterator[Row]:
    """Steps of guests on all cores, beside one thread and beside EnvPool on all cores."""
    alone, rival = "one thread", f"EnvPool, {guests} in C++"
    with ExitStack() as stack:
        calls = {
            CORES: stepping.fleet(stack, game, guests, threads=None),
            alone: stepping.fleet(stack, game, guests),
        }
        if find_spec("envpool") is not None:
            calls[rival] = stepping.pool(stack, game, guests)
        figures = bench.interleave(
            {name: partial(_rate, guests, call) for name, call in calls.items()}
        )
    bounds = {alone: AtLeast(0.95), rival: ON_CORES[game]}
    for other in list(figures)[1:]:
        yield Row(
            TOPIC, f"{game}: agent steps, {guests} {CORES}", "million/s",
            Spread.of(figures[CORES]), bounds[other], other,
            Spread.of(figures[other]), quotients(figures[CORES], figures[other]),
        )  # fmt: skip


def _with_ends(bench: Bench) -> Iterator[Row]:
    """Steps of cart-poles, of which some end in every step, beside as many pendulums."""
    for kind, make in (("agents of a guest", stepping.vector), ("guests", stepping.fleet)):
        for count, limit in COUNTS[kind].items():
            with ExitStack() as stack:
                calls = {game: make(stack, game, count) for game in STEPPED}
                figures = bench.interleave(
                    {game: partial(_rate, count, call) for game, call in calls.items()}
                )
            poles, pendulums = figures["cart-pole"], figures["pendulum"]
            yield Row(
                TOPIC, f"cart-pole: agent steps, {count} {kind}", "million/s", Spread.of(poles),
                limit, f"pendulum, {count} {kind}", Spread.of(pendulums),
                quotients(poles, pendulums),
            )  # fmt: skip


def _renewals(bench: Bench) -> Iterator[Row]:
    """A new instance in the place of a guest that is over, beside a step of the whole fleet."""
    with ExitStack() as stack:
        calls = {
            "renewal": stepping.renewal(stack, "cart-pole", SYNC),
            "step": stepping.fleet(stack, "cart-pole", SYNC),
        }
        figures = bench.interleave(
            {name: partial(mean_microseconds, call, STEPS) for name, call in calls.items()}
        )
    yield Row(
        TOPIC, f"cart-pole: a new instance in {FLEET}", "µs", Spread.of(figures["renewal"]), None,
        f"a step of {FLEET}", Spread.of(figures["step"]),
        quotients(figures["renewal"], figures["step"]),
    )  # fmt: skip


def _logging(bench: Bench) -> Iterator[Row]:
    """Steps of cart-poles that ask the host for something after each episode, beside others."""
    with ExitStack() as stack:
        calls = {
            "logging": stepping.fleet(stack, "cart-pole", SYNC, stepping.LOGGING),
            "plain": stepping.fleet(stack, "cart-pole", SYNC),
        }
        figures = bench.interleave(
            {name: partial(_rate, SYNC, call) for name, call in calls.items()}
        )
    yield Row(
        TOPIC, f"cart-pole: agent steps, {FLEET} that log each end", "million/s",
        Spread.of(figures["logging"]), AtLeast(OF_SILENT), f"{FLEET} that do so after 100 of them",
        Spread.of(figures["plain"]), quotients(figures["logging"], figures["plain"]),
    )  # fmt: skip


def _beside_native(bench: Bench) -> Iterator[Row]:
    """Steps of cart-poles into arrays of the caller, beside the same source without a host."""
    with ExitStack() as stack:
        calls = {
            CROWD: stepping.written(stack, "cart-pole", MANY),
            FLOOR: native.cart_poles(stack, MANY),
        }
        figures = bench.interleave(
            {name: partial(_rate, MANY, call) for name, call in calls.items()}
        )
    yield Row(
        TOPIC, f"cart-pole: agent steps, {CROWD}, out=", "million/s", Spread.of(figures[CROWD]),
        AtLeast(OF_NATIVE), FLOOR, Spread.of(figures[FLOOR]),
        quotients(figures[CROWD], figures[FLOOR]),
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
    "cart-pole": {"VectorEnv": AtMost(2.5), "LLAPI": AtMost(2.0), "PettingZoo": AtMost(4.0)},
}


ADDED = AtMost(1.5)  # to a step in which some agents end, beside one in which none does


def _interfaces(bench: Bench) -> Iterator[Row]:
    with ExitStack() as stack:
        blocks: dict[str, Block] = {
            f"{game} {name}": partial(mean_microseconds, make(stack, game, SOME), STEPS)
            for game in STEPPED
            for name, make in INTERFACES.items()
        }
        figures = bench.interleave(blocks)
    for game in STEPPED:
        plain = figures[f"{game} GuestEnv"]
        yield alone(TOPIC, f"{game}: GuestEnv, a step of {SOME} agents", "µs", plain)
        for name, limit in LIMITS[game].items():
            ours = figures[f"{game} {name}"]
            yield Row(
                TOPIC, f"{game}: {name}, a step of {SOME} agents", "µs", Spread.of(ours), limit,
                "GuestEnv", Spread.of(plain), quotients(ours, plain),
            )  # fmt: skip
    for name in ("LLAPI", "PettingZoo"):
        poles, pendulums = (
            np.subtract(figures[f"{game} {name}"], figures[f"{game} GuestEnv"]).tolist()
            for game in ("cart-pole", "pendulum")
        )
        yield Row(
            TOPIC, f"cart-pole: what {name} adds to a step of {SOME} agents", "µs",
            Spread.of(poles), ADDED, "to pendulums", Spread.of(pendulums),
            quotients(poles, pendulums),
        )  # fmt: skip
