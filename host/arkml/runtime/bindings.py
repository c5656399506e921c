"""
The raw C API that we rely on, typed and guarded by version.

wasmtime-py's classes have no async calls; its bindings do. Structures, offsets and behavior here
were read and tested with version 50, so another version is refused before anything runs.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from ctypes import POINTER, byref, c_bool, c_char, c_size_t, c_uint32, c_uint64, c_void_p
from functools import cache
from importlib.metadata import version
from typing import Any, TypeAlias

import wasmtime
from wasmtime import _bindings as raw
from wasmtime import _ffi as ffi

from arkml.errors import UsageError
from arkml.runtime import suspension

WASMTIME_MAJOR = 50

if version("wasmtime").partition(".")[0] != str(WASMTIME_MAJOR):
    raise UsageError(
        f"arkml needs wasmtime {WASMTIME_MAJOR}.*, found {version('wasmtime')}:"
        f" pip install 'wasmtime=={WASMTIME_MAJOR}.*'"
    )

Address: TypeAlias = int
"""A machine address; 0 is null."""

VALUE_SIZE = ctypes.sizeof(raw.wasmtime_val_t)
VALUE_OFFSET: int = raw.wasmtime_val_t.of.offset

KINDS = {"i32": 0, "i64": 1, "f32": 2, "f64": 3}


def _brief(symbol: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    """
    A C function that returns at once, under a prototype of plain integers.

    It keeps the GIL: giving it up and taking it again costs more than the call.
    """
    address = ctypes.cast(symbol, c_void_p).value
    assert address is not None
    return ctypes.PYFUNCTYPE(result, *arguments)(address)


_poll_address = ctypes.cast(raw._wasmtime_call_future_poll, c_void_p).value  # noqa: SLF001
assert _poll_address is not None
poll = ctypes.CFUNCTYPE(c_bool, c_void_p)(_poll_address)
"""Run a future until it ends (True) or suspends (False), without the GIL. True is the last poll."""

delete_future = _brief(raw._wasmtime_call_future_delete, None, c_void_p)  # noqa: SLF001

delete_store = _brief(raw._wasmtime_store_delete, None, c_void_p)  # noqa: SLF001

call_async = _brief(
    raw._wasmtime_func_call_async,  # noqa: SLF001
    c_void_p,
    *(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p),
)
"""(context, function, arguments, count, results, count, trap, error) → future."""

set_epoch_deadline = _brief(
    raw._wasmtime_context_set_epoch_deadline,  # noqa: SLF001
    None,
    c_void_p,
    c_uint64,
)

_libc = ctypes.CDLL(None)
STRLEN: Address = ctypes.cast(_libc.strlen, c_void_p).value or 0
"""libc's strlen: over one flag byte it answers 0 or 1 and so serves as a continuation."""

_no_finalizer = ctypes.cast(0, ctypes.CFUNCTYPE(None, c_void_p))


def define_suspend(linker: wasmtime.Linker, module: str, name: str) -> None:
    """Define the one async import: (i64 address of the continuation) → ()."""
    kind = wasmtime.FuncType([wasmtime.ValType.i64()], [])
    callback = ctypes.cast(suspension.callback(), raw.wasmtime_func_async_callback_t)
    check(
        raw.wasmtime_linker_define_async_func(
            linker.ptr(), *_text(module), *_text(name), kind.ptr(), callback, None,
            _no_finalizer,
        )
    )  # fmt: skip


def check(error: Any) -> None:
    """Raise what a C function returned as its error."""
    if error:
        raise wasmtime.WasmtimeError._from_ptr(error)  # noqa: SLF001


def prepare(linker: wasmtime.Linker, module: wasmtime.Module) -> wasmtime.InstancePre:
    """Type-check `module` against `linker` once; the result instantiates it in any Store."""
    pre = POINTER(raw.wasmtime_instance_pre_t)()
    check(raw.wasmtime_linker_instantiate_pre(linker.ptr(), module.ptr(), byref(pre)))
    return wasmtime.InstancePre._from_ptr(pre)  # noqa: SLF001


def context_of(store: wasmtime.Store) -> Any:
    """Return the context of a Store, by which its items are named."""
    return store._context()  # noqa: SLF001


def take_store(store: wasmtime.Store) -> Address:
    """Return the wasmtime_store_t of `store`, which the caller deletes from now on."""
    return address_of(store._consume())  # noqa: SLF001


class Instance:
    """An instance in a Store, and access to its exports."""

    __slots__ = ("_context", "_instance")

    def __init__(self, context: Any, begin: Callable[..., Any]) -> None:
        """Instantiate: `begin(instance, trap, error)` starts the future. Runs no guest code."""
        self._context = context
        self._instance = raw.wasmtime_instance_t()
        trap, error = POINTER(raw.wasm_trap_t)(), POINTER(raw.wasmtime_error_t)()
        future = begin(byref(self._instance), byref(trap), byref(error))
        while not raw.wasmtime_call_future_poll(future):
            pass
        raw.wasmtime_call_future_delete(future)
        check(error)
        if address_of(trap):
            raise wasmtime.Trap._from_ptr(trap)  # noqa: SLF001

    @classmethod
    def of(cls, context: Any, pre: wasmtime.InstancePre) -> Instance:
        """Instantiate a prepared module."""
        return cls(
            context,
            lambda *out: raw.wasmtime_instance_pre_instantiate_async(pre.ptr(), context, *out),
        )

    @classmethod
    def linked(cls, context: Any, linker: wasmtime.Linker, module: wasmtime.Module) -> Instance:
        """Instantiate `module` with what `linker` holds."""
        return cls(
            context,
            lambda *out: raw.wasmtime_linker_instantiate_async(
                linker.ptr(), context, module.ptr(), *out
            ),
        )

    def export(self, name: str) -> Any:
        """Return the export called `name`, a wasmtime_extern_t, or None."""
        extern = raw.wasmtime_extern_t()
        found = raw.wasmtime_instance_export_get(
            self._context, byref(self._instance), *_text(name), byref(extern)
        )
        return extern if found else None

    def set_global(self, name: str, kind: str, value: int) -> None:
        """Set an exported mutable global."""
        item = raw.wasmtime_val_t()
        item.kind = ctypes.c_ubyte(KINDS[kind])
        setattr(item.of, kind, value)
        extern = self.export(name)
        check(raw.wasmtime_global_set(self._context, byref(extern.of.global_), byref(item)))

    def set_table(self, name: str, index: int, function: Any) -> None:
        """Put a function, a wasmtime_extern_t, into an exported table."""
        item = raw.wasmtime_val_t()
        item.kind = ffi.WASMTIME_FUNCREF
        item.of.funcref = function.of.func
        table = self.export(name).of.table
        check(raw.wasmtime_table_set(self._context, byref(table), index, byref(item)))


def define(linker: wasmtime.Linker, context: Any, module: str, name: str, extern: Any) -> None:
    """Name an item of a Store in `linker`."""
    check(
        raw.wasmtime_linker_define(
            linker.ptr(), context, *_text(module), *_text(name), byref(extern)
        )
    )


def defined(linker: wasmtime.Linker, context: Any, module: str, name: str) -> Any:
    """An item of `linker`, in the Store of `context`."""
    extern = raw.wasmtime_extern_t()
    found = raw.wasmtime_linker_get(
        linker.ptr(), context, *_text(module), *_text(name), byref(extern)
    )
    if not found:
        raise KeyError(f"{module}.{name}")
    return extern


def define_shared_memory(
    linker: wasmtime.Linker, store: wasmtime.Store, name: str, memory: wasmtime.SharedMemory
) -> None:
    """Name a shared memory; `SharedMemory._as_extern` of version 50 builds a wrong pointer."""
    union = ffi.wasmtime_extern_union(sharedmemory=memory.ptr())
    extern = ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)
    define(linker, context_of(store), "arkml", name, extern)


class Memory:
    """A guest's linear memory. Its base never moves: growth stays inside the reservation."""

    __slots__ = ("_context", "_memory", "base")

    def __init__(self, context: Any, extern: Any) -> None:
        self._context = context
        self._memory = raw.wasmtime_memory_t.from_buffer_copy(extern.of.memory)
        address = ctypes.cast(raw.wasmtime_memory_data(context, byref(self._memory)), c_void_p)
        self.base: Address = address.value or 0

    def pages(self) -> int:
        """Present size in pages of 64 KiB."""
        size: int = raw.wasmtime_memory_size(self._context, byref(self._memory))
        return size

    def grow(self, pages: int) -> None:
        """Grow by `pages`, or raise WasmtimeError."""
        before = c_uint64()
        check(raw.wasmtime_memory_grow(self._context, byref(self._memory), pages, byref(before)))


def yield_at_deadline(context: Any, ticks: int) -> None:
    """From now on an epoch deadline suspends the guest and moves on by `ticks`."""
    raw.wasmtime_context_epoch_deadline_async_yield_and_update(context, ticks)


def set_async_stack(config: wasmtime.Config, size: int) -> None:
    """Bytes of native stack of one fiber."""
    raw.wasmtime_config_async_stack_size_set(config.ptr(), size)


def trap_at(address: Address) -> wasmtime.Trap:
    """Take ownership of a wasm_trap_t."""
    trap: wasmtime.Trap = wasmtime.Trap._from_ptr(  # noqa: SLF001
        ctypes.cast(address, POINTER(raw.wasm_trap_t))
    )
    return trap


def error_at(address: Address) -> wasmtime.WasmtimeError:
    """Take ownership of a wasmtime_error_t; an exit becomes ExitTrap."""
    error: wasmtime.WasmtimeError = wasmtime.WasmtimeError._from_ptr(  # noqa: SLF001
        ctypes.cast(address, POINTER(raw.wasmtime_error_t))
    )
    return error


def address_of(context: Any) -> Address:
    """A pointer object as a number."""
    return ctypes.cast(context, c_void_p).value or 0


@cache
def _text(value: str) -> tuple[Any, int]:
    data = value.encode()
    return ctypes.cast(ctypes.create_string_buffer(data, len(data) + 1), POINTER(c_char)), len(data)


__all__ = [
    "KINDS", "STRLEN", "VALUE_OFFSET", "VALUE_SIZE", "Address", "Instance", "Memory", "address_of",
    "byref", "c_uint32", "call_async", "check", "context_of", "define", "define_shared_memory",
    "define_suspend", "delete_future", "delete_store", "error_at", "poll", "prepare",
    "set_async_stack", "set_epoch_deadline", "take_store", "trap_at", "yield_at_deadline",
]  # fmt: skip
