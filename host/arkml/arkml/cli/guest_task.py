"""The task of a guest in a command: announced, done step by step, and judged at its end."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.base.terminal import harmless
from arkml.cli.exits import FAILED, GOOD, print_error
from arkml.cli.launch import HostOptions
from arkml.cli.timing import Steps
from arkml.cli.user_files import read_module
from arkml.errors import GuestError
from arkml.training.pacer import Pacer
from arkml.training.task_runner import TaskRunner, failure_summary
from arkml.training.tasks import compile_module, period_doubt

if TYPE_CHECKING:
    from arkml import FleetSnapshot, GuestSnapshot
    from arkml.guests.counts import Statistics
    from arkml.host import Host
    from arkml.runtime.compiled_module import CompiledModule


def compile_file(host: Host, path: Path) -> CompiledModule:
    """Compile a module, and warn of declarations that have no effect. Raises ModuleError."""
    module = compile_module(host, read_module(path), path.name)
    if doubt := period_doubt(module):
        sys.stderr.write(f"{harmless(doubt)}\n")
    return module


def announce(module: CompiledModule, instances: int = 1) -> None:
    """Write to stderr that the guest starts, for example `running 64 x npc.wasm (applet)`."""
    count = f"{instances:,} x " if instances > 1 else ""
    sys.stderr.write(f"running {count}{harmless(module.name)} ({module.info.kind.value})\n")
    sys.stderr.flush()


def perform(
    runner: TaskRunner,
    steps: Steps,
    count: int,
    *,
    pacer: Pacer | None = None,
    after: Callable[[int], None] | None = None,
    state: GuestSnapshot | FleetSnapshot | None = None,
) -> None:
    """
    Initialize the guest, or restore a state, and do `count` steps of its task.

    If a step fails, its number is written to stderr.
    """
    try:
        if state is None:
            runner.initialize()
        else:
            runner.subject.restore(state)  # type: ignore[arg-type]  # one that is not meant is refused
    except GuestError:
        sys.stderr.write("failed while it was initialized\n")
        raise
    try:
        steps.run(count, pacer=pacer, after=after)
    except GuestError:
        if count > 1:
            sys.stderr.write(f"failed in frame {len(steps.timings) + 1:,} of {count:,}\n")
        raise
    except KeyboardInterrupt:
        done = len(steps.timings)
        raise KeyboardInterrupt(f"after {done:,} frames" if done else "") from None


def complaints_of(
    options: HostOptions, host: Host, runner: TaskRunner, instances: int
) -> tuple[str, ...]:
    """Return sentences about guests that failed, and about policies that were never used."""
    failed = [failure_summary(runner.failures, instances)] if runner.failures else []
    return (*failed, *idle_policies(options, host, runner.statistics))


def idle_policies(options: HostOptions, host: Host, statistics: Statistics) -> list[str]:
    """Return sentences about policies of the user that were never asked for actions."""
    from arkml.host import hives_of, idle_policies_of

    if idle := _idle_policy(options, statistics):
        return [idle]
    trained = "" if hives_of(host) is None else ", where trainings have those of their runs"
    return [
        f"the policy of {harmless(str(key))} never acted: no session of this"
        f" {'name' if isinstance(key, str) else 'shape'} opened with it{trained}"
        for key in idle_policies_of(host)
    ]


def _idle_policy(options: HostOptions, statistics: Statistics) -> str | None:
    """Return a sentence about a policy of the user that was never asked for actions, or None."""
    if not options.policy or statistics.submits or not statistics.errors:
        return None
    refused = ", ".join(f"{name} {count:,}" for name, count in sorted(statistics.errors.items()))
    trains = "UNAVAILABLE" in statistics.errors  # the answer to a guest that starts a training
    return (
        f"{' and '.join(options.policy)} never acted: nothing was submitted, and import calls were"
        f" refused ({refused}); the warnings of the guest say why"
        + ("; a guest that only trains is played by arkml record, and arkml.evaluate" * trains)
    )


def error_document(complaints: Sequence[str]) -> dict[str, str]:
    """Return the fields that complaints add to the JSON object of `--json`."""
    return {"error": "\n".join(complaints), "type": "GuestError"} if complaints else {}


def print_complaints(complaints: Sequence[str]) -> int:
    """Write each complaint as a line to stderr, and return the command's exit code."""
    for complaint in complaints:
        print_error(harmless(complaint))
    return FAILED if complaints else GOOD
