"""Saving and loading the states of all guests of a fleet at once."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import NamedTuple

from arkml.errors import StateRefused
from arkml.guests.guest import (
    Guest,
    calls_of,
    fail_restored,
    renew,
    set_startup,
    startup_of,
)
from arkml.guests.instance import NO_COMPILER, CompilerState, Instance, SharedResources
from arkml.guests.snapshot_bytes import Models, Share
from arkml.guests.state_columns import StateColumns
from arkml.runtime.columns.queues import Queues
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.sandboxes import Sandboxes
from arkml.runtime.saved_memory import MemoryCopies
from arkml.sessions.revision import Revision
from arkml.sessions.saved_sessions import SavedServices


class FleetStates:
    """
    Copies and loads the states of guests of one fleet, whose call guard the caller holds.

    To do little for each guest in Python, addresses are cached. Addresses of guests are found again
    only after `Lockstep.stores` has changed, addresses of queues after `Columns.version`. Handles
    and sessions are copied again only after their revision number has changed.
    """

    def __init__(self, shared: SharedResources) -> None:
        self._columns, self._lockstep = shared.columns, shared.lockstep
        self._call_guard, self._snapshots = shared.call_guard, shared.snapshots
        self._found: _Found | None = None
        self._queues: tuple[_Found, int, Queues] | None = None
        self._kept: _Kept | None = None

    def forget(self) -> None:
        """Drop all references to guests, before some of them leave the fleet."""
        self._found = self._queues = self._kept = None

    def save(self, guests: Sequence[Guest]) -> StateColumns:
        """Return copies of the states of guests. Raises the errors of `Guest.snapshot`."""
        for guest in guests[:1]:  # they have one module
            calls_of(guest).instance.require_savable()
        found = self._find(guests)
        for instance in found.instances:
            instance.require_whole()
        copies = MemoryCopies(list(zip(found.wasm.bases, found.wasm.sizes(), strict=True)))
        tables, services = found.wasm.read_tables(), self._services(found)
        sizes = [size + each.nbytes for size, each in zip(copies.sizes, services, strict=True)]
        for index, elements in enumerate(tables):
            sizes[index] += sum(map(len, elements))
        for instance, size in zip(found.instances, sizes, strict=True):
            instance.require_snapshot(size)
        waiting = self._queues_of(found).waiting()
        return StateColumns(
            copies.made(),
            found.wasm.read_globals(),
            tables,
            services,
            {index: found.instances[index].save_rows() for index in waiting},
            _compilers(found),
            [startup_of(guest) for guest in guests],
        )

    def keep(self, snapshot: object, guests: Sequence[Guest], columns: StateColumns) -> None:
        """Charge the guests for the bytes of their states for as long as the snapshot lives."""
        found, kept = self._find(guests), self._kept
        if kept is not None and kept.services is columns.services:
            models = kept.models
        else:
            models = _models(found, columns.services)
        self._snapshots.keep(snapshot, Share(found.numbers, found.places, columns.nbytes, models))

    def require_loadable(
        self, guests: Sequence[Guest], columns: StateColumns, indices: Sequence[int]
    ) -> None:
        """
        Raise StateRefused if a guest cannot take its state; see `Instance.require_loadable`.

        `indices` has the index in `columns` of each guest's state.
        """
        found = self._find(guests)
        services: Sequence[SavedServices | None] = columns.services
        if self._has(found, columns.services):
            services = [None] * len(columns)
        sizes, tables = columns.memories.sizes, columns.tables or [()] * len(columns)
        for instance, index in zip(found.instances, indices, strict=True):
            instance.require_loadable(sizes[index], tables[index], services[index])

    def load(self, guests: Sequence[Guest], columns: StateColumns) -> list[StateRefused]:
        """
        Return guests to states that `require_loadable` has accepted.

        A guest that got only a part of its state has failed. Returns the errors of such guests.
        """
        found = self._find(guests)
        for instance in found.instances:
            instance.require_unlent()
        refused: dict[Guest, StateRefused] = {}
        try:
            self._make_room(found, columns, refused)
            if refused:
                ready = [index for index, each in enumerate(guests) if each not in refused]
                columns = StateColumns.of([columns[index] for index in ready])
                guests = [guests[index] for index in ready]
            found = self._find(guests)  # an instance whose memory got smaller was made anew
            self._set(found, columns, refused)
        except BaseException as error:
            for guest in {*guests, *refused}:
                fail_restored(guest, refused.get(guest, error))
            raise
        for guest, refusal in refused.items():
            fail_restored(guest, refusal)
        return list(refused.values())

    def renew(self, guests: Sequence[Guest], after: CompiledModule, columns: StateColumns) -> None:
        """
        Let guests continue from their present states with a module of the same memory layout.

        Raises the errors of a new instance. Some guests have the new module then, on trial: it can
        still be undone.
        """
        for index, guest in enumerate(guests):
            renew(guest, after, partial(columns.__getitem__, index))
            sandbox = calls_of(guest).instance.sandbox
            sandbox.fit(columns.memories.sizes[index], columns.tables_of(index))
        found = self._find(guests)
        columns.memories.load(found.wasm.bases)
        found.wasm.write_globals(columns.globals)
        found.wasm.write_tables(columns.tables)

    def _make_room(
        self, found: _Found, columns: StateColumns, refused: dict[Guest, StateRefused]
    ) -> None:
        """Let guests have the sessions of states, and memories of their sizes."""
        sizes = columns.memories.sizes
        is_ready = self._has(found, columns.services) and found.wasm.sizes() == list(sizes)
        if is_ready and not columns.tables:
            return
        for index, instance in enumerate(found.instances):
            try:
                instance.begin_load(sizes[index], columns.tables_of(index), columns.services[index])
            except StateRefused as error:
                refused[found.guests[index]] = error

    def _set(
        self, found: _Found, columns: StateColumns, refused: dict[Guest, StateRefused]
    ) -> None:
        """Let guests have the rest of states for which they have room."""
        columns.memories.load(found.wasm.bases)
        found.wasm.write_globals(columns.globals)
        found.wasm.write_tables(columns.tables)
        self._call_guard.lost += 1  # addresses that the fleet knows may be others now
        for index, place in enumerate(found.places):
            if place in self._lockstep.touched:  # else there is nothing to forget
                found.instances[index].forget_call()
        self._queues_of(found).clear()
        for index, rows in columns.rows.items():
            try:
                found.instances[index].load_rows(rows)
            except StateRefused as error:
                refused[found.guests[index]] = error
        if found.has_compilers:
            for index, instance in enumerate(found.instances):
                instance.load_compiler(columns.compilers.get(index, NO_COMPILER))
        for instance in found.traced:
            instance.note_load()
        for guest, startup in zip(found.guests, columns.startups, strict=True):
            set_startup(guest, startup)
        self._keep_services(found, columns.services)

    def _services(self, found: _Found) -> Sequence[SavedServices]:
        if (kept := self._kept) is not None and self._has(found, kept.services):
            return kept.services
        services = [instance.services.save() for instance in found.instances]
        self._keep_services(found, services)
        return services

    def _has(self, found: _Found, services: Sequence[SavedServices]) -> bool:
        """Return whether guests have these services, as far as that is known at once."""
        kept = self._kept
        return (
            kept is not None
            and kept.services is services
            and kept.found is found
            and kept.version == self._columns.version  # that of their policies, too
            and kept.revisions == found.numbers_of_revisions()
        )

    def _keep_services(self, found: _Found, services: Sequence[SavedServices]) -> None:
        """Note that guests have these services, unless these have parts that change unseen."""
        if self._has(found, services):
            return
        self._kept = None
        if not any(each.is_fleeting for each in services):
            version, revisions = self._columns.version, found.numbers_of_revisions()
            models = _models(found, services)
            self._kept = _Kept(found, services, version, revisions, models)

    def _find(self, guests: Sequence[Guest]) -> _Found:
        """Return where guests lie."""
        found, stores = self._found, self._lockstep.stores
        if found is None or found.stores != stores or found.guests != guests:
            instances = [calls_of(guest).instance for guest in guests]
            found = self._found = _Found(
                list(guests),
                stores,
                instances,
                Sandboxes([each.sandbox for each in instances]),
                [each.services.revision for each in instances],
                [each.number for each in instances],
                [each.place for each in instances],
                [each for each in instances if each.is_traced],
                any(each.may_use_compiler for each in instances[:1]),
            )
        return found

    def _queues_of(self, found: _Found) -> Queues:
        version = self._columns.version
        if self._queues is None or self._queues[0] is not found or self._queues[1] != version:
            regions = [each.regions.values() for each in found.instances]
            self._queues = found, version, Queues(self._columns, regions)
        return self._queues[2]


class _Found(NamedTuple):
    """Guests, and where they lie while `Lockstep.stores` is `stores`."""

    guests: list[Guest]
    stores: int
    instances: list[Instance]
    wasm: Sandboxes
    revisions: list[Revision]
    numbers: list[int]
    places: list[int]
    traced: list[Instance]
    has_compilers: bool

    def numbers_of_revisions(self) -> list[int]:
        return [each.number for each in self.revisions]


class _Kept(NamedTuple):
    """Services that guests have while their revisions and `Columns.version` stay the same."""

    found: _Found
    services: Sequence[SavedServices]
    version: int
    revisions: list[int]
    models: Models


def _models(found: _Found, services: Sequence[SavedServices]) -> Models:
    saved = zip(found.numbers, services, strict=True)
    return [(number, each.models) for number, each in saved if each.models]


def _compilers(found: _Found) -> dict[int, CompilerState]:
    """Return the random numbers and timers of guests that have any."""
    if not found.has_compilers:
        return {}
    saved = [each.save_compiler() for each in found.instances]
    return {index: each for index, each in enumerate(saved) if each is not NO_COMPILER}
