"""`arkml train --seeds N`: several trainings that differ only in their seed, a process for each."""

from __future__ import annotations

import sys
import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from arkml.base.terminal import harmless
from arkml.cli.exits import FAILED, GOOD, UNUSABLE, print_error, print_json
from arkml.cli.signals import SIGNALS
from arkml.cli.training_process import TrainingProcess, document_of

if TYPE_CHECKING:
    from arkml.training.seeds import SeedResult

_INTERVAL = 0.1
CURVE = "learning_curve.png"


@dataclass(frozen=True, slots=True)
class SeedOptions:
    """
    The options of several trainings with different seeds.

    Attributes:
        words: Words of `arkml train` that all trainings share.
        count: Number of seeds.
        first: The first seed; the others follow it.
        directory: Directory with one directory for each seed.
        jobs: Trainings that run at a time.

    """

    guest: Path
    directory: Path
    words: Sequence[str]
    first: int
    count: int
    jobs: int
    goal: float | None


def words_of(context: typer.Context, without: frozenset[str]) -> list[str]:
    """Return the options of a command as words again, such as `["npc.wasm", "--frames=900"]`."""
    words = []
    for option in context.command.params:
        name = option.name or ""
        source = context.get_parameter_source(name)
        if name in without or source is None or source.name == "DEFAULT":
            continue
        value = context.params[name]
        if option.param_type_name == "argument":
            words.append(str(value))
        elif isinstance(value, bool):
            words += [option.opts[0]] * value
        elif getattr(option, "count", False):
            words += [option.opts[0]] * int(value)
        else:
            values = value if isinstance(value, list | tuple) else [value]
            words += [f"{option.opts[0]}={one}" for one in values]
    return words


class SeedTrainings:
    """
    The processes of trainings with different seeds, `jobs` at a time. They end with this process.
    """

    def __init__(self, options: SeedOptions) -> None:
        self._options = options
        self._waiting = deque(range(options.first, options.first + options.count))
        self._running: dict[int, TrainingProcess] = {}
        self._statuses: dict[int, int] = {}
        self._interrupts = 0

    def run(self) -> None:
        """Run all trainings to their ends, or until KeyboardInterrupt."""
        while self._waiting or self._running:
            while self._waiting and len(self._running) < self._options.jobs:
                self._start(self._waiting.popleft())
            time.sleep(_INTERVAL)
            self._gather()

    def interrupt(self) -> None:
        """Interrupt all trainings as Ctrl-C does, and wait for them to write their results."""
        self._waiting.clear()
        while self._running:
            wanted = 2 if SIGNALS.hurry else 1
            if self._interrupts < wanted:
                self._interrupts += 1
                for process in self._running.values():
                    process.interrupt()
            time.sleep(_INTERVAL)
            self._gather()

    def results(self) -> list[SeedResult]:
        """Return the results of the trainings that have ended, by seed."""
        from arkml.training.seeds import SeedResult

        return [
            SeedResult(
                seed,
                self._folder(seed),
                status,
                document_of(self._folder(seed)),
                self._options.goal,
            )
            for seed, status in sorted(self._statuses.items())
        ]

    def _start(self, seed: int) -> None:
        words = [*self._options.words, f"--seed={seed}"]
        self._running[seed] = TrainingProcess(self._folder(seed), words)

    def _gather(self) -> None:
        for seed, process in list(self._running.items()):
            status = process.poll()
            if status is None:
                continue
            del self._running[seed]
            self._statuses[seed] = status
            self._say(seed, status)
            if status == UNUSABLE and "run" not in process.document:
                self._waiting.clear()  # what is refused here is refused everywhere

    def _say(self, seed: int, status: int) -> None:
        document = document_of(self._folder(seed))
        done = f"{len(self._statuses)} of {self._options.count}"
        if "end_reason" in document:
            error = f": {document['error']}" if "error" in document else ""
            text = harmless(f"{document['end_reason']} after {document['rows']:,} rows{error}")
        else:
            text = document.get("error") or f"exit code {status}, see {self._folder(seed)}.log"
        sys.stderr.write(f"seed {seed}: {text} ({done})\n")
        sys.stderr.flush()

    def _folder(self, seed: int) -> Path:
        return self._options.directory / f"seed-{seed}"


def train_seeds(options: SeedOptions, *, as_json: bool) -> int:
    """Train with all seeds, show a table and a curve, and return the command's exit code."""
    from arkml.base.output_files import make_directory

    make_directory("--out", options.directory)
    trainings = SeedTrainings(options)
    SIGNALS.keep()
    try:
        trainings.run()
        SIGNALS.begin_end()
    except KeyboardInterrupt:
        SIGNALS.begin_end()
        sys.stderr.write(f"interrupted by {SIGNALS.name}: keeping what was learned\n")
        trainings.interrupt()
    results = trainings.results()
    document = _document_of(options, results, _write_curve(options, results))
    if as_json:
        print_json(document)
    else:
        _show(document)
    SIGNALS.done()
    return SIGNALS.ended(_status([one.status for one in results]))


def _status(statuses: Sequence[int]) -> int:
    """Return the exit code: 0 if all are 0, 2 if all others were refused, else 1."""
    if not any(statuses):
        return GOOD
    return UNUSABLE if set(statuses) <= {GOOD, UNUSABLE} else FAILED


def _write_curve(options: SeedOptions, results: Sequence[SeedResult]) -> Path | None:
    """Write the picture, None without matplotlib or without a curve."""
    from arkml.base.output_files import write_file
    from arkml.errors import UsageError
    from arkml.training.pictures import can_draw
    from arkml.training.seeds import draw_band

    if not can_draw() or not any(one.series for one in results):
        return None
    path = options.directory / CURVE
    try:
        write_file(path, draw_band(options.guest.name, results))
    except UsageError as error:
        print_error(str(error))
        return None
    return path


def _document_of(
    options: SeedOptions, results: Sequence[SeedResult], curve: Path | None
) -> dict[str, Any]:
    """Return the result as the object of `--json`."""
    from arkml.training.seeds import median_rows

    return {
        "guest": options.guest.name,
        "goal": options.goal,
        "reached": sum(one.rows_to_goal is not None for one in results),
        "median_rows_to_goal": median_rows(results),
        "curve": None if curve is None else str(curve),
        "seeds": [one.as_json() for one in results],
    }


def _show(document: dict[str, Any]) -> None:
    from arkml.cli import tables
    from arkml.training.pictures import NO_PICTURE, can_draw

    rows = [
        (
            str(one["seed"]),
            _shown(one["rows_to_goal"]),
            _shown(one["best_return"]),
            _shown(one.get("rows")),
            f"{one['seconds']:,.1f} s" if "seconds" in one else "",
            one.get("error") or one.get("end_reason") or f"exit code {one['status']}",
        )
        for one in document["seeds"]
    ]
    if document["goal"] is not None:
        rows.append(("median", _shown(document["median_rows_to_goal"]), "", "", "", ""))
    header = ("seed", "rows to the goal", "best policy", "rows", "time", "ended by")
    tables.show(f"{document['guest']}: {len(document['seeds'])} seeds", tables.grid(header, rows))
    if curve := document["curve"] or (None if can_draw() else NO_PICTURE):
        sys.stdout.write(f"learning curve: {harmless(str(curve))}\n")


def _shown(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:,.0f}" if float(value).is_integer() else f"{value:,.4g}"
