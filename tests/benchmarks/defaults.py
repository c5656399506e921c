"""
The suite learned by the defaults, each seed in a process of its own; run as a module.

`python -m tests.benchmarks.defaults --seeds 0-4 --jobs 2` appends one line of JSON for each run to
a file, leaves out what the file has, and prints a Markdown table of the games. With `--beside`,
stable-baselines3 learns them by its own defaults, too.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.companion import ROOT
from tests.benchmarks.default_runs import DEFAULTS, algorithm_of
from tests.benchmarks.default_table import table
from tests.benchmarks.suite import SUITE

OURS, THEIRS = "ours", "default"
"""Learners: ours, and stable-baselines3 by its own defaults, one of those in `their_runs`."""

SECONDS = 3_600.0
"""Seconds after which a run is given up."""

Result = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One game and seed, settings that replace our defaults, and the learner."""

    game: str
    seed: int
    changes: Mapping[str, Any]
    learner: str = OURS

    def is_of(self, result: Result) -> bool:
        """Return whether `result` is the one of this run, by the same defaults."""
        return all(result[name] == value for name, value in self.identity.items())

    @property
    def identity(self) -> Mapping[str, Any]:
        """The part of a result that is known before; ours are by the defaults of this package."""
        settings: Mapping[str, Any] = {}
        if self.learner == OURS:
            settings = {**DEFAULTS, **algorithm_of(SUITE[self.game]), **self.changes}
        return {
            "game": self.game,
            "seed": self.seed,
            "learner": self.learner,
            "settings": json.loads(json.dumps(settings)),
        }

    def result(self) -> Result:
        """Learn the game in a process. Raises SubprocessError if it fails or takes too long."""
        words = ["default_runs", self.game, str(self.seed), json.dumps(self.changes)]
        if self.learner != OURS:
            words = ["their_runs", self.learner, self.game, str(self.seed)]
        command = [sys.executable, "-m", f"tests.benchmarks.{words[0]}", *words[1:]]
        ended = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=SECONDS
        )
        return {**json.loads(ended.stdout.splitlines()[-1]), **self.identity}


def stored(path: Path) -> list[Result]:
    """Return the results in a file of lines, none if it does not exist."""
    if not path.exists():
        return []
    return [json.loads(line) for line in path.read_text().splitlines() if line]


def results(runs: Sequence[Run], jobs: int) -> Iterator[Result]:
    """Run what is given, `jobs` at a time, and yield each result when it is there."""
    with ThreadPoolExecutor(jobs) as pool:
        learning = {pool.submit(run.result): run for run in runs}
        try:
            for done in as_completed(learning):
                run = learning[done]
                try:
                    yield done.result()
                except subprocess.SubprocessError as error:
                    reason = str(getattr(error, "stderr", "") or "").strip()[-2_000:]
                    print(
                        f"{run.game}, {run.learner}, seed {run.seed}: {error}\n{reason}",
                        file=sys.stderr,
                    )
        finally:
            pool.shutdown(wait=True, cancel_futures=True)


def main(arguments: Sequence[str] | None = None) -> int:
    options = _options(arguments)
    runs = [
        Run(game, seed, options.set, learner)
        for seed in options.seeds
        for game in options.games
        for learner in ((OURS, THEIRS) if options.beside else (OURS,))
    ]
    there = stored(options.file)
    missing = [run for run in runs if not any(run.is_of(result) for result in there)]
    if not options.table:
        for result in results(missing, options.jobs):
            there.append(result)
            with options.file.open("a") as file:
                file.write(json.dumps(result) + "\n")
            said = "not reached" if result["rows"] is None else f"{result['rows']:,} rows"
            name = f"{result['game']}, {result['learner']}, seed {result['seed']}"
            print(f"  {name}: {said}", file=sys.stderr, flush=True)
    found = [next((result for result in there if run.is_of(result)), None) for run in runs]
    print(table([result for result in found if result is not None]))
    return int(any(result is None for result in found))


def _options(arguments: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.defaults")
    parser.add_argument("--seeds", type=seeds, default=range(5), metavar="0-4", help="default 0-4")
    parser.add_argument("--jobs", type=int, default=1, help="runs at a time (default 1)")
    parser.add_argument(
        "--games", nargs="+", choices=SUITE, default=list(SUITE), metavar="GAME",
        help="names in the suite (default: all)",
    )  # fmt: skip
    parser.add_argument(
        "--set", type=_setting, action="append", default=[], metavar="KEY=VALUE",
        help="a setting other than the default; may be repeated",
    )  # fmt: skip
    parser.add_argument(
        "--beside", action="store_true", help="have stable-baselines3 learn the games, too"
    )
    parser.add_argument("--file", type=Path, default=Path("defaults.jsonl"), help="of the results")
    parser.add_argument("--table", action="store_true", help="print what the file has, run nothing")
    options = parser.parse_args(arguments)
    options.set = dict(options.set)
    return options


def seeds(text: str) -> Sequence[int]:
    """Return the seeds of "0-4" or "0,3,7". Raises ValueError for other text."""
    first, dash, last = text.partition("-")
    if dash:
        return range(int(first), int(last) + 1)
    return [int(word) for word in text.split(",")]


def _setting(text: str) -> tuple[str, Any]:
    name, equals, value = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError(f"{text!r} is not KEY=VALUE")
    try:
        return name, json.loads(value)
    except ValueError:
        return name, value


if __name__ == "__main__":
    sys.exit(main())
