"""`arkml describe`: shows a model file, and whether it may act here."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, UNUSABLE, print_json
from arkml.cli.logs import LogOptions
from arkml.cli.values import read_limits

if TYPE_CHECKING:
    from arkml.policies.describe import ModelReport, PortReport

_EPILOG = options.epilog(
    "arkml describe walk.onnx",
    "arkml describe walk.crvo --json",
    notes="The exit code is 2 if the model is rejected.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class DescribeOptions:
    """The options of `arkml describe`."""

    model: Annotated[
        Path, typer.Argument(metavar="MODEL", help="An ONNX or Cervo file.", show_default=False)
    ]
    policy_output: options.PolicyOutputs = None
    limit: options.ModelLimits = None
    as_json: options.Json = False
    debug: options.Debug = False


def register(app: typer.Typer) -> None:
    """Add the command `arkml describe` to the application."""
    options.add_command(app, "describe", DescribeOptions, describe_model, epilog=_EPILOG)


def describe_model(options: DescribeOptions) -> int:
    """Show inputs, outputs, size and verdict of a model."""
    from arkml.policies.describe import ACCEPTED, describe
    from arkml.policies.policy_files import read_policy_file

    LogOptions(debug=options.debug).start()
    path, allowed = options.model, read_limits(options.limit or ())
    report = describe(read_policy_file(path, allowed), allowed, tuple(options.policy_output or ()))
    if options.as_json:
        print_json({"file": str(path), "accepted": report.verdict == ACCEPTED, **asdict(report)})
    else:
        _show(path, report)
    return GOOD if report.verdict == ACCEPTED else UNUSABLE


def _show(path: Path, report: ModelReport) -> None:
    from arkml.cli.tables import facts, grid, show
    from arkml.cli.units import size

    rows = [("kind", report.kind), ("size", size(report.bytes))]
    if report.inputs:
        rows += [("parameters", f"{report.parameters:,}"), ("nodes", f"{report.nodes:,}")]
    if report.opset:
        rows.append(("opset", str(report.opset)))
    if report.producer:
        rows.append(("producer", report.producer))
    if report.batch is not None:
        rows.append(("batch", _batch(report.batch, report.why_one)))
    if report.acts:
        rows.append(("acts", report.acts))
    show(path.name, facts([*rows, ("verdict", report.verdict)]))
    for title, ports in (("Inputs", report.inputs), ("Outputs", report.outputs)):
        if ports:
            show(title, grid(("name", "role", "shape"), [_port(port) for port in ports]))


def _port(port: PortReport) -> tuple[str, str, str]:
    sizes = [*(["rows"] if port.has_rows else []), *map(str, port.shape)]
    shape = " x ".join(sizes) or "one number"
    return port.name, port.role, shape if port.type == "float32" else f"{shape}, {port.type}"


def _batch(size: int, why_one: str) -> str:
    if size == 1:
        return f"rows run one by one: {why_one or 'the file is for 1 row'}"
    return f"fixed at {size} rows"
