"""Many guests of one module, stepped together, their submits answered by one policy run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

from arkml.closing import Closing
from arkml.errors import ArkmlError, UsageError
from arkml.guests.batching import Batcher
from arkml.guests.calls import DEFAULT_BUDGET
from arkml.guests.counts import Statistics
from arkml.guests.fleet_call import FleetCall, FleetParts
from arkml.guests.guest import Guest, initializers
from arkml.runtime.call_guard import CallGuard
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import Number
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.mappings import require_mappings


class Fleet(Closing):
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
        lockstep: Lockstep,
        make: Callable[[int], Guest],
    ) -> None:
        self.guests = list(guests)
        self.name = guests[0].program.name
        self._limits = guests[0].program.limits
        self._call_guard = call_guard
        self._make = make
        batcher = Batcher(engine.arena, columns)
        self._parts = FleetParts(call_guard, lockstep, batcher)
        self._calls: dict[tuple[str, tuple[int, ...] | None, bool], FleetCall] = {}
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
        return self._run(function, arguments, budget, only)

    def update(self, *, budget: float | None = DEFAULT_BUDGET) -> list[Any]:
        """Run one frame of every guest of an applet."""
        return self._run("ark_applet_update", (), budget, is_frame=True)

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
            with self._call_guard.kept(self.name):
                added.extend(map(self._make, range(first, first + count)))
                self.guests += added
                self._calls.clear()
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

    def _choose(self, only: tuple[int, ...]) -> list[Guest]:
        """Return the guests whose indices are in `only`. Raises UsageError."""
        count = len(self.guests)
        if len(set(only)) < len(only) or not all(0 <= index < count for index in only):
            raise UsageError(f"only={list(only)}: each an index from 0 to {count - 1}, and once")
        return [self.guests[index] for index in only]

    def _run(
        self,
        function: str,
        arguments: tuple[Number, ...],
        budget: float | None,
        only: Iterable[int] | None = None,
        *,
        is_frame: bool = False,
    ) -> list[Any]:
        limit = self._limits.run_seconds if budget == DEFAULT_BUDGET else budget
        self._call_guard.begin(self.name)
        try:
            call = self._call(function, None if only is None else tuple(only), is_frame)
            call.run(arguments, limit)
            return call.results()
        finally:
            self._call_guard.end()

    def _call(self, function: str, only: tuple[int, ...] | None, is_frame: bool) -> FleetCall:
        """Return the call of these guests, kept as long as no guest joins or is lost."""
        if self._lost != self._call_guard.lost:
            self._lost = self._call_guard.lost
            self._calls.clear()
        call = self._calls.get((function, only, is_frame))
        if call is None:
            chosen = self.guests if only is None else self._choose(only)
            if len(self._calls) > 64:
                self._calls.clear()
            call = self._calls[function, only, is_frame] = FleetCall(
                self._parts, chosen, function, is_frame=is_frame
            )
        return call
