"""
How soon the defaults learn a game, beside stable-baselines3's own `learn()`; each seed in a process
of its own.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.defaults import OURS, Run
from tests.benchmarks.rows import AtMost, Limit, NotWithin, Reached, Row, by_seed
from tests.benchmarks.suite import SUITE

TOPIC = "learning"
SEEDS = 5

Limits = tuple[AtMost, AtMost]
"""Of the rows and of the seconds from the first policy."""

SAC_8, SAC_1 = "SAC.learn(), 1/8 update a step", "SAC.learn(), 1 update a step"
PPO = "PPO.learn(), same settings"
KINDS: Mapping[str, str] = {SAC_8: "1/8", SAC_1: "1", PPO: "same"}
"""The competitors, and their names in `their_runs`."""

BARS: Mapping[str, Mapping[str, Limits]] = {
    "pendulum": {
        SAC_8: (AtMost(0.2), AtMost(1.0)),
        SAC_1: (AtMost(0.4), AtMost(0.25)),
    },
    "cart-pole": {SAC_8: (AtMost(0.25), AtMost(0.5))},
    "point mass": {PPO: (AtMost(1.1), AtMost(0.35))},
    "corridor": {PPO: (AtMost(1.1), AtMost(0.35))},
}

_GOALS = ", ".join(f"{name} {SUITE[name].goal:g}" for name in BARS)
NOTE = (
    "Each seed is a run of its own, in a process of its own, ours and theirs in turn. Ours are the"
    " defaults, which a guest of 16 agents gets by `arkml train GUEST`; its submits wait for the"
    " learner. The goal is the mean return without noise of 100 episodes, rated every 1,024 rows"
    f" when all is over: {_GOALS}. Seconds count from the first policy; compiling, with a warm"
    " cache, is part of our time. Theirs: stable-baselines3 with one torch thread; SAC with the"
    " settings that it was tuned to, the same network (64, 64), 64 environments that are stepped by"
    " a few numpy operations, nothing normalized; PPO with the settings that are our defaults, on"
    " the same guests, with VecNormalize, and without the seconds that the guests take. It knows no"
    " masks: a choice of the corridor that is masked is replaced by the next that is allowed. Our"
    " rows include the last ones of episodes. All seeds are below; the table has their median,"
    " its spread their lowest and highest, and a ratio is that of medians."
)

Result = Mapping[str, Any]


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(TOPIC, NOTE)
    for game in ["pendulum"] if bench.quick else BARS:
        yield from _beside(bench, game, BARS[game])


def _beside(bench: Bench, game: str, bars: Mapping[str, Limits]) -> Iterator[Row]:
    """Measure what ours and its competitors need, in turn."""
    found: dict[str, list[Result]] = {OURS: [], **{name: [] for name in bars}}
    for seed in range(1 if bench.quick else SEEDS):
        order = list(found)
        for learner in order if seed % 2 else order[::-1]:
            bench.say(f"{game} is learned, {learner}, seed {seed}")
            kind = KINDS.get(learner, OURS)
            found[learner].append(Run(game, seed, {}, kind).result())
    ours = found[OURS]
    needed, seconds = reached(ours, "rows"), reached(ours, "seconds")
    yield by_seed(TOPIC, f"{game}: rows to the goal", "rows", needed, AtMost(SUITE[game].rows))
    for competitor, (of_rows, of_seconds) in bars.items():
        for key, name, mine, limit in (
            ("rows", "rows to the goal", needed, of_rows),
            ("seconds", "from the first policy", seconds, of_seconds),
        ):
            theirs = reached(found[competitor], key)
            yield _row(f"{game}: {name}", key, mine, limit, competitor, theirs)
    first = [float(result["first"]) for result in ours]
    yield by_seed(TOPIC, f"{game}: first policy after", "s", first)


def _row(
    name: str, key: str, ours: Sequence[Reached], limit: Limit, competitor: str,
    theirs: Sequence[Reached],
) -> Row:  # fmt: skip
    unit = "s" if key == "seconds" else key
    return by_seed(TOPIC, name, unit, ours, limit, competitor=competitor, theirs=theirs)


def reached(results: Sequence[Result], key: str) -> list[Reached]:
    """Return "rows" or "seconds" of each run, or how far it was played without the goal."""
    bounds = {"rows": "played", "seconds": "played_seconds"}
    return [
        NotWithin(float(result[bounds[key]])) if result[key] is None else float(result[key])
        for result in results
    ]
