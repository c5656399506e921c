"""
Everything made, used, failed and dropped for an hour, and what the process uses meanwhile.

    python -m tests.soak.run [--seconds 3600] [--seed 0]

A line for each round, and at the end whether it is flat: status 1 if not. See `measuring`.
"""

from __future__ import annotations

import argparse
import logging
import random
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, fields
from pathlib import Path

from tests.conformance.models import linear
from tests.integration.hive_service import ACTIONS, FEATURES, Service, start_hive
from tests.soak import learner
from tests.soak.measuring import LEAST_ROUNDS, MOST_GROWTH, Usage, growth, usage, what_grows
from tests.soak.subjects import WITH_HIVE, Stage

ROUNDS = 60
"""Rounds of a run of any length: as many points does a line need, and a table bear."""

_COLUMNS = [field.name for field in fields(Usage)]


def play_round(
    stage: Stage, kinds: Sequence[Callable[[Stage], None]], seconds: float, least: int
) -> int:
    """Do things of these kinds for `seconds`, and at least `least`; let go of all of them."""
    until, count = time.monotonic() + seconds, 0
    while count < least or time.monotonic() < until:
        stage.chance.choice(kinds)(stage)
        count += 1
    stage.clear()
    return count


def line(title: str, values: Usage) -> str:
    """Return a row of the table."""
    return f"{title:>12}" + "".join(f"{value:>12.1f}" for value in astuple(values))


def soak(seconds: float, number: int, folder: Path, least: int) -> dict[str, float]:
    """
    Soak for `seconds`, print the table, and return what has grown.

    A round has `least` things at least.
    """
    rounds: list[Usage] = []
    hive = start_hive(folder / "data", learner=["-m", learner.__name__])
    service = Service(hive)
    model = linear([[0.0] * ACTIONS] * FEATURES)
    (folder / "data" / learner.POLICY).write_bytes(model)
    stage = Stage(random.Random(number), service)
    print(f"seed {number}\n" + " " * 12 + "".join(f"{name:>12}" for name in _COLUMNS), flush=True)
    started = time.monotonic()
    try:
        while len(rounds) < LEAST_ROUNDS or time.monotonic() - started < seconds:
            play_round(stage, WITH_HIVE, seconds / ROUNDS, least)
            rounds.append(usage(hive.pid))
            print(line(f"{time.monotonic() - started:.0f} s", rounds[-1]), flush=True)
    finally:
        service.close()
        hive.close()
    print(line("growth", growth(rounds)))
    print(line("at most", MOST_GROWTH))
    print(f"{stage.made:,} things made, {stage.failed:,} failures")
    return what_grows(rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, default=3600.0)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--things", type=int, default=10, help="in a round, at least")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ResourceWarning)  # some things are dropped unclosed
    logging.disable(logging.CRITICAL)
    with tempfile.TemporaryDirectory() as folder:
        grown = soak(options.seconds, options.seed, Path(folder), options.things)
    print(f"not flat: {', '.join(grown)}" if grown else "flat")
    sys.exit(1 if grown else 0)


if __name__ == "__main__":
    main()
