"""
One guest's call, from its start through each suspension to its end.

Theory of operation. A guest runs on a stack of its own, a fiber of wasmtime, so that a call can
stop in the middle of wasm and continue later without a thread. A call in progress is a future:
`_poll` runs it, without Python's global lock, until it either ends or suspends. The futures belong
to the guest's `Lockstep`, which has one place (a slot) for each guest. A `Fiber` begins the call at
its place, polls it, and serves each suspension in between.

Nothing runs on the fiber's stack but wasm and the suspension itself. The shim, to which the guest's
imports of the ABI are linked, writes a `Reason` and its arguments into the guest's control block
and calls the one async import, which suspends. `_poll` then returns to the host's stack. There the
host reads the block, does the work, writes the answer into the block (`answer`, `answer_value`),
and polls again. wasmtime asks its continuation, the word ANSWER, whether the guest may be resumed:
the word is zero until the host has written a code plus one. The shim returns that code to the
guest.

There are six reasons. SUBMIT and SUBMIT_NON_FINITE mean that rows of a session wait for a policy;
`advance` returns them to its caller, who knows policies, while this module does not. FRAME_END
means that the shim's loop of frames is between two frames; for the caller the call has ended, and
the next frame resumes the same future. GROW asks for a larger region of columns. A number from
FIRST_IMPORT on is a host-lane import, answered by a Python handler, one from FIRST_GAME on a
function of the embedder's game. RUNNING, none of these, means that the epoch ticker has ended the
guest's turn. GROW, imports and functions of the game are served here, by `_serve`, and
the guest is resumed at once, unless an import left a `Wait`: a sleep, standard input or a future.
The caller blocks on it, by its own means, and reports its end by `settle`.

Time is charged at each poll: the stretch since `suspended_at` is added to the guest's `used`
seconds, and a stretch of LONG or more is compared with the processor time of the thread first.
`used` is compared with one number, `_alert`, before each poll. The first alert comes at half of the
budget, or ALERT before its end if that is earlier; `look_at_budget` then moves it to shortly before
the end and, beyond that, makes turns one tick long, so that the end of the budget is seen soon. A
guest that is over its budget at the end of a turn is resumed once more with an error, on which it
traps: only a trap has a backtrace.

One call at a time passes the call guard, from `start` to `finish`. In between, `park` opens the
guard while the guest stays suspended in a submit or between turns, and `unpark` shuts it again.
This is how an environment holds a guest between two steps. A guest in a parked submit has the whole
budget again afterwards; a guest parked between turns keeps the rest of its budget. Whatever happens
to a call, `finish` or `drop` deletes its future.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol, TypeAlias

from arkml.abi.codes import ErrorCode
from arkml.errors import (
    AbiError,
    Frame,
    GuestBusy,
    GuestFailed,
    GuestTimeout,
    GuestTrap,
    UsageError,
)
from arkml.runtime import bindings
from arkml.runtime.account import LONG, Account, WorkKind
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.deadline import ALERT, TURN_TICKS
from arkml.runtime.epochs import SUSPENDED
from arkml.runtime.exported_function import ExportedFunction, Number
from arkml.runtime.game_answers import GameAnswers
from arkml.runtime.linker import Handlers, error_code, import_calls
from arkml.runtime.log_levels import KNOWN, MARK, LogLevels
from arkml.runtime.memory import GuestMemory
from arkml.runtime.native import DONE, LEFT_NEWS, SPENT
from arkml.runtime.sandbox import Sandbox
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Reason
from arkml.runtime.single_calls import SingleCalls
from arkml.runtime.traps import backtrace, failure
from arkml.runtime.waits import Wait

_clock = time.perf_counter
_poll = bindings.poll
_LAST_POLLS = 5_000  # of a guest that is to trap; collecting its objects takes some of 17 µs
# Fields of a control block in the words, and in the numbers.
_REASON, _ANSWER, _VALUE, _PAGES = at.REASON >> 2, at.ANSWER >> 2, at.VALUE >> 2, at.PAGES >> 2
_FRAMES, _FRAMES_AHEAD, _TICKS = at.FRAMES >> 2, at.FRAMES_AHEAD >> 2, at.TURN >> 2
_RECORD = at.RECORD >> 2
_TRAP, _ERROR, _DEADLINE = at.TRAP >> 3, at.ERROR >> 3, at.DEADLINE >> 3
_SUBMIT: Final = int(Reason.SUBMIT)
_FRAME_END: Final = int(Reason.FRAME_END)
_FIRST_GAME: Final = int(Reason.FIRST_GAME)


class Pause(Enum):
    """Reasons, other than a wait, for which `advance` returned."""

    SUBMIT = "submit"  # the session of the record in the control block waits for its answer
    SUBMIT_NON_FINITE = "non-finite"  # likewise, and a feature of its rows is not finite
    TURN = "turn"  # the guest has run for a while; resume it when others had their turn


Event: TypeAlias = "Pause | Wait | None"
_SUBMITTED: Final = Pause.SUBMIT


class WaitSource(Protocol):
    """Decides whether a guest has to wait."""

    def after_import(self) -> Wait | None:
        """Return the wait that the import call just answered asks for, or None."""


FiberParts: TypeAlias = tuple[Sandbox, Account, CallGuard, Handlers, WaitSource, str]
"""What a fiber is made of, in the order of its arguments."""


class Fiber:
    """
    The stack on which one guest's calls run; `place` is the guest's slot in the lockstep.

    Args:
        sandbox: The instance of the guest, with its control block and its lockstep.
        account: The account that is charged.
        call_guard: Guard that admits one call at a time.
        handlers: Handlers of imports that Python answers.
        waiting: Asked after each import whether the guest has to wait.
        name: Name of the guest, such as `npc.wasm#3`.

    """

    __slots__ = (  # attributes of a dict are slower from 30 on
        "_alert", "_asked", "_asked_call", "_bytes", "_call_seconds", "_caller", "_frame",
        "_futures", "_handlers", "_is_closed", "_name", "_numbers", "_room", "_sandbox", "_single",
        "_turn", "_used", "_waiting", "_waits_since", "_whole_turn", "_words", "account",
        "block", "call_guard", "game_answers", "is_between_turns", "is_low", "is_parked",
        "lockstep", "place", "suspended_at",
    )  # fmt: skip

    def __init__(
        self,
        sandbox: Sandbox,
        account: Account,
        call_guard: CallGuard,
        handlers: Handlers,
        waiting: WaitSource,
        name: str,
    ) -> None:
        self.account = account
        self.call_guard = call_guard
        self.is_parked = self._is_closed = False
        """
        True while the guest is suspended in a submit or between turns, with the guard open, and
        once it is closed.
        """
        self.is_between_turns = False
        """True while the guest is parked between two turns, and not in a submit."""
        self.suspended_at = 0.0
        """Time of the last look at the clock; `advance` charges the time since then."""
        self.is_low = False
        """True once half of the call's time is used up, and in the first call with new limits."""
        self.game_answers: GameAnswers | None = None
        """What keeps the answers of the game, None for a guest that is not repeated."""
        self.lockstep, self.place = sandbox.lockstep, sandbox.place
        self._futures, self._used = self.lockstep.futures, self.lockstep.used
        self._sandbox = sandbox
        self._handlers = handlers
        self._waiting = waiting
        self._name = sandbox.program.name
        self._caller = name
        self._turn = self._whole_turn = TURN_TICKS
        self._asked: float | None = None
        self._asked_call: float | None = None
        self._call_seconds = math.inf
        self._room = self._alert = math.inf  # seconds of a call, and of all, until a look
        self._waits_since: float | None = None
        arena, control = sandbox.engine.arena, sandbox.control
        self._words, self._bytes = arena.words, arena.bytes
        self.block: int = control >> 2
        """The index of the control block in the words, twice that in the numbers."""
        self._frame = 0  # the number of the frame in the loop whose time is counted
        self._numbers = arena.numbers
        self._single: SingleCalls | None = None

    def start(
        self,
        entry: ExportedFunction,
        arguments: Sequence[Number],
        budget: float | None,
        call_seconds: float | None = None,
    ) -> None:
        """
        Begin a call; no instruction runs before `advance`.

        A guest that is parked at the end of a frame leaves its loop first.

        Args:
            entry: The function.
            arguments: Numbers, one for each parameter.
            budget: Seconds that may be charged to the guest, None for no limit.
            call_seconds: Seconds that the call may take with its waits, None for no limit.

        Raises:
            GuestBusy: A call is in progress; it was not touched.
            GuestFailed: The guest is closed, or its last call was cut off.
            UsageError: The arguments do not fit `entry`.

        """
        self._admit(entry, arguments)
        self.lockstep.begin(self.place, entry.raw or entry.ready())
        if budget is not self._asked or call_seconds is not self._asked_call:
            self._set_limits(budget, call_seconds)
        elif self.is_low or self._turn != self._whole_turn:
            self._refresh()
        else:
            self._frame = self._words[self.block + _FRAMES]
            self._alert = self._used[self.place] + self._room
        self.begin_time()

    def _admit(self, entry: ExportedFunction, arguments: Sequence[Number]) -> None:
        """Let a call through the call guard, and set its arguments. Raises as `start` does."""
        if (failed := self.call_guard.begin(self._name)) is not None:
            self._require_whole(failed)
        if self.is_parked:
            self.call_guard.end()
            if self._is_closed:
                raise GuestFailed(f"{self._name} is closed")
            raise GuestBusy(f"{self._name} waits in a submit for its answer: one call at a time")
        if arguments or entry.params:
            try:
                entry.set_arguments(arguments)
            except UsageError:
                self.call_guard.end()
                raise

    def use_single(self, single: SingleCalls) -> None:
        """Let `run` make calls by the native library, through `single`."""
        self._single = self.account.single = single
        single.set_room(self._room)

    def run(self, entry: ExportedFunction, arguments: Sequence[Number]) -> int:
        """
        Begin a call with the limits of the previous call, and run it in the native library.

        A call must have been made since `use_single`, and have left at least half of its time.

        Returns:
            `native.DONE` if the call has ended, else an outcome, with which `follow` must be
            called.

        Raises:
            GuestBusy, GuestFailed, UsageError: As `start`.

        """
        self._admit(entry, arguments)
        lockstep, place = self.lockstep, self.place
        if self._futures[place]:
            lockstep.drop(place)
            lockstep.left += 1
        lockstep.begun += 1
        self.begin_time()
        address = entry.address or entry.placed()
        outcome: int = self._single.call(address)  # type: ignore[union-attr]
        if outcome == DONE:
            self.call_guard.end()
        return outcome

    def follow(self, outcome: int) -> Event:
        """Continue a call that `run` did not end; returns and raises as `advance` does."""
        assert self._single is not None
        self.suspended_at = _clock()
        self._frame = self._words[self.block + _FRAMES]
        self._alert = self.lockstep.began[self.place] + self._room
        seconds, is_of_model = self._single.stretch()
        if seconds:
            counted = self.account.counted(seconds, may_wait=is_of_model)
            if is_of_model:
                self.account.begin_kinds()
                self.account.model_seconds += counted
            self._used[self.place] += counted
        if outcome == LEFT_NEWS:
            return None
        return self.advance() if outcome == SPENT else self.proceed()

    def begin_time(self) -> float:
        """Begin to charge a call, or its continuation after a submit, and return the time."""
        if MARK not in KNOWN:
            LogLevels.refresh()
        self.suspended_at = now = _clock()
        if now > self.lockstep.stale_at:
            self.lockstep.read_clock(now)
        return now

    def park(self, *, is_between_turns: bool = False) -> None:
        """
        Leave the guest suspended in its submit or between two turns, and release the call guard.

        Raises KeyboardInterrupt if SIGINT came; even then the fiber is parked.
        """
        self.is_parked, self.is_between_turns = True, is_between_turns
        self.call_guard.end()

    def unpark(self) -> None:
        """
        Take the call guard again, to continue a parked call. Raises GuestBusy.

        After a submit the guest has the whole budget of the call, between turns the rest of it.
        """
        if (failed := self.call_guard.begin(self._name)) is not None:
            self._require_whole(failed)
        if self._is_closed:
            self.call_guard.end()
            raise GuestFailed(f"{self._name} is closed")
        self.is_parked = False
        if not self.is_between_turns:
            self._refresh(is_new=True)
        self.is_between_turns = False

    def shorten_turns(self) -> None:
        """Make each turn one tick of the epoch long from now on."""
        self._whole_turn = 1
        self._take_turns(1)

    def set_limits(self, budget: float | None, call_seconds: float | None = None) -> None:
        """
        Set the limits, in seconds, of a call that the lockstep has begun; None sets no limit.

        `budget` limits the time that is charged to the guest, `call_seconds` this time plus the
        waits that the guest asked for.
        """
        if budget is not self._asked or call_seconds is not self._asked_call:
            self._set_limits(budget, call_seconds)
        else:
            self._refresh()

    def advance(self, *, gives_way: bool = False) -> Event:
        """
        Run the guest until its call or frame ends (None), or until its caller must act.

        With `gives_way` it also returns at the end of a turn. Time since `suspended_at` is charged.
        Raises GuestTimeout when the budget is used up and KeyboardInterrupt after SIGINT; `finish`
        must follow.
        """
        words, futures, used, place = self._words, self._futures, self._used, self.place
        while True:
            if used[place] > self._alert:
                self.look_at_budget()
            ended = _poll(futures[place])
            now = _clock()
            ran, self.suspended_at = now - self.suspended_at, now
            used[place] += ran if ran < LONG else self.account.counted(ran)
            if ended:
                return None
            reason = words[self.block + _REASON]
            if reason == _SUBMIT:
                return _SUBMITTED
            if reason == _FRAME_END:
                return None
            event = self._serve(reason)
            if event is not None and (gives_way or event is not Pause.TURN):
                return event

    def proceed(self) -> Event:
        """
        Serve the present suspension, unless it is a submit, and run the guest as `advance` does.
        """
        reason = self._words[self.block + _REASON]
        self.suspended_at = _clock()
        if reason == _SUBMIT:
            return _SUBMITTED
        event = self._serve(reason)
        return self.advance() if event is None or event is Pause.TURN else event

    def answer(self, code: int) -> None:
        """Set the code that the suspended call returns to the guest."""
        self._words[self.block + _ANSWER] = code + 1

    def answered_code(self) -> int:
        """Return the code that was set for the suspended call."""
        return self._words[self.block + _ANSWER] - 1

    def answer_value(self, value: int) -> None:
        """Set the value that the suspended call returns to the guest."""
        self._words[self.block + _VALUE] = value
        self._words[self.block + _ANSWER] = 1

    def call_game(self) -> None:
        """
        Answer the guest's call of a function of the game, and charge the time of it.

        The time is counted from `suspended_at`. Raises GameFunctionFailed.
        """
        words, arguments = self._words, self._sandbox.control + at.ARGUMENTS
        number = words[self.block + _REASON] - _FIRST_GAME
        function = self._sandbox.program.game[number]
        memory, index = self._sandbox.memory, self.lockstep.indices[self.place]
        memory.pages = words[self.block + _PAGES]
        try:
            if self.game_answers is None:
                function.answer(self._caller, index, memory, self._bytes, arguments)
            else:
                caller = self._caller, index
                self.game_answers.answer(number, function, caller, memory, self._bytes, arguments)
        finally:
            ended = _clock()
            took, self.suspended_at = ended - self.suspended_at, ended
            self.account.charge_function(took)
            if took > LONG:
                self._set_alert()  # a part of it may be a wait
        words[self.block + _ANSWER] = 1

    def suspended_memory(self) -> tuple[GuestMemory, int]:
        """Return the memory of the suspended guest, and its size in pages."""
        return self._sandbox.memory, self._words[self.block + _PAGES]

    def settle(self, wait: Wait) -> None:
        """Let the call in which the guest waited return, and charge the guest for the answer."""
        since, self._waits_since = self._waits_since, None
        self.suspended_at = over = _clock()
        if since is not None:
            self.account.add_wait(over - since, is_charged=wait.is_spin)
        if wait.answer is not None:
            self.answer_value(wait.answer())
            self.suspended_at = _clock()
            self.account.charge_import(self.suspended_at - over)
        if since is not None:
            self._set_alert()

    def look_at_wait(self) -> None:
        """Raise GuestTimeout if the guest's wait makes its call exceed the time limit."""
        if self._waits_since is not None and self._call_seconds != math.inf:
            taken = self.account.used + self.account.extra + _clock() - self._waits_since
            if taken >= self._call_seconds:
                raise self._late(taken)

    def check_wait(self) -> None:
        """
        Raise GuestCancelled or KeyboardInterrupt if one is due, or GuestTimeout as `look_at_wait`.
        """
        self.call_guard.check_interrupt()
        self.look_at_wait()

    def timeout(self, text: str) -> GuestTimeout:
        """
        Return the error for a call that took too long.

        A guest that can be resumed is resumed once more to trap, which gives the error a backtrace.
        """
        frames = self._frames_reached()
        return GuestTimeout(f"{text}{backtrace(frames)}", frames=frames)

    def failed(self) -> bool:
        """Return True if the call that just ended left a trap or an error."""
        numbers, block = self._numbers, self.block >> 1
        return numbers[block + _TRAP] != 0 or numbers[block + _ERROR] != 0

    def take_errors(self) -> tuple[bindings.Address, bindings.Address]:
        """Return the addresses of the trap and the error that a call left, and clear both words."""
        numbers = self._numbers
        trap, error = (self.block >> 1) + _TRAP, (self.block >> 1) + _ERROR
        errors = numbers[trap], numbers[error]
        numbers[trap] = numbers[error] = 0
        return errors

    def finish(self) -> None:
        """
        End the call of one guest, whether it succeeded or not.

        Raises KeyboardInterrupt if SIGINT came.
        """
        self.lockstep.drop(self.place)
        self.is_parked = False
        self.call_guard.end()

    def drop(self) -> None:
        """Delete the call in progress, if there is one."""
        self.lockstep.drop(self.place)
        self.is_parked = self._is_closed

    def refuse_calls(self) -> None:
        """
        Refuse all later calls of a guest that is being closed; the caller holds the call guard.
        """
        self._is_closed = self.is_parked = True  # `start` looks once more behind the guard

    def look_at_budget(self) -> None:
        """
        Raise GuestTimeout if the time of the call is used up; near its end make turns short.

        In a loop that runs frames ahead, each frame has the time of a call, counted from the first
        check in it.
        """
        if self._words[self.block + _FRAMES] != self._frame:
            self._refresh(is_new=True)
            return
        account = self.account
        used, taken = account.used, account.used + account.extra
        if used >= account.budget:
            raise self.timeout(
                f"{self._name} ran for {used:.3f} s in one call, over its budget of"
                f" {account.budget:g} s"
            )
        if taken >= self._call_seconds:
            raise self._late(taken)
        self.is_low = True
        self._set_alert()
        if self._used[self.place] > self._alert:
            self._take_turns(1)

    def _require_whole(self, failed: frozenset[int]) -> None:
        """End the call guard and raise GuestFailed if the guest is among these failed ones."""
        if self.place in failed:
            self.call_guard.end()
            raise GuestFailed(
                f"{self._name} failed before: an exception of a signal handler cut its call off"
            )

    def _late(self, taken: float) -> GuestTimeout:
        return self.timeout(
            f"{self._name} took {taken:.3f} s for one call with its waits, over the limit of"
            f" {self._call_seconds:g} s (Limits.call_seconds)"
        )

    def _set_limits(self, budget: float | None, call_seconds: float | None) -> None:
        self._asked, self._asked_call = budget, call_seconds
        self.account.budget = math.inf if budget is None else budget
        self._call_seconds = math.inf if call_seconds is None else call_seconds
        least = min(self.account.budget, self._call_seconds)
        self._room = min(least / 2, least - ALERT)
        if self._single is not None:
            self._single.set_room(self._room)
        self._refresh()
        self.is_low = True

    def _refresh(self, *, is_new: bool = False) -> None:
        """Start the clock of a call or frame: a new one, or one whose `began` is set."""
        if is_new:
            self.lockstep.began[self.place] = self._used[self.place]
            self.account.extra = 0.0
        self.is_low = False
        self._frame = self._words[self.block + _FRAMES]
        self._alert = self.lockstep.began[self.place] + self._room
        if self._turn != self._whole_turn:
            self._take_turns(self._whole_turn)

    def _set_alert(self) -> None:
        """Let `advance` check the time shortly before it is used up."""
        left = min(self.account.budget, self._call_seconds - self.account.extra)
        self._alert = self.lockstep.began[self.place] + left - ALERT

    def _take_turns(self, ticks: int) -> None:
        """Let a turn be `ticks` ticks long."""
        if ticks != self._turn:
            self._turn = self._words[self.block + _TICKS] = ticks
            bindings.set_epoch_deadline(self._sandbox.context, ticks)

    def _frames_reached(self) -> tuple[Frame, ...]:
        """
        End the call of a guest by a trap, and return its backtrace.

        A guest at the end of a turn traps there. One that can be resumed traps at the next function
        or loop that it enters. There is no backtrace of a guest that waits, or that is suspended
        again before.
        """
        words, numbers, deadline = self._words, self._numbers, (self.block >> 1) + _DEADLINE
        future, reason = self._futures[self.place], words[self.block + _REASON]
        if not future or (reason != Reason.RUNNING and not words[self.block + _ANSWER]):
            return ()
        if numbers[deadline] != SUSPENDED:  # else it is at its deadline
            bindings.set_epoch_deadline(self._sandbox.context, 0)
        numbers[deadline] = bindings.new_error(b"the call is given up")
        began = _clock()
        for _ in range(_LAST_POLLS):
            if _poll(future) or words[self.block + _REASON] != Reason.RUNNING:
                break
        self._used[self.place] += _clock() - began
        left, numbers[deadline] = numbers[deadline], 0
        if left > SUSPENDED:
            bindings.delete_error(left)
        trapped = failure(self._name, *self.take_errors(), self._sandbox.program.places)
        return trapped.frames if isinstance(trapped, GuestTrap) else ()

    def _serve(self, reason: int) -> Event:
        """
        Serve a suspension; returns None if the guest may be resumed at once.

        Raises GameFunctionFailed.
        """
        if reason >= _FIRST_GAME:
            self.call_game()
            return None
        if reason >= Reason.FIRST_IMPORT:
            self._import(reason - Reason.FIRST_IMPORT)
            ended = _clock()
            self.account.charge_import(ended - self.suspended_at)
            self.suspended_at = ended
            waiting = self._waiting.after_import()
            if waiting is not None:
                self._waits_since = ended
            return waiting
        if reason == Reason.GROW:
            self._grow()
            ended = _clock()
            self.account.charge(WorkKind.COPIES, ended - self.suspended_at)
            self.suspended_at = ended
            return None
        if reason == Reason.SUBMIT_NON_FINITE:
            return Pause.SUBMIT_NON_FINITE
        self.call_guard.check_interrupt()
        return Pause.TURN

    def _import(self, index: int) -> None:
        call = import_calls()[index]
        if not call.leaves_nothing:
            self.lockstep.touched.add(self.place)
            # The next frame begins without what this one left.
            self._words[self.block + _FRAMES_AHEAD] = 0
        sandbox = self._sandbox
        sandbox.memory.pages = self._words[self.block + _PAGES]
        arguments = sandbox.control + at.ARGUMENTS
        answer = call(sandbox.memory, self._handlers, self._bytes, arguments)
        if self._handlers.refusal:
            self.lockstep.touched.add(self.place)
        if call.is_value:
            self.answer_value(answer)
        else:
            self.answer(answer)

    def _grow(self) -> None:
        words, sandbox = self._words, self._sandbox
        control, region = (
            sandbox.control,
            sandbox.records.regions[self._words[self.block + _RECORD]],
        )
        try:
            region.grow(
                words[(control + at.WANTED_ROWS) >> 2], words[(control + at.WANTED_BYTES) >> 2]
            )
        except AbiError as error:
            self._handlers.count(error)
            sandbox.refusals.note(error)
            self.answer(error_code(error))
        else:
            self.answer(ErrorCode.SUCCESS)
