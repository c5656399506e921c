"""The making of compiled modules for one engine: from the cache, in a thread or in a process."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable
from queue import SimpleQueue

import wasmtime

from arkml.errors import ModuleRejected
from arkml.runtime import bindings
from arkml.runtime.compilation import artifacts


class ModuleCompiler:
    """Makes modules for `engine`, whose guests have `stack` bytes of stack."""

    def __init__(self, engine: wasmtime.Engine, stack: int) -> None:
        self._engine = engine
        self._stack = stack

    def own(self, text: str | bytes) -> wasmtime.Module:
        """Return a module of this package, in text or binary format."""
        source = text.encode() if isinstance(text, str) else text
        entry = artifacts.entry_name(source, self._stack)
        return self._cached(entry, lambda: wasmtime.Module(self._engine, text))

    def guest(
        self,
        digest: str,
        source: Callable[[], bytes],
        name: str,
        is_quick: Callable[[], bool],
        deadline: float,
    ) -> wasmtime.Module:
        """
        Return a module that is not trusted, in binary format, by its SHA-256.

        `source` returns its bytes, and is not called if the module is in the cache. `is_quick`
        raises if the module may not be compiled, and returns whether to compile it in this process
        instead of a new one. Both together may take `deadline` seconds. Ctrl-C interrupts all of
        it. Raises ModuleRejected, and the errors of `is_quick`.
        """

        def make() -> wasmtime.Module | bytes:
            wasm, began = source(), time.monotonic()
            if is_quick() or not sys.executable:
                return self._in_thread(wasm, name)
            from arkml.runtime.compilation.child import compile_in_child

            left = max(0.0, deadline - (time.monotonic() - began))
            return compile_in_child(wasm, name, self._stack, left)

        return self._cached(artifacts.code_name(digest, self._stack), make)

    def _cached(self, entry: str, make: Callable[[], wasmtime.Module | bytes]) -> wasmtime.Module:
        code = artifacts.load(entry)
        if code is not None:
            try:
                return bindings.deserialized(self._engine, code)
            except wasmtime.WasmtimeError:  # of a processor that lacks a feature
                pass
        made = make()
        if isinstance(made, bytes):
            module = bindings.deserialized(self._engine, made)
        else:
            module, made = made, bytes(made.serialize())
        artifacts.save(entry, made)
        return module

    def _in_thread(self, wasm: bytes, name: str) -> wasmtime.Module:
        """Compile; in another thread if this is the main one, so that Ctrl-C is not held up."""

        def compiled() -> wasmtime.Module | ModuleRejected:
            try:
                return wasmtime.Module(self._engine, wasm)
            except wasmtime.WasmtimeError as error:
                from arkml.runtime.compilation.child import refused

                return refused(name, str(error))

        if threading.current_thread() is threading.main_thread():
            results: SimpleQueue[wasmtime.Module | ModuleRejected] = SimpleQueue()
            threading.Thread(
                target=lambda: results.put(compiled()), name="arkml-compiler", daemon=True
            ).start()
            result = results.get()
        else:
            result = compiled()
        if isinstance(result, ModuleRejected):
            raise result
        return result
