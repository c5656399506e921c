"""`arkml bench`: measures the time of a frame or a call of a guest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer

from arkml.cli import options
from arkml.cli.exits import print_json
from arkml.cli.launch import HostOptions
from arkml.cli.values import whole_number
from arkml.errors import UsageError

if TYPE_CHECKING:
    from arkml.cli.timing import Timings
    from arkml.host import Host
    from arkml.training.task_runner import TaskRunner
    from arkml.training.tasks import Task

_EPILOG = options.epilog(
    "arkml bench npc.wasm --policy walk.onnx",
    "arkml bench npc.wasm --instances 1000 --frames 200",
    "arkml bench module.wasm --invoke step 16",
    notes="""
The first calls, which load policies and warm caches, are not counted (--warmup). The spread is half
the distance between the quartiles. The time of a call includes that of policies.
""",
)
_FRAMES, _CALLS = (1000, 50), (20, 2)  # counted, and before that for warming up


@dataclass(frozen=True, slots=True, kw_only=True)
class BenchOptions:
    """The options of `arkml bench`."""

    guest: options.GuestFile
    task: options.TaskOptions
    frames: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--frames", 1),
            help="Number of frames or calls: 1000 by default, 20 where they take bytes.",
        ),
    ] = None
    warmup: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            parser=whole_number("--warmup", 0),
            help="Calls before them, not counted: 50 by default, 2 where they take bytes.",
        ),
    ] = None
    instances: options.Instances = 1
    host: HostOptions
    output: options.OutputOptions


def register(app: typer.Typer) -> None:
    """Add the command `arkml bench` to the application."""
    options.add_command(app, "bench", BenchOptions, bench, epilog=_EPILOG, takes_numbers=True)


def bench(options: BenchOptions) -> int:
    """Measure the time of a frame or a call."""
    from arkml.cli.guest_task import complaints_of, error_document, print_complaints

    options.output.start_logs("warning")
    with options.host.open_host(keep_stdout=True) as host:
        document, runner = _measure(options, host)
    complaints = complaints_of(options.host, host, runner, options.instances)
    if options.output.as_json:
        print_json(error_document(complaints) | document)
    else:
        _show(document)
    return print_complaints(complaints)


def _measure(options: BenchOptions, host: Host) -> tuple[dict[str, Any], TaskRunner]:
    """Measure; return the figures, and the guest or the fleet with its failures."""
    from arkml.cli.guest_task import announce, compile_file, perform
    from arkml.cli.progress import ProgressBar
    from arkml.cli.task_choice import choose
    from arkml.cli.timing import Steps
    from arkml.training.task_runner import make_runner

    module = compile_file(host, options.guest)
    task = choose(module, options.task)
    count, warmup = _counts(options, task)
    budget = task.budget(is_set=options.host.has_budget)
    runner = make_runner(host, module, task, instances=options.instances, budget=budget)
    announce(module, options.instances)
    perform(runner, Steps(runner.step), warmup)
    before, steps = runner.statistics, Steps(runner.step)
    with ProgressBar(module.name, count) as progress:
        steps.run(count, after=progress)
    rows = runner.statistics.rows - before.rows
    return _document(options, module.name, task, steps.timings, warmup, rows), runner


def _counts(options: BenchOptions, task: Task) -> tuple[int, int]:
    """Return the number of calls that count, and the number of calls before them."""
    from arkml.runtime.module.description import ModuleKind

    if not task.is_repeatable:
        raise UsageError(f"{task.title} cannot be measured: it cannot be called again and again")
    numbers = task.kind in (ModuleKind.APPLET, ModuleKind.PLAIN)
    counted, before = _FRAMES if numbers else _CALLS
    return (
        counted if options.frames is None else options.frames,
        before if options.warmup is None else options.warmup,
    )


def _document(
    options: BenchOptions, name: str, task: Task, timings: Timings, warmup: int, rows: int
) -> dict[str, Any]:
    low, median, high, p99 = timings.quantiles(0.25, 0.5, 0.75, 0.99)
    total = timings.total
    return {
        "guest": name,
        "kind": task.kind.value,
        "function": task.function,
        "instances": options.instances,
        "frames": len(timings),
        "warmup": warmup,
        "seconds": {
            "min": timings.shortest,
            "median": median,
            "p99": p99,
            "max": timings.longest,
            "spread": (high - low) / 2,
        },
        "frames_per_second": len(timings) / total,
        "rows": rows,
        "rows_per_second": rows / total,
    }


def _show(document: dict[str, Any]) -> None:
    from arkml.cli.tables import facts, show
    from arkml.cli.units import duration

    seconds, instances = document["seconds"], document["instances"]
    unit = "frame" if document["kind"] == "applet" else "call"
    rows = [(f"{unit}s", f"{document['frames']:,} after {document['warmup']:,} that do not count")]
    rows += [(name, duration(seconds[name])) for name in ("min", "median", "p99", "max")]
    rows.append(("spread", f"± {duration(seconds['spread'])}"))
    rows.append((f"{unit}s a second", f"{document['frames_per_second']:,.0f}"))
    if instances > 1:
        each = seconds["median"] / instances
        rows.insert(0, ("guests", f"{instances:,}"))
        rows.append(("a guest's step", duration(each)))
    if document["rows"]:
        rows.append(("actions a second", f"{document['rows_per_second']:,.0f}"))
    show(f"{document['guest']}: {document['function']}", facts(rows))
