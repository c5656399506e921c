"""Many guests of one module, stepped together, their submits answered by one policy run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

from arkml.closing import Closing, Unique
from arkml.errors import GuestError, UsageError
from arkml.guests.batching import Batcher
from arkml.guests.counts import Statistics
from arkml.guests.fleet_call import FleetCall, FleetParts, FleetResult
from arkml.guests.guest import Guest, calls_of, initializers
from arkml.guests.instance import SharedResources
from arkml.guests.shares import FleetShares
from arkml.limits import RUN_SECONDS, Budget, call_limits
from arkml.runtime.account import Usage
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import Number
from arkml.runtime.mappings import require_mappings


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
        shared: SharedResources,
        make: Callable[[int], Guest],
    ) -> None:
        self.guests: list[Guest] = list(guests)
        self.name: str = guests[0].module.name
        self._limits = guests[0].module.limits
        self._call_guard = shared.call_guard
        self._make = make
        self._parts = FleetParts(
            shared.call_guard,
            shared.lockstep,
            Batcher(engine.arena, shared.columns, shared.lockstep),
            FleetShares(self._limits.frames_over_share),
        )
        self._calls: dict[_Wanted, FleetCall] = {}
        self._lost = shared.call_guard.lost

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
        wanted = _Wanted(function, None if only is None else tuple(only))
        return self._run(wanted, arguments, budget)

    def update(self, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """
        Run one frame of every guest and return the errors of failed guests, by index.

        Frame after frame this is cheaper than `call`: a guest stays in one call, parked at the end
        of its frame, where nothing of the next one has run. Ctrl-C drops the guests that are inside
        of a frame; the others live. Raises what `call` raises.
        """
        return self._run(_FRAME, (), budget).failures

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
            with self._call_guard.kept(self.name):
                added.extend(map(self._make, range(first, first + count)))
                self.guests += added
                self._calls.clear()
            raise_first(self._initialize(range(first, first + count), RUN_SECONDS))
        except BaseException:
            self._remove(added)
            raise
        return added

    @property
    def statistics(self) -> Statistics:
        """Counts of all guests together, since they were loaded."""
        return sum((guest.statistics for guest in self.guests), Statistics())

    @property
    def account(self) -> Usage:
        """Time and memory that the guests are charged with, of all together and by kind."""
        return sum((guest.account for guest in self.guests), Usage())

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
        self._calls.clear()

    def _choose(self, only: tuple[int, ...]) -> list[Guest]:
        """Return the guests whose indices are in `only`. Raises UsageError."""
        count = len(self.guests)
        if len(set(only)) < len(only) or not all(0 <= index < count for index in only):
            raise UsageError(f"only={list(only)}: each an index from 0 to {count - 1}, and once")
        return [self.guests[index] for index in only]

    def _run(self, wanted: _Wanted, arguments: tuple[Number, ...], budget: Budget) -> FleetResult:
        seconds, call_seconds = call_limits(self._limits, budget)
        self._call_guard.begin(self.name)
        try:
            call = self._call(wanted)
            call.run(arguments, seconds, call_seconds)
            return call.result()
        finally:
            self._call_guard.end()

    def _call(self, wanted: _Wanted) -> FleetCall:
        """Return a call of these guests, kept as long as no guest joins or is lost."""
        if self._lost != self._call_guard.lost:
            self._lost = self._call_guard.lost
            self._calls.clear()
        call = self._calls.get(wanted)
        if call is None:
            chosen = self.guests if wanted.only is None else self._choose(wanted.only)
            if len(self._calls) > 64:
                self._calls.clear()
            guests = [calls_of(guest) for guest in chosen]
            call = self._calls[wanted] = FleetCall(
                self._parts, guests, wanted.function, is_frame=wanted.is_frame
            )
        return call


class _Wanted(NamedTuple):
    """Kinds of calls: a function of guests by their indices, None for all; or frames of it."""

    function: str
    only: tuple[int, ...] | None = None
    is_frame: bool = False


_FRAME = _Wanted("ark_applet_update", is_frame=True)


def raise_first(failures: Mapping[int, GuestError]) -> None:
    """Raise the first of these errors, if there are any."""
    for error in failures.values():
        raise error
