"""The loop that serves a guest's calls: it joins the wasm of `runtime` and the ML of `sessions`."""

from __future__ import annotations

import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from arkml.abi.codes import ErrorCode
from arkml.base.handler_errors import is_of_handler
from arkml.base.loggers import SafeLogger
from arkml.base.short_reprs import short_repr
from arkml.errors import (
    AbiError,
    EntryPointMissing,
    GuestCancelled,
    GuestError,
    GuestExit,
    GuestTrap,
    InvalidArguments,
    PolicyFailed,
)
from arkml.guests.instance import Instance
from arkml.limits import RUN_SECONDS, Budget, call_limits
from arkml.policies.ort import BoundRun
from arkml.runtime.account import LONG
from arkml.runtime.bindings import Address
from arkml.runtime.columns.region import Region
from arkml.runtime.deadline import TICK
from arkml.runtime.exported_function import ExportedFunction, Number
from arkml.runtime.fiber import Event, Pause
from arkml.runtime.interrupts import Task
from arkml.runtime.linker import error_code
from arkml.runtime.module.startup import COMMAND
from arkml.runtime.native import DONE
from arkml.runtime.row_modules import NativeRun
from arkml.runtime.shim import control_block as at
from arkml.runtime.single_calls import SingleCalls
from arkml.runtime.traps import backtrace, failure
from arkml.runtime.waits import Wait
from arkml.sessions.session import Session

logger = SafeLogger(__name__)

_clock = time.perf_counter
_ALIGNMENT = 8  # bytes, of what `ark_alloc` is asked for
_U32 = 0xFFFF_FFFF
_SHORT_TURN = TICK / 2  # seconds; ticks come by the clock, maybe just after a turn has begun
_SUBMITS = (Pause.SUBMIT, Pause.SUBMIT_NON_FINITE)
_RECORD, _FRAMES_AHEAD, _NOTED = at.RECORD >> 2, at.FRAMES_AHEAD >> 2, at.NOTED >> 2


@dataclass(frozen=True, slots=True)
class Reply:
    """
    Answer of an entry point that takes bytes: its status, and the bytes passed to `return_slice`.
    """

    __repr__ = short_repr

    status: int
    data: bytes


class GaveWay(Exception):
    """
    Raised when a guest has used its turn or waits; `CallLoop.run_to_submit` continues its call.
    """


class CallLoop:
    """
    Serves the calls of one guest from its start to its end, with the submits and waits in between.

    `begin` starts a call, `fiber.advance` runs it, `answer` and the waits serve it, and `end` or
    `abandon` ends it. `call` and `call_async` do this for one guest; a fleet does it for many at
    once.
    """

    __slots__ = (
        "__weakref__", "_call_seconds", "_limits", "_regions", "_run_seconds", "_sandbox",
        "_single", "_touched", "_used", "_waiting", "_words", "account", "block", "control",
        "fiber", "instance", "is_command", "is_initialized", "name", "place", "services",
    )  # fmt: skip

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.name = instance.name
        self.fiber, self.services = instance.fiber, instance.services
        self.control, self.place = instance.control, instance.place
        self.block = instance.fiber.block
        self._touched = instance.lockstep.touched
        self._sandbox = instance.sandbox
        self._regions = instance.regions
        self._words = instance.words
        self._limits = instance.limits
        self._run_seconds, self._call_seconds = self._limits.run_seconds, self._limits.call_seconds
        self.account, self._used = instance.account, instance.lockstep.used
        self._waiting: Wait | None = None  # that a guest gave way in
        self.is_initialized = False
        self.is_command = False  # run as one: `_start` is its task, and its exit that of the guest
        self._single: SingleCalls | None = None  # until its first call alone
        self.fiber.call_guard.callers.add(self)

    @property
    def frames(self) -> int:
        """
        Index, in the u32 words of shared memory, of the count of frames that ended in the loop.
        """
        return self.block + (at.FRAMES >> 2)

    def call(self, function: str, arguments: tuple[Number, ...], budget: Budget) -> Any:
        """Call an exported function and return its result; see `Guest.call`."""
        entry, instance, fiber = self._sandbox.entries.get(function), self.instance, self.fiber
        if (
            entry is None
            or budget is not RUN_SECONDS
            or fiber.is_low
            or self._single is None
            or self.place in self._touched
            or instance.is_closed
            or instance.failure is not None
        ):
            entry = self.begin(function, arguments, budget)
            if self._single is None:
                self._single = self._single_calls()
            return self._run(entry, fiber.advance)
        outcome = fiber.run(entry, arguments)
        if outcome == DONE:
            return entry.result() if entry.results else None
        return self._run(entry, lambda: fiber.follow(outcome))

    def _single_calls(self) -> SingleCalls | None:
        """Have the native library run whole calls from now on; None if each step is Python's."""
        instance = self.instance
        stopped = instance.library.workspace.stopped
        single = instance.lockstep.single(self.place, instance.columns, stopped)
        if single is not None:
            self.fiber.use_single(single)
        return single

    async def call_async(self, function: str, arguments: tuple[Number, ...], budget: Budget) -> Any:
        """Call an exported function while other tasks run; see `Guest.call_async`."""
        own: list[weakref.ref[Task]] = []
        work = self._serve_async(function, arguments, budget, own)
        own.append(weakref.ref(work))
        return await work

    async def _serve_async(
        self,
        function: str,
        arguments: tuple[Number, ...],
        budget: Budget,
        own: list[weakref.ref[Task]],
    ) -> Any:
        """Serve a call; `own` holds a reference to this very coroutine."""
        entry = self.begin(function, arguments, budget)
        turn = _clock()
        try:
            self.fiber.call_guard.belongs_to(own[0])
            self.fiber.shorten_turns()
            while (event := self.fiber.advance(gives_way=True)) is not None:
                if event is Pause.SUBMIT:
                    event = self.answer()
                elif event is Pause.SUBMIT_NON_FINITE:
                    self.count_features()
                    event = self.answer()
                if isinstance(event, Wait):
                    await event.block_async(self.fiber.check_wait)
                    self.fiber.settle(event)
                if event is Pause.TURN or _clock() - turn > TICK:
                    await _give_way()
                    turn = self.fiber.suspended_at = _clock()
        except BaseException as error:
            self.abandon(error)
            raise
        return self.end(entry)

    def begin(
        self,
        function: str,
        arguments: tuple[Number, ...] = (),
        budget: Budget = RUN_SECONDS,
        data: bytes = b"",
    ) -> ExportedFunction:
        """Start a call of an exported function; `data` is its input for `core__get_input_slice`."""
        instance = self.instance
        if (instance.failure is not None or instance.is_closed) and (refusal := instance.refusal()):
            raise refusal
        entry = self._sandbox.entries.get(function)
        if entry is None:
            with self.fiber.call_guard.kept(self.name):
                if instance.is_closed and (refusal := instance.refusal()):
                    raise refusal  # another thread has closed it since the line above
                entry = instance.entry(function)
        if budget is RUN_SECONDS:
            self.fiber.start(entry, arguments, self._run_seconds, self._call_seconds)
        else:
            self.fiber.start(entry, arguments, *call_limits(self._limits, budget))
        if data or self.place in self._touched:  # else there is nothing to forget
            self.forget_call(data)
            (self._touched.add if data else self._touched.discard)(self.place)
        return entry

    def begin_frame(self, function: str) -> ExportedFunction:
        """
        Start a frame of the exported function, in the shim's loop of frames if that can call it.
        """
        instance = self.instance
        if (refusal := instance.refusal()) is not None:
            raise refusal
        loop = self._sandbox.loop(function)
        if loop is None:
            return self.begin(function)
        self._words[self.block + _FRAMES_AHEAD] = 0
        self.fiber.start(loop, (), self._run_seconds, self._call_seconds)
        if self.place in self._touched:
            self.forget_call()
            self._touched.discard(self.place)
        return loop

    def forget_call(self, data: bytes = b"") -> None:
        """Forget the results of the previous call; `data` is the input of the next one."""
        self.account.extra = 0.0
        self.instance.news.forget_call()
        self.instance.forget_printed()
        if self.instance.is_tight:
            self.instance.let_grow()
        self.services.begin_call(data)

    def run_to_submit(
        self,
        entry: ExportedFunction,
        is_driven: Callable[[Session], bool],
        *,
        ahead: int = 0,
        is_suspended: bool = False,
        gives_way: bool = False,
    ) -> Session | None:
        """
        Run a call to the next submit that the caller is to answer, and return its session.

        The guest stays suspended in the submit, parked, and other guests may be called. To resume
        the guest, fill its batch, call `fiber.answer` and then this method; the guest then has a
        new budget.

        Args:
            entry: The function of the call.
            is_driven: Returns True for a session whose submits the caller answers.
            ahead: Frames that the guest may run after the present one, if it is resumed in the loop
                of frames. It stops at the end of a frame in which it calls an import that the host
                answers, or of the present frame if it called one in the loop already: their results
                are forgotten there.
            is_suspended: True if the guest is suspended in a request, which is served first.
            gives_way: True raises GaveWay when the guest has used its turn (10 ms) or waits. Call
                this method again to continue, with the rest of the budget.

        Returns:
            The session, or None when the call, or its frame in a loop, has ended.

        Raises:
            GuestError: The call failed, as in `call`.
            GaveWay: The guest has used its turn or waits.

        """
        fiber = self.fiber
        if self.instance.is_closed and (refusal := self.instance.refusal()):
            raise refusal
        event: Event = self._waiting
        self._waiting = None
        began = fiber.begin_time()
        turn_began = began if gives_way else None
        if fiber.is_parked:
            if not fiber.is_between_turns:
                is_touched = self.place in self._touched
                self._words[self.block + _FRAMES_AHEAD] = 0 if is_touched else ahead
                if is_touched:
                    self.services.pending_polls = 0
            fiber.unpark()
        try:
            if event is None:
                event = fiber.proceed() if is_suspended else fiber.advance(gives_way=gives_way)
            while event is not None:
                if event in _SUBMITS:
                    if event is Pause.SUBMIT_NON_FINITE:
                        self.count_features()
                    if self._words[self.block + _NOTED]:
                        self.instance.news.tell()
                    session = self.submitted()
                    if is_driven(session):
                        fiber.park()  # no call is in progress between two steps (decision 10)
                        return session
                    event = self.answer()
                if event is not None:
                    self._wait(event, turn_began)
                event = fiber.advance(gives_way=gives_way)
        except GaveWay:
            fiber.park(is_between_turns=True)
            raise
        except BaseException as error:
            (self.fail if fiber.is_parked else self.abandon)(error)  # `park` ended the call guard
            raise
        self.end(entry)
        return None

    def submitted(self) -> Session:
        """Return the session whose submit suspended the guest."""
        record = self._words[self.block + _RECORD]
        region = self._regions[record]
        if region.session is None:
            region.session = self.services.sessions.at(record)
        session: Session = region.session
        return session

    def submitted_region(self) -> Region:
        """Return the rows of the submit that suspended the guest. Raises GuestFailed."""
        if self.instance.is_closed and (refusal := self.instance.refusal()):
            raise refusal
        return self._regions[self._words[self.block + _RECORD]]

    def count_features(self) -> None:
        """Count the features that are not finite in the submit that suspended the guest."""
        features = self.submitted().queue.batch().features
        self.instance.non_finite_features += int(np.count_nonzero(~np.isfinite(features)))
        self.instance.warn_once(
            "features", "non-finite features are passed on to the policy as they are"
        )

    def answer(self) -> Wait | None:
        """
        Answer the submit that suspended the guest, by the policy of its session.

        Returns the wait that must end before the guest is resumed. Raises PolicyFailed.
        """
        fiber, session = self.fiber, self.submitted()
        is_low = fiber.is_low
        if is_low:
            self.instance.library.limit_runs(self.account.seconds_left)
        try:
            session.answer()
        except AbiError as error:
            self.refuse(error)
        except PolicyFailed as error:
            raise PolicyFailed(f"{self.name}: {error}") from error.__cause__
        except Exception as error:
            if is_of_handler(error):
                raise
            logger.exception("%s: its policy failed, a bug of the host", self.name)
            self.fiber.answer(ErrorCode.INTERNAL_ERROR)
        else:
            fiber.answer(0)
            if self._single is not None:
                self._learn(session, self._single)
            if (ready := session.held()) is not None:
                return Wait(ready)
        finally:
            now, account = _clock(), self.account
            ran, fiber.suspended_at = now - fiber.suspended_at, now
            account.begin_kinds()
            if session.is_of_guest:
                if ran > LONG:
                    ran = account.counted(ran, may_wait=True)
                account.model_seconds += ran
                self._used[self.place] += ran
            else:
                account.policy_seconds += ran - account.take_noted()
            if is_low:
                self.instance.library.limit_runs(self.account.budget)
        return None

    def _learn(self, session: Session, single: SingleCalls) -> None:
        """Have the native library answer such submits from now on, if one run of a model does."""
        run = session.only_call()
        rows = run.address if isinstance(run, NativeRun) else 0
        bound = run.native if isinstance(run, BoundRun) else 0
        if rows or bound:
            record = self._words[self.block + _RECORD]
            region, is_of_guest = self._regions[record], session.is_of_guest
            single.add(record, region, run, rows=rows, bound=bound, is_of_guest=is_of_guest)

    def refuse(self, error: AbiError) -> None:
        """Let the import call that suspended the guest return the code of `error`."""
        self.instance.news.note(error)
        self.fiber.answer(error_code(error))

    def end(self, entry: ExportedFunction) -> Any:
        """Return the result of a call that ended by itself, or raise the error that it left."""
        if self.fiber.failed() and (error := self.error_of(entry.name)) is not None:
            self.abandon(error)
            raise error
        self.fiber.finish()
        if self._words[self.block + _NOTED]:
            self.instance.news.tell()
        return entry.result() if entry.results else None

    def abandon(self, error: BaseException) -> None:
        """Drop a call that failed or was given up, fail the guest, and release the call guard."""
        try:
            self.fail(error)
        finally:
            self.fiber.call_guard.end()

    @property
    def is_in_call(self) -> bool:
        """True if a call has begun and not ended, and is not parked."""
        if self.instance.is_closed or self.instance.failure is not None or self.fiber.is_parked:
            return False
        return self.instance.lockstep.is_in_frame(self.place)

    def fail(self, error: BaseException) -> None:
        """
        Drop the call and fail the guest, by `error` if that is a GuestError, or by GuestCancelled.
        """
        self.give_up(cancellation(error))
        self.let_go()

    def give_up(self, error: GuestError) -> None:
        """
        Mark the guest as failed, so that it takes no more calls.

        `let_go` drops the call in progress.
        """
        self.fiber.call_guard.lost += 1
        self.instance.failure = error  # first: a guest whose call is dropped is never called again

    def let_go(self) -> None:
        """Drop the call of a guest that has failed, and free everything that only calls need."""
        self.fiber.drop()
        if self._words[self.block + _NOTED] and not self.instance.is_closed:
            self.instance.news.tell()
        self._waiting = None
        self.instance.close_files()
        self.services.close()

    @property
    def is_given_up(self) -> bool:
        """True if the guest has failed in a call that has not been dropped yet."""
        one = self.instance
        return one.failure is not None and not one.is_closed and one.lockstep.is_in_frame(one.place)

    def _run(self, entry: ExportedFunction, first: Callable[[], Event]) -> Any:
        """Serve a call to its end, and return its result; `first` begins to run it."""
        advance = self.fiber.advance
        try:
            event = first()
            while event is not None:
                if event is Pause.SUBMIT:
                    event = self.answer()
                elif event is Pause.SUBMIT_NON_FINITE:
                    self.count_features()
                    event = self.answer()
                if isinstance(event, Wait):
                    self._block(event)
                event = advance()
        except BaseException as error:
            self.abandon(error)
            raise
        return self.end(entry)

    def _wait(self, event: Wait | Pause, turn_began: float | None) -> None:
        """
        Block until a wait is over. Raises KeyboardInterrupt after SIGINT.

        With `turn_began` it never blocks: it raises GaveWay for a wait, and at the end of a turn.
        """
        if not isinstance(event, Wait):
            if turn_began is not None and _clock() - turn_began > _SHORT_TURN:
                raise GaveWay
        elif turn_began is None or event.ready(0.0):
            self._block(event)
        else:
            self.fiber.look_at_wait()
            self._waiting = event
            raise GaveWay

    def _block(self, wait: Wait) -> None:
        """Block until a wait is over. Raises KeyboardInterrupt after SIGINT."""
        wait.block(self.fiber.check_wait)
        self.fiber.settle(wait)

    def error_of(self, function: str) -> GuestError | None:
        """
        Return the error that a call ended with, or None for a `_start` that exited with status 0.

        In some languages, such as Zig, `_start` always exits, and exports are called after it.
        """
        error = self._failure_of(*self.fiber.take_errors())
        startup = self.instance.module.info.startup
        is_start = function == COMMAND and COMMAND in (*startup.functions, startup.deferred)
        has_exited = isinstance(error, GuestExit) and not error.status
        return None if is_start and has_exited and not self.is_command else error

    def _failure_of(self, trap: Address, error_address: Address) -> GuestError:
        """Return the error of a call, with the panic or the refused import that led to it."""
        places = self.instance.module.places
        error = failure(self.name, trap, error_address, places) or GuestTrap(f"{self.name} failed")
        panic = self.services.panic or self.instance.printed_panic()
        if panic is not None and isinstance(error, GuestTrap):
            text = f"{self.name} panicked: {panic}{backtrace(error.frames)}"
            error = GuestTrap(text, code=error.code, panic=panic, frames=error.frames)
        elif panic is not None and isinstance(error, GuestExit) and error.status:
            text = f"{error}; it panicked: {panic}"
            error = GuestExit(text, status=error.status, panic=panic)
        return self.instance.news.explain(error)

    def invoke(self, function: str, data: bytes, budget: Budget) -> Reply:
        """Call a function that takes bytes; see `Guest.invoke`."""
        self._require_bytes(function, data)
        pointer = self._lend(data)
        try:
            entry = self._begin_lent(function, pointer, data, budget)
            status = self._run(entry, self.fiber.advance) or 0
            returned = self.services.returned or b""
        finally:
            if data and self.instance.failure is None:
                self.call("ark_free", (pointer, len(data), _ALIGNMENT), RUN_SECONDS)
        return Reply(status & _U32, returned)

    def begin_bytes(
        self, function: str, data: bytes, budget: Budget = RUN_SECONDS
    ) -> ExportedFunction:
        """
        Start a call of a function that takes bytes, which stay in guest memory until it ends.

        Raises the errors of `invoke`.
        """
        self._require_bytes(function, data)
        return self._begin_lent(function, self._lend(data), data, budget)

    def _begin_lent(
        self, function: str, pointer: int, data: bytes, budget: Budget
    ) -> ExportedFunction:
        return self.begin(function, (pointer, len(data)), budget, data)

    def _require_bytes(self, function: str, data: bytes) -> None:
        module = self.instance.module
        functions = module.functions
        if function not in functions:
            raise self.instance.missing(function)
        if functions[function].params != ("i32", "i32"):
            raise EntryPointMissing(
                f"{function} of {self.name} is {functions[function]}: it does not take bytes"
            )
        if data and not module.info.takes_bytes:
            raise EntryPointMissing(
                f"{self.name} exports no ark_alloc and ark_free, so the {len(data)} bytes for"
                f" {function} have no place in its memory: export both, or give no bytes"
            )

    def _lend(self, data: bytes) -> int:
        """Copy `data` into memory from `ark_alloc`, and return its address; 8 for no bytes."""
        if not data:
            return _ALIGNMENT
        pointer = int(self.call("ark_alloc", (len(data), _ALIGNMENT), RUN_SECONDS)) & _U32
        if pointer == 0:
            raise GuestError(f"{self.name} has no memory for {len(data)} bytes of input")
        try:
            with self.instance.memory() as memory:
                memory.write(pointer, data)
        except InvalidArguments as error:
            raise GuestError(f"{self.name}: ark_alloc gave room outside memory: {error}") from None
        return pointer


def cancellation(error: BaseException) -> GuestError:
    """Return the error to fail guests with when an exception drops their calls."""
    if isinstance(error, GuestError):
        return error
    return GuestCancelled(f"its call was cancelled ({type(error).__name__})")


async def _give_way() -> None:
    """Let other tasks run."""
    import asyncio  # 20 ms at start that only coroutines need

    await asyncio.sleep(0)
