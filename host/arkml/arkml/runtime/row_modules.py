"""Instances of compiled models: wasm modules without imports that compute one row of a batch."""

from __future__ import annotations

import ctypes
import os
import struct
import threading
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt
import wasmtime

from arkml.errors import Unavailable
from arkml.runtime import bindings, native
from arkml.runtime.bindings import Address
from arkml.runtime.mappings import refused_by_the_machine

Words = npt.NDArray[np.uint64]
Floats = npt.NDArray[np.float32]


Column: TypeAlias = tuple[Floats, int]
"""
Rows of a batch that a module reads or writes: float32, [n, *shape], contiguous; and where the
module has one of them, in bytes from the beginning of its memory.
"""


@cache
def _engine() -> wasmtime.Engine:
    """
    Return the engine of these modules, whose loops have fixed ends: nothing has to stop them.
    """
    config = wasmtime.Config()
    config.memory_may_move = False  # the address of a memory is kept
    config.parallel_compilation = False  # its threads would not survive a fork
    return wasmtime.Engine(config)


_lock = threading.RLock()  # of the modules that Python runs, which keep the GIL in their calls


def _forget_lock() -> None:
    global _lock
    _lock = threading.RLock()


os.register_at_fork(after_in_child=_forget_lock)  # a thread of the parent may have had it


class RowModule:
    """
    An instance of a module that exports `memory`, `run()`, and perhaps `noise(i64, i64, i32)`.

    Any thread may use it: one call is made at a time. Raises Unavailable if the machine has no room
    for its memory, and wasmtime.WasmtimeError for a module that is not valid.
    """

    def __init__(self, binary: bytes) -> None:
        self._store = wasmtime.Store(_engine())
        self.context = bindings.context_of(self._store)
        try:
            linker = wasmtime.Linker(_engine())
            module = wasmtime.Module(_engine(), binary)
            instance = bindings.RawInstance.linked(self.context, linker, module)
        except wasmtime.WasmtimeError as error:
            if reason := refused_by_the_machine(error):
                raise Unavailable(f"the compiled model cannot run here: {reason}") from None
            raise
        memory = instance.export("memory")
        place = ctypes.addressof(memory.of)
        self._memory = bindings.NativeMemory(self.context, place, memory)
        self._run, self._noise = instance.export("run"), instance.export("noise")
        self._taken = ctypes.c_uint32()  # has a thread where the native library runs it

    def runs(self, inputs: Sequence[Column], outputs: Sequence[Column]) -> Callable[[], None]:
        """
        Return a function that runs the module on every row of the input and output columns.

        At least one column is needed. The function uses the columns by address and keeps them
        alive; it raises Unavailable. With the native library it is a `NativeRun`.
        """
        count = len((*inputs, *outputs)[0][0])
        if native.LIBRARY is None:
            return self._runs_in_python(count, inputs, outputs)
        rows = self._rows(self._run, count, (*inputs, *outputs), len(inputs))
        return NativeRun(native.LIBRARY, rows)

    def draw(self, streams: Words, steps: Words, out: Column, *, is_pink: bool) -> None:
        """
        Fill a column with noise, white or pink, for the actions of agents.

        `streams` and `steps`, uint64, [n], number the agent and its step, which determine the
        noise. Raises Unavailable.
        """
        streams, steps = np.ascontiguousarray(streams), np.ascontiguousarray(steps)
        if native.LIBRARY is None:
            self._draw_in_python(streams, steps, out, is_pink=is_pink)
            return
        rows = self._rows(self._noise, len(streams), (out,), 0)
        address = ctypes.addressof(rows.own)
        words = streams.ctypes.data, steps.ctypes.data
        if not native.LIBRARY.draw_rows(address, *words, int(is_pink)):
            raise _failed(rows.own.trap, rows.own.error)

    def _rows(self, function: Any, count: int, columns: Sequence[Column], inputs: int) -> _Rows:
        each = [native.Column(_address(one, 0), self._place(one), _size(one)) for one in columns]
        own = (native.Column * len(columns))(*each)
        rows = native.RowRuns(
            bindings.CALL, ctypes.addressof(self._taken), self.context,
            ctypes.addressof(function.of), count, inputs, len(columns) - inputs,
            ctypes.addressof(own), None, None,
        )  # fmt: skip
        return _Rows(rows, (self, own, columns))

    def _runs_in_python(
        self, count: int, inputs: Sequence[Column], outputs: Sequence[Column]
    ) -> Callable[[], None]:
        def call() -> None:
            with _lock:
                for row in range(count):
                    for one in inputs:
                        _copy(self._place(one), _address(one, row), _size(one))
                    self._call(self._run, b"")
                    for one in outputs:
                        _copy(_address(one, row), self._place(one), _size(one))

        return call

    def _draw_in_python(self, streams: Words, steps: Words, out: Column, *, is_pink: bool) -> None:
        with _lock:
            for row, (stream, step) in enumerate(zip(streams, steps, strict=True)):
                values = struct.pack("<Q8xQ8xi12x", int(stream), int(step), int(is_pink))
                self._call(self._noise, values)
                _copy(_address(out, row), self._place(out), _size(out))

    def _call(self, function: Any, values: bytes) -> None:
        room = ctypes.create_string_buffer(values, max(len(values), bindings.RAW_VALUE))
        trap = ctypes.c_void_p()
        error = bindings.call(
            self.context, ctypes.addressof(function.of), ctypes.addressof(room),
            len(values) // bindings.RAW_VALUE, ctypes.addressof(trap),
        )  # fmt: skip
        if error or trap.value:
            raise _failed(trap.value, error)

    def _place(self, column: Column) -> Address:
        return self._memory.base + column[1]


class NativeRun:
    """
    A function object that runs a compiled model on the rows of a batch.

    `address` is the address of a struct with which the native library can do the same without
    Python.
    """

    __slots__ = ("_rows", "_run", "address")

    def __init__(self, library: native.Library, rows: _Rows) -> None:
        self._run = library.run_rows
        self._rows = rows
        self.address: Address = ctypes.addressof(rows.own)

    def __call__(self) -> None:
        """Run the module. Raises Unavailable."""
        if not self._run(self.address):
            raise _failed(self._rows.own.trap, self._rows.own.error)


class _Rows(NamedTuple):
    """A struct of the native library, and the objects to which it refers by address."""

    own: Any
    kept: object


def _size(column: Column) -> int:
    """Return the bytes of one row."""
    return column[0].nbytes // max(1, len(column[0]))


def _address(column: Column, row: int) -> Address:
    return int(column[0].ctypes.data) + row * _size(column)


def _copy(target: Address, source: Address, size: int) -> None:
    ctypes.memmove(target, source, size)


def _failed(trap: Address | None, error: Address | None) -> Unavailable:
    found = bindings.trap_at(trap) if trap else bindings.error_at(error or 0)
    return Unavailable(f"the compiled model failed: {str(found).splitlines()[0]}")
