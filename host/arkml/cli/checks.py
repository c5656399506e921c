"""What a smoke test looks at, in order; the first failure that leaves nothing to run ends it."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.cli.files import named, read_module
from arkml.cli.launch import Grants, open_host
from arkml.cli.outcome import idle_policy
from arkml.cli.task_runner import Solo
from arkml.cli.tasks import Task, Wanted, choose
from arkml.cli.timing import Steps
from arkml.cli.units import counted, duration, size
from arkml.errors import (
    ArkmlError,
    CmdletFailed,
    GuestError,
    GuestTimeout,
    LinkError,
    MemoryLimitExceeded,
    ModuleTooLarge,
    StackExhausted,
    TableLimitExceeded,
)
from arkml.limits import RUN_SECONDS, Budget
from arkml.runtime.module.description import ModuleKind

if TYPE_CHECKING:
    from arkml.guests.guest import Guest
    from arkml.host import Host
    from arkml.runtime.compiled_module import CompiledModule

_PATIENCE = 60.0  # seconds of wasm for one call that is no frame
_OVER_LIMITS = (
    GuestTimeout,
    MemoryLimitExceeded,
    ModuleTooLarge,
    StackExhausted,
    TableLimitExceeded,
)


@dataclass(frozen=True, slots=True)
class Check:
    """One line of a smoke test."""

    name: str
    passed: bool
    detail: str
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Trial:
    """How guests are tried."""

    grants: Grants
    frames: int = 120
    cmdlet: str | None = None
    input: Path | None = None

    def run(self, path: Path) -> Iterator[Check]:
        """Try the guest in a file, check by check. Raises UsageError for bad options."""
        host = open_host(
            self.grants, program=path.name, arguments=self.cmdlet or "", stdout_is_ours=True
        )
        with host:
            yield from _timed(self._checks(host, path))

    def _checks(self, host: Host, path: Path) -> Iterator[Check]:
        try:
            program = host.compile(read_module(path), name=path.name)
        except LinkError as error:
            yield Check("load", True, path.name)
            yield Check("link", False, str(error))
            return
        except ArkmlError as error:
            yield _failed("load", error, path)
            return
        yield Check("load", True, f"{program.info.kind.value}, {size(program.info.size)}")
        yield Check("link", True, _linked(program))
        try:
            guest = host.load(program, initialize=False)
            guest.initialize()
        except GuestError as error:
            yield _failed("initialize", error, path)
            return
        yield Check("initialize", True, "no trap")
        yield from self._task_checks(guest, program)

    def _task_checks(self, guest: Guest, program: CompiledModule) -> Iterator[Check]:
        task = choose(program, Wanted(cmdlet=self.cmdlet, input=self.input))
        if not task.function:
            names = ", ".join(entry.name for entry in program.info.entry_points)
            yield Check("run", True, f"nothing to call without arguments ({names or 'no exports'})")
        performance = _Performance(guest, task, self)
        try:
            performance.run()
        except GuestError as error:
            yield _failed("run", error, program.name, performance.place(error))
            return
        if task.function:
            yield Check("run", True, performance.outcome())
        yield performance.handles()
        yield _actions(guest, self.grants)
        yield performance.limits()


class _Performance:
    """A guest does its task, and what is live is counted on the way."""

    def __init__(self, guest: Guest, task: Task, trial: Trial) -> None:
        self.count = _count(task, trial)
        self._guest = guest
        self._task = task
        in_its_own_time = task.kind is ModuleKind.APPLET or trial.grants.has_budget
        self._budget: Budget = RUN_SECONDS if in_its_own_time else _PATIENCE
        self._any_status = (
            task.kind in (ModuleKind.SERVLET, ModuleKind.MODULE_RUN) and trial.input is None
        )
        self.steps = Steps(Solo(guest, task, self._budget).step)
        self._status = 0
        self._peak = self._live()
        self._halfway = self._peak

    def run(self) -> None:
        """Raises GuestError."""
        for _ in range(self.count):
            self._step()
            live = self._live()
            self._peak = max(self._peak, live)
            if len(self.steps.timings) == self.count // 2:
                self._halfway = live

    def outcome(self) -> str:
        """What it did."""
        if self.count == 1:
            return f"{self._task.function}, no trap"
        what = "frames" if self._task.kind is ModuleKind.APPLET else "calls"
        status = f", status {self._status} without input" if self._status else ""
        return f"{self.count:,} {what} of {self._task.function}, no trap{status}"

    def place(self, error: GuestError) -> str:
        """What to say before or after `error`, with `%s` for it."""
        if self.count > 1:
            return f"in call {len(self.steps.timings) + 1:,}: %s"
        if isinstance(error, CmdletFailed) and not self._task.data:
            return "%s (--cmdlet gives it arguments)"
        return "%s"

    def handles(self) -> Check:
        """Nothing is live after a cmdlet, and no more after N frames than after half of them."""
        live = self._live()
        if self._task.kind in (ModuleKind.CMDLET, ModuleKind.WASI_COMMAND):
            return Check("handles", live == 0, f"{counted(live, 'handle')} live afterwards")
        detail = f"{counted(live, 'handle')} live"
        if self.count > 1:
            detail += f" after {self.count:,} calls, {self._halfway:,} after {self.count // 2:,}"
        return Check("handles", live <= self._halfway, detail)

    def limits(self) -> Check:
        """Whether no import call reached a limit, and how near the run came to the others."""
        reached = self._guest.statistics.limits
        if reached:
            told = ", ".join(f"{name} {count} times" for name, count in sorted(reached.items()))
            return Check("limits", False, f"import calls were refused: {told}")
        limits = self._guest.module.limits
        slowest = self.steps.timings.quantiles(1.0)[0]
        allowed = limits.run_seconds if self._budget is RUN_SECONDS else self._budget
        budget = "no limit" if allowed is None else duration(allowed)
        return Check(
            "limits",
            True,
            f"slowest call {duration(slowest)} of {budget}, {self._peak:,} live of"
            f" {limits.handles:,} handles and {limits.futures:,} futures",
        )

    def _step(self) -> None:
        try:
            self.steps.run(1)
        except CmdletFailed as error:
            if not self._any_status:
                raise
            self._status = error.status
            self.steps.timings.steps.append(0.0)

    def _live(self) -> int:
        return self._guest.live_handles


def _count(task: Task, trial: Trial) -> int:
    match task.kind:
        case ModuleKind.APPLET:
            return trial.frames
        case ModuleKind.CMDLET | ModuleKind.WASI_COMMAND:
            return 1
        case ModuleKind.SERVLET | ModuleKind.MODULE_RUN | ModuleKind.PLAIN:
            return 2 if task.function else 0


def _linked(program: CompiledModule) -> str:
    count, stubs = len(program.info.imports), len(program.linkage.stubs)
    if not count:
        return "no imports"
    return f"{counted(count, 'import')}, " + (f"{stubs:,} of them stubs" if stubs else "all there")


def _actions(guest: Guest, grants: Grants) -> Check:
    done = guest.statistics
    if idle := idle_policy(grants, done):
        return Check("actions", False, idle)
    bad = done.non_finite_actions
    if bad:
        return Check("actions", False, f"{bad:,} values were not finite, in {done.rows:,} rows")
    return Check("actions", True, f"{done.rows:,} rows, all finite" if done.rows else "none")


def _failed(name: str, error: ArkmlError, file: str | Path, text: str = "%s") -> Check:
    """A failed check; a limit that was hit is the one of limits."""
    name = "limits" if isinstance(error, _OVER_LIMITS) else name
    return Check(name, False, text.replace("%s", named(file, str(error))))


def _timed(checks: Iterator[Check]) -> Iterator[Check]:
    started = time.perf_counter()
    for check in checks:
        now = time.perf_counter()
        yield replace(check, seconds=now - started)
        started = time.perf_counter()
