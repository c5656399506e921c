"""Runners: a guest or a fleet that does a task (calls of one entry point), step by step."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from arkml.abi.codes import ErrorCode
from arkml.errors import CmdletFailed, GuestError, GuestExit, UsageError
from arkml.guests.guest import SEED_EXPORT, calls_of, seeded_initializers
from arkml.limits import Budget
from arkml.runtime.module.description import ModuleKind
from arkml.training.tasks import CONFIGURE, Task, warn_refused

if TYPE_CHECKING:
    from arkml.guests.call_loop import Reply
    from arkml.guests.counts import Statistics
    from arkml.guests.fleet import Fleet
    from arkml.guests.guest import Guest
    from arkml.host import Host
    from arkml.policies.step_limit import StepLimit
    from arkml.runtime.account import Usage
    from arkml.runtime.compiled_module import CompiledModule


_SEED_BITS = 62  # of an i64
_CONFIGURE_BITS = 31  # of the seed of a configuration, an i32


class FleetFailed(GuestError):
    """Raised when all guests of a fleet have failed."""


class TaskRunner(Protocol):
    """
    A guest or a fleet that does a task, one step after another.

    After a reload that made new guests, `begin_anew` gives them the seed passed to `initialize`.
    `result` and `returned` are the last results of the first live guest, as a number and as bytes.
    `refused` is a warning of guests that play another number of copies than they were told, or "".
    `cancel`, which any thread may call, ends the step in progress by GuestCancelled.
    """

    result: Any
    returned: bytes
    refused: str

    def initialize(self, seed: int | None = None) -> None: ...
    def begin_anew(self) -> None: ...
    def step(self) -> None: ...
    def cancel(self) -> None: ...
    @property
    def statistics(self) -> Statistics: ...
    @property
    def account(self) -> Usage: ...
    @property
    def failures(self) -> list[GuestError]: ...
    @property
    def subject(self) -> Guest | Fleet: ...


def make_runner(
    host: Host,
    module: CompiledModule,
    task: Task,
    *,
    instances: int,
    budget: Budget,
    renewal: Renewal | None = None,
) -> TaskRunner:
    """Make the guest or the fleet for a task, without running instructions. Raises UsageError."""
    if renewal is not None:
        require_frames(module, task)
        fleet = host.fleet(module, instances, initialize=False)
        return FleetRunner(fleet, task, budget, renewal)
    if instances > 1:
        if task.kind not in (ModuleKind.APPLET, ModuleKind.PLAIN):
            raise UsageError(
                f"{instances} instances of {module.name}, which is a {task.kind.value}: only"
                " applets and functions of numbers run in a fleet"
            )
        return FleetRunner(host.fleet(module, instances, initialize=False), task, budget)
    return GuestRunner(host.load(module, initialize=False), task, budget)


def require_frames(module: CompiledModule, task: Task) -> None:
    """
    Raise UsageError for a guest that plays in a single call, where episodes cannot be cut off.
    """
    if task.kind not in (ModuleKind.APPLET, ModuleKind.PLAIN):
        raise UsageError(
            f"max_episode_steps is for guests that are called frame by frame: {module.name} is"
            f" {task.title}, which plays its episodes within a call and ends them by Interrupted"
        )


class Renewal:
    """
    Replaces guests of a fleet that were cut off by a limit on the steps of episodes.

    Each new guest gets its own seed, drawn from `seed`, and makes `copies` of its game (see
    `make_copies`); then `renewed` is called.
    """

    def __init__(
        self,
        limit: StepLimit,
        seed: int,
        renewed: Callable[[], object] = lambda: None,
        copies: int | None = None,
    ) -> None:
        self.seed: int = seed
        """The seed of the first guests."""
        self.copies: int | None = copies
        self._limit = limit
        self._seeds = np.random.default_rng(seed)
        self._renewed = renewed

    def renew(self, fleet: Fleet) -> None:
        """
        Replace the guests that were cut off in the last call. Raises errors of the new guests.
        """
        cut = self._limit.take()
        if not cut:
            return
        for guest in fleet.guests:
            if calls_of(guest).instance.number in cut and guest.failure is None:
                seed = int(self._seeds.integers(1 << _SEED_BITS))
                make_copies(fleet.replace(guest, seed=seed), self.copies, seed)
        self._renewed()


def make_copies(guest: Guest, copies: int | None, seed: int) -> str:
    """
    Let a guest start over with so many copies of its game; None leaves it as it is.

    Returns the warning of a guest that refuses, or "". Raises errors of the guest.
    """
    if copies is None:
        return ""
    configuration = copies, seed % (1 << _CONFIGURE_BITS)
    return warn_refused(guest.module.name, configuration, guest.call(CONFIGURE, *configuration))


class GuestRunner:
    """
    Does a task with one guest. An error of the guest is raised by `step`.

    With `copies` the guest plays so many copies of its game; see `make_copies`.
    """

    def __init__(self, guest: Guest, task: Task, budget: Budget, copies: int | None = None) -> None:
        self.guest = guest
        self._copies = copies
        self.result: Any = None
        self.returned = b""
        self.refused = ""
        self._task = task
        self._budget = budget
        self._seed: int | None = None
        self.step: Callable[[], None] = self._step_of(task.kind)

    def initialize(self, seed: int | None = None) -> None:
        """Run the initializers of the guest, with a seed for the export that takes one."""
        self._seed = seed
        if seed is None:
            self.guest.initialize()
        else:
            for name in seeded_initializers(self.guest.module, self._task.function):
                self.guest.call(name, *((seed,) if name == SEED_EXPORT else ()))
        self.refused = make_copies(self.guest, self._copies, seed or 0)

    def begin_anew(self) -> None:
        """Give the guest its seed again, after a reload that restarted it."""
        if self._seed is not None and SEED_EXPORT in self.guest.module.functions:
            self.guest.call(SEED_EXPORT, self._seed)

    def cancel(self) -> None:
        """Let the step in progress raise GuestCancelled. Any thread may call it."""
        self.guest.cancel()

    @property
    def statistics(self) -> Statistics:
        """Counts of the guest so far."""
        return self.guest.statistics

    @property
    def account(self) -> Usage:
        """Time and memory charged to the guest so far."""
        return self.guest.account

    @property
    def failures(self) -> list[GuestError]:
        """An empty list, since a failure of the guest is raised."""
        return []

    @property
    def subject(self) -> Guest:
        """The guest that does the task."""
        return self.guest

    def _step_of(self, kind: ModuleKind) -> Callable[[], None]:
        match kind:
            case ModuleKind.CMDLET:
                return self._run_cmdlet
            case ModuleKind.SERVLET | ModuleKind.MODULE_RUN:
                return self._invoke
            case ModuleKind.WASI_COMMAND:
                return self._run_command
            case ModuleKind.APPLET | ModuleKind.PLAIN:
                return self._call

    def _call(self) -> None:
        task = self._task
        self.result = self.guest.call(task.function, *task.arguments, budget=self._budget)
        self.returned = self.guest.return_slice or b""

    def _run_cmdlet(self) -> None:
        self.returned = self.guest.run_cmdlet(self._task.data.decode(), budget=self._budget)

    def _invoke(self) -> None:
        task = self._task
        reply = self.guest.invoke(task.function, task.data, budget=self._budget)
        self.returned = reply.data
        if reply.status:
            text = _refusal(self.guest.name, task.function, reply)
            raise CmdletFailed(text, status=reply.status)

    def _run_command(self) -> None:
        status = self.guest.run_command(budget=self._budget)
        if status:
            raise GuestExit(f"{self.guest.name} exited with status {status}", status=status)


class FleetRunner:
    """
    Does a task with a fleet, stepped as long as one of its guests lives.

    The task is a frame of applets, or a function of numbers. With a `renewal`, guests that were cut
    off in a step are replaced after it, and all guests get seeds.
    """

    def __init__(
        self, fleet: Fleet, task: Task, budget: Budget, renewal: Renewal | None = None
    ) -> None:
        self.result: Any = None
        self.returned = b""
        self.refused = ""
        self._fleet = fleet
        self._task = task
        self._budget = budget
        self._failures: list[GuestError] = []
        self._renewal = renewal
        self._seed: int | None = None

    def initialize(self, seed: int | None = None) -> None:
        """Run the initializers of all guests; guest k takes the seed `seed` + k."""
        if seed is None and self._renewal is not None:
            seed = self._renewal.seed
        self._seed = seed
        if seed is None:
            self._fleet.initialize()
        else:
            for name in seeded_initializers(self._fleet.guests[0].module, self._task.function):
                self._call_all(name, seed)
            if self._renewal is not None:
                for number, guest in enumerate(self._fleet.guests):
                    with suppress(GuestError):
                        self.refused = make_copies(guest, self._renewal.copies, seed + number)
        self._gather_failures()

    def begin_anew(self) -> None:
        """Give the guests their seeds again, after a reload that restarted them."""
        if self._seed is not None and SEED_EXPORT in self._fleet.guests[0].module.functions:
            self._call_all(SEED_EXPORT, self._seed)

    def _call_all(self, name: str, seed: int) -> None:
        """Call an initializer of all guests; failed guests keep their errors."""
        if name != SEED_EXPORT:
            self._fleet.call(name)
            return
        for number, guest in enumerate(self._fleet.guests):
            with suppress(GuestError):
                guest.call(name, seed + number)

    def step(self) -> None:
        """Call the task's function in all guests. Raises FleetFailed if no guest is left."""
        task = self._task
        results = self._fleet.call(task.function, *task.arguments, budget=self._budget)
        if results.failures:
            self._gather_failures()
        first = next(g for g, guest in enumerate(self._fleet.guests) if guest.failure is None)
        self.result = results.values[first]
        self.returned = self._fleet.guests[first].return_slice or b""
        if self._renewal is not None:
            self._renewal.renew(self._fleet)

    def cancel(self) -> None:
        """Let the step in progress raise GuestCancelled. Any thread may call it."""
        self._fleet.guests[0].cancel()  # they share the guard of their calls

    @property
    def statistics(self) -> Statistics:
        """Counts of all guests so far."""
        return self._fleet.statistics

    @property
    def account(self) -> Usage:
        """Time and memory charged to all guests so far."""
        return self._fleet.account

    @property
    def failures(self) -> list[GuestError]:
        """One error for each guest that failed."""
        return self._failures

    @property
    def subject(self) -> Fleet:
        """The fleet that does the task."""
        return self._fleet

    def _gather_failures(self) -> None:
        self._failures = [g.failure for g in self._fleet.guests if g.failure is not None]
        if len(self._failures) == len(self._fleet):
            if len(self._fleet) == 1:
                raise self._failures[0]
            text = failure_summary(self._failures, len(self._fleet))
            raise FleetFailed(text) from self._failures[0]


def failure_summary(failures: Sequence[GuestError], count: int) -> str:
    """Return a sentence about the failed guests, at least one, of a fleet of `count` guests."""
    some = f"{len(failures):,} of {count:,}" if len(failures) < count else f"all {count:,}"
    return f"{some} guests failed, the first: {failures[0]}"


def _refusal(name: str, function: str, reply: Reply) -> str:
    known = {int(code): code.name for code in ErrorCode}
    code = f" ({known[reply.status]})" if reply.status in known else ""
    text = reply.data.decode("utf-8", "replace")
    return f"{name}: {function} answered {reply.status}{code} {text}".rstrip()
