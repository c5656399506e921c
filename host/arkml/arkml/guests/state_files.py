"""State files, which hold saved states of guests and fleets."""

from __future__ import annotations

import hashlib
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, Literal, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from arkml import errors
from arkml.abi.codes import SnapshotFormat
from arkml.base.files import read_file
from arkml.base.output_files import path_of
from arkml.base.short_reprs import cut_repr
from arkml.base.texts import encodable
from arkml.errors import AbiError, StateRefused, Unavailable, UsageError
from arkml.guests.instance import NO_COMPILER, InstanceState, StartupProgress
from arkml.limits import GIB, require_whole
from arkml.policies.agents import SavedAgents
from arkml.policies.demands import Snapshot
from arkml.runtime import bindings
from arkml.runtime.columns.region import SavedRows, require_rows
from arkml.runtime.compiler_imports import MOST_TIMERS
from arkml.runtime.memory import BytesLike, bytes_of
from arkml.runtime.module.normalize import MOST_GLOBALS
from arkml.runtime.sandbox import WasmState
from arkml.runtime.saved_memory import PackedMemory, SavedMemory
from arkml.sessions import results
from arkml.sessions.brains import BrainQueue, SavedSubmission
from arkml.sessions.futures import Future, FutureChanges, ResultType
from arkml.sessions.guest_run import ExperimentInfo, ExperimentShape, Metric
from arkml.sessions.handles import U32_LAYOUT, U64_LAYOUT, HandleLayout, SavedHandles
from arkml.sessions.saved_brains import SavedBrain, SavedBrains, SavedFailure, SavedRuntime
from arkml.sessions.saved_sessions import SavedFuture, SavedServices, SavedSession, lost
from arkml.sessions.session import Origin

_MAGIC = b"arkml-state\n"
_VERSION = 1
_DIGEST = hashlib.sha256().digest_size
MOST_BYTES = 4 * GIB  # of a file, and of its contents
_MOST_GUESTS = 1 << 20
_LEVEL = 1  # of compression: memories are large, and mostly zeros
_MOST_TEXT = 1_024  # characters of the id of a run
_MOST_TABLES = 1_000  # of a guest, the limits allow fewer
_MOST_SLOTS = U32_LAYOUT.slots  # of handles, the limits allow fewer
_MOST_KEYS = 1 << 31  # of a guest: those of the next guest begin 1 << 32 later

_Count = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Words = Annotated[list[_Count], Meta(min_length=625, max_length=625)]


class _Agents(Struct, frozen=True, forbid_unknown_fields=True):
    count: _Count
    width: _Count
    ids: bytes
    steps: bytes
    ended: bytes
    state: bytes


class _Session(Struct, frozen=True, forbid_unknown_fields=True):
    index: _Count
    key: _Count
    run: Annotated[str, Meta(max_length=_MOST_TEXT)] | None
    widths: tuple[_Count | None, _Count | None]
    model: _Count | None  # its index among the models of the file
    agents: _Agents | None
    others: Annotated[dict[_Count, _Agents], Meta(max_length=len(Origin))]


class _Handles(Struct, frozen=True, forbid_unknown_fields=True):
    generations: bytes  # uint64, [slots]
    free: bytes  # uint32, [free slots]


class _Rows(Struct, frozen=True, forbid_unknown_fields=True):
    words: tuple[_Count, ...]
    columns: tuple[bytes, ...]
    metadata: bytes


class _Error(Struct, frozen=True, forbid_unknown_fields=True):
    name: Annotated[str, Meta(max_length=64)]  # of a class of `arkml.errors`
    text: str


class _Future(Struct, frozen=True, forbid_unknown_fields=True):
    index: _Count
    type: str
    value: bytes | None  # in MessagePack
    error: _Error | None  # None beside no value: it is pending


class _Submission(Struct, frozen=True, forbid_unknown_fields=True):
    agent: Annotated[int, Meta(ge=0)]
    row: bytes | None
    given: list[str]
    fault: _Error | None


class _Queue(Struct, frozen=True, forbid_unknown_fields=True):
    begun: _Submission | None
    queued: bytes  # uint64, [rows]
    rows: bytes  # float32, [rows, width]
    width: _Count
    answered: bytes  # uint64, [agents]
    results: dict[str, bytes]  # float32, [agents, width]


class _Brain(Struct, frozen=True, forbid_unknown_fields=True):
    index: _Count
    runtime: _Count
    key: _Count
    model: _Count
    queue: _Queue | None
    agents: _Agents


class _Failure(Struct, frozen=True, forbid_unknown_fields=True):
    index: _Count
    runtime: _Count
    error: _Error


class _Runtime(Struct, frozen=True, forbid_unknown_fields=True):
    index: _Count
    brains: list[_Count]


class _Guest(Struct, frozen=True, forbid_unknown_fields=True):
    memory: PackedMemory
    globals: bytes
    handles: _Handles
    brains: _Handles
    sessions: list[_Session]
    keys: Annotated[int, Meta(ge=0, lt=_MOST_KEYS)]
    contexts: list[tuple[str, str]]
    random: tuple[int, _Words, float | None] | None
    timers: Annotated[dict[str, float], Meta(max_length=MOST_TIMERS)]
    is_initialized: bool
    waits: bool
    tables: Annotated[list[bytes], Meta(max_length=_MOST_TABLES)] = []
    futures: list[_Future] = []
    runtimes: list[_Runtime] = []
    models: list[_Brain] = []
    failures: list[_Failure] = []
    rows: dict[_Count, _Rows] = {}  # by the slots of their sessions


class _Model(Struct, frozen=True, forbid_unknown_fields=True):
    data: bytes
    format: SnapshotFormat


class StateBody(Struct, frozen=True, forbid_unknown_fields=True):
    """The contents of a state file, before compression."""

    kind: Literal["guest", "fleet"]
    module: str
    name: str
    globals: Annotated[list[str], Meta(max_length=MOST_GLOBALS)]
    models: list[_Model]
    guests: Annotated[list[_Guest | None], Meta(min_length=1, max_length=_MOST_GUESTS)]


_Opened = tuple[Snapshot, SnapshotFormat]

_RESULTS: dict[str, tuple[ResultType[Any], Any, Callable[[Any], object]]] = {
    each.name: (each, kind, encoded)
    for each, kind, encoded in (
        (results.BOOL, bool, bool),
        (results.BYTES, bytes, bytes),
        (results.TEXT, str, str),
        (results.SHAPE, ExperimentShape, results.shape_bytes),
        (results.EXPERIMENTS, list[ExperimentInfo], results.experiment_bytes),
        (results.METRICS_V1, list[Metric], list),
        (results.METRICS_V3, list[Metric], list),
    )
}
"""
The types of futures that files have, by name, with the Python types of their results, and what
raises an error for a result that has no place in a guest's memory.
"""


class StateFile(NamedTuple):
    """
    A state file that was read: contents, name for messages, version, packed and unpacked sizes.
    """

    body: StateBody
    label: str
    version: int
    size: int
    unpacked: int


def is_state_file(data: BytesLike) -> bool:
    """Return whether these bytes begin as a state file does."""
    return bytes_of(data).startswith(_MAGIC)


def read_states(source: str | os.PathLike[str] | BytesLike, most: int = MOST_BYTES) -> StateFile:
    """
    Return the contents of a state file of up to `most` bytes. Raises StateRefused and UsageError.
    """
    most = require_whole("most_bytes", most)  # zlib takes 0 for no limit
    if isinstance(source, bytes | bytearray | memoryview):
        return _body(bytes(source), "the state", most)
    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"a state is {cut_repr(source)}: it takes a path, or the bytes of a file")
    path = Path(path_of(source, "state"))
    try:
        data = read_file(path, most=MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return _body(data, str(path), most)


def _body(data: bytes, label: str, most: int) -> StateFile:
    if not data.startswith(_MAGIC):
        raise StateRefused(f"{label} is not the state of a guest: it begins with {data[:12]!r}")
    start = len(_MAGIC) + 1
    version, digest, content = data[start - 1 : start], data[start:][:_DIGEST], data[start:]
    content = content[_DIGEST:]
    if version and version[0] > _VERSION:
        raise StateRefused(
            f"{label} has version {version[0]}, of a later release of arkml than this one,"
            f" which reads version {_VERSION}"
        )
    if hashlib.sha256(content).digest() != digest or version != bytes((_VERSION,)):
        raise StateRefused(f"{label} is damaged: it was cut or altered")
    unzip = zlib.decompressobj()
    try:
        body = unzip.decompress(content, most)
        if not unzip.eof:
            raise StateRefused(f"{label} is damaged, or over {most:,} bytes once it is unpacked")
        decoded = msgspec.msgpack.decode(body, type=StateBody)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise StateRefused(f"{label} is damaged: {error}") from error
    return StateFile(decoded, label, version[0], len(data), len(body))


class _Models:
    """The models of a file, each once."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[bytes, SnapshotFormat], int] = {}
        self.data: list[_Model] = []

    def number(self, opened_with: _Opened) -> int:
        """Return the index of a model in the list of the file."""
        snapshot, snapshot_format = opened_with
        key = snapshot.digest, snapshot_format
        if key not in self._numbers:
            self._numbers[key] = len(self.data)
            self.data.append(_Model(snapshot.data, snapshot_format))
        return self._numbers[key]


def written_states(
    kind: Literal["guest", "fleet"],
    module: str,
    name: str,
    kinds: Sequence[str],
    states: Sequence[InstanceState | None],
) -> bytes:
    """
    Return the compressed contents of a state file.

    Args:
        kind: "fleet" for states of a fleet, "guest" for the state of a single guest.
        module: The digest of the module of the guests.
        name: Name of the guest or of the fleet.
        kinds: Types of the mutable globals of the module.
        states: The states, None for a guest that has none.

    Raises:
        StateRefused: A training is being started.

    """
    models = _Models()
    guests = [None if state is None else _packed(state, kinds, models) for state in states]
    body = StateBody(kind, module, encodable(name), list(kinds), models.data, guests)
    content = zlib.compress(msgspec.msgpack.encode(body), _LEVEL)
    return _MAGIC + bytes((_VERSION,)) + hashlib.sha256(content).digest() + content


def states_in(body: StateBody, label: str) -> list[InstanceState | None]:
    """Return the states in a state file. Raises StateRefused if a state contradicts itself."""
    if body.kind == "guest" and (len(body.guests) > 1 or body.guests[0] is None):
        raise StateRefused(
            f"{label} is damaged: the state of a guest has {len(body.guests):,} guests, or none"
        )
    try:
        models = [
            (Snapshot(model.data, hashlib.sha256(model.data).digest()), model.format)
            for model in body.models
        ]
        return [
            None if guest is None else _unpacked(guest, body.globals, models)
            for guest in body.guests
        ]
    except (ValueError, IndexError, KeyError, msgspec.MsgspecError, struct.error) as error:
        raise StateRefused(f"{label} is damaged: {error}") from error


def _packed(
    state: InstanceState,
    kinds: Sequence[str],
    models: _Models,
) -> _Guest:
    services, (drawn, timers) = state.services, state.compiler
    brains = services.brains
    sessions = [
        _Session(
            one.index, one.key, one.run, one.widths,
            None if one.opened_with is None else models.number(one.opened_with),
            None if one.agents is None else _packed_agents(one.agents),
            {kind: _packed_agents(others) for kind, others in one.others.items()},
        )
        for one in services.sessions
    ]  # fmt: skip
    return _Guest(
        state.wasm.memory.packed(),
        bindings.packed_globals(state.wasm.globals, kinds),
        _packed_handles(services.handles),
        _packed_handles(brains.handles),
        sessions,
        services.keys,
        list(services.contexts),
        None if drawn is None else (drawn[0], list(drawn[1]), drawn[2]),
        timers,
        *state.startup,
        list(state.wasm.tables),
        list(map(_packed_future, services.futures)),
        [_Runtime(one.index, list(one.brains)) for one in brains.runtimes],
        [_packed_brain(one, models) for one in brains.brains],
        [_Failure(one.index, one.runtime, _packed_error(one.error)) for one in brains.failures],
        {index: _Rows(*each) for index, each in state.rows.items()},
    )


def _packed_future(one: SavedFuture) -> _Future:
    future, error, value = one.future, None, None
    name = future.type.name
    if name not in _RESULTS:
        raise StateRefused(
            f"the guest waits for a {name}, which files do not keep: save it once that has come"
        )
    match future.outcome:
        case Exception() as failure:
            error = _packed_error(failure)
        case (found,):
            value = msgspec.msgpack.encode(found)
        case None:
            pass
    return _Future(one.index, name, value, error)


def _packed_error(error: Exception) -> _Error:
    name = type(error).__name__ if isinstance(error, AbiError) else Unavailable.__name__
    return _Error(name, encodable(str(error)))


def _packed_brain(one: SavedBrain, models: _Models) -> _Brain:
    queue = None if one.queue is None else _packed_queue(one.queue)
    model, agents = models.number(one.opened_with), _packed_agents(one.agents)
    return _Brain(one.index, one.runtime, one.key, model, queue, agents)


def _packed_queue(queue: BrainQueue) -> _Queue:
    begun = None
    if queue.begun is not None:
        agent, row, given, fault = queue.begun
        begun = _Submission(
            agent,
            None if row is None else row.astype("<f4").tobytes(),
            list(given),
            None if fault is None else _packed_error(fault),
        )
    return _Queue(
        begun,
        queue.queued.astype("<u8").tobytes(),
        queue.rows.astype("<f4").tobytes(),
        queue.rows.shape[1],
        queue.answered.astype("<u8").tobytes(),
        {name: floats.astype("<f4").tobytes() for name, floats in queue.results.items()},
    )


def _packed_handles(handles: SavedHandles) -> _Handles:
    generations, free = np.array(handles.generations, "<u8"), np.array(handles.free, "<u4")
    return _Handles(generations.tobytes(), free.tobytes())


def _packed_agents(agents: SavedAgents) -> _Agents:
    columns = (column.tobytes() for column in agents)
    return _Agents(len(agents.ids), agents.state.shape[1], *columns)


def _unpacked(guest: _Guest, kinds: Sequence[str], models: Sequence[_Opened]) -> InstanceState:
    """Return a state. Raises ValueError and IndexError for one that contradicts itself."""
    futures = tuple(map(_unpacked_future, guest.futures))
    used = [*(one.index for one in guest.sessions), *(one.index for one in futures)]
    handles = _unpacked_handles(guest.handles, used, U64_LAYOUT)
    if any(others.width for one in guest.sessions for others in one.others.values()):
        raise ValueError("agents of rows with actions of the guest remember something")
    keyed = [*(one.key for one in guest.sessions), *(one.key for one in guest.models)]
    if len({*keyed}) < len(keyed) or max(keyed, default=-1) >= guest.keys:
        raise ValueError("two sessions have one key, or a key is still to come")
    sessions = tuple(
        SavedSession(
            one.index,
            one.key,
            one.run,
            one.widths,
            None if one.model is None else models[one.model],
            None if one.agents is None else _unpacked_agents(one.agents),
            {kind: _unpacked_agents(others) for kind, others in one.others.items()},
        )
        for one in guest.sessions
    )
    brains = _unpacked_brains(guest, models)
    memory = SavedMemory.unpacked(guest.memory)
    return InstanceState(
        WasmState(memory, bindings.unpacked_globals(guest.globals, kinds), tuple(guest.tables)),
        SavedServices(handles, brains, sessions, futures, guest.keys, tuple(guest.contexts)),
        _unpacked_rows(guest),
        _unpacked_compiler(guest),
        StartupProgress(guest.is_initialized, guest.waits),
    )


def _unpacked_future(one: _Future) -> SavedFuture:
    type_, kind, encoded = _RESULTS[one.type]
    future = Future(type_, FutureChanges())
    if one.value is not None:
        value = msgspec.msgpack.decode(one.value, type=kind)
        encoded(value)
        future.resolve(value)
    else:
        future.fail(lost(type_) if one.error is None else _unpacked_error(one.error))
    return SavedFuture(one.index, future)


def _unpacked_error(error: _Error) -> AbiError:
    kind = getattr(errors, error.name, None)
    if isinstance(kind, type) and issubclass(kind, AbiError):
        return kind(error.text)
    raise ValueError(f"{error.name!r} is not an error of an import")


def _unpacked_brains(guest: _Guest, models: Sequence[_Opened]) -> SavedBrains:
    lists: tuple[Sequence[_Runtime | _Brain | _Failure], ...] = (
        guest.runtimes, guest.models, guest.failures
    )  # fmt: skip
    brains = SavedBrains(
        _unpacked_handles(guest.brains, [one.index for each in lists for one in each], U32_LAYOUT),
        tuple(SavedRuntime(one.index, tuple(one.brains)) for one in guest.runtimes),
        tuple(
            SavedBrain(
                one.index,
                one.runtime,
                one.key,
                models[one.model],
                None if one.queue is None else _unpacked_queue(one.queue),
                _unpacked_agents(one.agents),
            )
            for one in guest.models
        ),
        tuple(
            SavedFailure(one.index, one.runtime, _unpacked_error(one.error))
            for one in guest.failures
        ),
    )
    brains.check()
    return brains


def _unpacked_queue(queue: _Queue) -> BrainQueue:
    begun = None
    if queue.begun is not None:
        row, fault = queue.begun.row, queue.begun.fault
        begun = SavedSubmission(
            queue.begun.agent,
            None if row is None else np.frombuffer(row, "<f4"),
            tuple(queue.begun.given),
            None if fault is None else _unpacked_error(fault),
        )
    queued, answered = np.frombuffer(queue.queued, "<u8"), np.frombuffer(queue.answered, "<u8")
    for agents in (queued, answered):
        if len(np.unique(agents)) < len(agents):
            raise ValueError("a brain has an agent twice")
    return BrainQueue(
        begun,
        queued,
        np.frombuffer(queue.rows, "<f4").reshape(len(queued), queue.width),
        answered,
        {
            name: np.frombuffer(floats, "<f4").reshape(len(answered), -1)
            for name, floats in queue.results.items()
            if len(answered)
        },
    )


def _unpacked_handles(handles: _Handles, used: Sequence[int], layout: HandleLayout) -> SavedHandles:
    """Return a handle table with objects in the slots `used`. Raises ValueError."""
    if len(handles.generations) > _MOST_SLOTS * 8:
        raise ValueError("there are more handles than a guest may have")
    generations = np.frombuffer(handles.generations, "<u8").tolist()
    free = np.frombuffer(handles.free, "<u4").tolist()
    slots = {*used, *free}
    if len(slots) < len(used) + len(free):
        raise ValueError("two objects have one handle")
    most = layout.generations  # a slot that has as many is used up
    if max(slots, default=-1) >= len(generations) or max(generations, default=0) > most:
        raise ValueError("a handle lies outside of its table")
    if any(generations[index] == most for index in slots):
        raise ValueError("a handle is used up")
    return SavedHandles(tuple(generations), tuple(free))


def _unpacked_rows(guest: _Guest) -> dict[int, SavedRows]:
    if not guest.rows.keys() <= {one.index for one in guest.sessions}:
        raise ValueError("rows wait in no session")
    found = {index: SavedRows(*msgspec.structs.astuple(one)) for index, one in guest.rows.items()}
    for rows in found.values():
        require_rows(rows)
    return found


def _unpacked_compiler(guest: _Guest) -> tuple[Any, dict[str, float]]:
    if guest.random is None:
        return (None, guest.timers) if guest.timers else NO_COMPILER
    version, words, gauss = guest.random
    drawn = (version, tuple(words), gauss)
    Random(0).setstate(drawn)  # raises ValueError
    return drawn, guest.timers


def _unpacked_agents(agents: _Agents) -> SavedAgents:
    count, width = agents.count, agents.width
    sizes = (len(agents.ids), len(agents.steps), len(agents.ended), len(agents.state))
    if sizes != (8 * count, 8 * count, count, 4 * count * width):
        raise ValueError(f"{sizes} bytes for {count:,} agents that remember {width:,} numbers each")
    ids = np.frombuffer(agents.ids, "<u8")
    if len(np.unique(ids)) < count:
        raise ValueError("an agent comes twice")
    return SavedAgents(
        ids,
        np.frombuffer(agents.steps, "<u8"),
        np.frombuffer(agents.ended, np.uint8) != 0,
        np.frombuffer(agents.state, "<f4").reshape(count, width),
    )
