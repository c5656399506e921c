"""Many guests of one module, stepped together, their submits answered by one policy run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from types import TracebackType
from typing import Any, Self

from arkml.errors import ArkmlError, GuestError, GuestFailed, UsageError
from arkml.guest import INITIALISERS, Guest
from arkml.rounds import Rounds
from arkml.runtime.columns import Columns
from arkml.runtime.engine import Engine
from arkml.runtime.entry import Entry, Number
from arkml.runtime.fiber import Fiber, Pause
from arkml.runtime.normalise import START_NAME
from arkml.runtime.waits import Wait
from arkml.serving import DEFAULT_BUDGET, ServedGuest
from arkml.statistics import Statistics

_PAUSE = 0.001  # seconds, when every guest that is left waits for something

Run = tuple[int, Guest, Fiber, Entry]


class Fleet:
    """
    Guests of one module in one thread.

    A call runs in rounds: each guest runs until it submits or ends, then one policy run answers
    all that submitted. A guest that fails, or does not submit, changes nothing for the others.
    `guests` may be called one by one too, while the fleet is not in a call.
    """

    def __init__(
        self, guests: Sequence[Guest], engine: Engine, columns: Columns, make: Callable[[int], Guest]
    ) -> None:
        self.guests = list(guests)
        self._make = make
        self._rounds = Rounds(engine.arena, columns)

    def __len__(self) -> int:
        return len(self.guests)

    def call(
        self,
        function: str,
        *arguments: Number,
        budget: float | None = DEFAULT_BUDGET,
        only: Iterable[int] | None = None,
    ) -> list[Any]:
        """
        Call an exported function of every guest, or of those whose indices are in `only`.

        Returns what each call returned, in order; for a guest that failed, now or before, the
        GuestError. Raises what concerns all: EntryPointMissing, UsageError, GuestBusy, and
        KeyboardInterrupt after Ctrl-C, with every call dropped.
        """
        guests = self.guests if only is None else [self.guests[index] for index in only]
        results: list[Any] = [None] * len(guests)
        running: list[Run] = []
        try:
            for position, guest in enumerate(guests):
                if guest.failure is not None:
                    results[position] = _earlier(guest)
                    continue
                entry = guest.begin(function, arguments, budget)
                running.append((position, guest, guest.fiber, entry))
            self._serve(running, results)
        except BaseException as error:
            for _, guest, fiber, _ in running:
                if fiber.is_busy() and guest.failure is None:
                    guest.abandon(error)
            raise
        return results

    def update(self, *, budget: float | None = DEFAULT_BUDGET) -> list[Any]:
        """Run one frame of every guest of an applet."""
        return self.call("ark_applet_update", budget=budget)

    def initialise(self, *, budget: float | None = DEFAULT_BUDGET) -> list[Any]:
        """Run the start function of every guest and what else it wants to be called first."""
        return self._initialise(range(len(self.guests)), budget)

    def join(self, count: int = 1) -> list[Guest]:
        """Add new guests, initialised, and return them."""
        if count < 1:
            raise UsageError(f"{count} guests to join: 1 at least")
        first = len(self.guests)
        added = [self._make(first + index) for index in range(count)]
        self.guests += added
        self._initialise(range(first, first + count), DEFAULT_BUDGET)
        return added

    @property
    def statistics(self) -> Statistics:
        """What all guests did so far."""
        return sum((guest.statistics for guest in self.guests), Statistics())

    def close(self) -> None:
        """Close every guest."""
        for guest in self.guests:
            guest.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _initialise(self, indices: range, budget: float | None) -> list[Any]:
        program = self.guests[0].program
        names = [name for name in INITIALISERS if name in program.functions]
        results: list[Any] = [None] * len(indices)
        for name in [START_NAME, *names] if program.has_start else names:
            outcomes = self.call(name, budget=budget, only=indices)
            results = [
                before if isinstance(before, ArkmlError) else outcome
                for before, outcome in zip(results, outcomes, strict=True)
            ]
        return results

    def _serve(self, running: list[Run], results: list[Any]) -> None:
        submit = Pause.SUBMIT
        waiting: list[tuple[Run, Wait]] = []
        while running or waiting:
            submitted: list[Run] = []
            for run in running:
                position, guest, fiber, entry = run
                try:
                    event = fiber.advance()
                    if event is submit:
                        submitted.append(run)
                    elif event is None:
                        results[position] = guest.end(entry)
                    elif isinstance(event, Wait):
                        waiting.append((run, event))
                    else:
                        guest.count_features()
                        submitted.append(run)
                except GuestError as error:
                    if guest.failure is None:
                        guest.abandon(error)
                    results[position] = error
            if submitted:
                self._rounds.answer([run[1] for run in submitted])
            running = submitted
            if waiting:
                waiting, ready = _look(waiting, patient=not submitted)
                running = submitted + ready


def _look(
    waiting: list[tuple[Run, Wait]], *, patient: bool
) -> tuple[list[tuple[Run, Wait]], list[Run]]:
    """Those that still wait, and those that may go on; with `patient` after a moment."""
    left: list[tuple[Run, Wait]] = []
    ready: list[Run] = []
    for run, wait in waiting:
        if wait.ready(0.0):
            run[1].waited(wait)
            ready.append(run)
        else:
            left.append((run, wait))
    if patient and not ready:
        time.sleep(_PAUSE)
        left[0][0][2].check_interrupt()
    return left, ready


def _earlier(guest: ServedGuest) -> GuestFailed:
    return GuestFailed(f"{guest.name} failed before: {guest.failure}")
