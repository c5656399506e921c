"""`arkml train`: a guest learns, and leaves a policy behind."""

from __future__ import annotations

import json
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import typer

from arkml.cli import options
from arkml.cli.exits import Job
from arkml.cli.launch import Grants, HiveWish
from arkml.cli.logs import LogOptions
from arkml.cli.values import rate, whole_number
from arkml.errors import UsageError

_EPILOG = options.epilog(
    "arkml train pendulum.wasm --minutes 2",
    "arkml train walker.wasm --fps 60 --until-return 250 --eval-every 3000",
    "arkml train pendulum.wasm --minutes 2 --resume",
    "arkml train walker.wasm --hive hive.example:12356 --frames 200000",
    notes="""
Without --frames, --minutes or --until-return an applet trains for five minutes; anything else runs
once. The first run that the guest starts is the one that is shown and kept; more guests that start
it join it. --config takes a JSON file with any of the settings (docs/training.md lists them).
""",
)

_LEARNING = "How it learns"


@dataclass(frozen=True, slots=True)
class Goal:
    """When training ends: after so many frames, minutes, or at a mean return; None for never."""

    frames: int | None = None
    minutes: float | None = None
    mean_return: float | None = None

    @property
    def is_open(self) -> bool:
        return self.frames is None and self.minutes is None and self.mean_return is None


@dataclass(frozen=True, slots=True)
class Training:
    """The options of one training."""

    guest: Path
    cmdlet: str | None
    goal: Goal
    fps: float | None
    instances: int
    out: Path
    eval_every: int | None
    grants: Grants
    logs: LogOptions
    as_json: bool


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("train", epilog=_EPILOG)(command)


def command(
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
            help="Train until the mean return of the last 100 evaluation episodes, or training"
            " episodes without --eval-every, is X.",
        ),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            metavar="F",
            parser=rate("--fps", 0.01),
            help="Play in real time: frames never wait for the learner.",
        ),
    ] = None,
    instances: options.Instances = 1,
    eval_every: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--eval-every", 1),
            help="Every N frames, rate the policy without noise in a guest of its own.",
        ),
    ] = None,
    out: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Where everything goes: training/GUEST by default."),
    ] = None,
    resume: Annotated[bool, typer.Option("--resume", help="Go on where it ended.")] = False,
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
        typer.Option(metavar="NAME", help="What learns: sac.", rich_help_panel=_LEARNING),
    ] = None,
    device: Annotated[
        str | None,
        typer.Option(metavar="auto|cpu|cuda", help="What it learns on.", rich_help_panel=_LEARNING),
    ] = None,
    sync: Annotated[
        bool,
        typer.Option(
            "--sync",
            help="In lockstep: the same seed gives the same weights.",
            rich_help_panel=_LEARNING,
        ),
    ] = False,
    seed: options.Seed = 0,
    limit: options.LimitValues = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> Job:
    """Train a guest and keep the policy."""
    from arkml.cli.training_loop import train

    target = Path("training") / guest.stem if out is None else out
    settings: dict[str, Any] = {} if config is None else read_settings(config)
    given = {"algorithm": algorithm, "device": device, "sync": sync or None, "seed": seed or None}
    settings |= {name: value for name, value in given.items() if value is not None}
    wish = HiveWish(
        hive, tuple(allow_hive or ()), target / "hive", block=fps is None or sync,
        settings=settings, shared=True, resume=resume,
    )  # fmt: skip
    return partial(
        train,
        Training(
            guest=guest,
            cmdlet=cmdlet,
            goal=Goal(frames, minutes, until_return),
            fps=fps,
            instances=instances,
            out=target,
            eval_every=eval_every,
            grants=Grants(seed=seed, limits=tuple(limit or ()), hive=wish),
            logs=LogOptions(log_level, verbose, debug),
            as_json=as_json,
        ),
    )


def read_settings(path: Path) -> dict[str, Any]:
    """The settings in a JSON file. Raises UsageError."""
    try:
        found = json.loads(path.read_text())
    except OSError as error:
        raise UsageError(f"--config {path} cannot be read: {error.strerror}") from None
    except ValueError as error:
        raise UsageError(f"--config {path} is no JSON: {error}") from None
    if not isinstance(found, dict):
        raise UsageError(f"--config {path} holds {str(found)[:40]}: it takes an object of settings")
    return found
