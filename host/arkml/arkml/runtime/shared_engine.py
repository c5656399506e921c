"""The wasmtime engine of all hosts of the process, with its compiled modules."""

from __future__ import annotations

import os
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple

import wasmtime

from arkml.abi.catalog import APIS, FOREIGN, INTERNAL
from arkml.errors import UsageError
from arkml.limits import KIB, MIB
from arkml.runtime.compilation.compiler import config
from arkml.runtime.compilation.module_compiler import ModuleCompiler
from arkml.runtime.deadline import Ticker
from arkml.runtime.module.description import ImportInfo, ModuleInfo
from arkml.runtime.module.imports import Linkage
from arkml.runtime.module.normalize import CodePlaces, MemoryPlan, StatePlan
from arkml.runtime.module.wasm_types import FunctionType
from arkml.runtime.recent import RecentCache
from arkml.runtime.shim import render
from arkml.runtime.wasi.shim import SHIM as WASI_SHIM

TABLES = (*APIS, *FOREIGN, *INTERNAL)
IMPORTS = tuple(render.host_imports(TABLES))
"""The host-lane functions, in the order of the indices with which the shim suspends."""

_PROCESS = os.getpid()  # that imported this module; a fork of it has another id
_SMALLEST_STACK, _LARGEST_STACK = 16 * KIB, 64 * MIB  # wasmtime aborts the process beyond
_STACKS = 4  # sizes of stacks whose engines are kept
_MODULES, _MODULE_BYTES = 16, 32 * MIB  # that stay compiled although they are not used


class ShimExports(NamedTuple):
    """
    The functions that a shim exports.

    Attributes:
        rows: Functions of the ABI's tables, by module and symbol.
        game: Functions of the embedder's game.

    """

    rows: frozenset[tuple[str, str]]
    game: tuple[ImportInfo, ...]


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class ModuleCode:
    """The parts of a compiled module that do not depend on its host; see `CompiledModule`."""

    binary: bytes
    info: ModuleInfo
    linkage: Linkage
    memory: MemoryPlan | None
    has_objects: bool
    table_share: int
    places: CodePlaces
    module: Any
    stubs: wasmtime.Module | None
    functions: dict[str, FunctionType]
    shim_exports: ShimExports
    state: StatePlan


class SharedEngine:
    """
    The wasmtime engine, the compiled shims and the epoch ticker that all hosts share.

    Compiled modules belong to the engine, so that a module compiled for one host serves all. Guests
    of different hosts have no memory in common.
    """

    def __init__(self, stack: int) -> None:
        parallel = os.getpid() == _PROCESS  # its threads do not survive a fork
        self.engine = wasmtime.Engine(config(stack, parallel=parallel))
        self.compiler = ModuleCompiler(self.engine, stack)
        self.ticker = Ticker(self.engine)
        self._shims: RecentCache[ShimExports, wasmtime.Module] = RecentCache(_MODULES)
        self.modules: RecentCache[tuple[object, ...], ModuleCode] = RecentCache(
            _MODULES, _MODULE_BYTES, lambda compiled: len(compiled.binary)
        )
        """Compiled modules, by their digest, the limits on modules and the grants."""

    def shim(self, wanted: ShimExports) -> wasmtime.Module:
        """Return the compiled shim with these exports."""
        return self._shims.get(wanted, lambda: self.compiler.own(render.module(TABLES, *wanted)))

    @cached_property
    def wasi_shim(self) -> wasmtime.Module:
        """The shim between guests with a WASI grant and wasmtime's WASI."""
        return self.compiler.own(WASI_SHIM)


_engines: RecentCache[int, SharedEngine] = RecentCache(_STACKS)


def shared_engine(stack: int) -> SharedEngine:
    """Return the engine for guests with `stack` bytes of stack. Raises UsageError."""
    if not _SMALLEST_STACK <= stack <= _LARGEST_STACK:
        raise UsageError(
            f"Limits.wasm_stack is {stack}: it takes {_SMALLEST_STACK} to {_LARGEST_STACK}"
        )
    return _engines.get(stack, lambda: SharedEngine(stack))


def _forget_engines() -> None:
    """Forget the engines of the process that this one is a fork of, whose threads are gone."""
    global _engines
    _engines = RecentCache(_STACKS)


os.register_at_fork(after_in_child=_forget_engines)
