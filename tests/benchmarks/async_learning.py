"""How soon the asynchronous trainer learns the pendulum, beside the hive's learner."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

from tests.benchmarks.async_runs import ACTORS, AGENTS, MESSAGE, NAME, SYNC
from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.defaults import SECONDS, Result, Run
from tests.benchmarks.learning import SEEDS, reached
from tests.benchmarks.rows import AtMost, Row, by_seed
from tests.benchmarks.suite import SUITE

TOPIC = "async learning"
RUNNER = "processes"
HIVE = "the hive's learner"
ROWS, TIME = AtMost(1.25), AtMost(1.5)


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"The pendulum of the suite, goal {SUITE[NAME].goal:g}, by `train_async` and `arkml train"
        f"`'s defaults in turn, each seed in a process of its own: {ACTORS} actors in {RUNNER} with"
        f" {AGENTS // ACTORS} guests each, beside a guest of {AGENTS} agents; one update a sample,"
        f" a warm-up of 1,000 rows, a model every {SYNC} updates, messages of {MESSAGE} steps."
        " Both are rated every 1,024 rows when all is over, by 100 episodes without noise. Rows are"
        " those received, with the last ones of episodes. Seconds count from the first row"
        " received, those of the hive from its first policy; compiling, with a warm cache, is part"
        " of both.",
    )
    ours: list[Result] = []
    theirs: list[Result] = []
    for seed in range(1 if bench.quick else SEEDS):
        bench.say(f"{NAME} is learned by actors and by the hive, seed {seed}")
        for by_actors in (True, False) if seed % 2 else (False, True):
            if by_actors:
                ours.append(_learned(seed))
            else:
                theirs.append(Run(NAME, seed, {}).result())
    for key, name, unit, limit in (
        ("rows", "rows to the goal", "rows", ROWS),
        ("seconds", "from the first row", "s", TIME),
    ):
        mine, other = reached(ours, key), reached(theirs, key)
        yield by_seed(TOPIC, f"{NAME}: {name}", unit, mine, limit, competitor=HIVE, theirs=other)
    started = [float(result["first"]) for result in ours]
    yield by_seed(TOPIC, f"{NAME}: first row after", "s", started)


def _learned(seed: int) -> Result:
    """Learn by actors in a process. Raises SubprocessError if it fails or takes too long."""
    command = [sys.executable, "-m", "tests.benchmarks.async_runs", str(seed), RUNNER]
    ended = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS
    )
    result: Result = json.loads(ended.stdout.splitlines()[-1])
    return result
