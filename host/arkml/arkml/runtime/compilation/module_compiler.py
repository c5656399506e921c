"""The compiler of an engine's modules: it uses the cache, a thread or a separate process."""

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
    """Compiles modules for `engine`, whose guests have `stack` bytes of stack."""

    def __init__(self, engine: wasmtime.Engine, stack: int) -> None:
        self._engine = engine
        self._stack = stack

    def own(self, text: str | bytes) -> wasmtime.Module:
        """Compile a trusted module of this package, in text or binary format."""
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
        Compile an untrusted module in binary format, or load it from the cache by its digest.

        Args:
            digest: SHA-256 of the module.
            source: Returns the bytes; not called if the module is in the cache.
            name: Name of the module in messages.
            is_quick: Returns whether to compile in this process instead of a new one; raises if the
                module may not be compiled.
            deadline: Seconds for `is_quick` and the compilation together.

        Raises:
            ModuleRejected: The compiler refuses the module; errors of `is_quick` are raised, too.
            KeyboardInterrupt: Ctrl-C interrupts all of it.

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
