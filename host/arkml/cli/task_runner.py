"""A guest or a fleet that does its task, one step at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from arkml.abi.codes import ErrorCode
from arkml.cli.tasks import Task
from arkml.errors import CmdletFailed, GuestError, GuestExit, UsageError
from arkml.runtime.module.description import ModuleKind

if TYPE_CHECKING:
    from arkml.guests.calls import Reply
    from arkml.guests.counts import Statistics
    from arkml.guests.fleet import Fleet
from arkml.guests.guest import Guest
from arkml.limits import Budget


class FleetFailed(GuestError):
    """No guest of a fleet is left."""


class Player(Protocol):
    """Who does a task; `result` and `returned` are of the last step, of the first guest alive."""

    result: Any
    returned: bytes

    def initialize(self) -> None: ...
    def step(self) -> None: ...
    @property
    def statistics(self) -> Statistics: ...
    @property
    def failures(self) -> list[GuestError]: ...
    @property
    def subject(self) -> Guest | Fleet: ...


class Solo:
    """One guest. What it raises ends the run."""

    def __init__(self, guest: Guest, task: Task, budget: Budget) -> None:
        self.guest = guest
        self.result: Any = None
        self.returned = b""
        self._task = task
        self._budget = budget
        self.step: Callable[[], None] = self._step_of(task.kind)

    def initialize(self) -> None:
        self.guest.initialize()

    @property
    def statistics(self) -> Statistics:
        return self.guest.statistics

    @property
    def failures(self) -> list[GuestError]:
        return []

    @property
    def subject(self) -> Guest:
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
            raise CmdletFailed(_refusal(self.guest.name, task.function, reply), status=reply.status)

    def _run_command(self) -> None:
        status = self.guest.run_command(budget=self._budget)
        if status:
            raise GuestExit(f"{self.guest.name} exited with status {status}", status=status)


class Together:
    """A fleet. It goes on while one of its guests does."""

    def __init__(self, fleet: Fleet, task: Task, budget: Budget) -> None:
        if task.kind not in (ModuleKind.APPLET, ModuleKind.PLAIN):
            raise UsageError(f"--instances is for applets and numbers, not for {task.kind.value}s")
        self.result: Any = None
        self.returned = b""
        self._fleet = fleet
        self._task = task
        self._budget = budget
        self._failures: list[GuestError] = []

    def initialize(self) -> None:
        if self._fleet.initialize():
            self._note()

    def step(self) -> None:
        task = self._task
        results = self._fleet.call(task.function, *task.arguments, budget=self._budget)
        if results.failures:
            self._note()
        first = next(g for g, guest in enumerate(self._fleet.guests) if guest.failure is None)
        self.result = results.values[first]
        self.returned = self._fleet.guests[first].return_slice or b""

    @property
    def statistics(self) -> Statistics:
        return self._fleet.statistics

    @property
    def failures(self) -> list[GuestError]:
        """What the guests failed with that failed, each once."""
        return self._failures

    @property
    def subject(self) -> Fleet:
        return self._fleet

    def _note(self) -> None:
        """Gather the failures; raise FleetFailed if no guest is left."""
        self._failures = [g.failure for g in self._fleet.guests if g.failure is not None]
        if len(self._failures) == len(self._fleet):
            raise FleetFailed(told(self._failures, len(self._fleet))) from self._failures[0]


def told(failures: Sequence[GuestError], count: int) -> str:
    """How many of so many guests failed, and with what the first of them."""
    some = f"{len(failures):,} of {count:,}" if len(failures) < count else f"all {count:,}"
    return f"{some} guests failed, the first: {failures[0]}"


def _refusal(name: str, function: str, reply: Reply) -> str:
    known = {int(code): code.name for code in ErrorCode}
    code = f" ({known[reply.status]})" if reply.status in known else ""
    text = reply.data.decode("utf-8", "replace")
    return f"{name}: {function} answered {reply.status}{code} {text}".rstrip()
