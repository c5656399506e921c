"""Guests of one module that are stepped together, with their submits answered by one policy run."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import count, zip_longest
from typing import NamedTuple, SupportsIndex

from arkml.base.closing import Closing, Unique
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import GuestBusy, GuestError, StateRefused, UsageError
from arkml.guests.batching import Batcher
from arkml.guests.counts import Statistics
from arkml.guests.fleet_call import FleetCall, FleetParts, FleetResult
from arkml.guests.guest import (
    SEED_EXPORT,
    Guest,
    calls_of,
    deferred_start,
    initializers,
    is_start,
    load_state,
    require_function,
    save_state,
    seeded_initializers,
    take_start,
)
from arkml.guests.instance import SharedResources
from arkml.guests.shares import FleetShares
from arkml.guests.snapshots import FleetSnapshot, require_same_module
from arkml.limits import (
    RUN_SECONDS,
    Budget,
    call_limits,
    number_of_guests,
    require_seed,
    whole_number,
)
from arkml.runtime.account import Usage
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import Number
from arkml.runtime.interrupts import GUARD


class Fleet(Sealed, Unique, Closing):
    """
    Guests of one module that are stepped together on one thread.

    A call runs in rounds: each guest runs until it submits or ends, then one policy run answers all
    submits of the round. A guest that fails, or does not submit, does not affect the others.

    The guests share one call guard: while the fleet or one of its guests is in a call, another call
    raises GuestBusy, as do `join`, `replace` and `remove` on another thread. `Host.fleet` makes
    fleets.
    """

    _is_read_only = True

    def __init__(
        self,
        guests: Sequence[Guest],
        engine: Engine,
        shared: SharedResources,
        make: Callable[[int], Guest],
        require_room: Callable[[int], None],
    ) -> None:
        labels = {guest: label for label, guest in enumerate(guests)}
        self._members = _Members(tuple(guests), labels, Statistics(), Usage(), {})
        self._coming: weakref.WeakKeyDictionary[Guest, int] = weakref.WeakKeyDictionary()
        """The numbers of guests that are being initialized, and join the fleet afterwards."""
        self._module = guests[0].module
        self.name: str = self._module.name
        self._limits = self._module.limits
        self._call_guard = shared.call_guard
        self._make = make
        self._require_room = require_room
        self._is_closed = False
        self._has_deferred_start = guests[0].info.startup.deferred is not None
        self._parts = FleetParts(
            shared.call_guard,
            shared.lockstep,
            Batcher(engine.arena, shared.columns, shared.lockstep),
            FleetShares(self._limits.frames_over_share),
            set(),
        )
        self._lost = shared.call_guard.lost
        self._number(enumerate(guests))
        if _FRAME.function in self._module.functions:
            with shared.call_guard.kept(self.name):
                self._frame()  # its loops are made before the first frame

    def __len__(self) -> int:
        return len(self.guests)

    def __repr__(self) -> str:
        return f"<Fleet of {len(self)} guests of {self.name}>"

    @property
    def guests(self) -> tuple[Guest, ...]:
        """
        The guests in the order of their indices; a closed guest stays until another replaces it.
        """
        return self._members.guests

    def call(
        self,
        function: str,
        *arguments: Number,
        budget: Budget = RUN_SECONDS,
        only: Iterable[int] | None = None,
    ) -> FleetResult:
        """
        Call an exported function of every guest.

        Args:
            function: Name of the export.
            arguments: Numbers, one for each parameter; all guests get the same.
            budget: Seconds that may be charged to each guest, None for no limit; see `Guest`.
            only: Indices of the guests to call, such as `[0, 2]`; None calls all.

        Returns:
            The results, and the errors of guests that failed.

        Raises:
            EntryPointMissing: The module does not export the function.
            UsageError: The arguments do not fit the function, or an index does not exist or comes
                twice.
            GuestBusy: The fleet or one of its guests is in a call already.
            KeyboardInterrupt: Ctrl-C came; every call was dropped.

        Example:
            result = fleet.call("damage", 25, only=[0, 2])
            print(result.values, result.failures)

        """
        require_function(function)
        wanted = _Wanted(function, None if only is None else _indices(only))
        if self._has_deferred_start:
            self._start_before(function, wanted.only, budget)
        return self._run(lambda: self._call(wanted), arguments, budget)

    def update(self, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """
        Run one frame of every guest and return the errors of failed guests, by index.

        Repeated frames cost less than calls of `call`: a guest stays in one call, parked at the end
        of its frame, before any instruction of the next frame. Ctrl-C drops the guests that are
        inside a frame; the others live. Raises the errors of `call`.
        """
        return self._run(self._frame, (), budget).failures

    def initialize(self, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """
        Run the initializers of every guest, once, and return the errors of failed guests, by index.
        """
        waiting = {i: g for i, g in enumerate(self.guests) if not calls_of(g).is_initialized}
        failures = self._initialize(list(waiting.values()), budget)
        return {index: failures[place] for place, index in enumerate(waiting) if place in failures}

    def join(self, count: int = 1) -> list[Guest]:
        """
        Add `count` new guests, initialized, and return them.

        They take the indices of closed guests first, in order, and then new indices at the end. If
        the initializers of a new guest fail, its error is raised and the fleet stays unchanged.
        Raises UsageError once the fleet is closed.
        """
        self._require_open()
        count = number_of_guests(count, "{} guests to join")
        self._require_room(count)
        vacant = [one for one in self.guests if calls_of(one).instance.is_closed][:count]
        return self._place([*vacant, *[None] * (count - len(vacant))])

    def replace(self, guest: Guest, *, seed: int | None = None) -> Guest:
        """
        Replace a guest of this fleet by a new one, initialized, and close the old one.

        A guest that has failed is closed first. Otherwise it stays in the fleet if the initializers
        of the new guest fail.

        Args:
            guest: A guest of this fleet.
            seed: Any whole number for the export `arkml_seed` of the new guest, if the module has
                it.

        Returns:
            The new guest, at the same index.

        Raises:
            UsageError: The guest is not in this fleet, or the fleet is closed.
            GuestError: An initializer of the new guest failed.

        """
        self._require_open()
        seed = None if seed is None else require_seed(seed)
        self._require_member(guest)
        if guest.failure is not None:
            guest.close()
        return self._place([guest], seed)[0]

    def remove(self, guest: Guest) -> None:
        """
        Close a guest and take it out of the fleet; the guests after it move up by one index.

        Raises UsageError for a guest that is not in this fleet, and GuestBusy while the fleet is in
        a call.
        """
        with self._changing():
            self._require_member(guest)
            self._change({guest: None})

    def snapshot(self) -> FleetSnapshot:
        """
        Return a copy of the whole state of every guest, for `restore`; no code of a guest runs.

        Guests that have failed or are closed are left out. Raises the errors of `Guest.snapshot`.
        """
        with self._changing():
            states = [
                save_state(guest) if calls_of(guest).instance.refusal() is None else None
                for guest in self.guests
            ]
            saved = FleetSnapshot(self._module.digest, self.name, self._module.state.kinds, states)
            for guest, state in zip(self.guests, states, strict=True):
                if state is not None:
                    calls_of(guest).instance.keep(saved, state)
            return saved

    def restore(self, state: FleetSnapshot) -> None:
        """
        Go back to a state of `snapshot`, with as many guests as there were.

        Guests that have failed or were closed since are replaced, guests that are missing join, and
        those that are too many are removed. A guest that had failed is closed. No code of a guest
        runs, but for the initializers of new ones.

        Raises:
            GuestBusy: The fleet is in a call.
            UsageError: The fleet is closed.
            GuestError: An initializer of a new guest failed.
            StateRefused: The state is of another module, over the limits, or has a session of a run
                that a guest has not. Nothing has changed, unless a guest ran into a limit while it
                got its state: then that guest has failed.

        """
        if not isinstance(state, FleetSnapshot):
            raise UsageError(f"state is {cut_repr(state)}: it takes the result of Fleet.snapshot")
        require_same_module(state, self._module)
        self._require_open()
        with self._changing():
            self._require_loadable(state)
        for guest in self.guests[len(state) :]:
            self.remove(guest)
        while len(self) < len(state):  # those that join take the places of closed ones first
            self.join(len(state) - len(self))
        for guest, each in zip(self.guests, state.states, strict=True):
            if each is not None and calls_of(guest).instance.refusal() is not None:
                self.replace(guest)
        with self._changing():
            self._load(state)

    def _require_loadable(self, state: FleetSnapshot) -> None:
        """Raise StateRefused for a state that a guest, or one that joins, cannot have."""
        for guest, each in zip_longest(self.guests[: len(state)], state.states):
            if each is None:
                continue
            if guest is not None and calls_of(guest).instance.refusal() is None:
                calls_of(guest).instance.require_loadable(each)
            elif each.services.has_runs:
                raise StateRefused(
                    f"{self.name} lacks a guest that takes part in a run, as one of the state does:"
                    " restore the fleet before such a guest fails or leaves"
                )

    def _load(self, state: FleetSnapshot) -> None:
        """Let each guest have its state. Raises the first error once all others have theirs."""
        errors = []
        for guest, each in zip(self.guests, state.states, strict=True):
            if each is None:
                calls_of(guest).instance.free()
                continue
            try:
                load_state(guest, each)
            except StateRefused as error:
                errors.append(error)
        if errors:
            raise errors[0]

    @property
    def statistics(self) -> Statistics:
        """Counts of all guests together, including guests that left the fleet."""
        members = self._members
        return sum((guest.statistics for guest in members.guests), members.past)

    @property
    def account(self) -> Usage:
        """
        Time and memory charged to all guests together, by kind.

        The times include guests that left the fleet.
        """
        members = self._members
        return sum((guest.account for guest in members.guests), members.past_usage)

    def close(self) -> None:
        """Close every guest. Raises GuestBusy while the fleet is in a call. Safe to call twice."""
        if self._is_closed:
            return
        with self._changing():
            for guest in self.guests:
                calls_of(guest).instance.free()
            self._is_closed = True  # last: what cuts it off before leaves it to be closed again

    @contextmanager
    def _changing(self) -> Iterator[None]:
        """Let no call begin while guests join or leave. Raises GuestBusy."""
        with GUARD.held_back(), self._call_guard.kept(self.name):
            yield

    def _require_open(self) -> None:
        if self._is_closed:
            raise UsageError(f"{self!r} is closed: make another one by Host.fleet")

    def _require_member(self, guest: Guest) -> None:
        """Raise UsageError for a guest of another fleet, or of none."""
        if not isinstance(guest, Guest) or guest not in self._members.labels:
            raise UsageError(
                f"{cut_repr(guest)} is not in {self!r}: it takes one of its guests, as"
                " fleet.guests[0]"
            )

    def _start_before(self, function: str, only: tuple[int, ...] | None, budget: Budget) -> None:
        """Start guests that are commands as well, before the first call of another function."""
        start = deferred_start(self._module, function)
        if start is None and not is_start(self._module, function):
            return
        guests = self.guests if only is None else self._choose(only)
        waiting = [calls_of(guest) for guest in guests if take_start(guest)]
        if start is not None and waiting:
            self._run(partial(FleetCall, self._parts, waiting, start), (), budget)

    def _place(self, formers: Sequence[Guest | None], seed: int | None = None) -> list[Guest]:
        """
        Put new guests, initialized, in the places of `formers`, or at the end for None.

        Raises the errors of `join`, but does not check `Limits.instances`, as the caller has.
        """
        added: list[Guest] = []
        try:
            with self._call_guard.kept(self.name):
                labels = self._free_labels(formers)
                added.extend(map(self._make, labels))
                self._coming.update(zip(added, labels, strict=True))
                self._number(zip(self._indices_of(formers), added, strict=True))
            raise_first(self._initialize(added, RUN_SECONDS, seed))
            with self._changing():
                self._require_there(formers)
                pairs = list(zip(formers, added, strict=True))
                self._change(
                    {former: guest for former, guest in pairs if former is not None},
                    [guest for former, guest in pairs if former is None],
                )
        except BaseException:
            for guest in added:
                if guest not in self._members.labels:
                    guest.close()
            raise
        finally:
            for guest in added:
                self._coming.pop(guest, None)
        return added

    def _indices_of(self, formers: Sequence[Guest | None]) -> Iterator[int]:
        """Yield the indices of guests that come after `formers`, or at the end for None."""
        indices = {guest: index for index, guest in enumerate(self.guests)}
        ends = count(len(indices))
        return (next(ends) if former is None else indices[former] for former in formers)

    def _number(self, guests: Iterable[tuple[int, Guest]]) -> None:
        """Let functions of the game know guests by their indices."""
        indices = self._parts.lockstep.indices
        for index, guest in guests:
            indices[calls_of(guest).place] = index

    def _free_labels(self, formers: Sequence[Guest | None]) -> list[int]:
        """
        Return the numbers in the names of new guests, such as 3 for `npc.wasm#3`.

        A guest takes the number of its predecessor, else an unused one. Raises GuestBusy as
        `_require_there` does.
        """
        self._require_there(formers)
        labels = self._members.labels
        taken = {*labels.values(), *self._coming.values()}
        others = (label for label in count() if label not in taken)
        return [next(others) if one is None else labels[one] for one in formers]

    def _require_there(self, formers: Sequence[Guest | None]) -> None:
        """Raise GuestBusy if a former guest has left, UsageError once the fleet is closed."""
        self._require_open()
        if any(one is not None and one not in self._members.labels for one in formers):
            raise GuestBusy(f"another thread has changed {self.name} meanwhile")

    def _change(self, leaving: Mapping[Guest, Guest | None], more: Sequence[Guest] = ()) -> None:
        """
        Free the guests `leaving`, put their successors in their places, and add `more` at the end.

        If a signal handler raises, all of the change is made or none of it; without the change the
        fleet keeps guests that are closed.
        """
        before = self._members
        for guest in leaving:
            calls = calls_of(guest)
            self._parts.told.discard(calls)
            self._parts.shares.forget(calls.place)
            calls.instance.free()
        stay = [leaving.get(guest, guest) for guest in before.guests]
        guests = (*(guest for guest in stay if guest is not None), *more)
        labels = {**before.labels, **self._coming}
        # One assignment, so that a signal handler that raises finds the old or the new members.
        self._members = _Members(
            guests,
            {guest: labels[guest] for guest in guests},
            sum((guest.statistics for guest in leaving), before.past),
            sum((guest.account for guest in leaving), before.past_usage),
            {},
        )
        self._number(enumerate(guests))

    def _initialize(
        self, guests: Sequence[Guest], budget: Budget, seed: int | None = None
    ) -> dict[int, GuestError]:
        failures: dict[int, GuestError] = {}
        chosen = [calls_of(guest) for guest in guests]
        names = initializers(self._module)
        if seed is not None:
            names = seeded_initializers(self._module, _FRAME.function)
        for name in names:
            call = partial(FleetCall, self._parts, chosen, name)
            arguments = (seed,) if seed is not None and name == SEED_EXPORT else ()
            now = self._run(call, arguments, budget).failures
            failures = {**now, **failures}  # the first error of a guest, not that it failed before
        for place, calls in enumerate(chosen):
            calls.is_initialized = place not in failures
        return failures

    def _choose(self, only: tuple[int, ...]) -> list[Guest]:
        """Return the guests whose indices are in `only`. Raises UsageError."""
        guests = self.guests
        count = len(guests)
        if len(set(only)) < len(only) or not all(0 <= index < count for index in only):
            raise UsageError(
                f"only={cut_repr(list(only))}: each an index from 0 to {count - 1}, and once"
            )
        return [guests[index] for index in only]

    def _run(
        self, found: Callable[[], FleetCall], arguments: tuple[Number, ...], budget: Budget
    ) -> FleetResult:
        seconds, call_seconds = call_limits(self._limits, budget)
        self._call_guard.begin(self.name)
        try:
            call = found()
            call.run(arguments, seconds, call_seconds)
            return call.result()
        finally:
            self._call_guard.end()

    def _frame(self) -> FleetCall:
        return self._call(_FRAME)

    def _call(self, wanted: _Wanted) -> FleetCall:
        """Return a call of these guests, reused until a guest joins or is lost."""
        members = self._members
        calls = members.calls
        if self._lost != (lost := self._call_guard.lost):
            calls.clear()
            self._lost = lost  # last: a signal handler may raise before
        call = calls.get(wanted)
        if call is None:
            chosen = members.guests if wanted.only is None else self._choose(wanted.only)
            if len(calls) > 64:
                calls.clear()
            guests = [calls_of(guest) for guest in chosen]
            call = calls[wanted] = FleetCall(
                self._parts, guests, wanted.function, is_frame=wanted.is_frame
            )
        return call


class _Members(NamedTuple):
    """
    The guests of a fleet, with their numbers, counts and kept calls.

    A change replaces it in one step, so that a signal handler that raises finds the old or the new
    one.
    """

    guests: tuple[Guest, ...]
    labels: Mapping[Guest, int]
    """The numbers in their names, such as 3 for `npc.wasm#3`."""
    past: Statistics
    """Counts of guests that left."""
    past_usage: Usage
    calls: dict[_Wanted, FleetCall]
    """Calls of these guests, kept for the next ones."""


class _Wanted(NamedTuple):
    """
    A kind of call: a function, the indices of its guests (None for all), and whether it is a frame.
    """

    function: str
    only: tuple[int, ...] | None = None
    is_frame: bool = False


_FRAME = _Wanted("ark_applet_update", is_frame=True)


def _indices(only: Iterable[SupportsIndex]) -> tuple[int, ...]:
    """
    Return indices as a tuple.

    Raises UsageError for anything other than an iterable of whole numbers.
    """
    try:
        indices = tuple(map(whole_number, only))
    except TypeError:  # of what holds nothing
        indices = (None,)
    found = tuple(index for index in indices if index is not None)
    if len(found) < len(indices):
        raise UsageError(f"only={cut_repr(only)}: it takes indices of guests, as in [0, 2]")
    return found


def raise_first(failures: Mapping[int, GuestError]) -> None:
    """Raise the first of these errors, if there are any."""
    for error in failures.values():
        raise error
