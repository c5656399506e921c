"""Vector steps of games of the arcade beside a native loop of the same C: `make bench-arcade`."""

from __future__ import annotations

import argparse
import itertools
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium.vector import AutoresetMode
from tests.arcade.native import NativeGame
from tests.benchmarks import report
from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block, mean_microseconds
from tests.benchmarks.rows import AtLeast, Row, Verdict, against
from tools.arcade.__main__ import BUILT

from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.step_arrays import StepArrays

TOPIC = "arcade"
AGENTS = 1024
NATIVE = "native loop of its C"
LIMIT = AtLeast(0.5)
GAMES = (
    "squared", "cartpole", "pong", "breakout", "connect4", "tetris", "pacman", "target",
    "trash_pickup", "snake",
)  # fmt: skip
CALLS = 20
"""Steps of all agents in a block."""

Numbers = npt.NDArray[Any]


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"A step of {AGENTS:,} agents of one guest with random actions, into arrays that are given,"
        " beside a loop of the same C, compiled by the same clang for this machine, that sets the"
        " same actions and makes no rows. One thread each, in turn.",
    )
    for name in GAMES:
        bench.say(name)
        with ExitStack() as stack:
            yield _row(bench, name, stack)


def _row(bench: Bench, name: str, stack: ExitStack) -> Row:
    path = BUILT / f"{name}.wasm"
    with GuestVectorEnv(path, configure=(1, 1), autoreset_mode=AutoresetMode.SAME_STEP) as probe:
        agents = probe.num_envs
    copies = AGENTS // agents
    envs = stack.enter_context(
        GuestVectorEnv(
            path, configure=(copies, 1), autoreset_mode=AutoresetMode.SAME_STEP, threads=1
        )
    )
    envs.reset()
    envs.action_space.seed(1)
    features = sum(envs.guest_env.decision.observations.shape[1:])
    native = NativeGame(name, features, Path(stack.enter_context(TemporaryDirectory())))
    native.reset(copies, 1)
    drawn = [envs.action_space.sample() for _ in range(64)]
    blocks = {"ours": _guest(envs, drawn), NATIVE: _native(native, drawn)}
    figures = bench.interleave(blocks)
    return against(TOPIC, name, "µs", figures["ours"], NATIVE, figures[NATIVE], LIMIT)


def _guest(envs: GuestVectorEnv, drawn: list[Numbers]) -> Block:
    arrays, following = StepArrays.empty(envs), itertools.cycle(drawn)
    return lambda: mean_microseconds(lambda: envs.step(next(following), out=arrays), CALLS)


def _native(game: NativeGame, drawn: list[Numbers]) -> Block:
    following = itertools.cycle([np.ascontiguousarray(one, np.float32) for one in drawn])
    return lambda: mean_microseconds(lambda: game.loop(next(following)), CALLS)


def main() -> int:
    parser = argparse.ArgumentParser(prog="make bench-arcade", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="less time, more noise")
    options = parser.parse_args()
    bench = Bench(None, options.quick)
    found = list(rows(bench))
    print(report.table(found))
    return int(any(one.verdict is Verdict.MISSED for one in found))


if __name__ == "__main__":
    sys.exit(main())
