"""Many guests of one module, stepped together, their submits answered by one policy run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from arkml.closing import Closing, Unique
from arkml.errors import ArkmlError, GuestError, UsageError
from arkml.guests.batching import Batcher
from arkml.guests.blocking import settle
from arkml.guests.calls import DEFAULT_BUDGET
from arkml.guests.counts import Statistics
from arkml.guests.guest import Guest, initializers
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import Number
from arkml.runtime.fiber import Event, Pause
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.mappings import require_mappings
from arkml.runtime.waits import Wait

_PAUSE = 0.001  # seconds, when every guest that is left waits for something
_PATIENCE = 0.02  # seconds between two looks at SIGINT, when a learner's pace holds all up


class Fleet(Unique, Closing):
    """
    Guests of one module in one thread.

    A call runs in rounds: each guest runs until it submits or ends, then one policy run answers
    all that submitted. A guest that fails, or does not submit, changes nothing for the others.
    The guests share one call_guard: while the fleet, or one of them, is in a call, another call
    raises GuestBusy.
    """

    def __init__(
        self,
        guests: Sequence[Guest],
        engine: Engine,
        columns: Columns,
        call_guard: CallGuard,
        make: Callable[[int], Guest],
    ) -> None:
        self.guests: list[Guest] = list(guests)
        self.name: str = guests[0].program.name
        self._limits = guests[0].program.limits
        self._arena = engine.arena
        self._flight = call_guard
        self._make = make
        self._rounds = Batcher(engine.arena, columns)
        self._crews: dict[tuple[str, tuple[int, ...] | None], _Participants] = {}
        self._lost = call_guard.lost

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
        limit = self._limits.run_seconds if budget == DEFAULT_BUDGET else budget
        self._flight.begin(self.name)
        try:
            crew = self._crew(function, None if only is None else tuple(only))
            if crew.guests:
                crew.start(arguments, limit)
                crew.run(self._rounds)
            return crew.results()
        finally:
            self._flight.end()

    def update(self, *, budget: float | None = DEFAULT_BUDGET) -> list[Any]:
        """Run one frame of every guest of an applet."""
        return self.call("ark_applet_update", budget=budget)

    def initialize(self, *, budget: float | None = DEFAULT_BUDGET) -> list[Any]:
        """Run the start function of every guest and what else it wants to be called first."""
        return self._initialize(range(len(self.guests)), budget)

    def join(self, count: int = 1) -> list[Guest]:
        """Add new guests, initialized, and return them."""
        if count < 1:
            raise UsageError(f"{count} guests to join: 1 at least")
        first = len(self.guests)
        require_mappings(count)
        added: list[Guest] = []
        try:
            with self._flight.kept(self.name):
                added.extend(map(self._make, range(first, first + count)))
                self.guests += added
                self._crews.clear()
        except BaseException:
            for guest in added:
                guest.close()
            raise
        self._initialize(range(first, first + count), DEFAULT_BUDGET)
        return added

    @property
    def statistics(self) -> Statistics:
        """What all guests did so far."""
        return sum((guest.statistics for guest in self.guests), Statistics())

    def close(self) -> None:
        """Close every guest."""
        for guest in self.guests:
            guest.close()

    def _initialize(self, indices: range, budget: float | None) -> list[Any]:
        results: list[Any] = [None] * len(indices)
        for name in initializers(self.guests[0].program):
            outcomes = self.call(name, budget=budget, only=indices)
            results = [
                before if isinstance(before, ArkmlError) else outcome
                for before, outcome in zip(results, outcomes, strict=True)
            ]
        return results

    def _chosen(self, only: tuple[int, ...]) -> list[Guest]:
        count = len(self.guests)
        if len(set(only)) < len(only) or not all(0 <= index < count for index in only):
            raise UsageError(f"only={list(only)}: each an index from 0 to {count - 1}, and once")
        return [self.guests[index] for index in only]

    def _crew(self, function: str, only: tuple[int, ...] | None) -> _Participants:
        """Those who take part in a call, worked out once while nobody joins or is lost."""
        if self._lost != self._flight.lost:
            self._lost = self._flight.lost
            self._crews.clear()
        found = self._crews.get((function, only))
        if found is None:
            chosen = self.guests if only is None else self._chosen(only)
            if len(self._crews) > 64:
                self._crews.clear()
            found = self._crews[function, only] = _Participants(self._arena, function, chosen)
        return found


class _Participants:
    """The guests of one kind of call: those that can still be called, and what to say of others."""

    def __init__(self, arena: Any, function: str, chosen: Sequence[Guest]) -> None:
        self.guests: list[Guest] = []
        self._places: list[int] = []
        self._lost: dict[int, GuestError] = {}
        entries = []
        for place, guest in enumerate(chosen):
            if refusal := guest.refusal():
                self._lost[place] = refusal
                continue
            entries.append(guest.entry(function))
            self.guests.append(guest)
            self._places.append(place)
        self._count = len(chosen)
        self._failed: dict[int, GuestError] = {}
        controls = [guest.control for guest in self.guests]
        self._steps = Lockstep(arena, entries, controls) if entries else None
        self._touched = list(self.guests)

    def start(self, arguments: Sequence[Number], budget: float | None) -> None:
        """Begin the calls."""
        assert self._steps is not None
        self._failed = {}
        self._steps.start(arguments, budget)
        self._budget = budget
        for guest in self._touched:
            guest.services.begin_call()
        self._touched = []

    def run(self, rounds: Batcher) -> None:
        """Serve the calls until all have ended."""
        running: Sequence[int] = range(len(self.guests))
        waiting: list[tuple[int, Wait]] = []
        steps = self._steps
        assert steps is not None
        try:
            while running or waiting:
                turn = steps.advance(running)
                submitted = turn.submitted
                self._end(turn.ended)
                for position in turn.other:
                    self._serve(position, submitted, waiting)
                if turn.other:
                    submitted.sort()  # regions side by side are read as one view
                if submitted:
                    guests = self.guests
                    errors = rounds.answer([guests[position] for position in submitted])
                    if errors:
                        for place, error in errors.items():
                            self._abandon(submitted[place], error)
                        submitted = [p for i, p in enumerate(submitted) if i not in errors]
                    for admitted in rounds.held():
                        while not admitted(_PATIENCE):
                            guests[submitted[0]].fiber.call_guard.check_interrupt()
                running = submitted
                if waiting:
                    waiting, ready = self._look(waiting, patient=not submitted)
                    running = sorted(submitted + ready)
        except BaseException as error:
            for position, future in enumerate(steps.futures):
                if future:
                    self._abandon(position, error)
            raise

    def results(self) -> list[Any]:
        """What the calls returned, and the errors of those that did not."""
        found = self._steps.results() if self._steps is not None else []
        for position, error in self._failed.items():
            found[position] = error
        if not self._lost:
            return found
        results: list[Any] = [None] * self._count
        for place, error in self._lost.items():
            results[place] = error
        for place, value in zip(self._places, found, strict=True):
            results[place] = value
        return results

    def _serve(self, position: int, submitted: list[int], waiting: list[tuple[int, Wait]]) -> None:
        """A guest wants something that is no plain submit: let its own fiber deal with it."""
        steps, guest = self._steps, self.guests[position]
        assert steps is not None
        fiber = guest.fiber
        fiber.allow(self._budget)
        fiber.store.future, fiber.used = steps.futures[position], steps.used[position]
        self._touched.append(guest)
        try:
            if fiber.used > steps.alert:
                fiber.look_at_budget()
            event: Event = fiber.proceed()
            steps.used[position] = fiber.used
        except GuestError as error:
            self._abandon(position, error)
            return
        fiber.store.future = 0
        if event is None:
            self._end([position])
        elif isinstance(event, Wait):
            waiting.append((position, event))
        else:
            if event is Pause.SUBMIT_NON_FINITE:
                guest.count_features()
            submitted.append(position)

    def _end(self, positions: Sequence[int]) -> None:
        steps = self._steps
        assert steps is not None
        for position in steps.forget(positions):
            guest = self.guests[position]
            self._abandon(position, guest.failure_of(*steps.take_errors(position)))

    def _abandon(self, position: int, error: BaseException) -> None:
        steps, guest = self._steps, self.guests[position]
        assert steps is not None
        guest.fiber.store.future = steps.futures[position]
        steps.futures[position] = 0
        guest.abandon(error, landed=True)
        if isinstance(error, GuestError):
            self._failed[position] = error

    def _look(
        self, waiting: list[tuple[int, Wait]], *, patient: bool
    ) -> tuple[list[tuple[int, Wait]], list[int]]:
        """Those that still wait, and those that may go on; with `patient` after a moment."""
        steps = self._steps
        assert steps is not None
        left: list[tuple[int, Wait]] = []
        ready: list[int] = []
        for position, wait in waiting:
            if wait.ready(0.0):
                fiber = self.guests[position].fiber
                settle(wait, fiber)
                steps.used[position] = fiber.used
                ready.append(position)
            else:
                left.append((position, wait))
        if patient and not ready:
            time.sleep(_PAUSE)
            self.guests[left[0][0]].fiber.call_guard.check_interrupt()
        return left, ready
