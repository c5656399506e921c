"""`arkml train`: trains a guest, and keeps its policy."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast

import typer

from arkml.base.files import MOST_OF_SETTINGS, read_file
from arkml.cli import options
from arkml.cli.exits import FAILED, GOOD, Job, exit_code, print_failure, print_json, sentence
from arkml.cli.launch import read_token, require_hive, sets_budget
from arkml.cli.logs import LogOptions
from arkml.cli.seeds_command import SeedOptions, train_seeds, words_of
from arkml.cli.signals import SIGNALS
from arkml.cli.training_process import default_jobs
from arkml.cli.values import evaluation_interval, rate, read_limits, whole_number
from arkml.errors import (
    HiveUnreachable,
    NotFound,
    NothingLearned,
    RunAborted,
    RunGone,
    UsageError,
)

if TYPE_CHECKING:
    from arkml.cli.training_display import TrainingDisplay
    from arkml.runs.learner_settings import LearnerSettings
    from arkml.training.guest_trainer import GuestTrainer
    from arkml.training.results import TrainingResult
    from arkml.training.tracker_clients import TrackerName
    from arkml.training.training_options import EvaluationInterval, TrainingOptions
    from arkml.workers.placement import RunnerName

_EPILOG = options.epilog(
    "arkml train pendulum.wasm --minutes 2",
    "arkml train walker.wasm --fps 60 --until-return 250",
    "arkml train pendulum.wasm --minutes 2 --resume",
    "arkml train pendulum.wasm --until-return -200 --minutes 5 --seeds 5",
    "arkml train walker.wasm --from checkpoints/000000012000.safetensors",
    "arkml train walker.wasm --demonstrations walker.npz",
    "arkml train walker.wasm --trace-every 5",
    "arkml train walker.wasm --actors 4 --minutes 10",
    "arkml train walker.wasm --minutes 60 --watch",
    "arkml train walker.wasm --hive hive.example:12356 --frames 200000",
    "arkml train walker.wasm --hive hive.example:12356 --join walker",
    notes="""
Without --frames, --minutes or --until-return an applet trains for five minutes; anything else runs
once. The first run that the guest starts is the one that is shown and kept; other guests that start
it join it. --config takes a JSON file with any of the settings; docs/training_settings.md lists
them.
""",
)

_LEARNING, _WORKERS = "Learner", "Workers"
_MOST_SEEDS = 1_000  # each a training
_PER_SEED = frozenset({"seed", "seeds", "jobs", "out", "as_json"})


def register(app: typer.Typer) -> None:
    """Add the command `arkml train` to the application."""
    app.command("train", epilog=_EPILOG)(command)


def command(
    context: typer.Context,
    guest: options.GuestFile,
    hive: Annotated[str, options.hive("embedded", "embedded")] = "embedded",
    allow_hive: options.AllowHive = None,
    cmdlet: options.Cmdlet = None,
    frames: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole_number("--frames", 1), help="Train N frames."),
    ] = None,
    minutes: Annotated[
        float | None,
        typer.Option(metavar="M", parser=rate("--minutes", 0.001), help="Train M minutes."),
    ] = None,
    until_return: Annotated[
        float | None,
        typer.Option(
            metavar="X",
            help="Train until the mean return of 100 evaluation episodes of one version is X;"
            " without evaluations, of the last 100 training episodes, of which 20 must have ended.",
        ),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            parser=rate("--fps", 0.01),
            help="Pace the frames, of each worker: they never wait for the learner.",
        ),
    ] = None,
    instances: options.Instances = 1,
    eval_every: Annotated[
        str,
        typer.Option(
            metavar="N|auto|never",
            parser=evaluation_interval,
            help="Every N frames, rate the policy without noise in another guest; auto does so at a"
            " pace that takes little of the processor.",
        ),
    ] = "auto",
    evaluate_episodes: Annotated[
        int,
        typer.Option(
            metavar="N",
            parser=whole_number("--evaluate-episodes", 1),
            help="Episodes of each of these evaluations.",
        ),
    ] = 10,
    trace_every: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--trace-every", 1),
            help="Record the first of N evaluations in DIR/traces, for `arkml replay`; 1: each."
            " The best, the worst and the latest are kept.",
        ),
    ] = None,
    keep_module: Annotated[
        bool | None,
        typer.Option(
            "--keep-module/--no-keep-module",
            help="Let the hive keep a copy of the guest, so that people can watch its policies play"
            " on the page of the run.",
            show_default="with the hive of the training only",
        ),
    ] = None,
    max_episode_steps: options.MaxEpisodeSteps = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Directory of all files: training/GUEST by default."),
    ] = None,
    resume: Annotated[
        bool, typer.Option("--resume", help="Continue the training in the directory.")
    ] = False,
    join: Annotated[
        str,
        typer.Option(
            "--join",
            metavar="RUN",
            help="Join this run of the hive, by its id or name, instead of starting one.",
            show_default=False,
        ),
    ] = "",
    origin: Annotated[
        str | None,
        typer.Option(
            "--from",
            metavar="RUN[@UPDATES]|FILE",
            help="Start from a checkpoint: of a run of the same hive, or in a file.",
        ),
    ] = None,
    demonstrations: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Rows to learn from before play begins: NAME.npz, or a Minari dataset.",
        ),
    ] = None,
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Settings as JSON; they override the guest's.",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    algorithm: Annotated[
        str | None,
        typer.Option(
            metavar="auto|sac|ppo|NAME",
            help="The learning algorithm, or one of another package by its name; auto is ppo for"
            " discrete actions and with --memory, else sac.",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    memory: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--memory", 0),
            help="Numbers that each agent remembers, for games that do not show all; by ppo.",
            rich_help_panel=_LEARNING,
        ),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="auto|cpu|cuda", help="The device that it learns on.", rich_help_panel=_LEARNING
        ),
    ] = None,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync",
            help="Learn in lockstep: one seed gives the same weights every time.",
            rich_help_panel=_LEARNING,
        ),
    ] = False,
    seed: options.Seed = 0,
    seeds: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--seeds", 1, _MOST_SEEDS),
            help="Train N times, with seeds from --seed on: a table, and a curve with a band.",
        ),
    ] = None,
    jobs: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--jobs", 1),
            help="Trainings of --seeds at a time: half of the cores by default.",
        ),
    ] = None,
    threads: options.ThreadCount = "auto",
    actors: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--actors", 1),
            help="Play with N workers, hosts of --instances guests each that take part in the run;"
            " the first is this process, and counts the frames of --frames and --eval-every.",
            rich_help_panel=_WORKERS,
        ),
    ] = None,
    runner: Annotated[
        str,
        typer.Option(
            metavar="processes|ray",
            help="Run the other workers on this machine, or on a Ray cluster.",
            rich_help_panel=_WORKERS,
        ),
    ] = "processes",
    ray_address: Annotated[
        str | None,
        typer.Option(
            metavar="A",
            help="The Ray cluster to join; its nodes must reach --hive. Without it --runner ray"
            " starts one on this machine.",
            rich_help_panel=_WORKERS,
        ),
    ] = None,
    track: Annotated[
        str | None,
        typer.Option(
            metavar="wandb|mlflow",
            help="Pass curves, configuration and policies on to a tracker (an extra of its name).",
        ),
    ] = None,
    page: Annotated[
        int | None,
        typer.Option(
            metavar="[PORT]",
            parser=whole_number("--page", 0, 65_535),
            help="Show the training in a browser, at --page=PORT or at any port that is free.",
        ),
    ] = None,
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Train on with the rebuilt guest, between two frames, whenever its file has"
            " changed.",
        ),
    ] = False,
    notify: options.Notify = None,
    notify_command: options.NotifyCommand = None,
    limit: options.LimitValues = None,
    imports: options.GameImports = None,
    wasi: options.QuietWasi = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> Job:
    """Train a guest and keep the policy."""
    from arkml.hive.notifier import NotifyOptions
    from arkml.training.training_options import Goal, TrainingOptions

    directory = Path("training") / guest.stem if out is None else out
    settings = {} if config is None else read_settings(config)
    given = {"algorithm": algorithm, "memory": memory, "device": device, "sync": sync or None}
    settings |= {name: value for name, value in given.items() if value is not None}
    training = TrainingOptions(
        name=guest.name,
        folder=guest.parent,
        directory=directory,
        hive=hive,
        token=read_token(),
        allowed_hives=tuple(allow_hive or ()),
        settings=cast("LearnerSettings", settings),
        resume=resume,
        join=join,
        checkpoint=origin,
        demonstrations=demonstrations,
        goal=Goal(frames, minutes, until_return),
        arguments=cmdlet,
        fps=fps,
        instances=instances,
        eval_every=_interval(eval_every),
        evaluate_episodes=evaluate_episodes,
        max_episode_steps=max_episode_steps,
        seed=seed,
        limits=read_limits(tuple(limit or ())),
        budgets_every_call=sets_budget(limit),
        threads="auto" if threads == "auto" else int(threads),
        actors=actors,
        runner=cast("RunnerName", runner),
        ray_address=ray_address,
        track=cast("TrackerName | None", track),
        page=page,
        imports=imports,
        wasi=wasi,
        watch=guest if watch else None,
        trace_every=trace_every,
        keep_module=keep_module,
        notify=NotifyOptions(tuple(notify or ()), notify_command or ""),
    )
    if seeds is not None and page is not None:
        raise UsageError("--page is for one training, and --seeds are several: leave one away")
    if seeds is not None and join:
        raise UsageError("--join is for one training, and --seeds are several: leave one away")
    if seeds is not None:
        words = words_of(context, _PER_SEED)
        count = default_jobs() if jobs is None else jobs
        several = SeedOptions(guest, directory, words, seed, seeds, count, until_return)
        return partial(train_seeds, several, as_json=as_json)
    if jobs is not None:
        raise UsageError("--jobs is for --seeds")
    logs = LogOptions(log_level, verbose, debug)
    return partial(train, guest, training, logs, as_json=as_json)


def _interval(text: str) -> EvaluationInterval:
    """Return the frames between two evaluations that `evaluation_interval` has read."""
    if text == "never":
        return None
    return "auto" if text == "auto" else int(text)


def train(guest: Path, options: TrainingOptions, logs: LogOptions, *, as_json: bool) -> int:
    """Train, show the progress and the result, and return the exit code."""
    from arkml.cli.guest_task import announce
    from arkml.cli.training_display import TrainingDisplay, document_of
    from arkml.cli.user_files import read_module
    from arkml.training.guest_trainer import GuestTrainer

    logs.start()
    require_hive(embedded=options.grant().is_embedded)
    display = TrainingDisplay()
    with GuestTrainer(read_module(guest), options, display) as trainer:
        options = trainer.options  # of a training that is continued
        announce(trainer.module, options.instances)
        if trainer.page:
            sys.stderr.write(f"page: {trainer.page}\n")
        SIGNALS.keep()
        _play(trainer, display)
        display.warn_rest(trainer.warnings)
        try:
            with display:
                result = trainer.finish(lambda: SIGNALS.hurry)
        except Exception as error:  # noqa: BLE001  whatever it is, it is shown as a sentence
            print_failure(sentence(error), error, as_json=as_json)
            status = _status([error])
        else:
            display.warn_rest(result.warnings)
            display.tell_goal(result.notices)
            document = document_of(guest, trainer.module.info, options, result)
            status = _show(document, options, result, as_json=as_json)
        SIGNALS.done()
        return SIGNALS.ended(status)


def _play(trainer: GuestTrainer, display: TrainingDisplay) -> None:
    """Train to the end; no signal interrupts afterwards."""
    try:
        with display:
            trainer.play()
        SIGNALS.begin_end()
    except KeyboardInterrupt:
        SIGNALS.begin_end()
        if trainer.has_policy:  # else `finish` says that there is nothing to keep
            sys.stderr.write(f"interrupted by {SIGNALS.name}: keeping what was learned\n")


def _show(
    document: dict[str, Any], options: TrainingOptions, result: TrainingResult, *, as_json: bool
) -> int:
    """Show the result and the errors of a training, and return the exit code."""
    from arkml.cli.training_display import show

    for error in result.errors:
        print_failure(sentence(error), error, as_json=False)
    if result.errors:
        first = result.errors[0]
        document = {"error": sentence(first), "type": type(first).__name__} | document
    if as_json:
        print_json(document)
    else:
        is_new = not (options.resume or options.join or options.checkpoint is not None)
        show(document, is_new=is_new)
    return _status(result.errors)


def _status(errors: Sequence[Exception]) -> int:
    """Return the exit code: 1 where a training went wrong after it had begun."""
    if not errors:
        return GOOD
    is_late = isinstance(
        errors[0], HiveUnreachable | RunAborted | RunGone | NothingLearned | NotFound
    )
    return FAILED if is_late else exit_code(errors[0])


def read_settings(path: Path) -> dict[str, Any]:
    """Read the settings in a JSON file. Raises UsageError."""
    from arkml.sessions.declarations import RepeatedKey, distinct

    try:
        settings = json.loads(read_file(path, most=MOST_OF_SETTINGS), object_pairs_hook=distinct)
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {error.strerror}") from None
    except RepeatedKey as error:
        raise UsageError(f"--config {path}: {error}") from None
    except (ValueError, RecursionError) as error:
        raise UsageError(f"--config {path} is not JSON: {error}") from None
    if not isinstance(settings, dict):
        text = str(settings)[:40]
        raise UsageError(f"--config {path} holds {text}: it takes an object of settings")
    return settings
