"""`arkml run`: a guest does what it is made for."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.cli import options
from arkml.cli.exits import Job, print_json
from arkml.cli.files import keep_apart, make_directory, write_file
from arkml.cli.launch import Grants, HiveWish
from arkml.cli.logs import LogOptions, say_echoes
from arkml.cli.values import rate, whole_number
from arkml.errors import UsageError
from arkml.sessions.text import presentable

if TYPE_CHECKING:
    from arkml.cli.summary import Summary
    from arkml.cli.tasks import Task
    from arkml.host import Host

_EPILOG = options.epilog(
    "arkml run npc.wasm",
    "arkml run npc.wasm --frames 3600 --fps 60 --policy walk.onnx",
    "arkml run npc.wasm --instances 1000 --json",
    'arkml run tool.wasm --cmdlet "infer all"',
    "arkml run module.wasm --invoke transform --input net.onnx --out net.crvo",
    'arkml run command.wasm --wasi --cmdlet "first second" --dir ./data:/data:ro',
    notes="""
Without --cmdlet or --invoke the exports decide: an applet runs 600 frames, a cmdlet runs without
arguments, a servlet answers one request, a WASI command starts; a module with several functions is
loaded and initialized, nothing more. A frame may run for a second (--limit run_seconds=2s), one
call of anything else as long as it likes unless --limit says otherwise.
""",
)
_MOST_TEXT = 1 << 20  # bytes of a return slice that are shown


@dataclass(frozen=True, slots=True)
class Run:
    """The options of one run."""

    guest: Path
    cmdlet: str | None
    invoke: str | None
    arguments: tuple[str, ...]
    input: Path | None
    frames: int | None
    fps: float | None
    instances: int
    out: Path | None
    grants: Grants
    known: tuple[str, ...]
    logs: LogOptions
    as_json: bool


def register(app: typer.Typer) -> None:
    """Add the command."""
    settings = {"ignore_unknown_options": True}  # -1 is an argument; `play` refuses the others
    app.command("run", epilog=_EPILOG, context_settings=settings)(command)


def command(
    context: typer.Context,
    guest: options.GuestFile,
    arguments: options.Arguments = None,
    cmdlet: options.Cmdlet = None,
    invoke: options.Invoke = None,
    input: options.Input = None,
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--frames", 1),
            help="So many frames, or calls: 600 frames or 1 call by default.",
        ),
    ] = None,
    fps: Annotated[
        float | None,
        typer.Option(
            metavar="F", parser=rate("--fps", 0.01), help="Pace the frames and count late ones."
        ),
    ] = None,
    instances: options.Instances = 1,
    out: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write there what the guest returns last."),
    ] = None,
    policy: options.Policy = None,
    seed: options.Seed = 0,
    deterministic: options.Deterministic = False,
    limit: options.LimitValues = None,
    wasi: options.Wasi = False,
    directory: options.Directories = None,
    stub_missing: options.StubMissing = False,
    hive: Annotated[str, options.hive("none", "none embedded")] = "none",
    allow_hive: options.AllowHive = None,
    data: options.HiveData = None,
    as_json: options.Json = False,
    debug: options.Debug = False,
    verbose: options.Verbose = 0,
    log_level: options.LogLevel = None,
) -> Job:
    """Run a guest and say how it went."""
    return partial(
        play,
        Run(
            guest=guest,
            cmdlet=cmdlet,
            invoke=invoke,
            arguments=tuple(arguments or ()),
            known=tuple(name for option in context.command.params for name in option.opts),
            input=input,
            frames=frames,
            fps=fps,
            instances=instances,
            out=out,
            grants=Grants(
                policy, seed, deterministic, tuple(limit or ()), wasi, tuple(directory or ()),
                stub_missing, _hive(hive, allow_hive, data, fps),
            ),
            logs=LogOptions(log_level, verbose, debug),
            as_json=as_json,
        ),
    )  # fmt: skip


def _hive(
    hive: str, allowed: list[str] | None, data: Path | None, fps: float | None
) -> HiveWish | None:
    if hive == "none":
        if allowed or data is not None:
            raise UsageError("--allow-hive and --data go with --hive embedded or --hive HOST:PORT")
        return None
    return HiveWish(hive, tuple(allowed or ()), data, block=fps is None)


def play(run: Run) -> int:
    """Load the guest, let it do its task, show what came of it."""
    from arkml.cli.launch import open_host
    from arkml.cli.outcome import say_complaints
    from arkml.cli.values import check_words

    run.logs.start()
    check_words((str(run.guest), *run.arguments), run.known)
    keep_apart(run.out, run.guest, run.grants.policy)
    if run.grants.hive is not None and run.grants.hive.data is not None:
        make_directory("--data", run.grants.hive.data)
    with open_host(
        run.grants,
        program=run.guest.name,
        arguments=run.cmdlet or "",
        stdout_is_ours=run.as_json,
    ) as host:
        summary = _played(run, host)
    _show(run, summary)
    return say_complaints(summary.complaints)


def _played(run: Run, host: Host) -> Summary:
    from arkml.cli import playing
    from arkml.cli.outcome import complaints_of
    from arkml.cli.progress import ProgressBar
    from arkml.cli.summary import Summary
    from arkml.cli.task_runner import FleetFailed
    from arkml.cli.tasks import Wanted, choose, names
    from arkml.cli.timing import Pacer, Steps

    program = playing.compiled(host, run.guest)
    task = choose(program, Wanted(run.cmdlet, run.invoke, run.arguments, run.input))
    budget = playing.budget_of(task, run.grants)
    player = playing.player_of(host, program, task, instances=run.instances, budget=budget)
    count = _count(run, task)
    pacer = None if run.fps is None else Pacer(run.fps)
    steps = Steps(player.step)
    playing.announce(program, run.instances)
    # A fleet of which nothing is left has a summary all the same, and the complaint is in it.
    with suppress(FleetFailed), ProgressBar(program.name, count) as progress:
        playing.perform(player, steps, count, pacer=pacer, after=progress)
    say_echoes()
    if not task.function:
        sys.stderr.write(f"nothing was called; --invoke takes one of {names(program.info)}\n")
    complaints = complaints_of(run.grants, player, run.instances)
    if run.out is not None and not player.returned:
        complaints += (f"{program.name} returned nothing: {run.out} is not written",)
    return Summary(
        guest=program.name,
        kind=program.info.kind.value,
        function=task.function,
        instances=run.instances,
        timings=steps.timings,
        statistics=player.statistics,
        fps=run.fps,
        late=None if pacer is None else pacer.late,
        failed=len(player.failures),
        result=player.result,
        returned=player.returned,
        complaints=complaints,
    )


def _count(run: Run, task: Task) -> int:
    """How many steps to do."""
    if run.frames is None:
        return task.default_frames
    if not task.is_repeatable:
        raise UsageError(f"--frames does not go with {task.title}: it runs once")
    return run.frames


def _show(run: Run, summary: Summary) -> None:
    """What the guest returned to --out or stdout, then the table; or all of it as JSON."""
    from arkml.cli.summary import text_of

    if run.out is not None and summary.returned:
        write_file(run.out, summary.returned)
        sys.stderr.write(f"wrote {len(summary.returned):,} bytes to {run.out}\n")
    if run.as_json:
        print_json(summary.document())
        return
    if summary.returned and run.out is None:
        text = text_of(summary.returned)
        what = f"{len(summary.returned):,} bytes that are no text (--out FILE keeps them)"
        sys.stdout.write(f"{what if text is None else presentable(text, _MOST_TEXT)}\n")
        sys.stdout.flush()
    if not summary.function:
        return
    from arkml.cli.tables import show_run

    # What a WASI command prints may be piped on.
    show_run(summary, sys.stderr if summary.kind == "wasi-command" else sys.stdout)
