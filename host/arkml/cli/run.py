"""`arkml run`: a guest does what it is made for."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.cli import options
from arkml.cli.exits import FAILED, GOOD, Job, Unusable, print_error, print_json

if TYPE_CHECKING:
    from arkml.cli.launch import Grants
    from arkml.cli.measuring import Pacer, Steps
    from arkml.cli.players import Player
    from arkml.cli.summary import Summary
    from arkml.cli.tasks import Task, Wanted
    from arkml.host import Host
    from arkml.runtime.program import Program

_EXAMPLES = """
Examples:

    arkml run npc.wasm

    arkml run npc.wasm --frames 3600 --fps 60 --policy walk.onnx

    arkml run npc.wasm --instances 1000 --json

    arkml run tool.wasm --cmdlet "infer all"

    arkml run module.wasm --invoke transform --input net.onnx --out net.crvo

    arkml run command.wasm --wasi --cmdlet "first second" --dir ./data:/data:ro

Without --cmdlet or --invoke the exports decide: an applet runs 600 frames, a cmdlet runs without
arguments, a servlet answers one request, a WASI command starts; a module with several functions is
loaded and initialised, nothing more. A frame may run for a second (--limit run_seconds=2s), one
call of anything else as long as it likes unless --limit says otherwise.
"""


@dataclass(frozen=True, slots=True)
class Run:
    """The options of one run."""

    guest: Path
    wanted: Wanted
    grants: Grants
    frames: int | None
    fps: float | None
    instances: int
    out: Path | None
    as_json: bool


def register(app: typer.Typer) -> None:
    """Add the command."""
    app.command(
        "run", epilog=_EXAMPLES, context_settings={"ignore_unknown_options": True}
    )(command)


def command(
    guest: options.GuestFile,
    arguments: options.Arguments = None,
    cmdlet: options.Cmdlet = None,
    invoke: options.Invoke = None,
    input: options.Input = None,  # noqa: A002
    frames: Annotated[
        int | None, typer.Option(metavar="N", min=1, help="Frames, or calls.", show_default="600")
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(metavar="F", min=0.01, help="Pace frames and count late ones."),
    ] = None,
    instances: options.Instances = 1,
    out: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write what the guest returns there.")
    ] = None,
    policy: options.Policy = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    limit: options.LimitValues = None,
    wasi: options.Wasi = False,
    directories: options.Directories = None,
    stub_missing: options.StubMissing = False,
    as_json: options.Json = False,
    debug: options.Debug = False,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> Job:
    """Run a guest and say how it went."""
    from arkml.cli.launch import Grants
    from arkml.cli.logs import start_logging
    from arkml.cli.tasks import Wanted

    numbers = options.checked_numbers(arguments)
    start_logging(log_level, verbose, debug=debug)
    grants = Grants(
        policy, seed, deterministic, tuple(limit or ()), wasi, tuple(directories or ()), stub_missing
    )
    wanted = Wanted(cmdlet, invoke, numbers, input)
    return partial(
        play, Run(guest, wanted, grants, frames, fps, instances, out, as_json)
    )


def play(run: Run) -> int:
    """Load the guest, let it do its task, show what came of it."""
    from arkml.cli.launch import open_host
    from arkml.cli.tasks import choose

    host = open_host(
        run.grants,
        program=run.guest.name,
        arguments=run.wanted.cmdlet or "",
        stdout_is_ours=run.as_json,
    )
    program = _compiled(host, run.guest)
    task = choose(program, run.wanted)
    if task is None:
        return _only_load(run, host, program)
    summary = _played(run, host, program, task)
    host.close()
    _show(run, summary)
    if summary.failed:
        print_error(f"{summary.failed:,} of {summary.instances:,} guests failed")
    return FAILED if summary.failed else GOOD


def _compiled(host: Host, path: Path) -> Program:
    """The module of a guest that did not run yet: whatever is wrong here is the file."""
    from arkml.errors import GuestError

    try:
        return host.compile(path)
    except GuestError as error:
        raise Unusable(str(error)) from error


def _played(run: Run, host: Host, program: Program, task: Task) -> Summary:
    from arkml.cli.measuring import Pacer, Steps
    from arkml.cli.progress import ProgressBar
    from arkml.cli.summary import Summary

    count = run.frames or task.default_frames
    player = _player(run, host, program, task)
    announce(program.name, program.info.kind.value)
    pacer = None if run.fps is None else Pacer(run.fps)
    steps = Steps(player.step)
    with ProgressBar(program.name, count) as progress:
        _perform(player, steps, count, pacer, progress)
    return Summary(
        program.name,
        program.info.kind.value,
        task.function,
        run.instances,
        steps.timings,
        player.statistics,
        run.fps,
        None if pacer is None else pacer.late,
        len(player.failures),
        player.result,
        player.returned,
    )
