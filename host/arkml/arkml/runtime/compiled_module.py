"""A guest module, checked, rewritten and compiled."""

from __future__ import annotations

import hashlib
import logging
import re
import sys
from functools import cached_property
from pathlib import Path
from typing import Any

import wasmtime

from arkml.base.closing import Unique
from arkml.base.loggers import SafeLogger, notice
from arkml.base.sealed import Sealed
from arkml.errors import ModuleRejected
from arkml.limits import Limits
from arkml.runtime.compilation.outlines import load_outline, outlined, save_outline
from arkml.runtime.engine import Engine
from arkml.runtime.game_functions import NO_FUNCTIONS, BoundFunction, GameFunctions
from arkml.runtime.module.binary import Binary
from arkml.runtime.module.description import ModuleInfo
from arkml.runtime.module.imports import Linkage, resolve, stub_module, stub_note
from arkml.runtime.module.normalize import CodePlaces, MemoryPlan, Normalized, StatePlan, normalize
from arkml.runtime.module.parsing import COMPONENT, parse
from arkml.runtime.module.refusals import check, check_size, checked_limits, table_share
from arkml.runtime.module.wasm_types import FunctionType
from arkml.runtime.shared_engine import ModuleCode, ShimExports
from arkml.runtime.wasi.linking import shim_exports

logger = SafeLogger(__name__)

_ESTIMATED_HERE = 1 << 20
"""Bytes of a module up to which estimating its cost takes at most some 0.1 s and 60 MiB."""
_COMPONENT_TEXT = re.compile(rb"\s*\(\s*component\b")


class CompiledModule(Sealed, Unique):
    """
    A compiled guest module, from which guests are made.

    The same bytes are compiled once for all hosts of the process with equal grants and equal limits
    on modules. `Host.compile` makes compiled modules.

    Attributes:
        name: Name of the module in messages, such as "walker.wasm".
        file: Path of the file that the module was read from, None for bytes.
        limits: The limits of the host that compiled the module.
        digest: SHA-256 of the bytes that were given.
        binary: The module in the binary format, before it was rewritten.
        info: Description of the module.
        functions: Types of the exported functions by name, such as `(i32 f64) -> (f64)`.
        table_share: Number of elements to which each table may grow.
        shim_exports: The functions that the shim of the module's guests exports.
        game: The functions of the host's game that the module imports.

    """

    _is_read_only = True

    def __init__(
        self,
        engine: Engine,
        data: bytes,
        name: str,
        limits: Limits,
        *,
        wasi: bool = False,
        stub_missing: bool = False,
        game: GameFunctions = NO_FUNCTIONS,
        file: Path | None = None,
    ) -> None:
        """Compile `data`. Raises ModuleError, MemoryLimitExceeded and TableLimitExceeded."""
        check_size(data, limits)
        self.name = name
        self.file = file
        self.limits = limits
        self.digest: str = hashlib.sha256(data).hexdigest()
        compiled = self._compiled = engine.modules.get(
            (self.digest, checked_limits(limits), wasi, stub_missing, game.names),
            lambda: _compile(
                engine,
                data,
                self.digest,
                name,
                limits,
                wasi=wasi,
                stub_missing=stub_missing,
                given=game.names,
            ),
        )
        self.binary: bytes = compiled.binary
        self.info: ModuleInfo = compiled.info
        self.linkage: Linkage = compiled.linkage
        self.memory: MemoryPlan | None = compiled.memory
        self.has_objects: bool = compiled.has_objects
        self.table_share: int = compiled.table_share
        self.places: CodePlaces = compiled.places
        self.module: Any = compiled.module
        self.stubs: wasmtime.Module | None = compiled.stubs
        self.functions: dict[str, FunctionType] = compiled.functions
        self.state: StatePlan = compiled.state
        self.shim_exports: ShimExports = compiled.shim_exports
        self.game: tuple[BoundFunction, ...] = game.bind(self.linkage.game, name)
        for stub in self.linkage.stubs:
            notice(logger, logging.WARNING, f"{name}: {stub_note(stub)}")
        for sentence in game.unused({(each.module, each.name) for each in self.info.imports}):
            notice(logger, logging.WARNING, f"{name}: {sentence}")

    @cached_property
    def binary_digest(self) -> str:
        """SHA-256 of `binary`, by which a hive identifies the module."""
        return hashlib.sha256(self.binary).hexdigest()


def _compile(
    engine: Engine,
    data: bytes,
    digest: str,
    name: str,
    limits: Limits,
    *,
    wasi: bool,
    stub_missing: bool,
    given: frozenset[tuple[str, str]],
) -> ModuleCode:
    binary = to_binary(data, name)
    if binary is not data:
        digest = hashlib.sha256(binary).hexdigest()
    read: list[Normalized] = []

    def normalized() -> Normalized:
        if not read:
            read.append(normalize(binary, limits))
        return read[0]

    kept = load_outline(digest)
    outline = kept or outlined(normalized())
    check(outline.binary, limits)
    info = outline.info
    wasi_type = engine.wasi.type_of if wasi else None
    linkage = resolve(
        info.imports, name, wasi_type=wasi_type, stub_missing=stub_missing, given=given
    )
    module = engine.compiler.guest(
        outline.code,
        lambda: normalized().wasm,
        name,
        lambda: _is_quick(normalized().binary, name, limits),
        limits.compile_seconds,
    )
    if kept is None:
        save_outline(digest, outline)
    exports = shim_exports(linkage)
    engine.shim(exports)  # compiled now, and not when the first guest is made
    stubs = None
    if linkage.stubs:
        stubs = _stubs(engine, linkage, name, limits)
    functions = {
        export.name: export.type for export in info.exports if isinstance(export.type, FunctionType)
    }
    return ModuleCode(
        binary, info, linkage, outline.memory, outline.has_objects,
        table_share(outline.binary.tables, limits.table_elements),
        outline.places,
        module, stubs, functions, exports, outline.state,
    )  # fmt: skip


def _is_quick(binary: Binary, name: str, limits: Limits) -> bool:
    """Return whether a module is compiled in this process. Raises ModuleTooComplex."""
    # Even the estimate of a large module takes time and memory of a guest's choice (decision 20).
    if len(binary.data) > _ESTIMATED_HERE and sys.executable:
        from arkml.runtime.compilation.child import check_in_child

        check_in_child(binary.data, name, limits.compile_seconds)
        return False
    from arkml.runtime.module import complexity  # of no use for a module in the cache

    return complexity.check(binary)


def _stubs(engine: Engine, linkage: Linkage, name: str, limits: Limits) -> wasmtime.Module:
    """Compile the stubs of missing imports, under the same limits: a guest may name many."""
    wasm = bytes(wasmtime.wat2wasm(stub_module(linkage.stubs)))
    return engine.compiler.guest(
        hashlib.sha256(wasm).hexdigest(),
        lambda: wasm,
        f"stubs of {name}",
        lambda: _is_quick(parse(wasm), name, limits),
        limits.compile_seconds,
    )


def to_binary(data: bytes, name: str) -> bytes:
    """Return a module in binary format: `data` itself, or its translation from the text format."""
    if data[:4] == b"\0asm" or data.lstrip()[:1] != b"(":
        return data
    if _COMPONENT_TEXT.match(data):
        raise ModuleRejected(f"{name}: {COMPONENT}")
    try:
        return bytes(wasmtime.wat2wasm(data.decode()))
    except (wasmtime.WasmtimeError, UnicodeDecodeError) as error:
        raise ModuleRejected(f"{name} is not a module: {' '.join(str(error).split())}") from None
