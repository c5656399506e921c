"""A guest from its file to the end of its task."""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.cli.files import named, read_module
from arkml.cli.launch import Grants
from arkml.cli.task_runner import Player, Solo, Together
from arkml.cli.tasks import Task
from arkml.cli.timing import Pacer, Steps
from arkml.errors import GuestError, ModuleError
from arkml.limits import RUN_SECONDS, Budget
from arkml.runtime.module.description import ModuleKind

if TYPE_CHECKING:
    from arkml.host import Host
    from arkml.runtime.compiled_module import CompiledModule


def compiled(host: Host, path: Path) -> CompiledModule:
    """
    The module in a file.

    Raises ModuleError, for a memory or tables over their limits too: nothing ran yet, so whatever
    is wrong is the file.
    """
    data = read_module(path)
    try:
        return host.compile(data, name=path.name)
    except (ModuleError, GuestError) as error:
        raise ModuleError(named(path, str(error))) from error


def budget_of(task: Task, grants: Grants) -> Budget:
    """What one call may take: the limit for a frame, and for anything if the user set it."""
    return RUN_SECONDS if grants.has_budget or task.kind is ModuleKind.APPLET else None


def player_of(
    host: Host, program: CompiledModule, task: Task, *, instances: int, budget: Budget
) -> Player:
    """Make the guest, or the fleet. None of its instructions has run yet."""
    if instances > 1:
        return Together(host.fleet(program, instances, initialize=False), task, budget)
    return Solo(host.load(program, initialize=False), task, budget)


def announce(program: CompiledModule, instances: int = 1) -> None:
    """Say that the first instruction of the guest comes next."""
    count = f"{instances:,} x " if instances > 1 else ""
    sys.stderr.write(f"running {count}{program.name} ({program.info.kind.value})\n")
    sys.stderr.flush()


def perform(
    player: Player,
    steps: Steps,
    count: int,
    *,
    pacer: Pacer | None = None,
    after: Callable[[int], None] | None = None,
) -> None:
    """Initialize the player and let it do its steps; tell in which one it failed."""
    try:
        player.initialize()
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
