"""Many guests of one module, stepped together, their submits answered by one policy run."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkml.closing import Closing, Unique
from arkml.errors import GuestError, UsageError
from arkml.guests.batching import Batcher
from arkml.guests.blocking import settle
from arkml.guests.calls import CallLoop
from arkml.guests.counts import Statistics
from arkml.guests.guest import Guest, calls_of, initializers
from arkml.limits import RUN_SECONDS, Budget, budget_seconds
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


@dataclass(frozen=True, slots=True)
class FleetResult:
    """
    Results of one call of many guests.

    `values` are those that the calls returned, in the order of the guests, None where a call
    failed or returns nothing. `failures` are the errors of guests that failed, in this call or
    before, by their place in `values`.
    """

    values: list[Any]
    failures: dict[int, GuestError] = field(default_factory=dict)


class Fleet(Unique, Closing):
    """
    Guests of one module in one thread.

    A call runs in rounds: each guest runs until it submits or ends, then one policy run answers
    all that submitted. A guest that fails, or does not submit, changes nothing for the others.
    The guests share one call guard: while the fleet, or one of them, is in a call, another call
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
        self.name: str = guests[0].module.name
        self._limits = guests[0].module.limits
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
        budget: Budget = RUN_SECONDS,
        only: Iterable[int] | None = None,
    ) -> FleetResult:
        """
        Call an exported function of every guest, or of those whose indices are in `only`.

        Raises what concerns all: EntryPointMissing, UsageError, GuestBusy, and KeyboardInterrupt
        after Ctrl-C, with every call dropped.
        """
        limit = self._limits.run_seconds if budget is RUN_SECONDS else budget_seconds(budget)
        self._flight.begin(self.name)
        try:
            crew = self._crew(function, None if only is None else tuple(only))
            if crew.guests:
                crew.start(arguments, limit)
                crew.run(self._rounds)
            return crew.results()
        finally:
            self._flight.end()

    def update(self, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """Run one frame of every guest and return the errors of failed guests, by index."""
        return self.call("ark_applet_update", budget=budget).failures

    def initialize(self, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """Run the initializers of every guest and return the errors of failed ones, by index."""
        return self._initialize(range(len(self.guests)), budget)

    def join(self, count: int = 1) -> list[Guest]:
        """
        Add new guests, initialized, and return them.

        Raises the error of one whose initializers fail; the fleet is as before then.
        """
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
            raise_first(self._initialize(range(first, first + count), RUN_SECONDS))
        except BaseException:
            self._remove(added)
            raise
        return added

    @property
    def statistics(self) -> Statistics:
        """Counts of all guests together, since they were loaded."""
        return sum((guest.statistics for guest in self.guests), Statistics())

    def close(self) -> None:
        """Close every guest."""
        for guest in self.guests:
            guest.close()

    def _initialize(self, indices: range, budget: Budget) -> dict[int, GuestError]:
        failures: dict[int, GuestError] = {}
        for name in initializers(self.guests[0].module):
            now = self.call(name, budget=budget, only=indices).failures
            failures = {**now, **failures}  # the first error of a guest, not that it failed before
        return {indices[place]: error for place, error in failures.items()}

    def _remove(self, guests: Sequence[Guest]) -> None:
        for guest in guests:
            guest.close()
        self.guests = [guest for guest in self.guests if guest not in guests]
        self._crews.clear()

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


def raise_first(failures: Mapping[int, GuestError]) -> None:
    """Raise the first of these errors, if there are any."""
    for error in failures.values():
        raise error


class _Participants:
    """The guests of one kind of call: those that can still be called, and what to say of others."""

    def __init__(self, arena: Any, function: str, chosen: Sequence[Guest]) -> None:
        self.guests: list[CallLoop] = []
        self._places: list[int] = []
        self._lost: dict[int, GuestError] = {}
        entries = []
        for place, guest in enumerate(map(calls_of, chosen)):
            if refusal := guest.instance.refusal():
                self._lost[place] = refusal
                continue
            entries.append(guest.instance.entry(function))
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

    def results(self) -> FleetResult:
        """Return the values of the calls, and the errors of those that failed."""
        values = self._steps.results() if self._steps is not None else []
        if not (self._failed or self._lost):
            return FleetResult(values)
        for position in self._failed:
            values[position] = None
        failures = {self._places[position]: error for position, error in self._failed.items()}
        if self._lost:
            by_place: list[Any] = [None] * self._count
            for place, value in zip(self._places, values, strict=True):
                by_place[place] = value
            values, failures = by_place, failures | self._lost
        return FleetResult(values, dict(sorted(failures.items())))

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
