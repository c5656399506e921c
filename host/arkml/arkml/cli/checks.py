"""The checks of a smoke test in their order, up to a failure after which the guest cannot go on."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

from arkml.base.files import named
from arkml.cli.guest_task import idle_policies
from arkml.cli.launch import HostOptions
from arkml.cli.limit_use import LimitUse, LimitUses
from arkml.cli.options import TaskOptions
from arkml.cli.task_choice import choose
from arkml.cli.timing import Steps
from arkml.cli.units import counted, duration, size
from arkml.cli.user_files import read_module
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
from arkml.guests.guest import calls_of
from arkml.host import hives_of
from arkml.limits import RUN_SECONDS
from arkml.runtime.module.description import ModuleKind
from arkml.runtime.sandbox import most_memory
from arkml.sessions.declarations import listed
from arkml.training.outcome import membership_of
from arkml.training.task_runner import GuestRunner
from arkml.training.tasks import Task, copies_fault, refused_start

if TYPE_CHECKING:
    from arkml.guests.guest import Guest
    from arkml.host import Host
    from arkml.runs.hive_access import HiveAccess, HiveGrant
    from arkml.runtime.compiled_module import CompiledModule

_MANY = 8  # calls after which memory that grows is noticed
_GROWTHS = 3  # of it, of which the last would not fit once more, are a leak up to its limit
_PATIENCE = 60.0  # seconds of wasm for one call that is not a frame
_RUN_WITHIN = 90.0  # seconds after which a run that was asked for is given up
_MORE_WITHIN = 10.0  # seconds after the first run, in which others may begin
_IDLE = 0.005  # seconds between two frames before there is a run
_OVER_LIMITS = (
    GuestTimeout,
    MemoryLimitExceeded,
    ModuleTooLarge,
    StackExhausted,
    TableLimitExceeded,
)


@dataclass(frozen=True, slots=True)
class Check:
    """The result of one check of a smoke test, with a table of limits to show below it, if any."""

    name: str
    passed: bool
    detail: str
    seconds: float = 0.0
    limits: Sequence[LimitUse] = ()
    """All limits of the guest, given with its last check, or with the first failed check."""


@dataclass(frozen=True, slots=True)
class SmokeTest:
    """A smoke test, with its options, that can be run on any number of guests."""

    host: HostOptions
    frames: int
    cmdlet: str | None
    input: Path | None
    hive: HiveGrant | None = None

    def run(self, path: Path) -> Iterator[Check]:
        """Test the guest in a file, and yield one check after another. Raises UsageError."""
        host = self.host.open_host(
            name=path.name, arguments=self.cmdlet or "", hive=self.hive, keep_stdout=True
        )
        with host:
            yield from _timed(self._checks(host, path))

    def _checks(self, host: Host, path: Path) -> Iterator[Check]:
        started = time.perf_counter()
        try:
            module = host.compile(read_module(path), name=path.name)
        except LinkError as error:
            yield Check("load", True, path.name)
            yield Check("link", False, str(error))
            return
        except ArkmlError as error:
            yield _failed("load", error, path)
            return
        ready = time.perf_counter() - started
        yield Check("load", True, f"{module.info.kind.value}, {size(module.info.size)}")
        yield Check("link", True, _linked(module))
        startup = module.info.startup
        try:
            guest = host.load(module, initialize=False)
            guest.initialize()
        except GuestError as error:
            yield _failed("initialize", error, path)
            if startup.note:  # it may be the reason
                yield Check("start", False, startup.note)
            return
        done = f"no trap: {startup}" if startup.functions or startup.deferred else "no trap"
        yield Check("initialize", True, done)
        if startup.note:
            yield Check("start", not startup.loses_state, startup.note)
        yield from self._task_checks(host, guest, module, ready)

    def _task_checks(
        self, host: Host, guest: Guest, module: CompiledModule, compile_seconds: float
    ) -> Iterator[Check]:
        hives = hives_of(host)
        task = choose(module, TaskOptions(cmdlet=self.cmdlet, input=self.input))
        if module.info.misfits:
            yield Check("exports", False, "; ".join(module.info.misfits))
        elif not task.function:
            names = ", ".join(entry.name for entry in module.info.entry_points)
            yield Check("run", True, f"nothing to call without arguments ({names or 'no exports'})")
        performance = _CountedRun(guest, task, self, compile_seconds)
        try:
            if hives is not None:
                performance.await_run(hives)
            performance.run()
        except GuestError as error:
            failed = _failed("run", error, module.name, performance.place(error))
            yield replace(failed, limits=performance.uses.all())
            return
        if task.function:
            yield Check("run", True, performance.outcome())
        yield from _spec(guest)
        if hives is not None:
            yield _training(guest, hives)
        yield performance.handles()
        yield from performance.memory()
        yield _actions(guest, self.host, host)
        *others, last = performance.limits()
        yield from others
        yield replace(last, limits=performance.uses.all())


class _CountedRun:
    """The run of a guest's task, which measures its use of limits after each step."""

    def __init__(self, guest: Guest, task: Task, test: SmokeTest, compile_seconds: float) -> None:
        self.count = _count(task, test)
        self._guest = guest
        self._task = task
        self._budget = task.budget(is_set=test.host.has_budget, otherwise=_PATIENCE)
        self._any_status = (
            task.kind in (ModuleKind.SERVLET, ModuleKind.MODULE_RUN) and test.input is None
        )
        self._runner = GuestRunner(guest, task, self._budget)
        self.steps = Steps(self._runner.step)
        self._status = 0
        self.uses = LimitUses(guest, self._budget, compile_seconds)
        self._halfway = self._live()
        self._grown: list[int] = []  # bytes of memory after each quarter
        self._sizes = [guest.account.memory_bytes]  # after each call in which it grew

    def await_run(self, hives: HiveAccess) -> None:
        """Run an applet until the runs that it asks for have begun or failed. Raises GuestError."""
        if self._task.kind is not ModuleKind.APPLET:
            return
        self._runner.step()  # the first frame may ask
        until = time.monotonic() + _RUN_WITHIN
        while hives.is_asked and hives.awaits_runs and hives.failure is None:
            now = time.monotonic()
            if hives.is_training:
                until = min(until, now + _MORE_WITHIN)
            if now > until:
                return
            time.sleep(_IDLE)
            self._runner.step()

    def run(self) -> None:
        """Run all steps. Raises GuestError."""
        for _ in range(self.count):
            self._step()
            done = len(self.steps.timings)
            if done == self.count // 2:
                self._halfway = self._live()
            if self.count >= _MANY and done in _quarters(self.count):
                self._grown.append(self._guest.account.memory_bytes)

    def outcome(self) -> str:
        """Return the calls that ran, as the detail of a check."""
        if self.count == 1:
            return f"{self._task.function}, no trap"
        what = "frames" if self._task.kind is ModuleKind.APPLET else "calls"
        status = f", status {self._status} without input" if self._status else ""
        return f"{self.count:,} {what} of {self._task.function}, no trap{status}"

    def place(self, error: GuestError) -> str:
        """Return the text around `error`, with `%s` in its place."""
        if self.count > 1:
            return f"in call {len(self.steps.timings) + 1:,}: %s"
        if isinstance(error, CmdletFailed) and not self._task.data:
            return "%s (--cmdlet gives it arguments)"
        return "%s"

    def handles(self) -> Check:
        """Check that a cmdlet leaves no handle, and that handles do not grow with the frames."""
        live = self._live()
        if self._task.kind in (ModuleKind.CMDLET, ModuleKind.WASI_COMMAND):
            return Check("handles", live == 0, f"{counted(live, 'handle')} live afterwards")
        detail = f"{counted(live, 'handle')} live"
        if self.count > 1:
            detail += f" after {self.count:,} calls, {self._halfway:,} after {self.count // 2:,}"
        return Check("handles", live <= self._halfway, detail)

    def memory(self) -> Iterator[Check]:
        """Check that the memory neither grows in every quarter of the calls nor up to its limit."""
        sizes = self._grown
        if not sizes:
            return
        grows = all(before < after for before, after in pairwise(sizes))
        shown = " → ".join(map(size, sizes)) if grows else size(sizes[-1])
        detail = f"{shown} after {self.count:,} calls"
        most = most_memory(self._guest.module)
        *_, before, last = 0, *self._sizes
        is_full = len(self._sizes) > _GROWTHS and last + (last - before) > most
        if grows:
            detail += ": it grew in each quarter of them, and would reach its limit"
        elif is_full:
            detail += f": it grew until it reached its limit of {size(most)}"
        yield Check("memory", not (grows or is_full), detail)

    def limits(self) -> Iterator[Check]:
        """Check that no import call reached a limit; tell how near the run came to the others."""
        reached = self._guest.statistics.limits
        for name, count in sorted(reached.items()):
            detail = f"import calls were refused: {name} {counted(count, 'time')}"
            yield Check("limits", False, detail)
        if not reached:
            yield self._near_limits()

    def _near_limits(self) -> Check:
        limits = self._guest.module.limits
        slowest = self.steps.timings.longest
        allowed = limits.run_seconds if self._budget is RUN_SECONDS else self._budget
        budget = "no limit" if allowed is None else duration(allowed)
        return Check(
            "limits",
            True,
            f"slowest call {duration(slowest)} of {budget}, {self.uses.most('handles'):,} live of"
            f" {limits.handles:,} handles and {limits.futures:,} futures,"
            f" {size(int(self.uses.most('guest_bytes')))} of {size(limits.guest_bytes)}",
        )

    def _step(self) -> None:
        self.uses.begin()
        try:
            self.steps.run(1)
        except CmdletFailed as error:
            if not self._any_status:
                raise
            self._status = error.status
            self.steps.timings.add(0.0)
        finally:
            self.uses.note()
            if (size_now := self._guest.account.memory_bytes) > self._sizes[-1]:
                self._sizes.append(size_now)

    def _live(self) -> int:
        return self._guest.live_handles


def _count(task: Task, test: SmokeTest) -> int:
    match task.kind:
        case ModuleKind.APPLET:
            return test.frames
        case ModuleKind.CMDLET | ModuleKind.WASI_COMMAND:
            return 1
        case ModuleKind.SERVLET | ModuleKind.MODULE_RUN | ModuleKind.PLAIN:
            return 2 if task.function else 0


def _quarters(count: int) -> tuple[int, ...]:
    return tuple(count * part // 4 for part in range(1, 5))


def _linked(module: CompiledModule) -> str:
    count, stubs = len(module.info.imports), len(module.linkage.stubs)
    if not count:
        return "no imports"
    return f"{counted(count, 'import')}, " + (f"{stubs:,} of them stubs" if stubs else "all there")


def _spec(guest: Guest) -> Iterator[Check]:
    """Check the declaration of the guest, by itself and against the runs that it has requested."""
    declared = calls_of(guest).services.declared
    wrong = declared.contradiction or declared.fault or copies_fault(guest.module.info)
    if wrong:
        yield Check("spec", False, str(wrong))
    elif declared.behaviors:
        bounds = declared.other_bounds()
        doubt = f"; actions in {bounds}, where trainings give them in [-1, 1]" if bounds else ""
        yield Check("spec", True, f"declares {listed(declared.behaviors)}{doubt}")


def _training(guest: Guest, hives: HiveAccess) -> Check:
    """Check that the run that the guest has asked for takes its rows."""
    membership = membership_of(guest)
    if hives.failure is not None:
        return Check("training", False, str(hives.failure))
    if not hives.is_asked:
        refused = refused_start(guest.statistics)
        return Check("training", not refused, refused or "it asked for no run")
    if not hives.is_training or membership is None:
        reason = hives.silence or "the run that it asked for has not begun"
        return Check("training", False, reason)
    if membership.failure:
        return Check("training", False, membership.failure)
    rows = guest.statistics.rows
    doubt = membership.vanished and f"; {membership.vanished}"
    done = f"its run has begun, and it pushed {counted(rows, 'row')}{doubt}"
    return Check("training", rows > 0, done)


def _actions(guest: Guest, options: HostOptions, host: Host) -> Check:
    done = guest.statistics
    if idle := idle_policies(options, host, done):
        return Check("actions", False, "; ".join(idle))
    bad = done.non_finite_actions
    if bad:
        return Check("actions", False, f"{bad:,} values were not finite, in {done.rows:,} rows")
    return Check("actions", True, f"{done.rows:,} rows, all finite" if done.rows else "none")


def _failed(name: str, error: ArkmlError, file: str | Path, text: str = "%s") -> Check:
    """Return a failed check, or the failed check of limits if one was reached."""
    name = "limits" if isinstance(error, _OVER_LIMITS) else name
    return Check(name, False, text.replace("%s", named(file, str(error))))


def _timed(checks: Iterator[Check]) -> Iterator[Check]:
    started = time.perf_counter()
    for check in checks:
        now = time.perf_counter()
        yield replace(check, seconds=now - started)
        started = time.perf_counter()
