"""A wasmtime engine with its settings, the compiled shim, the column memory and the ticker."""

from __future__ import annotations

import os
import threading
import weakref
from functools import cached_property

import wasmtime

from arkml.abi.catalog import APIS, FOREIGN, INTERNAL
from arkml.errors import ModuleRejected, UsageError
from arkml.limits import KIB, MIB, Limits
from arkml.runtime import bindings
from arkml.runtime.columns.arena import Arena
from arkml.runtime.deadline import Ticker
from arkml.runtime.shim import render
from arkml.runtime.wasi.linking import WasiLinker

TABLES = (*APIS, *FOREIGN, *INTERNAL)
IMPORTS = tuple(render.host_imports(TABLES))
"""The host-lane functions by the index with which the shim suspends."""


_PROCESS = os.getpid()  # that imported this module; a fork of it has another id
_SMALLEST_STACK, _LARGEST_STACK = 16 * KIB, 64 * MIB  # wasmtime aborts the process beyond


class Engine:
    """
    The wasmtime objects common to all guests of a host.

    One linker is filled anew with the imports of each guest, guarded by `linking`. Items of other
    Stores that remain in it are never looked up again.
    """

    def __init__(self, limits: Limits) -> None:
        config = wasmtime.Config()
        config.wasm_threads = True  # the column memory is shared; guests may not use it
        config.shared_memory = True
        config.wasm_memory64 = False
        config.epoch_interruption = True
        config.memory_may_move = False  # base addresses are kept
        config.parallel_compilation = os.getpid() == _PROCESS  # its threads do not survive a fork
        stack = limits.wasm_stack
        if not _SMALLEST_STACK <= stack <= _LARGEST_STACK:
            raise UsageError(
                f"Limits.wasm_stack is {stack}: it takes {_SMALLEST_STACK} to {_LARGEST_STACK}"
            )
        config.max_wasm_stack = stack
        bindings.set_async_stack(config, max(2 * stack, stack + 256 * KIB))
        self.engine = wasmtime.Engine(config)
        self.arena = Arena(self.engine)
        self.ticker = Ticker(self.engine)
        weakref.finalize(self, self.ticker.stop)
        self.linking = threading.Lock()
        self.linker = wasmtime.Linker(self.engine)
        self.linker.allow_shadowing = True
        self._root = wasmtime.Store(self.engine)
        bindings.define_shared_memory(self.linker, self._root, "columns", self.arena.memory)
        bindings.define_suspend(self.linker, "arkml", "suspend")
        text = render.module(TABLES, self.arena.base)
        self.shim = bindings.prepare(self.linker, wasmtime.Module(self.engine, text))

    def compile(self, wasm: bytes, name: str) -> wasmtime.Module:
        """Compile a core module, or raise ModuleRejected."""
        try:
            return wasmtime.Module(self.engine, wasm)
        except wasmtime.WasmtimeError as error:
            reason = " ".join(str(error).split())
            raise ModuleRejected(
                f"{name} is not a module that this host can run: {reason}"
            ) from None

    @cached_property
    def wasi(self) -> WasiLinker:
        """The linker of guests with a WASI grant."""
        return WasiLinker(self.engine, self._root)

    def close(self) -> None:
        """
        Stop the ticker and free the linkers and the shim; existing guests stay alive.

        The column memory is unmapped once it is no longer referenced.
        """
        self.ticker.close()
        self.shim.close()
        if "wasi" in vars(self):
            self.wasi.close()
        self.linker.close()
        self._root.close()
