"""`arkml sweep`: searches for settings with which a guest is learned well."""

from __future__ import annotations

import hashlib
import json
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import FAILED, GOOD, UNUSABLE, Job, print_error, print_json
from arkml.cli.launch import require_hive
from arkml.cli.seeds_command import words_of
from arkml.cli.signals import SIGNALS
from arkml.cli.training_process import TrainingProcess, default_jobs
from arkml.cli.user_files import read_module
from arkml.cli.values import rate, whole_number

if TYPE_CHECKING:
    from arkml.training.sweep import Sweep, TrialResult

_EPILOG = options.epilog(
    "arkml sweep pendulum.wasm --space space.json -o sweep --minutes 2",
    "arkml sweep walker.wasm --space space.json -o sweep --frames 20000 --trials 50 --jobs 4",
    "arkml train walker.wasm --config sweep/best.json",
    notes="""
FILE is a JSON object of settings, each with a list of choices or a range, as in {"tau": [0.005,
0.05], "learning_rate_init": {"low": 1e-4, "high": 1e-2, "log": true}, "hidden": {"low": 32, "high":
256, "int": true}}. Each trial is a training with `arkml train`; it counts by the last mean return
of its learning curve. The same command again continues, up to --trials trials in all.
""",
)
_INTERVAL = 0.1
_OF_SWEEP = frozenset({"space", "output", "trials", "jobs", "config", "as_json"})
# Options that change no return of a trial that ends.
_UNRATED = ("--limit", "--imports", "--wasi", "--debug", "--eval-every=never")
_KEPT = ("run", "end_reason", "rows", "updates", "seconds", "error")
_UNLEARNED = (
    "evaluations rated only version 1, the policy from before the first update, which tells nothing"
    " of the settings: train for longer"
)
BEST, PICTURE = "best.json", "sweep.png"


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """
    The options of `arkml sweep`.

    `words` are the options of `arkml train` that all trials share, as words; `settings` are the
    settings that all trials share.
    """

    guest: Path
    space: Path
    directory: Path
    trials: int
    jobs: int
    seed: int
    words: Sequence[str]
    settings: dict[str, Any]
    as_json: bool


def register(app: typer.Typer) -> None:
    """Add the command `arkml sweep` to the application."""
    app.command("sweep", epilog=_EPILOG)(command)


def command(
    context: typer.Context,
    guest: options.GuestFile,
    space: Annotated[
        Path,
        typer.Option(
            metavar="FILE", help="The settings to choose from, as JSON.", show_default=False
        ),
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o", "--output", metavar="DIR", help="Directory of all files.", show_default=False
        ),
    ],
    trials: Annotated[
        int,
        typer.Option(
            metavar="N", parser=whole_number("--trials", 1), help="Trials in all, earlier ones too."
        ),
    ] = 20,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--jobs", 1),
            help="Trainings at a time: half of the cores by default.",
        ),
    ] = None,
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number("--frames", 1), help="Train N frames each time."
        ),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(
            metavar="M", parser=rate("--minutes", 0.001), help="Train M minutes each time."
        ),
    ] = None,
    eval_every: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--eval-every", 1),
            help="Every N frames, rate the policy without noise: such returns count then, and"
            " without it those of training.",
        ),
    ] = None,
    max_episode_steps: options.MaxEpisodeSteps = None,
    instances: options.Instances = 1,
    cmdlet: options.Cmdlet = None,
    demonstrations: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Rows that each training learns from first."),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Settings that all trials have, as JSON."),
    ] = None,
    seed: options.Seed = 0,
    limit: options.LimitValues = None,
    imports: options.GameImports = None,
    wasi: options.QuietWasi = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> Job:
    """Search for good settings, in many trainings."""
    from arkml.cli.train_command import read_settings

    words = words_of(context, _OF_SWEEP)
    if eval_every is None:  # the pace of `auto` differs from trial to trial
        words.append("--eval-every=never")
    del frames, minutes, max_episode_steps, instances, cmdlet  # they are in `words`
    del demonstrations, limit, imports, wasi, debug
    return partial(
        sweep,
        SweepOptions(
            guest=guest,
            space=space,
            directory=output,
            trials=trials,
            jobs=default_jobs() if jobs is None else jobs,
            seed=seed,
            words=words,
            settings={} if config is None else read_settings(config),
            as_json=as_json,
        ),
    )


class TrialRunner:
    """Runs the trials of a sweep, `jobs` at a time, each in a process of its own."""

    def __init__(self, options: SweepOptions, sweep: Sweep) -> None:
        self.refusal: str | None = None
        """The sentence with which the first training was refused, or None."""
        self._options = options
        self._rated = [
            word for word in options.words if word.startswith("-") and not word.startswith(_UNRATED)
        ]
        self._sweep = sweep
        self._running: dict[int, TrainingProcess] = {}
        self._is_compared = False

    def run(self) -> None:
        """Run trials until the wanted number is reached, or until KeyboardInterrupt."""
        while True:
            is_open = self.refusal is None and self._sweep.begun < self._options.trials
            if not (is_open or self._running):
                return
            if is_open and len(self._running) < self._options.jobs:
                self._start()
                continue
            time.sleep(_INTERVAL)
            self._gather()

    def interrupt(self) -> None:
        """Interrupt all trainings as Ctrl-C does, and wait; a continued sweep repeats them."""
        interrupts = 0
        while self._running:
            wanted = 2 if SIGNALS.hurry else 1
            if interrupts < wanted:
                interrupts += 1
                for process in self._running.values():
                    process.interrupt()
            time.sleep(_INTERVAL)
            self._running = {n: one for n, one in self._running.items() if one.poll() is None}

    def _start(self) -> None:
        from arkml.base.output_files import write_file

        if not self._is_compared:
            self._is_compared = True
            self._warn_of_others()
        number, chosen = self._sweep.ask()
        folder = self._options.directory / f"trial-{number:04}"
        settings = folder.with_name(f"{folder.name}.settings.json")
        write_file(settings, _json(self._options.settings | chosen))
        words = [*self._options.words, f"--config={settings}"]
        self._running[number] = TrainingProcess(folder, words)

    def _gather(self) -> None:
        from arkml.training.rating_rules import is_of_untrained

        for number, process in list(self._running.items()):
            status = process.poll()
            if status is None:
                continue
            del self._running[number]
            document = process.document
            last = (document.get("mean_return") or {}).get("last") if status == GOOD else None
            kept = {name: document[name] for name in _KEPT if name in document}
            kept["options"] = self._rated
            rated = [one["version"] for one in document.get("evaluations") or ()]
            if last is not None and is_of_untrained(rated, document["updates"]):
                last, kept["error"] = None, _UNLEARNED
            if last is None and "error" not in kept:
                log = process.folder.with_suffix(".log")
                failed = f"exit code {status}, see {log}"
                kept["error"] = "no mean return was reported" if status == GOOD else failed
            result = self._sweep.tell(number, last, kept)
            self._say(result)
            has_good = any(one.value is not None for one in self._sweep.results())
            if status == UNUSABLE and "run" not in document and not has_good:
                self.refusal = kept["error"]  # what is refused from the start is refused always

    def _warn_of_others(self) -> None:
        """Warn if earlier trials had other options: the best of all is chosen by their returns."""
        for one in self._sweep.results():
            options = one.document.get("options", self._rated)
            if one.value is not None and options != self._rated:
                sys.stderr.write(
                    f"trial {one.number} was made with {harmless(_spoken(options))}, those to come"
                    f" with {harmless(_spoken(self._rated))}: such returns do not compare, so use"
                    " the options of before, or choose another --output\n"
                )
                return

    def _say(self, result: TrialResult) -> None:
        ended = len(self._sweep.results())
        value = result.document.get("error") if result.value is None else f"{result.value:,.4g}"
        done = f"{ended} of {self._options.trials}"
        sys.stderr.write(f"trial {result.number}: {value}, {_words(result)} ({done})\n")
        sys.stderr.flush()


def sweep(options: SweepOptions) -> int:
    """Run the trials, write the best settings, show a table, and return the exit code."""
    from arkml.base.output_files import write_file
    from arkml.training.search_space import read_space
    from arkml.training.sweep import Sweep

    require_hive()
    space = read_space(options.space)
    sha256 = hashlib.sha256(read_module(options.guest)).hexdigest()
    subject = {"guest": options.guest.name, "sha256": sha256, "settings": options.settings}
    with Sweep(options.directory, space, subject, options.seed) as opened:
        runner = TrialRunner(options, opened)
        SIGNALS.keep()
        _run(runner)
        results = opened.results()
    best = best_of(results)
    if best is not None:
        write_file(options.directory / BEST, _json(options.settings | dict(best.settings)))
    document = _document_of(options, results, best)
    if best is None:
        document = {"error": runner.refusal or "no trial has a mean return"} | document
        print_error(document["error"])
    if options.as_json:
        print_json(document)
    elif results:
        _show(document)
    SIGNALS.done()
    failed = FAILED if runner.refusal is None else UNUSABLE
    return SIGNALS.ended(failed if best is None else GOOD)


def _run(runner: TrialRunner) -> None:
    """Run the trials to the end; no signal interrupts afterwards."""
    try:
        runner.run()
        SIGNALS.begin_end()
    except KeyboardInterrupt:
        SIGNALS.begin_end()
        sys.stderr.write(f"interrupted by {SIGNALS.name}: the same command continues\n")
        runner.interrupt()


def best_of(results: Sequence[TrialResult]) -> TrialResult | None:
    """Return the first trial with the highest mean return, None if no trial has one."""
    valued = [(one.value, one) for one in results if one.value is not None]
    return max(valued, key=lambda pair: pair[0])[1] if valued else None


def _document_of(
    options: SweepOptions, results: list[TrialResult], best: TrialResult | None
) -> dict[str, Any]:
    """Return the result as the object of `--json`."""
    picture = None if best is None else _write_picture(options.directory / PICTURE, results)
    equal: list[int] = []
    if best is not None:
        equal = [one.number for one in results if one is not best and one.value == best.value]
    return {
        "guest": options.guest.name,
        "best": None if best is None else best.as_json(),
        "equal": equal,
        "config": None if best is None else str(options.directory / BEST),
        "picture": None if picture is None else str(picture),
        "trials": [one.as_json() for one in results],
    }


def _write_picture(path: Path, results: list[TrialResult]) -> Path | None:
    """Write the picture, None without matplotlib."""
    from arkml.base.output_files import write_file
    from arkml.errors import UsageError
    from arkml.training.pictures import can_draw
    from arkml.training.sweep import draw_trials

    if not can_draw():
        return None
    try:
        write_file(path, draw_trials(results))
    except UsageError as error:
        print_error(str(error))
        return None
    return path


def _show(document: dict[str, Any]) -> None:
    from arkml.cli import tables
    from arkml.training.pictures import NO_PICTURE, can_draw

    ranked = sorted(
        document["trials"],
        key=lambda one: float("-inf") if one["mean_return"] is None else one["mean_return"],
        reverse=True,
    )
    names = list(ranked[0]["settings"])
    rows = [
        (
            str(one["trial"]),
            "-" if one["mean_return"] is None else f"{one['mean_return']:,.4g}",
            *(_shown(one["settings"][name]) for name in names),
            f"{one['rows']:,}" if "rows" in one else "",
            f"{one['seconds']:,.1f} s" if "seconds" in one else "",
            one.get("error") or one.get("end_reason") or "",
        )
        for one in ranked
    ]
    header = ("trial", "mean return", *names, "rows", "time", "ended by")
    tables.show(f"{document['guest']}: {len(rows)} trials", tables.grid(header, rows))
    if document["config"]:
        sys.stdout.write(f"best settings: {harmless(str(document['config']))}\n")
    if document["equal"]:
        equal = document["equal"]
        others = f"trial {equal[0]} has" if len(equal) == 1 else f"{len(equal):,} other trials have"
        sys.stdout.write(
            f"the best is the first of equals: {others} the same mean return, which does not tell"
            " their settings apart\n"
        )
    if picture := document["picture"] or (None if can_draw() else NO_PICTURE):
        sys.stdout.write(f"picture: {harmless(str(picture))}\n")


def _spoken(options: Sequence[str]) -> str:
    return " ".join(options) or "no options"


def _words(result: TrialResult) -> str:
    return ", ".join(f"{name} {_shown(value)}" for name, value in result.settings.items())


def _shown(value: object) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _json(settings: dict[str, Any]) -> bytes:
    return (json.dumps(settings, indent=2) + "\n").encode()
