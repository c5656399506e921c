"""`arkml pack`: packs an ONNX file into a Cervo container, or gives it the form of ML-Agents."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from arkml.base.files import named
from arkml.base.output_files import write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.cli.launch import read_policy
from arkml.cli.logs import LogOptions
from arkml.cli.user_files import keep_apart
from arkml.errors import ModelRejected, UsageError
from arkml.limits import Limits

_EPILOG = options.epilog(
    "arkml pack walk.onnx",
    "arkml pack walk.onnx -o assets/walk.crvo",
    "arkml pack walk.onnx --mlagents",
    notes="Weights in a file beside the model are packed too. With --mlagents, which takes what"
    " learners of arkml have exported, the file is walk.mlagents.onnx.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class PackOptions:
    """The options of `arkml pack`."""

    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX file.", show_default=False)
    ]
    output: Annotated[
        Path | None,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The file to write: by default that of the model, with .crvo.",
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
    mlagents: Annotated[
        bool,
        typer.Option(
            "--mlagents",
            help="Write an ONNX file for Unity, with inputs and outputs as ML-Agents has them.",
        ),
    ] = False
    as_json: options.Json = False
    debug: options.Debug = False


def register(app: typer.Typer) -> None:
    """Add the command `arkml pack` to the application."""
    options.add_command(app, "pack", PackOptions, pack, epilog=_EPILOG)


def pack(options: PackOptions) -> int:
    """Pack an ONNX model into a Cervo container, or write it in the form of ML-Agents."""
    from arkml.policies.border import with_actions
    from arkml.policies.cervo import is_cervo, pack_onnx
    from arkml.policies.mlagents_form import as_mlagents

    LogOptions(debug=options.debug).start()
    model, acting = options.model, options.policy_output
    data = read_policy(model, Limits(), () if acting is None else (acting,))
    if is_cervo(data):
        raise UsageError(f"{model} is a Cervo container already: use it as it is")
    suffix = ".mlagents.onnx" if options.mlagents else ".crvo"
    target = model.with_suffix(suffix) if options.output is None else options.output
    keep_apart(target, model)
    data = data if acting is None else with_actions(data, acting)
    if options.mlagents:
        try:
            data = as_mlagents(data)
        except ModelRejected as error:
            raise ModelRejected(named(model, str(error))) from error
    else:
        data = pack_onnx(data)
    write_file(target, data)
    if options.as_json:
        print_json({"file": str(target), "bytes": len(data)})
    else:
        sys.stdout.write(f"{harmless(str(target))}: {len(data):,} bytes\n")
    return GOOD
