"""A guest module, checked, rewritten and compiled."""

from __future__ import annotations

import hashlib
import logging
from typing import Any

import wasmtime

from arkml.closing import Unique
from arkml.errors import ModuleRejected
from arkml.limits import Limits
from arkml.runtime.engine import Engine
from arkml.runtime.module.description import ModuleInfo, describe
from arkml.runtime.module.imports import Linkage, resolve, stub_module, stub_note
from arkml.runtime.module.normalize import MemoryPlan, normalize
from arkml.runtime.module.refusals import check_size
from arkml.runtime.module.wasm_types import FunctionType

logger = logging.getLogger(__name__)


class CompiledModule(Unique):
    """
    A compiled guest module, of which guests are instances.

    `digest` is the SHA-256 of the bytes given, `binary` the module in the binary format, as it was
    given. `functions` are the types of the exported functions.
    """

    def __init__(
        self,
        engine: Engine,
        data: bytes,
        name: str,
        limits: Limits,
        *,
        wasi: bool = False,
        stub_missing: bool = False,
    ) -> None:
        """Compile `data`. Raises ModuleError, MemoryLimitExceeded and TableLimitExceeded."""
        check_size(data, limits)
        self.binary: bytes = to_binary(data, name)
        normalized = normalize(self.binary, limits)
        self.name = name
        self.limits = limits
        self.digest: str = hashlib.sha256(data).hexdigest()
        self.info: ModuleInfo = describe(normalized.binary)
        self.linkage: Linkage = resolve(
            normalized.binary,
            name,
            wasi_type=engine.wasi.type_of if wasi else None,
            stub_missing=stub_missing,
        )
        self.memory: MemoryPlan | None = normalized.memory
        self.has_start: bool = normalized.has_start
        self.module: Any = engine.compile(normalized.wasm, name)
        self.stubs: wasmtime.Module | None = None
        if self.linkage.stubs:
            for stub in self.linkage.stubs:
                logger.warning("%s: %s", name, stub_note(stub))
            self.stubs = engine.compile(
                bytes(wasmtime.wat2wasm(stub_module(self.linkage.stubs))), f"stubs of {name}"
            )
        self.functions: dict[str, FunctionType] = {
            export.name: export.type
            for export in self.info.exports
            if isinstance(export.type, FunctionType)
        }


def to_binary(data: bytes, name: str) -> bytes:
    """Return `data`, or the binary of a module in text format."""
    if data[:4] == b"\0asm" or data.lstrip()[:1] != b"(":
        return data
    try:
        return bytes(wasmtime.wat2wasm(data.decode()))
    except (wasmtime.WasmtimeError, UnicodeDecodeError) as error:
        raise ModuleRejected(f"{name} is not a module: {' '.join(str(error).split())}") from None
