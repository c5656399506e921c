"""Guests of one module that are stepped together, with their submits answered by one policy run."""

from __future__ import annotations

import os
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from functools import partial
from heapq import nlargest
from itertools import count
from operator import attrgetter
from typing import NamedTuple, SupportsIndex

import numpy.typing as npt

from arkml.base.closing import Closing, Unique
from arkml.base.collector import collector_paused
from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import GuestBusy, GuestError, GuestMemoryFull, StateRefused, UsageError
from arkml.guests.batching import Batcher
from arkml.guests.counts import Statistics
from arkml.guests.fleet_call import FleetCall, FleetParts, FleetResult
from arkml.guests.fleet_memory import Array, FleetMemory, Shape, Target
from arkml.guests.fleet_states import FleetStates
from arkml.guests.guest import (
    SEED_EXPORT,
    Guest,
    calls_of,
    deferred_start,
    end_trials,
    initializers,
    is_on_trial,
    is_start,
    require_function,
    require_unviewed,
    seeded_initializers,
    take_start,
    try_reload,
    undo_reloads,
)
from arkml.guests.instance import SharedResources
from arkml.guests.policy_changes import PolicyChanges
from arkml.guests.reloading import Reloaded, way_of
from arkml.guests.shares import FleetShares
from arkml.guests.snapshots import FleetSnapshot, GuestSnapshot, require_same_module
from arkml.guests.state_columns import StateColumns
from arkml.limits import (
    RUN_SECONDS,
    Budget,
    call_limits,
    number_of_guests,
    require_flag,
    require_seed,
    require_whole,
    start_budget,
    whole_number,
)
from arkml.policies.given import PolicyFunction
from arkml.policies.policy import Policy
from arkml.policies.sources import policy_source
from arkml.runtime.account import Usage
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.engine import Engine
from arkml.runtime.exported_function import Numbers
from arkml.runtime.interrupts import GUARD
from arkml.runtime.memory import BytesLike

log = SafeLogger(__name__)

_LOOK = 0.01  # seconds between two looks whether a frame that was canceled has ended


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
        make: Callable[[int, CompiledModule], Guest],
        require_room: Callable[[int], None],
        policies: PolicyChanges,
    ) -> None:
        labels = {guest: label for label, guest in enumerate(guests)}
        self._members = _Members(tuple(guests), labels, Statistics(), Usage(), {})
        self._coming: dict[int, weakref.ref[Guest]] = {}
        """Guests that are being initialized, and join afterwards, by the numbers in their names."""
        self._module = guests[0].module
        self.name: str = self._module.name
        self._limits = self._module.limits
        self._usual = call_limits(self._limits, RUN_SECONDS)
        self._call_guard = shared.call_guard
        self._make = make
        self._require_room = require_room
        self._policies, self._library = policies, shared.library
        self._is_closed = False
        self._before: CompiledModule | None = None
        """The module before a reload, in the first calls after it."""
        self._has_deferred_start = guests[0].info.startup.deferred is not None
        self._parts = FleetParts(
            shared.call_guard,
            shared.lockstep,
            Batcher(engine.arena, shared.columns, shared.lockstep),
            FleetShares(self._limits.frames_over_share),
            set(),
            {},
        )
        self._lost = shared.call_guard.lost
        self._number(enumerate(guests))
        self._memory = FleetMemory(self._module)
        self._states = FleetStates(shared)
        if _FRAME.function in self._module.functions:
            with shared.call_guard.kept(self.name):
                self._call(_FRAME)  # its loops are made before the first frame

    def __len__(self) -> int:
        return len(self.guests)

    def __repr__(self) -> str:
        return f"<Fleet of {len(self)} guests of {self.name}>"

    @property
    def guests(self) -> tuple[Guest, ...]:
        """
        The guests in the order of their indices; a closed guest stays until a new one replaces it.
        """
        return self._members.guests

    def call(
        self,
        function: str,
        *arguments: Numbers,
        budget: Budget = RUN_SECONDS,
        only: Iterable[int] | None = None,
    ) -> FleetResult:
        """
        Call an exported function of every guest.

        Args:
            function: Name of the export.
            arguments: One for each parameter: a number, which all guests get, or a numpy array of
                a number for each guest that is called, [guests], in the order of `only`. Integers
                take arrays of integers; floats take both.
            budget: Seconds that may be charged to each guest, None for no limit; see `Guest`.
            only: Indices of the guests to call, such as `[0, 2]`; None calls all.

        Returns:
            The results, and the errors of guests that failed.

        Raises:
            EntryPointMissing: The module does not export the function.
            UsageError: The arguments do not fit the function, or an index does not exist or comes
                twice; no guest was called.
            GuestBusy: The fleet or one of its guests is in a call already.
            KeyboardInterrupt: Ctrl-C came; every call that had begun was dropped.

        Example:
            result = fleet.call("damage", 25, only=[0, 2])
            print(result.values, result.failures)
            fleet.call("player", np.linspace(0, 9, len(fleet)), 0.5)  # x for each, y for all

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
        return self._run(partial(self._call, _FRAME), (), budget).failures

    def read(
        self,
        name: str,
        dtype: npt.DTypeLike,
        shape: Shape = (),
        *,
        only: Iterable[int] | None = None,
    ) -> Array:
        """
        Return the values at an exported address of every guest's memory, as one array.

        The export `name` is a function `() -> i32`, which returns an address that stays the same:
        it is called once for each guest. Or it is a global i32, as compilers of C, Rust and Zig
        export a variable; a mutable one is read each time. Addresses are unsigned.

        A guest fails if its `shape` does not lie in its memory, and only that guest. Rows of guests
        that are closed, or failed before their address was known, are zeros.

        Args:
            name: Name of the export.
            dtype: Type of the numbers, or records of numbers, in guest memory, such as np.float32;
                little-endian.
            shape: Shape of the values of one guest; () is one number.
            only: Indices of the guests to read, such as `[0, 2]`; None reads all.

        Returns:
            A new array, [guests, *shape], in the order of the guests, or of `only`.

        Raises:
            EntryPointMissing: The module has no such export.
            UsageError: An argument has a wrong type or value, no guest has that much memory, or the
                fleet is closed.
            TooManyBytes: A row is larger than `Limits.snapshot_bytes`.
            GuestBusy: The fleet or one of its guests is in a call.

        Example:
            positions = fleet.read("position", np.float32, 2)  # [guests, 2]

        """
        chosen = None if only is None else _indices(only)
        self._locate(name, chosen)
        with self._call_guard.kept(self.name):
            return self._memory.read(self._target(name, chosen), dtype, shape)

    def write(self, name: str, values: Array, *, only: Iterable[int] | None = None) -> None:
        """
        Write a row of an array to an exported address of every guest, found as by `read`.

        Guests that are closed, or failed before their address was known, are not written to.

        Args:
            name: Name of the export.
            values: Numbers, [guests, *shape], of the type that the guests use, because their bytes
                are copied: np.float32 for C's float. Records must have no gaps between their
                fields.
            only: Indices of the guests to write to, in the order of the rows; None writes to all.

        Raises:
            EntryPointMissing: The module has no such export.
            UsageError: An argument has a wrong type or shape, no guest has that much memory, or the
                fleet is closed; nothing was written.
            TooManyBytes: A row is larger than `Limits.snapshot_bytes`.
            GuestBusy: The fleet or one of its guests is in a call.

        Example:
            fleet.write("target", np.zeros((len(fleet), 2), np.float32))

        """
        chosen = None if only is None else _indices(only)
        self._locate(name, chosen)
        with self._call_guard.kept(self.name):
            self._memory.write(self._target(name, chosen), values)

    async def update_async(self, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """
        Run one frame as `update` does, on another thread, while other tasks of the loop run.

        Several fleets run at the same time. Policies of yours are called on that thread.

        Raises:
            GuestError: As for `update`.
            CancelledError: The task was canceled (an error of asyncio); guests that were inside the
                frame have failed, the others live.

        Example:
            async def frame(*fleets):
                return await asyncio.gather(*(fleet.update_async() for fleet in fleets))

        """
        import asyncio  # 20 ms at start that only coroutines need

        frame = asyncio.ensure_future(asyncio.to_thread(self.update, budget=budget))
        try:
            return await asyncio.shield(frame)
        except asyncio.CancelledError:
            while not frame.done():  # the thread may not have begun the call yet
                self._call_guard.cancel()
                with suppress(asyncio.CancelledError):
                    await asyncio.wait([frame], timeout=_LOOK)
            if not frame.cancelled():
                frame.exception()  # which is looked at, so that it is not logged
            raise

    def initialize(self, *, budget: Budget = RUN_SECONDS) -> dict[int, GuestError]:
        """
        Run the initializers of every guest, once, and return the errors of failed guests, by index.

        By default each initializer may take `Limits.start_seconds`, or `Limits.run_seconds` if that
        is more.
        """
        waiting = {i: g for i, g in enumerate(self.guests) if not calls_of(g).is_initialized}
        failures = self._initialize(list(waiting.values()), budget)
        return {index: failures[place] for place, index in enumerate(waiting) if place in failures}

    def join(self, count: int = 1) -> list[Guest]:
        """
        Add `count` new guests, initialized, and return them.

        The new guests take the indices of closed guests first, in order, and then indices at the
        end. If the initializers of a new guest fail, its error is raised and the fleet stays
        unchanged. Raises UsageError once the fleet is closed.
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
        self._require_member(guest)
        end_trials([guest])
        with self._changing():
            self._require_member(guest)
            self._change({guest: None})

    def snapshot(self) -> FleetSnapshot:
        """
        Return a copy of the whole state of every guest, for `restore`; no code of a guest runs.

        Guests that have failed or are closed are left out. Raises the errors of `Guest.snapshot`.
        """
        with self._changing():
            live = {index: guest for index, guest in enumerate(self.guests) if _is_whole(guest)}
            guests, module = list(live.values()), self._module
            columns = self._states.save(guests)
            saved = FleetSnapshot(
                module.digest, self.name, module.state.kinds, len(self), list(live), columns
            )
            self._states.keep(saved, guests, columns)
            return saved

    def restore(self, state: FleetSnapshot | GuestSnapshot) -> None:
        """
        Return the fleet to a state that `snapshot` saved, also to its number of guests.

        Guests that have failed or were closed since are replaced, missing guests are added, and
        surplus guests are removed. A guest that had failed is closed. No code of a guest runs, but
        for the initializers of new ones.

        Given the state of one guest, every guest of the fleet continues from that state.

        Raises:
            GuestBusy: The fleet is in a call, or the memory of a guest is viewed.
            UsageError: The fleet is closed.
            GuestError: An initializer of a new guest failed.
            StateRefused: The state is of another module, over the limits, or has a session of a run
                that a guest does not have. Nothing has changed, unless a guest ran into a limit
                while it got its state: then that guest has failed.

        """
        if not isinstance(state, FleetSnapshot | GuestSnapshot):
            raise UsageError(
                f"state is {cut_repr(state)}: it takes the result of Fleet.snapshot, or of the"
                " snapshot of one guest"
            )
        require_same_module(state, self._module)
        self._require_open()
        if isinstance(state, FleetSnapshot):
            size, saved, columns = len(state), state.saved, state.columns
        else:
            size, saved = len(self), tuple(range(len(self)))
            columns = StateColumns.of([state.state] * size)
        with self._changing():
            self._require_loadable(saved, columns)
        for guest in self.guests[size:]:
            self.remove(guest)
        while len(self) < size:  # those that join take the places of closed ones first
            self.join(size - len(self))
        for index in saved:
            if not _is_whole(self.guests[index]):
                self.replace(self.guests[index])
        with self._changing():
            self._load(saved, columns)

    def _require_loadable(self, saved: Sequence[int], columns: StateColumns) -> None:
        """Raise StateRefused for a state that a guest, or one that joins, cannot have."""
        guests = self.guests
        kept: list[int] = []
        for number, index in enumerate(saved):
            if index < len(guests) and _is_whole(guests[index]):
                kept.append(number)
            elif columns.services[number].has_runs:
                raise StateRefused(
                    f"{self.name} lacks a guest that takes part in a run, as one of the state does:"
                    " restore the fleet before such a guest fails or leaves"
                )
        members = [guests[saved[number]] for number in kept]
        self._states.require_loadable(members, columns, kept)

    def _load(self, saved: Sequence[int], columns: StateColumns) -> None:
        """Let each guest have its state. Raises the first error once all others have theirs."""
        guests = self.guests
        for index in {*range(len(guests))}.difference(saved):
            calls_of(guests[index]).instance.free()
        for error in self._states.load([guests[index] for index in saved], columns):
            raise error

    def reload(self, source: str | os.PathLike[str] | BytesLike | CompiledModule) -> Reloaded:
        """
        Let every guest continue with a rebuilt module, as `Guest.reload` does, and new guests, too.

        If one guest fails in the first 10 calls of the fleet, all return to the previous module: a
        warning is logged, and the call returns the errors. Guests that have failed stay as they
        are.

        Args:
            source: The path or the bytes of the module, or a compiled one.

        Returns:
            How the states were carried over; ANEW if that differs between guests.

        Raises:
            ModuleError: The module is refused, or lacks an export by which guests were called, read
                or written; nothing has changed.
            GuestError: The new module failed in a guest; all guests continue with the previous one.
            GuestBusy: The fleet is in a call, or the memory of a guest is viewed.
            UsageError: The fleet is closed, has no guests, or is an environment's.

        """
        self._require_open()
        if not self.guests:
            raise UsageError(f"{self.name}: the fleet has no guests to reload: let one join first")
        living = [guest for guest in self.guests if _is_whole(guest)]
        ways: set[Reloaded] = set()
        module = (living or self.guests)[0].compile_for_reload(source)
        for guest in living:
            guest.compile_for_reload(module)  # raises what refuses it, before any changes
        require_unviewed(living)
        FleetMemory(module).require(self._memory)
        end_trials(living)  # of an earlier reload, which this one does not undo
        try:
            with collector_paused():
                if self._keep_states(living, module):
                    ways.add(Reloaded.KEPT)
                else:
                    ways.update([guest.reload(module) for guest in living])
        except BaseException:
            undo_reloads(living)
            raise
        self._begin_trial(module)
        return ways.pop() if len(ways) == 1 else Reloaded.ANEW

    def _keep_states(self, guests: Sequence[Guest], module: CompiledModule) -> bool:
        """
        Let guests go on from their states with a module of the same layout.

        Returns False if it has another one, or a state cannot be copied.
        """
        if not guests or way_of(self._module, module) is not Reloaded.KEPT:
            return False
        with self._changing():
            try:
                columns = self._states.save(guests)
            except (StateRefused, GuestMemoryFull):
                return False
            self._states.renew(guests, module, columns)
        return True

    def _begin_trial(self, module: CompiledModule) -> None:
        """Make new guests of a module from now on, and watch the first calls with it."""
        before, self._module = self._module, module
        self._members = self._members._replace(calls={})
        self._has_deferred_start = module.info.startup.deferred is not None
        self._before = before
        self._memory = FleetMemory(module)
        self._number(enumerate(self.guests))

    def _watch(self) -> None:
        """Count a call after a reload, or undo the reload in which a guest has failed."""
        if try_reload(self.guests):
            if not any(map(is_on_trial, self.guests)):
                self._before = None
            return
        assert self._before is not None
        log.warning(
            "%s: a guest failed right after a reload: all go on with the module before", self.name
        )
        self._begin_trial(self._before)
        self._before = None

    def use(
        self,
        policy: str | os.PathLike[str] | BytesLike | Policy | PolicyFunction | None,
        *,
        outputs: str | Sequence[str] = (),
        watch: bool = False,
    ) -> Future[None]:
        """
        Answer the guests of this fleet with another policy, from their next call on.

        As `Host.use`, for one fleet: from now on `Host.use` changes nothing for it.

        Args:
            policy: A policy as `Host.use` takes it; None lets guests use their own snapshots.
            outputs: The names of the outputs of a policy file that hold its actions.
            watch: True loads the file again whenever it has changed.

        Returns:
            A future, as `Host.use`.

        Raises:
            UsageError: An argument has a wrong type or value, or the fleet is closed.

        Example:
            fleet.use("sneak.onnx").result()

        """
        self._require_open()
        source = policy_source(policy, outputs)
        return self._policies.use(source, self._library, is_watched=require_flag("watch", watch))

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

    def slowest(self, count: int = 5) -> list[GuestTime]:
        """
        Return the guests that took longest in the last frame or call of the fleet, slowest first.

        Raises UsageError unless `count`, the number of guests at most, is a whole number from 1,
        and GuestBusy while the fleet or one of its guests is in a call.

        Example:
            for guest, milliseconds, usage in fleet.slowest(5):
                print(guest.name, milliseconds, usage.import_seconds)

        """
        most = require_whole("count", count)
        with self._call_guard.kept(self.name):
            self._parts.batcher.settle()
            times = [
                _time_of(guest) for guest in self.guests if not calls_of(guest).instance.is_closed
            ]
        return nlargest(most, times, key=attrgetter("milliseconds"))

    def close(self) -> None:
        """
        Close every guest, or raise GuestBusy while the fleet is in a call or a memory is viewed.

        Safe to call twice.
        """
        if self._is_closed:
            return
        end_trials(self.guests)
        with self._changing():
            for guest in self.guests:
                calls_of(guest).instance.require_unlent()
            for guest in self.guests:
                calls_of(guest).instance.free()
            self._is_closed = True  # last: what cuts it off before leaves it to be closed again

    def _locate(self, name: str, only: tuple[int, ...] | None) -> None:
        """
        Call the function that returns an address, of the guests whose address is not known.

        Raises UsageError once the fleet is closed.
        """
        self._require_open()
        target = self._target(name, only)
        if unknown := self._memory.unknown(target):
            indices = unknown if only is None else [only[index] for index in unknown]
            self._memory.note(target, unknown, self.call(name, only=indices).values)

    def _target(self, name: str, only: tuple[int, ...] | None) -> Target:
        members, guard = self.guests, self._call_guard
        guests = members if only is None else self._choose(only)
        moves = self._memory.is_mutable(name)
        return Target(name, moves, guests, members, only, lambda: guard.lost)

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
            call = partial(FleetCall, self._parts, waiting, start)
            self._run(call, (), start_budget(self._limits, budget))

    def _place(self, formers: Sequence[Guest | None], seed: int | None = None) -> list[Guest]:
        """
        Put new guests, initialized, in the places of `formers`, or at the end for None.

        Raises the errors of `join`, but does not check `Limits.instances`, as the caller has.
        """
        added: list[Guest] = []
        labels: list[int] = []
        try:
            with self._call_guard.kept(self.name):
                labels, indices = self._free_labels(formers), self._indices_of(formers)
                added.extend(self._make(label, self._module) for label in labels)
                self._coming.update(zip(labels, map(weakref.ref, added), strict=True))
                self._number(zip(indices, added, strict=True))
            raise_first(self._initialize(added, RUN_SECONDS, seed))
            end_trials([former for former in formers if former is not None])
            with self._changing():
                self._require_there(formers)
                pairs = zip(formers, added, strict=True)
                self._change(
                    {former: guest for former, guest in pairs if former is not None},
                    dict(zip(added, labels, strict=True)),
                )
        except BaseException:
            for guest in added:
                if guest not in self._members.labels:
                    guest.close()
            raise
        finally:
            for label in labels:
                self._coming.pop(label, None)
        return added

    def _indices_of(self, formers: Sequence[Guest | None]) -> list[int]:
        """Return the indices of guests that come after `formers`, or at the end for None."""
        ends = count(len(self.guests))
        return [next(ends) if former is None else self._index_of(former) for former in formers]

    def _index_of(self, guest: Guest) -> int:
        """Return the index of a guest of this fleet, by a search only where it is not noted."""
        guests, noted = self.guests, self._parts.lockstep.indices[calls_of(guest).place]
        if noted < len(guests) and guests[noted] is guest:
            return noted
        return guests.index(guest)  # closed, or a change was cut off before it numbered them

    def _number(self, guests: Iterable[tuple[int, Guest]]) -> None:
        """Let functions of the game know guests by their indices."""
        indices = self._parts.lockstep.indices
        for index, guest in guests:
            calls = calls_of(guest)
            if not calls.instance.is_closed:  # else its place may be another guest's
                indices[calls.place] = index

    def _free_labels(self, formers: Sequence[Guest | None]) -> list[int]:
        """
        Return the numbers in the names of new guests, such as 3 for `npc.wasm#3`.

        A guest takes the number of its predecessor, else an unused one. Raises GuestBusy as
        `_require_there` does.
        """
        self._require_there(formers)
        labels, others = self._members.labels, self._unused_labels()
        return [next(others) if one is None else labels[one] for one in formers]

    def _unused_labels(self) -> Iterator[int]:
        """Yield the numbers that no guest has in its name; nothing is read until the first."""
        coming = list(self._coming.items())  # in one step: other threads take theirs out meanwhile
        taken = {label for label, guest in coming if guest() is not None}
        taken.update(self._members.labels.values())
        yield from (label for label in count() if label not in taken)

    def _require_there(self, formers: Sequence[Guest | None]) -> None:
        """Raise GuestBusy if a former guest has left, UsageError once the fleet is closed."""
        self._require_open()
        if any(one is not None and one not in self._members.labels for one in formers):
            raise GuestBusy(f"another thread has changed {self.name} meanwhile")

    def _change(
        self,
        leaving: Mapping[Guest, Guest | None],
        coming: Mapping[Guest, int] | None = None,
    ) -> None:
        """
        Put the successors of the guests `leaving` in their places, and free `leaving`.

        `coming` has the numbers in the names of all new guests: guests that replace none are added
        at the end.

        If a signal handler raises, all of the change is made or none of it. A guest that left by
        then, and is not freed yet, is freed when its last reference is dropped.
        """
        before = self._members
        for guest in leaving:
            calls_of(guest).instance.require_unlent()
        self._states.forget()
        for guest in leaving:  # before its place may be another's
            calls = calls_of(guest)
            self._parts.told.discard(calls)
            self._parts.shares.forget(calls.place)
        guests, indices = list(before.guests), {one: self._index_of(one) for one in leaving}
        gone = sorted(indices[one] for one, successor in leaving.items() if successor is None)
        for guest, successor in leaving.items():
            if successor is not None:
                guests[indices[guest]] = successor
        for index in reversed(gone):
            del guests[index]
        coming, successors = coming or {}, set(leaving.values())
        guests.extend(guest for guest in coming if guest not in successors)
        labels = {**before.labels, **coming}
        for guest in leaving:
            del labels[guest]
        # One assignment, so that a signal handler that raises finds the old or the new members.
        self._members = _Members(
            tuple(guests),
            labels,
            sum((guest.statistics for guest in leaving), before.past),
            sum((guest.account.without_memory() for guest in leaving), before.past_usage),
            {},
        )
        for guest in leaving:
            calls_of(guest).instance.free()
        moved = gone[0] if gone else len(before.guests)
        self._number((indices[one], new) for one, new in leaving.items() if new is not None)
        self._number(enumerate(guests[moved:], moved))  # last: it knows where those are now

    def _initialize(
        self, guests: Sequence[Guest], budget: Budget, seed: int | None = None
    ) -> dict[int, GuestError]:
        failures: dict[int, GuestError] = {}
        budget = start_budget(self._limits, budget)
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
        self, found: Callable[[], FleetCall], arguments: tuple[Numbers, ...], budget: Budget
    ) -> FleetResult:
        is_usual = budget is RUN_SECONDS
        seconds, call_seconds = self._usual if is_usual else call_limits(self._limits, budget)
        self._call_guard.begin(self.name)
        try:
            call = found()
            call.run(arguments, seconds, call_seconds)
            result = call.result()
        finally:
            self._call_guard.end()
        if self._before is not None:
            self._watch()
        return result

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
            if not calls:  # a change of the members may have been cut off before it numbered them
                self._parts.guests.clear()
                self._number(enumerate(members.guests))
            guests = [calls_of(guest) for guest in chosen]
            call = calls[wanted] = FleetCall(
                self._parts, guests, wanted.function, is_frame=wanted.is_frame
            )
        return call


def _is_whole(guest: Guest) -> bool:
    """Return whether a guest has not failed and is not closed."""
    return calls_of(guest).instance.refusal() is None


class GuestTime(NamedTuple):
    """
    The time of one guest in the last frame or call of its fleet.

    Attributes:
        guest: The guest.
        milliseconds: Time that was charged to the guest, and waits that it asked for.
        usage: The time by kind, without sizes.

    """

    guest: Guest
    milliseconds: float
    usage: Usage


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


def _time_of(guest: Guest) -> GuestTime:
    """Return the time of a guest in its last call."""
    usage = calls_of(guest).account.last_call()
    return GuestTime(guest, (usage.run_seconds + usage.wait_seconds) * 1e3, usage)


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
