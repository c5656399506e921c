"""`arkml replay`: plays a trace of a guest again."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import FAILED, GOOD, print_error, print_json
from arkml.cli.user_files import keep_apart, read_module
from arkml.cli.values import whole_number

if TYPE_CHECKING:
    from arkml.guests.trace_player import ReplayedCall
    from arkml.replays.replay import Replay, ReplayedFrame

_EPILOG = options.epilog(
    "arkml replay npc.trace npc.wasm",
    "arkml replay npc.trace npc.wasm --to 1200",
    'arkml replay npc.trace npc.wasm --break-when "reward < -1 and observation[2] > 0.5" --json',
    "arkml replay npc.trace npc.wasm --page npc.html --open",
    notes="""
`arkml run`, `arkml record` and `Host(trace=…)` write traces. Without --to and --break-when all
frames are played and compared with the trace. The exit code is 0 if the guest did what it had done
before, be it a trap, and 1 at the first frame that differs. --page writes what was found to a file
for a browser, all frames of it, and opens at the frame at which the replay stopped.
""",
)
_SHOWN_ROWS = 8  # of a submit
_SHOWN_NUMBERS = 8  # of a row
_LINE = 16  # bytes of memory


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayOptions:
    """The options of `arkml replay`."""

    trace: Annotated[Path, typer.Argument(metavar="FILE", help="The trace.", show_default=False)]
    guest: Annotated[
        Path,
        typer.Argument(
            metavar="GUEST", help="The WebAssembly module that was recorded.", show_default=False
        ),
    ]
    to: Annotated[
        int | None,
        typer.Option(
            "--to",
            metavar="FRAME",
            parser=whole_number("--to", 0),
            help="Play up to the end of this frame, from the nearest copy before it.",
        ),
    ] = None
    break_when: Annotated[
        str | None,
        typer.Option(
            metavar="EXPR",
            help="Stop at the first frame, after that of --to, in which this holds for a row:"
            " comparisons of frame, rows, agent, state, reward, value, observation[K], action[K].",
            show_default=False,
        ),
    ] = None
    page: Annotated[
        Path | None,
        typer.Option(
            "--page",
            metavar="FILE",
            help="Write a page to this file, with all frames to step through, in one HTML file that"
            " loads nothing.",
            show_default=False,
        ),
    ] = None
    is_opened: Annotated[
        bool, typer.Option("--open", help="Open the page of --page in the browser.")
    ] = False
    declaration: options.Declaration = None
    output: options.OutputOptions


def register(app: typer.Typer) -> None:
    """Add the command `arkml replay` to the application."""
    options.add_command(app, "replay", ReplayOptions, replay, epilog=_EPILOG)


def replay(options: ReplayOptions) -> int:
    """Play a trace again, and show the frame at which it stops."""
    from arkml.errors import ReplayDiffers
    from arkml.replays.conditions import Condition
    from arkml.replays.replay import Replay
    from arkml.runtime.compilation.compiler import DETAILS

    options.output.start_logs()
    _check_page(options)
    os.environ.setdefault(DETAILS, "1")  # a replay is for the author, who wants source lines
    if options.break_when is not None:
        Condition(options.break_when)
    read_module(options.guest)
    with closing(Replay(options.trace, options.guest)) as played:
        differs: ReplayDiffers | None = None
        frame: ReplayedFrame | None = None
        is_found = options.break_when is None
        try:
            if options.to is not None:
                frame = played.to(options.to)
            if options.break_when is not None:
                found = played.until(options.break_when)
                is_found, frame = found is not None, found or frame
            elif options.to is None:
                frame = _last_of(played)
        except ReplayDiffers as error:
            differs = error
        document = _document(played, frame, differs, is_found=is_found)
        document["page"] = None if options.page is None else str(options.page)
        if options.page is not None:
            is_chosen = frame is not None and (options.to is not None or options.break_when)
            _write_page(options, frame.frame if frame is not None and is_chosen else None)
        if options.output.as_json:
            print_json(document)
        else:
            _show(played, document, frame)
    if options.page is not None and options.is_opened:
        import webbrowser

        webbrowser.open(options.page.resolve().as_uri())
    if not is_found and differs is None:
        sys.stderr.write("the condition holds in no frame\n")
    if differs is None:
        return GOOD
    print_error(harmless(str(differs)))
    return FAILED


def _check_page(options: ReplayOptions) -> None:
    """Raise UsageError for an option that takes --page, and for a page that has no directory."""
    from arkml.errors import UsageError

    if options.page is not None:
        keep_apart(options.page, options.trace, options.guest, options.declaration)
        if not options.page.parent.is_dir():
            raise UsageError(
                f"--page {options.page} cannot be written: there is no directory"
                f" {options.page.parent}"
            )
        return
    for name, is_given in (("open", options.is_opened), ("spec", options.declaration)):
        if is_given:
            raise UsageError(f"--{name} is about the page: it takes --page FILE")


def _write_page(options: ReplayOptions, opens_at: int | None) -> None:
    """Write the page, from a replay of its own."""
    from arkml.base.output_files import write_file
    from arkml.replays.documents import document_of
    from arkml.replays.page import page_of

    assert options.page is not None
    document = document_of(
        options.trace, options.guest, spec=options.declaration, opens_at=opens_at
    )
    write_file(options.page, page_of(document))


def _last_of(played: Replay) -> ReplayedFrame | None:
    """Play all frames, and return the last one."""
    frame = None
    for each in played:
        frame = each
    return frame


def _document(
    played: Replay, frame: ReplayedFrame | None, differs: Exception | None, *, is_found: bool
) -> dict[str, Any]:
    """Return the result as the object of `--json`."""
    fault = played.memory_at_fault()
    document: dict[str, Any] = {
        "guest": played.name,
        "first": played.first,
        "last": played.last,
        "frame": played.frame,
        "ending": played.ending,
        "equal": differs is None,
        "found": is_found,
        "function": None if frame is None else frame.function,
        "result": None if frame is None else repr(frame.result),
        "stopped": "" if frame is None else frame.stopped,
        "failure": None if played.failure is None else str(played.failure),
        "memory": None if fault is None else {"address": fault[0], "bytes": fault[1].hex()},
        "calls": [] if frame is None else list(_calls(frame)),
        "submits": [] if frame is None else list(_submits(frame)),
        "output": played.output.decode("utf-8", "replace"),
    }
    if differs is not None:
        document |= {"error": str(differs), "type": type(differs).__name__}
    return document


def _calls(frame: ReplayedFrame) -> Iterator[dict[str, Any]]:
    for call in frame.calls:
        yield {
            "function": call.function,
            "arguments": _finite(call.arguments),
            "results": None if call.results is None else _finite(call.results),
        }


def _submits(frame: ReplayedFrame) -> Iterator[dict[str, Any]]:
    for submit in frame.submits:
        yield {
            "handle": submit.handle,
            "training": submit.training,
            "code": submit.code,
            "agents": submit.rows["id"].tolist(),
            "states": submit.rows["state"].tolist(),
            "rewards": _finite(submit.rows["reward"]),
            "observations": [_finite(row) for row in submit.observations],
            "actions": [_finite(row) for row in submit.actions],
            "values": _finite(submit.values),
        }


def _finite(numbers: Any) -> list[float | str]:
    """Return numbers for JSON, which has no NaN and no infinity; these become texts."""
    return [
        number if number - number == 0 else str(number)
        for number in (float(each) for each in numbers)
    ]


def _show(played: Replay, document: dict[str, Any], frame: ReplayedFrame | None) -> None:
    from arkml.cli.tables import facts, grid, show

    rows = [
        ("frames", f"{played.first:,} to {played.last:,}"),
        ("stopped at", f"frame {played.frame:,}{_called(frame)}"),
        ("compared", "equal" if document["equal"] else "differs"),
        ("note", harmless(document["stopped"])),
        ("trace", harmless(played.ending)),
        ("page", harmless(document["page"] or "")),
    ]
    if played.failure is not None:
        rows.append(("failed", harmless(str(played.failure))))
    show(f"{played.name}: replay", facts([row for row in rows if row[1]]))
    if frame is not None and frame.calls:
        calls = frame.calls[-_SHOWN_ROWS:]
        more = len(frame.calls) - len(calls)
        title = "functions of the game" + f", {more:,} earlier" * (more > 0)
        asked = [(each.function, _numbers(each.arguments), _returned(each)) for each in calls]
        show(title, grid(("function", "arguments", "returned"), asked))
    for submit in () if frame is None else frame.submits:
        cells = [
            (
                str(row["id"]),
                f"{row['state']}",
                f"{row['reward']:g}",
                _numbers(seen),
                _numbers(done),
            )
            for row, seen, done in zip(
                submit.rows[:_SHOWN_ROWS],
                submit.observations,
                submit.actions if len(submit.actions) else [()] * len(submit.rows),
                strict=False,
            )
        ]
        more = len(submit.rows) - len(cells)
        title = f"submit of {len(submit.rows):,} rows" + (f", {more:,} more" * (more > 0))
        show(title, grid(("agent", "state", "reward", "observation", "action"), cells))
    if (fault := played.memory_at_fault()) is not None:
        start, data = fault
        lines = [
            (f"{start + at:#010x}", data[at : at + _LINE].hex(" "))
            for at in range(0, len(data), _LINE)
        ]
        show("memory around the fault", grid(("address", "bytes"), lines))
    if document["output"]:
        sys.stderr.write(harmless(document["output"]))


def _called(frame: ReplayedFrame | None) -> str:
    if frame is None:
        return ""
    arguments = ", ".join(map(str, frame.arguments))
    return f", {frame.function}({arguments})"


def _returned(call: ReplayedCall) -> str:
    return "did not return" if call.results is None else _numbers(call.results)


def _numbers(numbers: Any) -> str:
    shown = " ".join(f"{number:.4g}" for number in numbers[:_SHOWN_NUMBERS])
    return f"{shown} …" if len(numbers) > _SHOWN_NUMBERS else shown
