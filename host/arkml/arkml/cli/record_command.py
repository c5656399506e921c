"""`arkml record`: plays a guest with a policy, and keeps its rows as demonstrations."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.cli import options
from arkml.cli.exits import GOOD, print_json
from arkml.cli.launch import read_policy
from arkml.cli.user_files import keep_apart, read_module
from arkml.cli.values import whole_number

if TYPE_CHECKING:
    from arkml.training.recording import Recording

_EPILOG = options.epilog(
    "arkml record pendulum.wasm --policy pendulum.onnx -o pendulum.npz",
    "arkml record walker.wasm --policy walker.onnx -o walker-v0 --episodes 500 --noise",
    "arkml train walker.wasm --demonstrations walker.npz",
    notes="""
Without --episodes and --frames it records 100 episodes. FILE is NAME.npz, or NAME-v0 for the
directory of a Minari dataset, which needs `pip install 'arkml[minari]'`. Nothing is written if the
guest fails or the command is interrupted.
""",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordOptions:
    """The options of `arkml record`."""

    guest: options.GuestFile
    policy: Annotated[
        Path,
        typer.Option(metavar="FILE", help="The ONNX or Cervo file that plays.", show_default=False),
    ]
    file: Annotated[
        Path,
        typer.Option(
            "-o",
            "--output",
            metavar="FILE",
            help="The file to write: NAME.npz, or NAME-v0 for a Minari dataset.",
            show_default=False,
        ),
    ]
    episodes: Annotated[
        int | None,
        typer.Option(
            metavar="N", parser=whole_number("--episodes", 1), help="Record until N have ended."
        ),
    ] = None
    frames: Annotated[
        int | None,
        typer.Option(metavar="N", parser=whole_number("--frames", 1), help="Record N frames."),
    ] = None
    play: options.PolicyPlayOptions
    trace: options.TraceFile = None
    output: options.OutputOptions


def register(app: typer.Typer) -> None:
    """Add the command `arkml record` to the application."""
    options.add_command(app, "record", RecordOptions, record, epilog=_EPILOG)


def record(options: RecordOptions) -> int:
    """Record the play of a policy as demonstrations."""
    from arkml.cli.progress import ProgressBar
    from arkml.training.recording import EPISODES, record

    options.output.start_logs()
    played = options.play.keywords()
    others = played["others"].values()
    keep_apart(options.file, options.guest, options.policy, options.trace, *others)
    keep_apart(options.trace, options.guest, options.policy, *others)
    read_module(options.guest)
    policy = read_policy(options.policy, played["limits"], played["outputs"])
    for path in others:
        read_policy(path, played["limits"])
    by_frames = options.frames is not None and options.episodes is None
    total = options.frames if by_frames else options.episodes or EPISODES
    with ProgressBar(options.guest.name, total or 0) as bar:
        recording = record(
            options.guest,
            policy,
            options.file,
            episodes=options.episodes,
            frames=options.frames,
            trace=options.trace,
            progress=lambda frames, episodes: bar(frames if by_frames else episodes),
            **played,
        )
    if recording.shortfall:
        sys.stderr.write(f"{recording.shortfall}\n")
    document = _document(options, recording)
    if options.output.as_json:
        print_json(document)
    else:
        _show(document)
    return GOOD


def _document(options: RecordOptions, recording: Recording) -> dict[str, Any]:
    """Return the result as the object of `--json`."""
    returns, lengths = recording.returns, recording.lengths
    return {
        "guest": options.guest.name,
        "policy": str(options.policy),
        "file": str(recording.path),
        "rows": recording.rows,
        "episodes": len(returns),
        "mean_return": recording.mean_return,
        "lowest_return": float(returns.min()) if len(returns) else None,
        "highest_return": float(returns.max()) if len(returns) else None,
        "mean_length": float(lengths.mean()) if len(lengths) else None,
        "frames": recording.frames,
        "seconds": recording.seconds,
    }


def _show(document: dict[str, Any]) -> None:
    from arkml.cli.tables import facts, show
    from arkml.cli.units import duration

    rows = [("rows", f"{document['rows']:,}"), ("episodes", f"{document['episodes']:,}")]
    if document["episodes"]:
        span = f"{document['lowest_return']:,.4g} to {document['highest_return']:,.4g}"
        rows.append(("mean return", f"{document['mean_return']:,.4g} ({span})"))
        rows.append(("mean length", f"{document['mean_length']:,.4g} steps"))
    rows.append(("frames", f"{document['frames']:,} in {duration(document['seconds'])}"))
    rows.append(("file", document["file"]))
    show(f"{document['guest']}: demonstrations", facts(rows))
