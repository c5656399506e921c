"""Saved copies of a guest's objects of `ark-ml-inference-v0`: runtimes and brains."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from arkml.abi.codes import SnapshotFormat
from arkml.errors import AbiError, StateRefused, Unavailable
from arkml.policies.agents import SavedAgents
from arkml.policies.demands import BrainDemand, Snapshot
from arkml.policies.network import Network
from arkml.sessions.brain_calls import load_brain
from arkml.sessions.brains import Brain, BrainQueue
from arkml.sessions.futures import Future
from arkml.sessions.handles import U32_LAYOUT, SavedHandles
from arkml.sessions.runtimes import NETWORK, Load, Runtime
from arkml.sessions.state import GuestState

_OBJECT_BYTES, _ROW_BYTES = 512, 256  # what Python takes, by measurement


@dataclass(frozen=True, slots=True)
class SavedRuntime:
    """
    A copy of one runtime.

    Attributes:
        index: The runtime's slot in the handle table.
        brains: The handles of the brains, least recently executed first.

    """

    index: int
    brains: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class SavedBrain:
    """
    A copy of one brain, a loaded model of a runtime.

    Attributes:
        index: The brain's slot in the handle table.
        runtime: The handle of the brain's runtime.
        key: The number of keys that the guest had used before this brain's key.
        opened_with: The model file and its format.
        queue: The observations and results, None if the guest has not polled the load yet.
        agents: The agents with their recurrent states.

    """

    index: int
    runtime: int
    key: int
    opened_with: tuple[Snapshot, SnapshotFormat]
    queue: BrainQueue | None
    agents: SavedAgents


@dataclass(frozen=True, slots=True)
class SavedFailure:
    """
    A copy of a refused load of a model, which the guest may still poll.

    Attributes:
        index: The load's slot in the handle table.
        runtime: The handle of the runtime.
        error: The error that polling raises.

    """

    index: int
    runtime: int
    error: AbiError


@dataclass(frozen=True)
class SavedBrains:
    """
    Copies of all objects of `ark-ml-inference-v0` that a guest has.

    Attributes:
        handles: The handles of the objects.
        runtimes: The runtimes.
        brains: The models.
        failures: Models that were refused.

    """

    handles: SavedHandles
    runtimes: tuple[SavedRuntime, ...] = ()
    brains: tuple[SavedBrain, ...] = ()
    failures: tuple[SavedFailure, ...] = ()

    def __len__(self) -> int:
        """Return the number of objects."""
        return len(self.runtimes) + len(self.brains) + len(self.failures)

    def handle_of(self, index: int) -> int:
        """Return the handle of the object in a slot of the table."""
        return self.handles.handle(index, U32_LAYOUT)

    def check(self) -> None:
        """Raise ValueError unless each brain belongs to a runtime that lists it."""
        polled: dict[int, set[int]] = {self.handle_of(one.index): set() for one in self.runtimes}
        models: list[SavedBrain | SavedFailure] = [*self.brains, *self.failures]
        for one in models:
            if one.runtime not in polled:
                raise ValueError("a brain belongs to no runtime")
            if isinstance(one, SavedBrain) and one.queue is not None:
                polled[one.runtime].add(self.handle_of(one.index))
        for runtime in self.runtimes:
            known = polled[self.handle_of(runtime.index)]
            if len(runtime.brains) != len(known) or {*runtime.brains} != known:
                raise ValueError("a runtime has brains that the state has not")

    @cached_property
    def nbytes(self) -> int:
        """The bytes of the copy, without models and handles."""
        size = _OBJECT_BYTES * len(self)
        for one in self.brains:
            size += sum(column.nbytes for column in one.agents)
            if one.queue is not None:
                size += one.queue.nbytes + _ROW_BYTES * len(one.queue.results)
        return size


def save_brains(guest: GuestState) -> SavedBrains:
    """Return copies of a guest's objects. Raises StateRefused if a model is being loaded."""
    table = guest.brains
    runtimes, brains, failures = [], [], []
    for handle, item in table:
        index = table.index(handle)
        match item:
            case Runtime():
                runtimes.append(SavedRuntime(index, tuple(item.brains)))
            case Brain():
                brains.append(_saved(guest, index, item, item.save()))
            case Load(demand=BrainDemand()) if item.future.is_ready:
                brains.append(_saved(guest, index, item, None))
            case _:
                failures.append(SavedFailure(index, item.runtime, _error_of(guest, item)))
    return SavedBrains(table.save(), tuple(runtimes), tuple(brains), tuple(failures))


def require_brains(guest: GuestState, saved: SavedBrains) -> None:
    """Raise StateRefused if saved recurrent states are wider or narrower than a present model's."""
    for one, found in zip(saved.brains, _found(guest, saved), strict=True):
        if found is not None:
            _require_width(_network_of(found), one)


def load_brains(guest: GuestState, saved: SavedBrains) -> None:
    """
    Replace a guest's objects by saved ones.

    Models that the guest has already are kept, others are loaded. Raises StateRefused if a model
    cannot be loaded or does not fit into the limits; the guest then has only some of the objects.
    """
    found = _found(guest, saved)
    kept = {one.index: item for one, item in zip(saved.brains, found, strict=True)}
    _free(item for item in guest.brains.items() if item not in kept.values())
    items: dict[int, Any] = {one.index: Runtime() for one in saved.runtimes}
    try:
        for one in saved.brains:
            items[one.index] = kept[one.index] or _opened(guest, one)
            _fill(guest, items[one.index], one)
        for failure in saved.failures:
            items[failure.index] = _failed(guest, failure)
        _join(saved, items)
    except BaseException as error:
        _free({**kept, **items}.values())
        items.clear()
        if isinstance(error, AbiError):
            raise StateRefused(f"{guest.name}: a brain cannot be loaded again: {error}") from error
        raise
    finally:
        guest.brains.load(saved.handles, items)


def _free(items: Iterable[Any]) -> None:
    """Release the bytes of models that a guest no longer has."""
    for item in items:
        if isinstance(item, Brain):
            item.close()
        elif isinstance(item, Load):
            item.lease.release()


def _saved(
    guest: GuestState, index: int, item: Brain | Load, queue: BrainQueue | None
) -> SavedBrain:
    demand = item.demand
    assert demand is not None
    key, model = demand.key - guest.keys.first, (demand.snapshot, demand.format)
    agents = _network_of(item).agents.save(demand.key)
    return SavedBrain(index, item.runtime, key, model, queue, agents)


def _network_of(item: Brain | Load) -> Network:
    return item.network or item.future.result() if isinstance(item, Load) else item.network


def _error_of(guest: GuestState, load: Load) -> AbiError:
    match load.future.outcome:
        case AbiError() as error:
            return error
        case None:
            raise StateRefused(f"{guest.name} has a brain that is being loaded: try again later")
        case other:
            return Unavailable(str(other))


def _found(guest: GuestState, saved: SavedBrains) -> list[Brain | Load | None]:
    """Return the guest's own object for each model of a state, None for one that it has not."""
    present = dict(guest.brains)
    return [_if_same(guest, present.get(saved.handle_of(one.index)), one) for one in saved.brains]


def _if_same(guest: GuestState, item: Any, one: SavedBrain) -> Brain | Load | None:
    """Return an object with the saved handle if it is the saved one."""
    if not isinstance(item, Load if one.queue is None else Brain) or item.runtime != one.runtime:
        return None
    demand, (snapshot, snapshot_format) = item.demand, one.opened_with
    if demand is None or demand.key != guest.keys.first + one.key:
        return None
    if isinstance(item, Load) and not item.future.is_ready:
        return None  # its network comes last
    same = demand.snapshot.digest == snapshot.digest and demand.format == snapshot_format
    return item if same else None


def _opened(guest: GuestState, one: SavedBrain) -> Brain | Load:
    """Load a model again. Raises AbiError."""
    (snapshot, snapshot_format), key = one.opened_with, guest.keys.first + one.key
    with guest.snapshots.take(snapshot.data) as lease:
        network, demand = load_brain(guest, lease, snapshot_format, snapshot.data, key)
        _require_width(network, one)
    if one.queue is None:
        load = Load(one.runtime, Future(NETWORK, guest.changes), lease, demand)
        load.future.resolve(network)
        return load
    memory, rows = guest.brain_memory, guest.limits.rows
    return Brain(one.runtime, network, memory, lease, demand, rows=rows)


def _fill(guest: GuestState, item: Brain | Load, one: SavedBrain) -> None:
    """Let a model have the saved agents, observations and results, and no others."""
    _network_of(item).agents.load(guest.keys.first + one.key, one.agents)
    if isinstance(item, Brain) and one.queue is not None:
        item.load(one.queue)


def _failed(guest: GuestState, failure: SavedFailure) -> Load:
    lease = guest.snapshots.take(b"")
    lease.release()
    load = Load(failure.runtime, Future(NETWORK, guest.changes), lease, is_logged=True)
    load.future.fail(failure.error)
    return load


def _join(saved: SavedBrains, items: Mapping[int, Any]) -> None:
    """Let runtimes know their brains and loads."""
    for runtime in saved.runtimes:
        brains = {handle: items[U32_LAYOUT.index(handle)] for handle in runtime.brains}
        items[runtime.index].brains = brains
    models: list[SavedBrain | SavedFailure] = [*saved.brains, *saved.failures]
    for one in models:
        if isinstance(items[one.index], Load):
            loads = items[U32_LAYOUT.index(one.runtime)].loads
            loads.add(saved.handle_of(one.index))


def _require_width(network: Network, one: SavedBrain) -> None:
    width = one.agents.state.shape[1]
    if width != network.agents.width:
        raise StateRefused(
            f"agents of the state remember {width} numbers, those of the present model of a brain"
            f" {network.agents.width}"
        )
