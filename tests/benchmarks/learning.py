"""
How soon a guest has learned: tuned, against stable-baselines3's own `learn()` in its own process,
and by the defaults that a user gets.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Sequence

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.configurations import (
    COMMAND,
    CRATE,
    SETTINGS,
    TUNED,
    Configuration,
)
from tests.benchmarks.games import AGENTS, GAMES, ROWS_PER_UPDATE
from tests.benchmarks.rows import AtMost, NotWithin, Reached, Row, by_seed

TOPIC = "learning"
STEPS, SECONDS = AtMost(1.25), AtMost(1.1)
THEIRS = "stable-baselines3 learn()"
QUICK_SECONDS = 15.0

Result = dict[str, float | None]

_STEPS = ", ".join(f"{name} {game.steps:,}" for name, game in GAMES.items())
_GOALS = ", ".join(f"{name} {game.goal:g}" for name, game in GAMES.items())
NOTE = (
    "Each seed is a run of its own, in a process of its own, that ends after"
    f" {COMMAND.seconds / 60:g} minutes, as `arkml train` does without options"
    f' ("{CRATE.name}" after {CRATE.seconds / 60:g}), or these steps: {_STEPS}.'
    " The goal is the mean return without noise of 100 episodes, rated every 2,048"
    f" steps and at the end, when all is over: {_GOALS}. Seconds count from the first policy. All"
    " seeds are below; the table has their median, its spread their lowest and highest, and a"
    f' ratio is that of medians. "{TUNED.name}": SAC with the same network (64, 64), batch, n-step,'
    f" entropy and learning rate for both, {AGENTS} environments and an update for"
    f" {ROWS_PER_UPDATE} steps, nothing normalized, one torch thread; the learners in turn, theirs"
    " steps all environments by a few numpy operations. The others are defaults, of guests of 16"
    f' agents that submit as fast as they are admitted: "{COMMAND.name}" is `arkml train GUEST`'
    " without options but `--seed`, which takes what the guest asks for (its ProtocolConfig has a"
    f" network of 64, 64 and batches of 256, and the rest is normalized);"
    f' "{SETTINGS.name}" are those of docs/training.md,'
    " which a guest of ml-v1 to v3 gets (256, 256; 256; 3e-4);"
    f' "{CRATE.name}" is that of the crate `ark-api` (1,024, 1,024; 4,000; 1e-2 to 1e-4), whose'
    " update takes about a second of a core."
)


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(TOPIC, NOTE)
    if bench.quick:
        bench.note(TOPIC, f"Cut short: one seed, and {QUICK_SECONDS:g} s for each learner.")
    for game in ["pendulum"] if bench.quick else GAMES:
        yield from _tuned(bench, game)
        for configuration in (COMMAND, SETTINGS, CRATE):
            yield from _by_default(bench, configuration, game)


def _tuned(bench: Bench, game: str) -> Iterator[Row]:
    """What ours and theirs need with the same settings, in turn."""
    ours: list[Result] = []
    theirs: list[Result] = []
    for seed in _seeds(bench, TUNED):
        bench.say(f"{game}, {TUNED.name}, is learned, seed {seed}")
        turns = [("ours", ours), ("theirs", theirs)]
        for learner, results in turns if seed % 2 else turns[::-1]:
            results.append(_learned(bench, learner, TUNED, game, seed))
    for name, unit, key, limit in (
        ("steps to the goal", "steps", "steps", STEPS),
        ("from the first policy", "s", "seconds", SECONDS),
        ("highest rating", "", "rating", None),
        ("start-up", "s", "start-up", None),
    ):
        mine, other = reached(ours, key), reached(theirs, key)
        yield by_seed(
            TOPIC, f"{game}, {TUNED.name}: {name}", unit, mine, limit, competitor=THEIRS,
            theirs=other, has_ratio=key != "rating", why_not=_cut(bench, [*mine, *other]),
        )  # fmt: skip


def _by_default(bench: Bench, configuration: Configuration, game: str) -> Iterator[Row]:
    found: list[Result] = []
    for seed in _seeds(bench, configuration):
        bench.say(f"{game}, {configuration.name}, is learned, seed {seed}")
        found.append(_learned(bench, "ours", configuration, game, seed))
    limit = AtMost(GAMES[game].steps) if configuration is COMMAND else None
    name = f"{game}, {configuration.name}"
    steps = reached(found, "steps")
    cut = _cut(bench, steps)
    yield by_seed(TOPIC, f"{name}: steps to the goal", "steps", steps, limit, why_not=cut)
    yield by_seed(TOPIC, f"{name}: from the first policy", "s", reached(found, "seconds"))
    yield by_seed(TOPIC, f"{name}: highest rating", "", reached(found, "rating"))


def _seeds(bench: Bench, configuration: Configuration) -> range:
    return range(1 if bench.quick else configuration.seeds)


def _cut(bench: Bench, figures: Sequence[Reached]) -> str:
    """Say why nothing is asserted of figures that a quick run leaves open."""
    is_open = any(isinstance(figure, NotWithin) for figure in figures)
    return "cut short" if bench.quick and is_open else ""


def _learned(
    bench: Bench, learner: str, configuration: Configuration, game: str, seed: int
) -> Result:
    seconds = QUICK_SECONDS if bench.quick else configuration.seconds
    module = "tests.benchmarks.learner_runs"
    words = (learner, configuration.name, game, seed, seconds)
    command = [sys.executable, "-m", module, *map(str, words)]
    ended = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    result: Result = json.loads(ended.stdout)
    return result


def reached(results: Sequence[Result], key: str) -> list[Reached]:
    """The figure of each run, or how far it was played without reaching the goal."""
    found: list[Reached] = []
    for result in results:
        figure = result[key]
        if figure is None:
            bound = result[f"{key} played"]
            assert bound is not None
            found.append(NotWithin(bound))
        else:
            found.append(figure)
    return found
