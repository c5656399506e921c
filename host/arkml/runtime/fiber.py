"""One guest's call, from its start through each suspension to its end."""

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
_FRAME_END: Final = int(Reason.FRAME_END)


class Pause(Enum):
    """Reasons for which `advance` returned, where nothing is waited for."""

    SUBMIT = "submit"  # the session of record `Fiber.record` waits for its answer
    SUBMIT_NON_FINITE = "non-finite"  # likewise, and a feature of its rows is not finite
    TURN = "turn"  # the guest has run for a while; resume it when others had their turn


Event: TypeAlias = "Pause | Wait | None"
_SUBMITTED: Final = Pause.SUBMIT


class Fiber:
    """
    The fiber of one guest, whose call is at `place` of a lockstep.

    `call_guard` lets one call at a time through, `handlers` answer host-lane imports, and `wait`
    is asked after each import for what the guest has to wait for.
    """

    def __init__(
        self,
        sandbox: Sandbox,
        call_guard: CallGuard,
        handlers: Handlers,
        wait: Callable[[], Wait | None],
    ) -> None:
        self.call_guard = call_guard
        self.is_parked = False
        """True while the guest waits in a submit for an answer from outside, the guard open."""
        self.lockstep, self.place = sandbox.lockstep, sandbox.place
        self._futures, self._used = self.lockstep.futures, self.lockstep.used
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
        self._numbers = arena.numbers
        self._trap = (control + at.TRAP) >> 3
        self._error = (control + at.ERROR) >> 3

    @property
    def record(self) -> int:
        """Index of the session record that the guest submitted."""
        return self._words[self._record]

    def start(
        self, entry: ExportedFunction, arguments: Sequence[Number], budget: float | None
    ) -> None:
        """
        Begin a call; nothing runs before `advance`.

        A guest that is parked at the end of a frame is let out of its loop first. Raises GuestBusy,
        before anything is touched, if a call is in progress, and UsageError for arguments that
        `entry` does not take.
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
        self.set_budget(budget)
        self.lockstep.begin(self.place, entry.raw)

    def park(self) -> None:
        """
        Leave the guest suspended in its submit and end the call guard.

        Raises KeyboardInterrupt if SIGINT came; the fiber is parked then too.
        """
        self.is_parked = True
        self.call_guard.end()

    def unpark(self) -> None:
        """Begin the call guard again, with the whole budget of the call. Raises GuestBusy."""
        self.call_guard.begin(self._name)
        self.is_parked = False
        self.allow(self._asked)

    def allow(self, budget: float | None) -> None:
        """Let the guest run for `budget` seconds from now on, None for no limit."""
        self._used[self.place] = 0.0
        self.set_budget(budget)

    def set_budget(self, budget: float | None) -> None:
        """Set the budget, in seconds, that the time which the guest ran is compared with."""
        if budget is not self._asked:
            self._asked = budget
            self._budget = math.inf if budget is None else budget
            self._alert = self._budget - ALERT
        if self._turn != TURN_TICKS:
            self._take_turns(TURN_TICKS)

    def advance(self, *, cooperative: bool = False) -> Event:
        """
        Run the guest until its call or frame ends (None), or until something has to be done.

        With `cooperative` a guest that has run for a tick gives way. Raises GuestTimeout when the
        budget is used up and KeyboardInterrupt after SIGINT; `finish` must follow.
        """
        words, futures, used, place = self._words, self._futures, self._used, self.place
        if cooperative:
            self._take_turns(1)
        while True:
            if used[place] > self._alert:
                self.look_at_budget()
            started = _clock()
            ended = _poll(futures[place])
            used[place] += _clock() - started
            if ended:
                return None
            reason = words[self._reason]
            if reason == _SUBMIT:
                return _SUBMITTED
            if reason == _FRAME_END:
                return None
            event = self._serve(reason)
            if event is not None and (cooperative or event is not Pause.TURN):
                return event

    def proceed(self) -> Event:
        """Serve what the guest is suspended in, unless it is a submit, and run it as `advance`."""
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

    def settle(self, wait: Wait) -> None:
        """Let the call return that the guest waited in: the wait is over."""
        if wait.answer is not None:
            self.answer_value(wait.answer())
        if wait.spun_since is not None and self._budget != math.inf:
            self._used[self.place] += _clock() - wait.spun_since

    def failed(self) -> bool:
        """Return True if the call that just ended left a trap or an error."""
        return self._numbers[self._trap] != 0 or self._numbers[self._error] != 0

    def take_errors(self) -> tuple[bindings.Address, bindings.Address]:
        """Return the addresses of the trap and the error that a call left, and forget them."""
        numbers = self._numbers
        errors = numbers[self._trap], numbers[self._error]
        numbers[self._trap] = numbers[self._error] = 0
        return errors

    def finish(self) -> None:
        """
        End the call, whatever became of it: the one way out of a call of one guest.

        Raises KeyboardInterrupt if SIGINT came.
        """
        self.lockstep.drop(self.place)
        self.is_parked = False
        self.call_guard.end()

    def drop(self) -> None:
        """Delete the call in progress, if there is one."""
        self.lockstep.drop(self.place)
        self.is_parked = False

    def look_at_budget(self) -> None:
        """Raise GuestTimeout if the budget is used up, or make the turns short."""
        used = self._used[self.place]
        if used >= self._budget:
            raise GuestTimeout(
                f"{self._name} ran for {used:.3f} s in one call, over its budget of"
                f" {self._budget:g} s"
            )
        self._take_turns(1)

    def _take_turns(self, ticks: int) -> None:
        """
        Let a turn be `ticks` ticks long.

        A guest that is suspended at the end of a turn still gets one more of the old length:
        wasmtime arms it when it resumes.
        """
        if ticks != self._turn:
            self._turn = ticks
            bindings.yield_at_deadline(self._sandbox.context, ticks)
            bindings.set_epoch_deadline(self._sandbox.context, ticks)

    def _serve(self, reason: int) -> Event:
        """Serve a suspension; returns None if the guest may be resumed at once."""
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
        self.lockstep.touched.add(self.place)
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
