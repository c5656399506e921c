"""Saved states of guests and fleets, and the files that hold them."""

from __future__ import annotations

import hashlib
import os
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

import msgspec
import numpy as np
from msgspec import Meta, Struct

from arkml.abi.codes import SnapshotFormat
from arkml.base.files import read_file
from arkml.base.output_files import path_of, write_file
from arkml.base.sealed import Sealed
from arkml.base.short_reprs import cut_repr
from arkml.errors import StateRefused, UsageError
from arkml.guests.instance import NO_COMPILER, InstanceState
from arkml.limits import GIB
from arkml.policies.agents import SavedAgents
from arkml.policies.demands import Snapshot
from arkml.runtime import bindings
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.memory import PAGE, BytesLike
from arkml.runtime.sandbox import WasmState
from arkml.sessions.handles import SavedHandles
from arkml.sessions.saved_sessions import SavedServices, SavedSession

_MAGIC = b"arkml-state\n"
_VERSION = 1
_DIGEST = hashlib.sha256().digest_size
_MOST_BYTES = 4 * GIB  # of a file, and of its contents
_LEVEL = 1  # of compression: memories are large, and mostly zeros

_Count = Annotated[int, Meta(ge=0, lt=1 << 32)]
_Word = Annotated[int, Meta(ge=0, lt=1 << 32)]


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
    training: bool
    widths: tuple[_Count | None, _Count | None]
    model: _Count | None  # its index among the models of the file
    non_finite_actions: _Count
    agents: _Agents | None


class _Guest(Struct, frozen=True, forbid_unknown_fields=True):
    memory: bytes
    globals: bytes
    generations: list[_Word]
    free: list[_Count]
    sessions: list[_Session]
    keys: _Count
    contexts: list[tuple[str, str]]
    random: tuple[int, list[_Word], float | None] | None
    timers: dict[str, float]


class _Model(Struct, frozen=True, forbid_unknown_fields=True):
    data: bytes
    format: SnapshotFormat


class _Body(Struct, frozen=True, forbid_unknown_fields=True):
    kind: str
    module: str
    name: str
    globals: list[str]
    models: list[_Model]
    guests: list[_Guest | None]


_Opened = tuple[Snapshot, SnapshotFormat]


class _State(Sealed):
    """What the states of a guest and of a fleet have in common."""

    _is_read_only = True
    _kind: ClassVar[str]

    def __init__(
        self,
        module: str,
        name: str,
        kinds: Sequence[str],
        states: Sequence[InstanceState | None],
    ) -> None:
        self.module = module
        self.name = name
        self._kinds = tuple(kinds)
        self._states = tuple(states)

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
            None if state is None else _packed(state, self._kinds, number) for state in self._states
        ]
        body = _Body(self._kind, self.module, self.name, list(self._kinds), data, guests)
        content = zlib.compress(msgspec.msgpack.encode(body), _LEVEL)
        head = _MAGIC + bytes((_VERSION,)) + hashlib.sha256(content).digest()
        return head + content

    @property
    def nbytes(self) -> int:
        """The bytes of the memories in it."""
        return sum(len(state.wasm.memory) for state in self._states if state is not None)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file with the state, as `bytes` gives it. Raises UsageError and StateRefused."""
        write_file(path_of(path, "path"), bytes(self))

    @classmethod
    def load(cls, source: str | os.PathLike[str] | BytesLike) -> Self:
        """
        Return the state in a file, or in the bytes of one.

        Raises StateRefused for a file that is damaged, of a later release or no state of this kind,
        and UsageError for one that cannot be read.
        """
        data, label = _contents(source)
        body = _body(data, label)
        if body.kind != cls._kind:
            raise StateRefused(f"{label} has the state of a {body.kind}, not of a {cls._kind}")
        try:
            models = [
                (Snapshot(model.data, hashlib.sha256(model.data).digest()), model.format)
                for model in body.models
            ]
            states = [
                None if guest is None else _unpacked(guest, body.globals, models)
                for guest in body.guests
            ]
        except (ValueError, IndexError, KeyError) as error:
            raise StateRefused(f"{label} is damaged: {error}") from error
        return cls(body.module, body.name, body.globals, states)


class GuestSnapshot(_State):
    """
    The state of a guest between two calls, made by `Guest.snapshot`.

    It holds the memory, the globals that change, handles and sessions of inference with their
    agents, and rows that wait for a submit. Policies and runs are named, not copied, and files and
    positions in files that a guest has open through WASI are not in it.

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

    @property
    def state(self) -> InstanceState:
        """The state, as an instance takes it."""
        state = self._states[0]
        assert state is not None
        return state


class FleetSnapshot(_State):
    """
    The states of the guests of a fleet between two frames, made by `Fleet.snapshot`.

    Guests that had failed or were closed have none.

    Attributes:
        module: The digest of the module (`CompiledModule.digest`).
        name: Name of the fleet.

    Example:
        saved = fleet.snapshot()
        fleet.update()
        fleet.restore(saved)

    """

    _kind = "fleet"

    def __len__(self) -> int:
        """Return the number of guests."""
        return len(self._states)

    @property
    def states(self) -> tuple[InstanceState | None, ...]:
        """The state of each guest, as an instance takes it."""
        return self._states


def read_state(source: str | os.PathLike[str] | BytesLike) -> GuestSnapshot | FleetSnapshot:
    """Return the state of a guest or of a fleet in a file; raises as `GuestSnapshot.load`."""
    data, label = _contents(source)
    return (FleetSnapshot if _body(data, label).kind == "fleet" else GuestSnapshot).load(data)


def require_same_module(state: _State, module: CompiledModule) -> None:
    """Raise StateRefused for the state of another module."""
    if state.module != module.digest:
        raise StateRefused(
            f"the state is of {state.name}, whose module has the digest {state.module[:12]}…;"
            f" {module.name} has {module.digest[:12]}…"
        )


def _contents(source: str | os.PathLike[str] | BytesLike) -> tuple[bytes, str]:
    if isinstance(source, bytes | bytearray | memoryview):
        return bytes(source), "the state"
    if not isinstance(source, str | os.PathLike):
        raise UsageError(f"a state is {cut_repr(source)}: it takes a path, or the bytes of a file")
    path = Path(path_of(source, "state"))
    try:
        return read_file(path, most=_MOST_BYTES), str(path)
    except OSError as error:
        raise UsageError(f"{path} cannot be read: {error.strerror}") from None


def _body(data: bytes, label: str) -> _Body:
    if not data.startswith(_MAGIC):
        raise StateRefused(f"{label} is not the state of a guest: it begins with {data[:12]!r}")
    start = len(_MAGIC) + 1
    if len(data) > len(_MAGIC) and data[start - 1] > _VERSION:
        raise StateRefused(
            f"{label} has version {data[start - 1]}, of a later release of arkml than this one,"
            f" which reads version {_VERSION}"
        )
    digest, content = data[start : start + _DIGEST], data[start + _DIGEST :]
    if hashlib.sha256(content).digest() != digest:
        raise StateRefused(f"{label} is damaged: it was cut or altered")
    unzip = zlib.decompressobj()
    try:
        body = unzip.decompress(content, _MOST_BYTES)
        if not unzip.eof:
            raise StateRefused(f"{label} is damaged, or over {_MOST_BYTES >> 30} GiB")
        return msgspec.msgpack.decode(body, type=_Body)
    except (zlib.error, msgspec.MsgspecError) as error:
        raise StateRefused(f"{label} is damaged: {error}") from error


def _packed(state: InstanceState, kinds: Sequence[str], number: Any) -> _Guest:
    if state.rows:
        raise StateRefused(
            "rows wait for a submit, which are not kept in files: save the guest after its frame"
        )
    handles, sessions, keys, contexts = state.services
    drawn, timers = state.compiler
    return _Guest(
        state.wasm.memory,
        bindings.packed_globals(state.wasm.globals, kinds),
        list(handles.generations),
        list(handles.free),
        [
            _Session(
                one.index, one.key, one.training, one.widths, number(one),
                one.non_finite_actions, None if one.agents is None else _packed_agents(one.agents),
            )
            for one in sessions
        ],
        keys,
        list(contexts),
        None if drawn is None else (drawn[0], list(drawn[1]), drawn[2]),
        timers,
    )  # fmt: skip


def _packed_agents(agents: SavedAgents) -> _Agents:
    columns = (column.tobytes() for column in agents)
    return _Agents(len(agents.ids), agents.state.shape[1], *columns)


def _unpacked(guest: _Guest, kinds: Sequence[str], models: Sequence[_Opened]) -> InstanceState:
    """Return a state. Raises ValueError and IndexError for one that contradicts itself."""
    if len(guest.memory) % PAGE:
        raise ValueError(f"{len(guest.memory)} bytes of memory are not whole pages")
    handles = SavedHandles(tuple(guest.generations), tuple(guest.free))
    used = {one.index for one in guest.sessions}
    slots = range(len(handles.generations))
    if len(used) < len(guest.sessions) or not used.isdisjoint(handles.free):
        raise ValueError("two objects have one handle")
    if not (used | set(handles.free)) <= set(slots) or len(set(handles.free)) < len(handles.free):
        raise ValueError("a handle lies outside of its table")
    compiler = NO_COMPILER
    if guest.random is not None or guest.timers:
        drawn = None
        if guest.random is not None:
            version, words, gauss = guest.random
            drawn = (version, tuple(words), gauss)
            _require_random(drawn)
        compiler = (drawn, guest.timers)
    return InstanceState(
        WasmState(guest.memory, bindings.unpacked_globals(guest.globals, kinds)),
        SavedServices(
            handles,
            tuple(_unpacked_session(one, models) for one in guest.sessions),
            guest.keys,
            tuple(guest.contexts),
        ),
        {},
        compiler,
    )


def _unpacked_session(one: _Session, models: Sequence[_Opened]) -> SavedSession:
    return SavedSession(
        one.index,
        one.key,
        one.training,
        one.widths,
        None if one.model is None else models[one.model],
        one.non_finite_actions,
        None if one.agents is None else _unpacked_agents(one.agents),
    )


def _require_random(state: Any) -> None:
    import random

    try:
        random.Random(0).setstate(state)
    except (TypeError, ValueError) as error:
        raise ValueError(f"its random numbers: {error}") from None


def _unpacked_agents(agents: _Agents) -> SavedAgents:
    count, width = agents.count, agents.width
    return SavedAgents(
        np.frombuffer(agents.ids, np.uint64, count),
        np.frombuffer(agents.steps, np.uint64, count),
        np.frombuffer(agents.ended, np.uint8, count) != 0,
        np.frombuffer(agents.state, np.float32).reshape(count, width),
    )
