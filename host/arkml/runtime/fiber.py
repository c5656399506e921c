"""One call into a guest: started, resumed until it ends or wants something, dropped."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Final, TypeAlias

from arkml.abi.codes import ErrorCode
from arkml.errors import AbiError, GuestBusy, GuestTimeout, UsageError
from arkml.runtime import bindings
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.deadline import ALERT, TURN_TICKS
from arkml.runtime.exported_function import ExportedFunction, Number
from arkml.runtime.linker import Handlers, error_code, import_calls
from arkml.runtime.sandbox import Sandbox
from arkml.runtime.shim import control as at
from arkml.runtime.shim.control import Reason
from arkml.runtime.waits import Wait

_clock = time.perf_counter
_poll = bindings.poll
_SUBMIT: Final = int(Reason.SUBMIT)


class Pause(Enum):
    """Why `advance` came back, where nothing is waited for."""

    SUBMIT = "submit"  # the session of record `Fiber.record` waits for its answer
    SUBMIT_NON_FINITE = "non-finite"  # the same, and a feature of its rows is not finite
    TURN = "turn"  # the guest has run for a while; resume it when others had their turn


Event: TypeAlias = "Pause | Wait | None"
_SUBMITTED: Final = Pause.SUBMIT


class Fiber:
    """
    The fiber of one guest. `call_guard` lets one call at a time through.

    `handlers` answer host-lane imports; `wait` is asked after each import whether the guest has
    to wait for something.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        call_guard: CallGuard,
        handlers: Handlers,
        wait: Callable[[], Wait | None],
    ) -> None:
        self.call_guard = call_guard
        self.used = 0.0
        """Seconds the guest ran in this call."""
        self.imports = 0
        """Host-lane imports that were answered since whoever looks at this set it to zero."""
        self.store = sandbox.store
        """Holds the call in progress."""
        self.is_parked = False
        """Whether the call waits in a submit for somebody outside, with no call in progress."""
        self._sandbox = sandbox
        self._handlers = handlers
        self._wait = wait
        self._name = sandbox.program.name
        self._turn = TURN_TICKS
        self._asked: float | None = None
        self._budget = self._alert = math.inf
        arena, control = sandbox.engine.arena, sandbox.control
        self._words, self._bytes = arena.words, arena.bytes
        self._reason = (control + at.REASON) >> 2
        self._answer = (control + at.ANSWER) >> 2
        self._value = (control + at.VALUE) >> 2
        self._record = (control + at.RECORD) >> 2

    @property
    def record(self) -> int:
        """Index of the session record that the guest submitted."""
        return self._words[self._record]

    def start(
        self, entry: ExportedFunction, arguments: Sequence[Number], budget: float | None
    ) -> None:
        """
        Begin a call; nothing runs before `advance`.

        Raises GuestBusy, before anything is touched, if a call is in progress, and UsageError for
        arguments that `entry` does not take.
        """
        self.call_guard.begin(self._name)
        if self.is_parked:
            self.call_guard.end()
            raise GuestBusy(f"{self._name} waits in a submit for its answer: one call at a time")
        if arguments or entry.params:
            try:
                entry.set_arguments(arguments)
            except UsageError:
                self.call_guard.end()
                raise
        self.allow(budget)
        self.store.future = bindings.call_async(*entry.raw)

    def park(self) -> None:
        """
        Leave the guest suspended in its submit and land.

        Raises KeyboardInterrupt if SIGINT came; the fiber is parked then too.
        """
        self.is_parked = True
        self.call_guard.end()

    def unpark(self) -> None:
        """Take off again, with the whole budget of the call. Raises GuestBusy."""
        self.call_guard.begin(self._name)
        self.is_parked = False
        self.allow(self._asked)

    def allow(self, budget: float | None) -> None:
        """Nothing of the budget of this call is used yet."""
        self.used = 0.0
        if budget is not self._asked:
            self._asked = budget
            self._budget = math.inf if budget is None else budget
            self._alert = self._budget - ALERT
        if self._turn != TURN_TICKS:
            self._take_turns(TURN_TICKS)

    def advance(self, *, cooperative: bool = False) -> Event:
        """
        Run the guest until its call ends (None), or until somebody has to do something.

        With `cooperative` a guest that has run for a tick gives way. Raises GuestTimeout when the
        budget is used up and KeyboardInterrupt after SIGINT; `finish` must follow.
        """
        words, store = self._words, self.store
        if cooperative:
            self._take_turns(1)
        while True:
            if self.used > self._alert:
                self.look_at_budget()
            started = _clock()
            ended = _poll(store.future)
            self.used += _clock() - started
            if ended:
                return None
            reason = words[self._reason]
            if reason == _SUBMIT:
                return _SUBMITTED
            event = self._serve(reason)
            if event is not None and (cooperative or event is not Pause.TURN):
                return event

    def proceed(self) -> Event:
        """Deal with what the guest is suspended for, if it is no submit, and go on as `advance`."""
        reason = self._words[self._reason]
        if reason == _SUBMIT:
            return _SUBMITTED
        event = self._serve(reason)
        return self.advance() if event is None or event is Pause.TURN else event

    def answer(self, code: int) -> None:
        """Set the code that the call returns which the guest is suspended in."""
        self._words[self._answer] = code + 1

    def answer_value(self, value: int) -> None:
        """Set the value that the call returns which the guest is suspended in."""
        self._words[self._value] = value
        self._words[self._answer] = 1

    def charge(self, seconds: float) -> None:
        """Count time that the guest spent spinning as time that it ran."""
        if self._budget != math.inf:
            self.used += seconds

    def finish(self) -> None:
        """
        End the call, whatever became of it: the one way out of a call of one guest.

        The future goes first, then the shim's state: what it was suspended in is over.
        """
        self.drop()
        self.call_guard.end()

    def drop(self) -> None:
        """Forget the call in progress, if there is one."""
        self.store.drop_call()
        self.is_parked = False
        self._words[self._reason] = 0

    def look_at_budget(self) -> None:
        """The budget is nearly or wholly used: raise, or make the turns short."""
        if self.used >= self._budget:
            raise GuestTimeout(
                f"{self._name} ran for {self.used:.3f} s in one call, over its budget of"
                f" {self._budget:g} s"
            )
        self._take_turns(1)

    def _take_turns(self, ticks: int) -> None:
        """
        Let a turn be so many ticks long.

        A guest that is suspended at the end of a turn still gets one more of the old length:
        wasmtime arms it when it resumes.
        """
        if ticks != self._turn:
            self._turn = ticks
            bindings.yield_at_deadline(self._sandbox.context, ticks)
            bindings.set_epoch_deadline(self._sandbox.context_address, ticks)

    def _serve(self, reason: int) -> Event:
        """Deal with a suspension; None if the guest may go on at once."""
        if reason >= Reason.FIRST_IMPORT:
            self._import(reason - Reason.FIRST_IMPORT)
            return self._wait()
        if reason == Reason.GROW:
            self._grow()
            return None
        if reason == Reason.SUBMIT_NON_FINITE:
            return Pause.SUBMIT_NON_FINITE
        self.call_guard.check_interrupt()
        return Pause.TURN

    def _import(self, index: int) -> None:
        self.imports += 1
        sandbox = self._sandbox
        sandbox.memory.pages = self._words[(sandbox.control + at.PAGES) >> 2]
        call = import_calls()[index]
        arguments = sandbox.control + at.ARGUMENTS
        answer = call(sandbox.memory, self._handlers, self._bytes, arguments)
        if call.is_value:
            self.answer_value(answer)
        else:
            self.answer(answer)

    def _grow(self) -> None:
        words, control = self._words, self._sandbox.control
        region = self._sandbox.regions[self.record]
        try:
            region.grow(
                words[(control + at.WANTED_ROWS) >> 2], words[(control + at.WANTED_BYTES) >> 2]
            )
        except AbiError as error:
            self._handlers.note(error)
            self.answer(error_code(error))
        else:
            self.answer(ErrorCode.SUCCESS)
