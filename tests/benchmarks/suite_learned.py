"""Seeds that reach the goals of the suite, by our defaults and by those of stable-baselines3."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from tests.benchmarks.bench import Bench
from tests.benchmarks.default_table import Result, is_held, is_reached
from tests.benchmarks.defaults import OURS, THEIRS, Run
from tests.benchmarks.learning import SEEDS, reached
from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtLeast, Row, alone, by_seed
from tests.benchmarks.suite import SUITE

TOPIC = "suite"
COMPETITOR = "stable-baselines3 by default"


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "The games of the suite by the defaults, ours and stable-baselines3's in turn, each seed in"
        " a process of its own, for equal rows. Theirs have the same network (64, 64), VecNormalize"
        " and one torch thread; SAC makes an update for each row and a rollout of PPO has 2,048"
        " rows, as with one environment. They get no demonstrations, and no masks: a masked choice"
        " is replaced by the next that is allowed. A seed holds the goal if four of the five"
        " ratings after it are at it, too.",
    )
    for game in ["point mass"] if bench.quick else SUITE:
        yield from _game(bench, game)


def _game(bench: Bench, game: str) -> Iterator[Row]:
    found: dict[str, list[Result]] = {OURS: [], THEIRS: []}
    for seed in range(1 if bench.quick else SEEDS):
        for learner in (OURS, THEIRS) if seed % 2 else (THEIRS, OURS):
            bench.say(f"{game} is learned, {learner}, seed {seed}")
            found[learner].append(Run(game, seed, {}, learner).result())
    ours, theirs = found.values()
    counts = [sum(map(is_reached, results)) for results in (ours, theirs)]
    yield Row(
        TOPIC, f"{game}: seeds that reach {SUITE[game].goal:g} by {SUITE[game].rows:,} rows",
        f"of {len(ours)}", _spread(counts[:1]), AtLeast(counts[1]), COMPETITOR, _spread(counts[1:]),
    )  # fmt: skip
    yield alone(TOPIC, f"{game}: seeds that hold it", f"of {len(ours)}", [sum(map(is_held, ours))])
    yield by_seed(
        TOPIC, f"{game}: rows to the goal", "rows", reached(ours, "rows"),
        competitor=COMPETITOR, theirs=reached(theirs, "rows"),
    )  # fmt: skip


def _spread(figures: Sequence[int]) -> Spread:
    return Spread.of([float(figure) for figure in figures])
