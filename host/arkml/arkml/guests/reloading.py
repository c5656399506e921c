"""Reloading: a rebuilt module replaces a guest's module and takes over its state."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from enum import Enum
from functools import lru_cache
from typing import Any, NamedTuple, TypeAlias

from arkml.errors import EntryPointMissing
from arkml.guests.call_loop import CallLoop
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.module.binary import SectionId
from arkml.runtime.module.parsing import parse
from arkml.runtime.module.wasm_types import FunctionType

FIRST_CALLS = 10
"""Calls after a reload in which the guest goes back to the module before if the new one fails."""

RESTORE_EXPORT = "ark_state_restore"
"""The export that takes what `ark_state_persist` has returned."""

_SAVE = "ark_state_persist"
_TYPES = {_SAVE: FunctionType((), ("i32",)), RESTORE_EXPORT: FunctionType(("i32", "i32"), ("i32",))}


class Reloaded(Enum):
    """
    How the state of a guest was carried over to a reloaded module.

    Attributes:
        HANDED_OVER: The guest's own `ark_state_persist` saved it, and `ark_state_restore` loaded
            it.
        KEPT: Memory, globals, handles and sessions stayed as they were; only code has changed.
        ANEW: Not at all: the module begins as a new guest does.

    """

    HANDED_OVER = "handed over"
    KEPT = "kept"
    ANEW = "anew"


Compiled: TypeAlias = Callable[[Any], CompiledModule]
"""Returns the compiled module of a source, or a compiled one as it is."""


class Remake(NamedTuple):
    """
    Functions that replace the module of a guest.

    `compile` returns a module from a source; `make` returns the call loop of a new instance of it,
    under the name of the guest.
    """

    compile: Compiled
    make: Callable[[int, CompiledModule], CallLoop]


class ReloadTrial:
    """
    The first calls of a guest after a reload, in which the reload can still be undone.

    `undo` returns to the previous module, or returns False if that has to begin anew. `keep` frees
    the previous module.
    """

    __slots__ = ("keep", "left", "undo")

    def __init__(self, undo: Callable[[], bool], keep: Callable[[], None]) -> None:
        self.left = FIRST_CALLS
        self.undo = undo
        self.keep = keep


def way_of(before: CompiledModule, after: CompiledModule) -> Reloaded:
    """Return how the state of a guest will be carried over, unless that proves to be impossible."""
    if _hands_over(before) and _hands_over(after):
        return Reloaded.HANDED_OVER
    return Reloaded.KEPT if have_one_layout(before, after) else Reloaded.ANEW


def require_called(before: CompiledModule, after: CompiledModule, names: Iterable[str]) -> None:
    """
    Raise EntryPointMissing if a module lacks functions by which a guest was called before.

    The functions that save and restore the state may be missing.
    """
    for name in names:
        kind, found = before.functions.get(name), after.functions.get(name)
        if kind is None or name in _TYPES or found == kind:
            continue
        has = f"{name} {found}" if found else f"no {name}"
        raise EntryPointMissing(
            f"{after.name} exports {has}: the guest was called by {name} {kind}, which a module"
            " that takes over has to have"
        )


def have_one_layout(before: CompiledModule, after: CompiledModule) -> bool:
    """
    Return whether two modules differ at most in their code, so that memory stays valid.

    Tables that the old code may have changed can only be kept by a module whose code may change
    them, too.
    """
    if before.state.tables not in ((), after.state.tables):
        return False
    return _layout(before.binary) == _layout(after.binary)


def _hands_over(module: CompiledModule) -> bool:
    return module.info.takes_bytes and all(
        module.functions.get(name) == kind for name, kind in _TYPES.items()
    )


@lru_cache(16)
def _layout(binary: bytes) -> bytes:
    """
    Return a digest of all that a module's memory may refer to: every section but code and names.

    Equal ones have the same data, globals, tables of functions, and numbers and types of functions.
    """
    digest = hashlib.sha256()
    for section in parse(binary).sections:
        if section.id not in (SectionId.CODE, SectionId.CUSTOM):
            digest.update(bytes((section.id,)) + binary[section.payload : section.end])
    return digest.digest()
