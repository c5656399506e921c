"""`arkml pack`: packs an ONNX file into a Cervo container."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from arkml.base.output_files import write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.cli.launch import read_policy
from arkml.cli.logs import LogOptions
from arkml.cli.user_files import keep_apart
from arkml.errors import UsageError
from arkml.limits import Limits

_EPILOG = options.epilog(
    "arkml pack walk.onnx",
    "arkml pack walk.onnx -o assets/walk.crvo",
    notes="Weights in a file beside the model are packed too.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """The options of one container."""

    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)
    ]
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="Path of the container: by default that of the model, with .crvo.",
        ),
    ] = None
    policy_output: Annotated[
        str | None,
        typer.Option(
            "--policy-output",
            metavar="NAME",
            help="The output that acts: the container calls it actions.",
            show_default=False,
        ),
    ] = None
    as_json: options.Json = False
    debug: options.Debug = False


def register(app: typer.Typer) -> None:
    """Add the command."""
    options.add_command(app, "pack", PackOptions, pack, epilog=_EPILOG)


def pack(options: PackOptions) -> int:
    """Pack an ONNX model into a Cervo container."""
    from arkml.policies.border import with_actions
    from arkml.policies.cervo import is_cervo, pack_onnx

    LogOptions(debug=options.debug).start()
    model, acting = options.model, options.policy_output
    data = read_policy(model, Limits(), () if acting is None else (acting,))
    if is_cervo(data):
        raise UsageError(f"{model} is a Cervo container already: use it as it is")
    target = model.with_suffix(".crvo") if options.output is None else options.output
    keep_apart(target, model)
    container = pack_onnx(data if acting is None else with_actions(data, acting))
    write_file(target, container)
    if options.as_json:
        print_json({"file": str(target), "bytes": len(container)})
    else:
        sys.stdout.write(f"{harmless(str(target))}: {len(container):,} bytes\n")
    return GOOD
