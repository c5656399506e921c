"""`arkml run`: runs the task of a guest."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.base.output_files import make_directory, write_file
from arkml.base.terminal import harmless
from arkml.cli import options
from arkml.cli.exits import print_json
from arkml.cli.launch import HostOptions, read_token
from arkml.cli.logs import print_echoes, print_note
from arkml.cli.user_files import keep_apart
from arkml.cli.values import rate, whole_number
from arkml.errors import UsageError
from arkml.sessions.text import presentable

if TYPE_CHECKING:
    from arkml import FleetSnapshot, GuestSnapshot
    from arkml.cli.summary import Summary
    from arkml.host import Host
    from arkml.runs.hive_access import HiveGrant
    from arkml.training.tasks import Task

_EPILOG = options.epilog(
    "arkml run npc.wasm",
    "arkml run npc.wasm --frames 3600 --fps 60 --policy walk.onnx",
    "arkml run npc.wasm --frames 36000 --fps 60 --policy walk.onnx --watch",
    "arkml run npc.wasm --instances 1000 --json",
    "arkml run npc.wasm --trace npc.trace",
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RunOptions:
    """The options of `arkml run`."""

    guest: options.GuestFile
    task: options.TaskOptions
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--frames", 1),
            help="Number of frames or calls: 600 frames or 1 call by default.",
        ),
    ] = None
    fps: Annotated[
        float | None,
        typer.Option(
            metavar="F", parser=rate("--fps", 0.01), help="Pace the frames and count late ones."
        ),
    ] = None
    instances: options.Instances = 1
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Write the last bytes that the guest returns to this file."
        ),
    ] = None
    trace: options.TraceFile = None
    host: HostOptions
    watch: Annotated[
        bool,
        typer.Option(
            "--watch",
            help="Reload the guest, and the file of --policy, between two frames, whenever it has"
            " changed.",
        ),
    ] = False
    hive: Annotated[str, options.hive("none", "none embedded")] = "none"
    allow_hive: options.AllowHive = None
    data: options.HiveData = None
    output: options.OutputOptions

    def grant(self) -> HiveGrant | None:
        """Return the permission to train, None without a hive. Raises UsageError."""
        if self.hive == "none":
            if self.allow_hive or self.data is not None:
                raise UsageError(
                    "--allow-hive and --data go with --hive embedded or --hive HOST:PORT"
                )
            return None
        from arkml.runs.hive_access import HiveGrant

        return HiveGrant(
            self.hive,
            read_token(),
            tuple(self.allow_hive or ()),
            self.data,
            wait_for_learner=self.fps is None,
        )


def register(app: typer.Typer) -> None:
    """Add the command `arkml run` to the application."""
    options.add_command(app, "run", RunOptions, run, epilog=_EPILOG, takes_numbers=True)


def run(options: RunOptions) -> int:
    """Run a guest and show how it went."""
    return run_from(options)


def run_from(
    options: RunOptions,
    *,
    state: GuestSnapshot | FleetSnapshot | None = None,
    saves: Path | None = None,
) -> int:
    """
    Run a guest, from its start or from a saved state, and show how it went.

    Args:
        options: The options of the run.
        state: The state from which the guest continues, without running its initializers; or None.
        saves: The file for the state after the last frame, not written if the guest fails; or None.

    Returns:
        The exit code.

    """
    from arkml.cli.guest_task import print_complaints

    options.output.start_logs()
    read = options.guest, *options.host.policy_files
    keep_apart(saves, *read, options.trace, options.out)
    keep_apart(options.out, *read, options.trace)
    keep_apart(options.trace, *read)
    hive = options.grant()
    if options.data is not None:
        make_directory("--data", options.data)
    with options.host.open_host(
        name=options.guest.name,
        arguments=options.task.cmdlet or "",
        hive=hive,
        keep_stdout=options.output.as_json,
        trace=options.trace,
    ) as host:
        if options.watch:
            options.host.watch_policy(host)
        summary = _perform(options, host, state, saves)
    _show(options, summary)
    return print_complaints(summary.complaints)


def _perform(
    options: RunOptions,
    host: Host,
    state: GuestSnapshot | FleetSnapshot | None,
    saves: Path | None,
) -> Summary:
    from arkml.cli.guest_task import announce, compile_file, complaints_of, perform
    from arkml.cli.progress import ProgressBar
    from arkml.cli.summary import Summary
    from arkml.cli.task_choice import choose
    from arkml.cli.timing import Steps
    from arkml.host import hives_of
    from arkml.training.module_watch import ModuleWatch
    from arkml.training.pacer import Pacer
    from arkml.training.task_runner import FleetFailed, make_runner
    from arkml.training.tasks import entry_names

    module = compile_file(host, options.guest)
    task = choose(module, options.task)
    budget = task.budget(is_set=options.host.has_budget)
    runner = make_runner(host, module, task, instances=options.instances, budget=budget)
    count = _count(options, task, module.info.misfits)
    pacer = None if options.fps is None else Pacer(options.fps)
    if options.watch and not task.is_repeatable:
        raise UsageError(f"--watch does not go with {task.title}: it runs once")
    watch = None
    if options.watch:
        watch = ModuleWatch(options.guest, host, runner, print_note)
    steps = Steps(runner.step if watch is None else watch.step)
    announce(module, options.instances)
    # A fleet whose guests all failed has a summary too, and the failures are complaints in it.
    with suppress(FleetFailed), ProgressBar(module.name, count) as progress:
        try:
            perform(runner, steps, count, pacer=pacer, after=progress, state=state)
        finally:
            if watch is not None:
                watch.close()
    if saves is not None:
        runner.subject.snapshot().save(saves)
        sys.stderr.write(f"saved the state to {harmless(str(saves))}\n")
    print_echoes()
    complaints = complaints_of(options.host, host, runner, options.instances)
    if not task.function:
        can_call = f"--invoke takes one of {entry_names(module.info)}"
        what = can_call if module.info.entry_points else f"{module.name} exports no entry point"
        sys.stderr.write(f"nothing was called; {what}\n")
        complaints += module.info.misfits
    hives = hives_of(host)
    if hives is not None and (refusal := hives.find_refusal()):
        complaints += (f"{module.name} has trained nothing: {refusal}",)
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


def _count(options: RunOptions, task: Task, misfits: Sequence[str]) -> int:
    """Return the number of steps. Raises UsageError, with the exports that may be meant to run."""
    if options.frames is None:
        return task.default_frames
    if not task.is_repeatable:
        why = "it runs once" if task.function else "; ".join(misfits) or "it runs once"
        raise UsageError(f"--frames does not go with {task.title}: {why}")
    return options.frames


def _show(options: RunOptions, summary: Summary) -> None:
    """Show the guest's bytes and the table, or all of it as JSON; write the bytes to --out."""
    from arkml.cli.summary import text_of

    if options.out is not None and summary.returned:
        write_file(options.out, summary.returned)
        sys.stderr.write(f"wrote {len(summary.returned):,} bytes to {harmless(str(options.out))}\n")
    if options.output.as_json:
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
    if options.output.verbose:
        show_account(summary.account, stream)
