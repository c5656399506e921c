"""The loop that serves a guest's calls: it joins the wasm of `runtime` and the ML of `sessions`."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Any

from arkml.abi.codes import ErrorCode
from arkml.errors import (
    AbiError,
    GuestCancelled,
    GuestError,
    GuestTrap,
)
from arkml.guests.instance import Instance
from arkml.runtime.bindings import Address
from arkml.runtime.deadline import TICK
from arkml.runtime.exported_function import ExportedFunction, Number
from arkml.runtime.fiber import Pause
from arkml.runtime.linker import error_code
from arkml.runtime.traps import backtrace, failure
from arkml.runtime.waits import Wait
from arkml.sessions.session import Session

logger = logging.getLogger(__name__)

DEFAULT_BUDGET = -1.0  # seconds; stands for Limits.run_seconds


class CallLoop(Instance):
    """
    An instance whose calls are served.

    `begin` starts a call, `fiber.advance` runs it, `answer` and the waits serve it, and `end` or
    `abandon` ends it. `call` and `call_async` are that loop for one guest; a fleet runs it for
    many.
    """

    def call(self, function: str, *arguments: Number, budget: float | None = DEFAULT_BUDGET) -> Any:
        """
        Call an exported function and return its result.

        Integers come back signed, several results as a tuple. `budget` is how many seconds the
        guest may run, without policies and suspension; None is no limit, the default is
        `Limits.run_seconds`. Raises GuestBusy, GuestFailed, EntryPointMissing, UsageError,
        GuestTrap, GuestTimeout, GuestExit, and KeyboardInterrupt after Ctrl-C.
        """
        return self._run(self.begin(function, arguments, budget))

    async def call_async(
        self, function: str, *arguments: Number, budget: float | None = DEFAULT_BUDGET
    ) -> Any:
        """Like `call`, but other tasks run while the guest waits, and after each 10 ms it ran."""
        entry = self.begin(function, arguments, budget)
        turn = time.perf_counter()
        try:
            while (event := self.fiber.advance(cooperative=True)) is not None:
                if event is Pause.SUBMIT:
                    event = self.answer()
                elif event is Pause.SUBMIT_NON_FINITE:
                    self.count_features()
                    event = self.answer()
                if isinstance(event, Wait):
                    await event.block_async(self.fiber.call_guard)
                    self.fiber.settle(event)
                if event is Pause.TURN or time.perf_counter() - turn > TICK:
                    await _give_way()
                    turn = time.perf_counter()
        except BaseException as error:
            self.abandon(error)
            raise
        return self.end(entry)

    def begin(
        self,
        function: str,
        arguments: tuple[Number, ...] = (),
        budget: float | None = DEFAULT_BUDGET,
        data: bytes = b"",
    ) -> ExportedFunction:
        """Start a call; `data` is its input for `core__get_input_slice`."""
        if (self.failure is not None or self._closed) and (refusal := self.refusal()):
            raise refusal
        entry = self._entries.get(function)
        if entry is None:
            with self.fiber.call_guard.kept(self.name):
                entry = self.entry(function)
        limit = self._limits.run_seconds if budget == DEFAULT_BUDGET else budget
        self.fiber.start(entry, arguments, limit)
        if data or self.place in self._touched:  # else there is nothing to forget
            self.services.begin_call(data)
            (self._touched.add if data else self._touched.discard)(self.place)
        return entry

    def run_to_submit(
        self,
        entry: ExportedFunction,
        is_driven: Callable[[Session], bool],
        *,
        is_suspended: bool = False,
    ) -> Session | None:
        """
        Run a call up to the next submit of a driven session, and return that session.

        The guest stays suspended in the submit, parked: other guests may be called, and this one
        goes on when its batch is filled, `fiber.answer` was called, and then this method again,
        with a whole budget. One that `is_suspended` in something that nobody looked at is served
        that first. Returns None when the call has ended. Raises as `call` does.
        """
        fiber = self.fiber
        if self._closed and (refusal := self.refusal()):
            raise refusal
        if fiber.is_parked:
            self.services.pending_polls = 0
            fiber.unpark()
        try:
            event = fiber.proceed() if is_suspended else fiber.advance()
            while event is not None:
                if isinstance(event, Wait):
                    self._block(event)
                else:
                    if event is Pause.SUBMIT_NON_FINITE:
                        self.count_features()
                    session = self.submitted()
                    if is_driven(session):
                        fiber.park()
                        return session
                    if (waiting := self.answer()) is not None:
                        self._block(waiting)
                event = fiber.advance()
        except BaseException as error:
            (self.fail if fiber.is_parked else self.abandon)(error)
            raise
        self.end(entry)
        return None

    def answer(self) -> Wait | None:
        """
        Answer the submit that the guest is suspended in, by the policy of its session.

        Returns what the guest waits for before it goes on.
        """
        session = self.submitted()
        try:
            session.answer()
        except AbiError as error:
            self.refuse(error)
        except Exception:
            logger.exception("%s: its policy failed, a bug of the host", self.name)
            self.fiber.answer(ErrorCode.INTERNAL_ERROR)
        else:
            self.fiber.answer(0)
            if (ready := session.held()) is not None:
                return Wait(ready)
        return None

    def refuse(self, error: AbiError) -> None:
        """Let the import call that the guest is suspended in return the code of `error`."""
        self.services.log.say(logging.WARNING, str(error))
        self.fiber.answer(error_code(error))

    def end(self, entry: ExportedFunction) -> Any:
        """Return the result of a call that ended, or raise the error that it left."""
        if self.fiber.failed():
            error = self.failure_of(*self.fiber.take_errors())
            self.abandon(error)
            raise error
        self.fiber.finish()
        if self._arena.words[self._bad_actions_word]:
            self._tell_actions()
        return entry.result() if entry.results else None

    def abandon(self, error: BaseException) -> None:
        """Drop a call that failed or is not wanted any more, as `fail`, and end the call guard."""
        try:
            self.fail(error)
        finally:
            self.fiber.call_guard.end()

    def fail(self, error: BaseException) -> None:
        """Drop the call; the guest is failed from now on, with `error` or as cancelled by it."""
        self.fiber.drop()
        self.fiber.call_guard.lost += 1
        if isinstance(error, GuestError):
            self.failure = error
        else:
            self.failure = GuestCancelled(
                f"{self.name}: its call was cancelled ({type(error).__name__})"
            )
        self.services.close()

    def cancel(self) -> None:
        """Let the call in progress raise GuestCancelled when it next gives way. From any thread."""
        self.fiber.call_guard.cancel()

    def _run(self, entry: ExportedFunction) -> Any:
        advance = self.fiber.advance
        try:
            while (event := advance()) is not None:
                if event is Pause.SUBMIT:
                    event = self.answer()
                elif event is Pause.SUBMIT_NON_FINITE:
                    self.count_features()
                    event = self.answer()
                if isinstance(event, Wait):
                    self._block(event)
        except BaseException as error:
            self.abandon(error)
            raise
        return self.end(entry)

    def _block(self, wait: Wait) -> None:
        """Block until a wait is over. Raises KeyboardInterrupt after SIGINT."""
        wait.block(self.fiber.call_guard)
        self.fiber.settle(wait)

    def failure_of(self, trap: Address, error_address: Address) -> GuestError:
        """The error of a call that left a trap or an error, with the panic that went before it."""
        error = failure(self.name, trap, error_address) or GuestTrap(f"{self.name} failed")
        panic = self.services.panic
        if panic is not None and isinstance(error, GuestTrap):
            text = f"{self.name} panicked: {panic}{backtrace(error.frames)}"
            return GuestTrap(text, code=error.code, panic=panic, frames=error.frames)
        return error


async def _give_way() -> None:
    """Let other tasks run."""
    import asyncio  # 20 ms at start that only coroutines need

    await asyncio.sleep(0)
