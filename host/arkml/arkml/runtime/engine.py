"""The wasmtime objects of one host: its linkers and its column memory, over a shared engine."""

from __future__ import annotations

import itertools
import threading
import weakref
from functools import cached_property

import wasmtime

from arkml.limits import Limits
from arkml.runtime import bindings, threads
from arkml.runtime.columns.arena import Arena
from arkml.runtime.deadline import Ticker
from arkml.runtime.mappings import explained
from arkml.runtime.shared_engine import ShimExports, shared_engine
from arkml.runtime.steps import StepList
from arkml.runtime.wasi.linking import WasiLinker

_numbers = itertools.count()
_SHIMS = 64  # by what guests import, that a host keeps


class Engine:
    """
    The wasmtime objects common to all guests of a host.

    All hosts of the process share `engine`, `modules`, `compiler`, the ticker and the compiled
    shims. One linker, guarded by `linking`, is filled with the imports of each new guest. Items of
    earlier guests stay in it, but are never looked up.
    """

    def __init__(self, limits: Limits) -> None:
        with explained():
            self._shared = shared_engine(limits.wasm_stack)
            self.engine = self._shared.engine
            self.arena = Arena(self.engine)
        self.modules = self._shared.modules
        self.compiler = self._shared.compiler
        self.ticker = self._shared.ticker
        self._number = next(_numbers)
        self.ticker.users.add(self._number)
        threads.enter(self._number)
        weakref.finalize(self, _leave, self.ticker, self._number)
        self.linking = threading.Lock()
        self.linker = wasmtime.Linker(self.engine)
        self.linker.allow_shadowing = True
        self._root = wasmtime.Store(self.engine)
        bindings.define_shared_memory(self.linker, self._root, "columns", self.arena.memory)
        bindings.define_suspend(self.linker, "arkml", "suspend")
        self.address = bindings.address_of(self.engine.ptr())
        """The address of the engine's wasm_engine_t."""
        self.makers: weakref.WeakKeyDictionary[object, dict[tuple[int, bool], StepList]] = (
            weakref.WeakKeyDictionary()
        )
        """Steps that make the instances of guests, by module and what they are granted."""
        self._shims: dict[ShimExports, wasmtime.InstancePre] = {}

    def shim(self, wanted: ShimExports) -> wasmtime.InstancePre:
        """Return a shim with these exports, type-checked and ready to be instantiated."""
        shim = self._shims.get(wanted)
        if shim is None:
            compiled = self._shared.shim(wanted)
            with self.linking:
                shim = bindings.prepare(self.linker, compiled)
                while len(self._shims) >= _SHIMS:
                    self._shims.popitem()
                self._shims[wanted] = shim
        return shim

    @cached_property
    def wasi(self) -> WasiLinker:
        """The linker of guests with a WASI grant."""
        return WasiLinker(self.engine, self._root, self._shared.wasi_shim)

    def close(self) -> None:
        """
        Free the linkers and the shims; the ticker and the worker threads end with the last host.

        Guests stay alive. The column memory is unmapped once it is no longer referenced.
        """
        self.ticker.close(self._number)
        threads.leave(self._number)
        self.makers.clear()
        for shim in list(self._shims.values()):
            bindings.free(shim)
        if "wasi" in vars(self):
            self.wasi.close()
        bindings.free(self.linker)
        bindings.free(self._root)


def _leave(ticker: Ticker, number: int) -> None:
    """Let the threads end if this was the last host. Takes no lock: it is a finalizer."""
    ticker.leave(number)
    threads.leave(number)
