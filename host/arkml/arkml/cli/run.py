"""`arkml run`: runs the task of a guest."""

from __future__ import annotations

import sys
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.base.output_files import make_directory, write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import Job, print_json
from arkml.cli.files import keep_apart
from arkml.cli.launch import HostGrants, read_token
from arkml.cli.logs import LogOptions, print_echoes
from arkml.cli.values import rate, whole_number
from arkml.errors import UsageError
from arkml.sessions.text import presentable

if TYPE_CHECKING:
    from arkml.cli.summary import Summary
    from arkml.host import Host
    from arkml.runs.access import HiveGrant
    from arkml.training.tasks import Task

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
loaded and initialized, nothing more. A frame may run for a second (--limit run_seconds=2s
changes it), a call of anything else without a limit unless --limit sets one.
""",
)
_MOST_TEXT = 1 << 20  # bytes of a return slice that are shown


@dataclass(frozen=True, slots=True)
class RunOptions:
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
    host: HostGrants
    known: tuple[str, ...]
    logs: LogOptions
    as_json: bool


def register(app: typer.Typer) -> None:
    """Add the command."""
    settings = {"ignore_unknown_options": True}  # -1 is an argument; `run` refuses the others
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
            help="Number of frames or calls: 600 frames or 1 call by default.",
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
        typer.Option(
            metavar="FILE", help="Write the last bytes that the guest returns to this file."
        ),
    ] = None,
    policy: options.Policy = None,
    policy_output: options.PolicyOutputs = None,
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
    """Run a guest and show how it went."""
    return partial(
        run,
        RunOptions(
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
            host=HostGrants(
                policy, seed, deterministic, tuple(limit or ()), wasi, tuple(directory or ()),
                stub_missing, _grant(hive, allow_hive, data, fps), tuple(policy_output or ()),
            ),
            logs=LogOptions(log_level, verbose, debug),
            as_json=as_json,
        ),
    )  # fmt: skip


def _grant(
    hive: str, allowed: list[str] | None, data: Path | None, fps: float | None
) -> HiveGrant | None:
    if hive == "none":
        if allowed or data is not None:
            raise UsageError("--allow-hive and --data go with --hive embedded or --hive HOST:PORT")
        return None
    from arkml.runs.access import HiveGrant

    token, block = read_token(), fps is None
    return HiveGrant(hive, token, tuple(allowed or ()), data, wait_for_learner=block)


def run(options: RunOptions) -> int:
    """Load the guest, run its task, show the result, and return the exit code."""
    from arkml.cli.guest_task import print_complaints
    from arkml.cli.launch import open_host
    from arkml.cli.values import check_words

    options.logs.start()
    check_words((str(options.guest), *options.arguments), options.known)
    keep_apart(options.out, options.guest, options.host.policy)
    hive = options.host.hive
    if hive is not None and hive.data is not None:
        make_directory("--data", Path(hive.data))
    with open_host(
        options.host,
        name=options.guest.name,
        arguments=options.cmdlet or "",
        keep_stdout=options.as_json,
    ) as host:
        summary = _perform(options, host)
    _show(options, summary)
    return print_complaints(summary.complaints)


def _perform(options: RunOptions, host: Host) -> Summary:
    from arkml.cli.guest_task import announce, compile_file, complaints_of, perform
    from arkml.cli.progress import ProgressBar
    from arkml.cli.summary import Summary
    from arkml.cli.tasks import TaskOptions, choose
    from arkml.cli.timing import Steps
    from arkml.training.pacer import Pacer
    from arkml.training.task_runner import FleetFailed, make_runner
    from arkml.training.tasks import entry_names

    module = compile_file(host, options.guest)
    task_options = TaskOptions(options.cmdlet, options.invoke, options.arguments, options.input)
    task = choose(module, task_options)
    budget = task.budget(is_set=options.host.has_budget)
    runner = make_runner(host, module, task, instances=options.instances, budget=budget)
    count = _count(options, task)
    pacer = None if options.fps is None else Pacer(options.fps)
    steps = Steps(runner.step)
    announce(module, options.instances)
    # A fleet whose guests all failed has a summary too, and the failures are complaints in it.
    with suppress(FleetFailed), ProgressBar(module.name, count) as progress:
        perform(runner, steps, count, pacer=pacer, after=progress)
    print_echoes()
    if not task.function:
        sys.stderr.write(f"nothing was called; --invoke takes one of {entry_names(module.info)}\n")
    complaints = complaints_of(options.host, runner, options.instances)
    if options.out is not None and not runner.returned:
        complaints += (f"{module.name} returned nothing: {options.out} is not written",)
    return Summary(
        guest=module.name,
        kind=module.info.kind.value,
        function=task.function,
        instances=options.instances,
        timings=steps.timings,
        statistics=runner.statistics,
        account=runner.account,
        fps=options.fps,
        late=None if pacer is None else pacer.late,
        failed=len(runner.failures),
        result=runner.result,
        returned=runner.returned,
        complaints=complaints,
    )


def _count(options: RunOptions, task: Task) -> int:
    """Return the number of steps."""
    if options.frames is None:
        return task.default_frames
    if not task.is_repeatable:
        raise UsageError(f"--frames does not go with {task.title}: it runs once")
    return options.frames


def _show(options: RunOptions, summary: Summary) -> None:
    """Show the guest's bytes and the table, or all of it as JSON; write the bytes to --out."""
    from arkml.cli.summary import text_of

    if options.out is not None and summary.returned:
        write_file(options.out, summary.returned)
        sys.stderr.write(f"wrote {len(summary.returned):,} bytes to {harmless(str(options.out))}\n")
    if options.as_json:
        print_json(summary.document())
        return
    if summary.returned and options.out is None:
        text = text_of(summary.returned)
        size = f"{len(summary.returned):,} bytes that are not text (--out FILE keeps them)"
        sys.stdout.write(f"{size if text is None else presentable(text, _MOST_TEXT)}\n")
        sys.stdout.flush()
    if not summary.function:
        return
    from arkml.cli.tables import show_account, show_run

    # The output of a WASI command may be piped on.
    stream = sys.stderr if summary.kind == "wasi-command" else sys.stdout
    show_run(summary, stream)
    if options.logs.verbosity:
        show_account(summary.account, stream)
