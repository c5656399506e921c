"""Saved states of guests and fleets, and the files that hold them."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from random import Random
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Self

import msgspec
import numpy as np
from msgspec import Meta, Struct

from arkml.abi.codes import SnapshotFormat
from arkml.base.files import read_file
from arkml.base.output_files import path_of, write_file
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import StateRefused, UsageError
from arkml.guests.instance import NO_COMPILER, InstanceState, StartupProgress
from arkml.guests.state_columns import StateColumns
from arkml.limits import GIB
from arkml.policies.agents import SavedAgents
from arkml.policies.demands import Snapshot
from arkml.runtime import bindings
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.compiler_imports import MOST_TIMERS
from arkml.runtime.memory import BytesLike, bytes_of
from arkml.runtime.module.normalize import MOST_GLOBALS
from arkml.runtime.sandbox import WasmState
from arkml.runtime.saved_memory import PackedMemory, SavedMemory
from arkml.sessions.handles import SavedHandles
from arkml.sessions.saved_sessions import SavedServices, SavedSession
from arkml.sessions.session import Origin

_MAGIC = b"arkml-state\n"
_VERSION = 1
_DIGEST = hashlib.sha256().digest_size
_MOST_BYTES = 4 * GIB  # of a file, and of its contents
_MOST_GUESTS = 1 << 20
_LEVEL = 1  # of compression: memories are large, and mostly zeros
_MOST_TEXT = 1_024  # characters of the id of a run
_MOST_TABLES = 1_000  # of a guest, the limits allow fewer
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


class _Model(Struct, frozen=True, forbid_unknown_fields=True):
    data: bytes
    format: SnapshotFormat


class _Body(Struct, frozen=True, forbid_unknown_fields=True):
    kind: Literal["guest", "fleet"]
    module: str
    name: str
    globals: Annotated[list[str], Meta(max_length=MOST_GLOBALS)]
    models: list[_Model]
    guests: Annotated[list[_Guest | None], Meta(min_length=1, max_length=_MOST_GUESTS)]


_Opened = tuple[Snapshot, SnapshotFormat]


class _State(Sealed):
    """What the states of a guest and of a fleet have in common."""

    _is_read_only = True
    _kind: ClassVar[Literal["guest", "fleet"]]

    def __init__(self, module: str, name: str, kinds: Sequence[str]) -> None:
        self.module = module
        self.name = name
        self._kinds = tuple(kinds)

    @property
    def states(self) -> Sequence[InstanceState | None]:
        """The state of each guest, as an instance takes it, None for one that has none."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.name}, {self.nbytes:,} bytes>"

    def __bytes__(self) -> bytes:
        """
        Return the contents of a file with the state, compressed.

        Raises StateRefused while rows wait for a submit.
        """
        models: dict[tuple[bytes, SnapshotFormat], int] = {}
        data: list[_Model] = []

        def number(one: SavedSession) -> int | None:
            if one.opened_with is None:
                return None
            snapshot, snapshot_format = one.opened_with
            key = snapshot.digest, snapshot_format
            if key not in models:
                models[key] = len(data)
                data.append(_Model(snapshot.data, snapshot_format))
            return models[key]

        guests = [
            None if state is None else _packed(state, self._kinds, number) for state in self.states
        ]
        body = _Body(self._kind, self.module, self.name, list(self._kinds), data, guests)
        content = zlib.compress(msgspec.msgpack.encode(body), _LEVEL)
        head = _MAGIC + bytes((_VERSION,)) + hashlib.sha256(content).digest()
        return head + content

    @property
    def nbytes(self) -> int:
        """The bytes that the copies of memories in it take: those of pages that are not zero."""
        return sum(state.wasm.memory.nbytes for state in self.states if state is not None)

    @classmethod
    def _of(cls, body: _Body, label: str) -> Self:
        """Return the state in a file of this kind. Raises StateRefused."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file with the state, as `bytes` gives it. Raises UsageError and StateRefused."""
        write_file(path_of(path, "path"), bytes(self))

    @classmethod
    def load(
        cls, source: str | os.PathLike[str] | BytesLike, *, most_bytes: int = _MOST_BYTES
    ) -> Self:
        """
        Return the state in a file, or in the bytes of one.

        Args:
            source: The path of a file that `save` wrote, or its contents.
            most_bytes: Bytes that the contents may have once they are unpacked: a small file that
                a player sends may hold gigabytes of zeros.

        Raises:
            StateRefused: The file is damaged, of a later release, over `most_bytes`, or no state of
                this kind.
            UsageError: The file cannot be read.

        """
        body, label, *_ = _read(source, most_bytes)
        if body.kind != cls._kind:
            raise StateRefused(f"{label} has the state of a {body.kind}, not of a {cls._kind}")
        return cls._of(body, label)


class GuestSnapshot(_State):
    """
    The state of a guest between two calls, made by `Guest.snapshot`.

    It holds the memory, globals and tables that change, handles and sessions of inference with
    their agents, and rows that wait for a submit. Policies and runs are named, not copied, and
    files and positions in files that a guest has open through WASI are not in it.

    Attributes:
        module: The digest of the module (`CompiledModule.digest`).
        name: Name of the guest.

    Example:
        saved = guest.snapshot()
        guest.update()
        guest.restore(saved)
        saved.save("orc.state")

    """

    _kind = "guest"

    def __init__(self, module: str, name: str, kinds: Sequence[str], state: InstanceState) -> None:
        super().__init__(module, name, kinds)
        self._state = state

    @classmethod
    def _of(cls, body: _Body, label: str) -> Self:
        (state,) = _states(body, label)
        assert state is not None
        return cls(body.module, body.name, body.globals, state)

    @property
    def state(self) -> InstanceState:
        """The state, as an instance takes it."""
        return self._state

    @property
    def states(self) -> Sequence[InstanceState]:
        """The state alone."""
        return (self._state,)


class FleetSnapshot(_State):
    """
    The states of the guests of a fleet between two frames, made by `Fleet.snapshot`.

    Guests that had failed or were closed have none.

    Attributes:
        module: The digest of the module (`CompiledModule.digest`).
        name: Name of the fleet.
        saved: Indices of the guests that have a state, in order.
        columns: Their states.

    Example:
        saved = fleet.snapshot()
        fleet.update()
        fleet.restore(saved)

    """

    _kind = "fleet"

    def __init__(
        self,
        module: str,
        name: str,
        kinds: Sequence[str],
        count: int,
        saved: Sequence[int],
        columns: StateColumns,
    ) -> None:
        """Take the states of those of `count` guests whose indices are in `saved`."""
        super().__init__(module, name, kinds)
        self._count = count
        self.saved: tuple[int, ...] = tuple(saved)
        self.columns: StateColumns = columns

    @classmethod
    def _of(cls, body: _Body, label: str) -> Self:
        found = {
            index: state for index, state in enumerate(_states(body, label)) if state is not None
        }
        columns = StateColumns.of(list(found.values()))
        count = len(body.guests)
        return cls(body.module, body.name, body.globals, count, list(found), columns)

    def __len__(self) -> int:
        """Return the number of guests."""
        return self._count

    @property
    def nbytes(self) -> int:
        """The bytes that the copies of memories in it take: those of pages that are not zero."""
        return sum(self.columns.memories.nbytes)

    @property
    def states(self) -> Sequence[InstanceState | None]:
        """The state of each guest, as an instance takes it."""
        found = {index: self.columns[number] for number, index in enumerate(self.saved)}
        return [found.get(index) for index in range(self._count)]


def read_state(source: str | os.PathLike[str] | BytesLike) -> GuestSnapshot | FleetSnapshot:
    """Return the state of a guest or of a fleet in a file; raises as `GuestSnapshot.load`."""
    return _state_of(_read(source, _MOST_BYTES))


def _state_of(read: _Read) -> GuestSnapshot | FleetSnapshot:
    kind = FleetSnapshot if read.body.kind == "fleet" else GuestSnapshot
    return kind._of(read.body, read.label)  # noqa: SLF001


def summary_of_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """
    Return what is in a file, as `summary_of` does, with the form of the file and its size.

    "version" is that of the form, "unpacked_bytes" are those of the contents once they are
    unpacked. Raises as `GuestSnapshot.load`.
    """
    read = _read(path, _MOST_BYTES)
    return {
        "version": read.version,
        **summary_of(_state_of(read)),
        "file_bytes": read.size,
        "unpacked_bytes": read.unpacked,
    }


def summary_of(state: GuestSnapshot | FleetSnapshot) -> dict[str, Any]:
    """
    Return what is in a state as an object of JSON.

    Sessions of guests that have the same policy or run, and the same numbers of features and
    actions, None for those of the model, are one entry. "timers" are the names of those that guests
    have begun and not ended, with the number of guests.
    """
    is_fleet = isinstance(state, FleetSnapshot)
    live = [each for each in state.states if each is not None]
    sessions: dict[tuple[Any, ...], dict[str, Any]] = {}
    for each in live:
        for one in each.services.sessions:
            model = one.opened_with
            policy = None if model is None else f"{model[0].digest.hex()[:12]} ({model[1].name})"
            entry = sessions.setdefault(
                (policy, one.run, one.widths),
                {
                    "features": one.widths[0], "actions": one.widths[1], "policy": policy,
                    "run": one.run, "sessions": 0, "agents": 0, "remembered": 0,
                },
            )  # fmt: skip
            entry["sessions"] += 1
            if one.agents is not None:
                entry["agents"] += len(one.agents.ids)
                entry["remembered"] += one.agents.state.size
    return {
        "kind": "fleet" if is_fleet else "guest",
        "name": state.name,
        "module": state.module,
        "guests": len(state.states),
        "saved": len(live),
        "memory_bytes": sum(len(each.wasm.memory) for each in live),
        "held_bytes": state.nbytes,
        "globals": max((len(each.wasm.globals) for each in live), default=0) // bindings.VALUE_SIZE,
        "timers": dict(Counter(name for each in live for name in each.compiler[1])),
        "sessions": list(sessions.values()),
    }


def require_same_module(state: _State, module: CompiledModule) -> None:
    """Raise StateRefused for the state of another module, or with globals of other types."""
    if state.module != module.digest:
        raise StateRefused(
            f"the state is of {state.name}, whose module has the digest {state.module[:12]}…;"
            f" {module.name} has {module.digest[:12]}…"
        )
    if state._kinds != module.state.kinds:  # noqa: SLF001
        raise StateRefused(
            f"the state of {state.name} is damaged: its globals have other types than the module's"
        )


class _Read(NamedTuple):
    """The contents of a file, its name for messages, its version, and bytes before and after."""

    body: _Body
    label: str
    version: int
    size: int
    unpacked: int


def is_state_file(data: BytesLike) -> bool:
    """Whether these bytes begin as the file of a state does."""
    return bytes_of(data).startswith(_MAGIC)


def _read(source: str | os.PathLike[str] | BytesLike, most: int) -> _Read:
    """Return the contents of a file."""
    if isinstance(source, bytes | bytearray | memoryview):
        return _body(bytes(source), "the state", most)
    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"a state is {cut_repr(source)}: it takes a path, or the bytes of a file")
    path = Path(path_of(source, "state"))
    try:
        data = read_file(path, most=_MOST_BYTES)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None
    return _body(data, str(path), most)


def _body(data: bytes, label: str, most: int) -> _Read:
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
        decoded = msgspec.msgpack.decode(body, type=_Body)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise StateRefused(f"{label} is damaged: {error}") from error
    return _Read(decoded, label, version[0], len(data), len(body))


def _states(body: _Body, label: str) -> list[InstanceState | None]:
    """Return the states in a file. Raises StateRefused if one contradicts itself."""
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
    except (ValueError, IndexError, KeyError) as error:
        raise StateRefused(f"{label} is damaged: {error}") from error


def _packed(
    state: InstanceState,
    kinds: Sequence[str],
    number: Callable[[SavedSession], int | None],
) -> _Guest:
    if state.rows:
        raise StateRefused(
            "rows wait for a submit, which are not kept in files: save the guest after its frame"
        )
    services, (drawn, timers) = state.services, state.compiler
    sessions = [
        _Session(
            one.index, one.key, one.run, one.widths, number(one),
            None if one.agents is None else _packed_agents(one.agents),
            {kind: _packed_agents(others) for kind, others in one.others.items()},
        )
        for one in services.sessions
    ]  # fmt: skip
    return _Guest(
        state.wasm.memory.packed(),
        bindings.packed_globals(state.wasm.globals, kinds),
        _packed_handles(services.handles),
        _packed_handles(services.brains),
        sessions,
        services.keys,
        list(services.contexts),
        None if drawn is None else (drawn[0], list(drawn[1]), drawn[2]),
        timers,
        *state.startup,
        list(state.wasm.tables),
    )


def _packed_handles(handles: SavedHandles) -> _Handles:
    generations, free = np.array(handles.generations, "<u8"), np.array(handles.free, "<u4")
    return _Handles(generations.tobytes(), free.tobytes())


def _packed_agents(agents: SavedAgents) -> _Agents:
    columns = (column.tobytes() for column in agents)
    return _Agents(len(agents.ids), agents.state.shape[1], *columns)


def _unpacked(guest: _Guest, kinds: Sequence[str], models: Sequence[_Opened]) -> InstanceState:
    """Return a state. Raises ValueError and IndexError for one that contradicts itself."""
    used = [one.index for one in guest.sessions]
    handles = _unpacked_handles(guest.handles, used)
    if any(others.width for one in guest.sessions for others in one.others.values()):
        raise ValueError("agents of rows with actions of the guest remember something")
    keys = {one.key for one in guest.sessions}
    if len(keys) < len(guest.sessions) or max(keys, default=-1) >= guest.keys:
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
    brains = _unpacked_handles(guest.brains, ())
    memory = SavedMemory.unpacked(guest.memory)
    return InstanceState(
        WasmState(memory, bindings.unpacked_globals(guest.globals, kinds), tuple(guest.tables)),
        SavedServices(handles, brains, sessions, guest.keys, tuple(guest.contexts)),
        {},
        _unpacked_compiler(guest),
        StartupProgress(guest.is_initialized, guest.waits),
    )


def _unpacked_handles(handles: _Handles, used: Sequence[int]) -> SavedHandles:
    """Return a handle table with objects in the slots `used`. Raises ValueError."""
    generations = np.frombuffer(handles.generations, "<u8").tolist()
    free = np.frombuffer(handles.free, "<u4").tolist()
    slots = {*used, *free}
    if len(slots) < len(used) + len(free):
        raise ValueError("two objects have one handle")
    if max(slots, default=-1) >= len(generations) or max(generations, default=0) > 1 << 32:
        raise ValueError("a handle lies outside of its table")
    return SavedHandles(tuple(generations), tuple(free))


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
