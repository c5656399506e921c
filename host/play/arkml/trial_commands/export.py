"""`arkml trials export` and `generate`: files for learners and for users of Cogment's SDKs."""

from __future__ import annotations

import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.units import counted
from arkml.errors import UsageError
from arkml.trial_commands.learning_options import LearnRewards

if TYPE_CHECKING:
    from arkml.demonstrations.dataset import DemonstrationSet
    from arkml.trials.datalog.reader import DatalogReader

_NEEDS = ("grpc", "grpc_tools", "google.protobuf", "yaml", "starlette", "uvicorn", "websockets")

Data = Annotated[
    Path,
    typer.Option("--data", metavar="DIR", help="The directory of the log of trials."),
]
_EXPORT = options.epilog(
    "arkml trials export 5d1c8f2e --spec cogment.yaml -o human.npz",
    "arkml trials export 5d1c8f2e 9a7b --spec cogment.yaml --actor player -o human-v0",
    "arkml trials export 5d1c8f2e --actor walker_0 -o human.npz",
    notes="""
Trials of a guest need no spec: what players did in them becomes the rows that `--learn people` of
`arkml trials serve` gives to a run, and what policies did is left out. All other trials are read by
the spec file of their project.

Observations and actions become rows of numbers: all numeric fields in the order of their numbers,
those of messages within messages too, repeated ones one after another. Enumerations of actions
are choices, behind the other numbers. Types with text, bytes or maps are refused, and so are
fields that repeat differently. `arkml train --demonstrations` takes the file.
""",
)
_GENERATE = options.epilog(
    "arkml trials generate cogment.yaml --python src",
    "arkml trials generate cogment.yaml --javascript web",
)


def register(trials: typer.Typer) -> None:
    """Add the commands `arkml trials export` and `arkml trials generate`."""
    trials.command("export", epilog=_EXPORT)(export)
    trials.command("generate", epilog=_GENERATE)(generate)


def require_trials() -> None:
    """Raise UsageError if the packages of the extra `trials` are not installed."""
    missing = [name for name in _NEEDS if find_spec(name.partition(".")[0]) is None]
    if missing:
        raise UsageError(f"trials need {', '.join(missing)}: pip install 'arkml[trials]'")


def open_log(data: Path) -> DatalogReader:
    """
    Open the log of trials in a directory. Raises UsageError without the extra, and TrialError.
    """
    require_trials()
    from arkml.trials.datalog.reader import DatalogReader

    return DatalogReader(data)


def export(
    trials: Annotated[
        list[str], typer.Argument(metavar="ID", help="Trials of the log.", show_default=False)
    ],
    output: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE.npz|NAME-v0",
            help="The file to write, or the directory of a dataset of Minari.",
            show_default=False,
        ),
    ],
    spec: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="The spec file of the project, cogment.yaml.", show_default=False
        ),
    ] = None,
    actor: Annotated[
        str,
        typer.Option(
            metavar="NAME|CLASS", help="Only these actors.", show_default="all, of one class"
        ),
    ] = "",
    learn_rewards: LearnRewards = None,
    data: Data = Path("trials"),
    as_json: options.Json = False,
) -> Job:
    """Write what actors saw and did in trials as demonstrations, for learners."""
    return partial(_export, tuple(trials), spec, output, actor, learn_rewards, data, as_json)


def _export(
    ids: tuple[str, ...],
    spec: Path | None,
    output: Path,
    actor: str,
    rewards: Any,
    data: Path,
    as_json: bool,
) -> int:
    from arkml.demonstrations.demonstration_files import require_writable, write_demonstrations

    with open_log(data) as reader:
        require_writable(output)
        demonstrations = _demonstrations(reader, ids, spec, actor, rewards)
    write_demonstrations(output, demonstrations)
    for warning in demonstrations.warnings:
        sys.stderr.write(f"{warning}\n")
    if as_json:
        print_json(
            {
                "file": str(output),
                "rows": len(demonstrations),
                "episodes": demonstrations.episodes,
                "features": demonstrations.features,
                "actions": demonstrations.actions,
                "branches": list(demonstrations.branches or ()),
                "warnings": list(demonstrations.warnings),
            }
        )
        return GOOD
    sys.stdout.write(
        f"{output}: {counted(len(demonstrations), 'row')} of"
        f" {counted(demonstrations.features, 'feature')} and"
        f" {counted(demonstrations.actions, 'action')},"
        f" {counted(demonstrations.episodes, 'episode')} ended\n"
    )
    return GOOD


def _demonstrations(
    reader: DatalogReader, ids: tuple[str, ...], spec: Path | None, actor: str, rewards: Any
) -> DemonstrationSet:
    """Return the rows of trials, by the rules of guests or by a spec. Raises UsageError."""
    from arkml.trials.core.hosting import is_hosted

    trials = [reader.named(one)[0] for one in dict.fromkeys(ids)]
    other = [one for one in trials if not is_hosted(reader.params(one))]
    if not other:
        if spec is not None:
            raise UsageError(f"--spec {spec}: trials of a guest are exported without a spec")
        from arkml.guest_trials.learning.learned_rows import GuestTrialExport

        of_guest = GuestTrialExport(actor, rewards or "guest")
        for trial in trials:
            of_guest.add(reader, trial)
        return of_guest.demonstrations()
    if len(other) < len(trials):
        raise UsageError(f"trial {other[0].id!r} does not come from a guest: export it separately")
    if spec is None:
        raise UsageError(f"trial {other[0].id!r} needs the spec of its project: give it by --spec")
    if rewards is not None:
        raise UsageError("--learn-rewards is for trials of a guest: leave it out for others")
    from arkml.guest_trials.learning.datalog_export import DemonstrationExport
    from arkml.trials.datalog.message_types import read_spaces

    made = DemonstrationExport(read_spaces(spec), actor)
    for trial in trials:
        made.add(reader, trial)
    return made.demonstrations()


def generate(
    spec: Annotated[
        Path, typer.Argument(metavar="SPEC", help="A cogment.yaml.", show_default=False)
    ],
    python: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write cog_settings.py here.", show_default=False),
    ] = None,
    javascript: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Write CogSettings.js here.", show_default=False),
    ] = None,
    as_json: options.Json = False,
) -> Job:
    """Write the settings that Cogment's SDKs need, and the modules of a project's messages."""

    def job() -> int:
        require_trials()
        if python is None and javascript is None:
            raise UsageError("name a directory with --python, --javascript or both")
        from arkml.trials.generate import generate as write_all

        files = write_all(spec, python=python, javascript=javascript)
        if as_json:
            print_json({"files": [str(file) for file in files]})
        else:
            sys.stdout.write("".join(f"{harmless(str(file))}\n" for file in files))
        return GOOD

    return job
