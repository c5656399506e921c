"""How soon a guest has learned, against stable-baselines3's own `learn()` in its own process."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from statistics import median

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.games import AGENTS, GAMES, ROWS_PER_UPDATE
from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtMost, Row

TOPIC = "learning"
SEEDS = 5
STEPS, SECONDS = AtMost(1.25), AtMost(1.1)
THEIRS = "stable-baselines3 learn()"

Result = dict[str, float]


def rows(bench: Bench) -> Iterator[Row]:
    goals = ", ".join(f"{name} {game.goal:g}" for name, game in GAMES.items())
    bench.note(
        TOPIC,
        f"SAC with the same network (64, 64), batch, n-step, entropy, learning rate, {AGENTS}"
        f" environments and an update for {ROWS_PER_UPDATE} steps, nothing normalised, one torch"
        f" thread; {SEEDS} seeds, the learners in turn, each in a process of its own. Theirs steps"
        " all environments by a few numpy operations. The goal is the mean return without noise of"
        f" 100 episodes, rated every 2,048 steps when all is over: {goals}. Seconds count from"
        " the first policy; the ratio is that of the medians.",
    )
    for name in ["pendulum"] if bench.quick else GAMES:
        ours: list[Result] = []
        theirs: list[Result] = []
        for seed in range(1 if bench.quick else SEEDS):
            bench.say(f"{name} is learned, seed {seed}")
            turns = [("ours", ours), ("theirs", theirs)]
            for learner, results in turns if seed % 2 else turns[::-1]:
                results.append(_learned(learner, name, seed))
        yield _row(f"{name}, steps to the goal", "steps", "steps", ours, theirs, STEPS)
        yield _row(f"{name}, from the first policy", "s", "seconds", ours, theirs, SECONDS)
        yield _row(f"{name}, start-up", "s", "start-up", ours, theirs, None)


def _learned(learner: str, game: str, seed: int) -> Result:
    command = [sys.executable, "-m", "tests.benchmarks.learner_runs", learner, game, str(seed)]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    result: Result = json.loads(ended.stdout)
    return result


def _row(
    name: str,
    unit: str,
    key: str,
    ours: list[Result],
    theirs: list[Result],
    limit: AtMost | None,
) -> Row:
    mine, other = [found[key] for found in ours], [found[key] for found in theirs]
    ratio = Spread.of([median(mine) / median(other)])
    return Row(TOPIC, name, unit, Spread.of(mine), limit, THEIRS, Spread.of(other), ratio)
