"""`arkml pack`: packs an ONNX file into a Cervo container."""

from __future__ import annotations

import sys
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from arkml.base.output_files import write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, Job, print_json
from arkml.cli.files import keep_apart
from arkml.cli.launch import read_policy
from arkml.cli.logs import LogOptions
from arkml.errors import UsageError
from arkml.limits import Limits

_EPILOG = options.epilog(
    "arkml pack walk.onnx",
    "arkml pack walk.onnx -o assets/walk.crvo",
    notes="Weights in a file beside the model are packed too.",
)


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command("pack", epilog=_EPILOG)(command)


def command(
    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Path of the container: by default that of the model, with .crvo.",
        ),
    ] = None,
    policy_output: Annotated[
        str | None,
        typer.Option(
            "--policy-output",
            metavar="NAME",
            help="The output that acts: the container calls it actions.",
            show_default=False,
        ),
    ] = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
) -> Job:
    """Pack an ONNX model into a Cervo container."""
    return partial(pack, model, output, policy_output, LogOptions(debug=debug), as_json)


def pack(
    model: Path, output: Path | None, acting: str | None, logs: LogOptions, as_json: bool
) -> int:
    """Check the model, write the container, and return the exit code."""
    from arkml.policies.border import with_actions
    from arkml.policies.cervo import is_cervo, pack_onnx

    logs.start()
    data = read_policy(model, Limits(), () if acting is None else (acting,))
    if is_cervo(data):
        raise UsageError(f"{model} is a Cervo container already: use it as it is")
    target = model.with_suffix(".crvo") if output is None else output
    keep_apart(target, model)
    container = pack_onnx(data if acting is None else with_actions(data, acting))
    write_file(target, container)
    if as_json:
        print_json({"file": str(target), "bytes": len(container)})
    else:
        sys.stdout.write(f"{harmless(str(target))}: {len(container):,} bytes\n")
    return GOOD
