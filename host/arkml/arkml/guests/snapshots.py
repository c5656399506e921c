"""Saved states of guests and fleets, and the files that hold them."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self

from arkml.base.output_files import path_of, write_file
from arkml.base.sealed import Sealed
from arkml.errors import StateRefused
from arkml.guests.instance import InstanceState
from arkml.guests.state_columns import StateColumns
from arkml.guests.state_files import (
    MOST_BYTES,
    StateBody,
    StateFile,
    read_states,
    states_in,
    written_states,
)
from arkml.runtime import bindings
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.memory import BytesLike


class _State(Sealed):
    """The common base of the states of a guest and of a fleet."""

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

        Raises StateRefused while the guest waits for the start of a training.
        """
        return written_states(self._kind, self.module, self.name, self._kinds, self.states)

    @property
    def nbytes(self) -> int:
        """Bytes of the copies of memories in the state, without pages that are all zero."""
        return sum(state.wasm.memory.nbytes for state in self.states if state is not None)

    @classmethod
    def _of(cls, body: StateBody, label: str) -> Self:
        """Return the state in a file of this kind. Raises StateRefused."""
        raise NotImplementedError

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a file with the state, as `bytes` gives it. Raises UsageError and StateRefused."""
        write_file(path_of(path, "path"), bytes(self))

    @classmethod
    def load(
        cls, source: str | os.PathLike[str] | BytesLike, *, most_bytes: int = MOST_BYTES
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
        body, label, *_ = read_states(source, most_bytes)
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
    def _of(cls, body: StateBody, label: str) -> Self:
        (state,) = states_in(body, label)
        assert state is not None
        return cls(body.module, body.name, body.globals, state)

    @property
    def state(self) -> InstanceState:
        """The saved state, in the form that an instance loads."""
        return self._state

    @property
    def states(self) -> Sequence[InstanceState]:
        """A sequence of only this guest's state."""
        return (self._state,)


class FleetSnapshot(_State):
    """
    The states of the guests of a fleet between two frames, made by `Fleet.snapshot`.

    Guests that had failed or were closed are not in it.

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
        """Store the states of the guests, out of `count`, whose indices are in `saved`."""
        super().__init__(module, name, kinds)
        self._count = count
        self.saved: tuple[int, ...] = tuple(saved)
        self.columns: StateColumns = columns

    @classmethod
    def _of(cls, body: StateBody, label: str) -> Self:
        found = {
            index: state for index, state in enumerate(states_in(body, label)) if state is not None
        }
        columns = StateColumns.of(list(found.values()))
        count = len(body.guests)
        return cls(body.module, body.name, body.globals, count, list(found), columns)

    def __len__(self) -> int:
        """Return the number of guests."""
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the copies of guest memories, without pages that are all zero."""
        return sum(self.columns.memories.nbytes)

    @property
    def states(self) -> Sequence[InstanceState | None]:
        """
        The state of each guest in the form that an instance loads, None for a guest without one.
        """
        found = {index: self.columns[number] for number, index in enumerate(self.saved)}
        return [found.get(index) for index in range(self._count)]


def read_state(source: str | os.PathLike[str] | BytesLike) -> GuestSnapshot | FleetSnapshot:
    """Return the state of a guest or of a fleet from a file. Raises as `GuestSnapshot.load`."""
    return _state_of(read_states(source))


def _state_of(read: StateFile) -> GuestSnapshot | FleetSnapshot:
    kind = FleetSnapshot if read.body.kind == "fleet" else GuestSnapshot
    return kind._of(read.body, read.label)  # noqa: SLF001


def summary_of_file(path: str | os.PathLike[str]) -> dict[str, Any]:
    """
    Return a summary of a state file: that of `summary_of`, the file's version and its sizes.

    "version" is that of the format, "unpacked_bytes" the size of the contents once they are
    unpacked. Raises as `GuestSnapshot.load`.
    """
    read = read_states(path)
    return {
        "version": read.version,
        **summary_of(_state_of(read)),
        "file_bytes": read.size,
        "unpacked_bytes": read.unpacked,
    }


def summary_of(state: GuestSnapshot | FleetSnapshot) -> dict[str, Any]:
    """
    Return a summary of a saved state as an object for JSON.

    Sessions of guests with the same policy or run and the same numbers of features and actions make
    one entry; the numbers are None where the model's hold. "timers" are the names of timers that
    guests have begun and not ended, with the number of guests; "futures" are results that guests
    wait for or did not take, by type, and "brains" the models of ark-ml-inference-v0.
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
        "futures": dict(
            Counter(one.future.type.name for each in live for one in each.services.futures)
        ),
        "brains": dict(
            Counter(
                f"{one.opened_with[0].digest.hex()[:12]} ({one.opened_with[1].name})"
                for each in live
                for one in each.services.brains.brains
            )
        ),
    }


def require_digest(state: GuestSnapshot | FleetSnapshot, name: str, digest: str) -> None:
    """Raise StateRefused if a state is of another module than the named one with this digest."""
    if state.module != digest:
        raise StateRefused(
            f"the state belongs to another module: it is of {state.name}, whose module has the"
            f" digest {state.module[:12]}…; {name} has {digest[:12]}…"
        )


def require_same_module(state: GuestSnapshot | FleetSnapshot, module: CompiledModule) -> None:
    """Raise StateRefused if a state is of another module, or has globals of other types."""
    require_digest(state, module.name, module.digest)
    if state._kinds != module.state.kinds:  # noqa: SLF001
        raise StateRefused(
            f"the state of {state.name} is damaged: its globals have other types than the module's"
        )
