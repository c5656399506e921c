"""
The raw C API of wasmtime that this package relies on, typed and tied to one version.

The classes of wasmtime-py have no async calls; its bindings do. Structures, offsets and behavior
here were read and tested with version 50, so another version is refused before anything runs.
"""

from __future__ import annotations

import contextlib
import ctypes
from array import array
from collections.abc import Callable, Sequence
from ctypes import (
    POINTER,
    byref,
    c_bool,
    c_char_p,
    c_int64,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)
from importlib.metadata import version
from typing import Any, TypeAlias

import wasmtime
from wasmtime import _bindings as raw
from wasmtime import _ffi as ffi
from wasmtime._managed import Managed
from wasmtime._trap import FrameList

from arkml.errors import UsageError
from arkml.runtime import suspension

WASMTIME_MAJOR = 50
WASMTIME = version("wasmtime")
"""The version of wasmtime that is installed."""

if WASMTIME.partition(".")[0] != str(WASMTIME_MAJOR):
    raise UsageError(
        f"arkml needs wasmtime {WASMTIME_MAJOR}.*, found {WASMTIME}:"
        f" pip install 'wasmtime=={WASMTIME_MAJOR}.*'"
    )

Address: TypeAlias = int
"""A machine address; 0 is null."""

VALUE_SIZE = ctypes.sizeof(raw.wasmtime_val_t)
_Function = c_uint64 * (ctypes.sizeof(raw.wasmtime_func_t) // 8)
VALUE_OFFSET: int = raw.wasmtime_val_t.of.offset

KINDS = {"i32": 0, "i64": 1, "f32": 2, "f64": 3}
_ALL_KINDS = {**KINDS, "v128": 4}
FUNCTION_KIND: int = ffi.WASMTIME_FUNCREF.value
_REFERENCES = {"funcref": ffi.WASMTIME_FUNCREF, "externref": ffi.WASMTIME_EXTERNREF}
_SIZES = {"i32": 4, "i64": 8, "f32": 4, "f64": 8, "v128": 16}


def _brief(symbol: Any, result: Any, *arguments: Any) -> Callable[..., Any]:
    """
    Return a C function that returns at once, under a prototype of plain integers.

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

_delete = delete_future  # of instances: nothing polls them but their maker

new_store = _brief(raw._wasmtime_store_new, c_void_p, *(c_void_p,) * 3)  # noqa: SLF001
"""(engine, data, its finalizer) → store, which the caller deletes."""

store_context = _brief(raw._wasmtime_store_context, c_void_p, c_void_p)  # noqa: SLF001
"""(store) → its context, which calls take with each of its items."""

delete_store = _brief(raw._wasmtime_store_delete, None, c_void_p)  # noqa: SLF001

limit_store = _brief(
    raw._wasmtime_store_limiter,  # noqa: SLF001
    None,
    *(c_void_p, c_int64, c_int64, c_int64, c_int64, c_int64),
)
"""(store, memory size, elements of a table, instances, tables, memories), from now on."""

call_async = _brief(
    raw._wasmtime_func_call_async,  # noqa: SLF001
    c_void_p,
    *(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p, c_size_t, c_void_p, c_void_p),
)
"""(context, function, arguments, count, results, count, trap, error) → future."""

CALL: Address = ctypes.cast(raw._wasmtime_func_call_unchecked, c_void_p).value or 0  # noqa: SLF001
"""Address of a C function: (context, function, values, count, trap) → error."""

call = _brief(
    raw._wasmtime_func_call_unchecked,  # noqa: SLF001
    c_void_p,
    *(c_void_p, c_void_p, c_void_p, c_size_t, c_void_p),
)
"""The same: values, of 16 bytes each, are the arguments, and then the results."""

RAW_VALUE = 16
"""Bytes of a value of `call`."""

set_epoch_deadline = _brief(
    raw._wasmtime_context_set_epoch_deadline,  # noqa: SLF001
    None,
    c_void_p,
    c_uint64,
)

call_at_deadline = _brief(
    raw._wasmtime_store_epoch_deadline_callback,  # noqa: SLF001
    None,
    *(c_void_p,) * 4,
)
"""(store, callback, its argument, finalizer of that)."""

_new_error = _brief(raw._wasmtime_error_new, c_void_p, c_char_p)  # noqa: SLF001
delete_error = _brief(raw._wasmtime_error_delete, None, c_void_p)  # noqa: SLF001

_TEXT = (c_void_p, c_size_t)  # bytes or their address, copied by the callee
instantiate_prepared = _brief(
    raw._wasmtime_instance_pre_instantiate_async,  # noqa: SLF001
    c_void_p,
    *(c_void_p,) * 5,
)
"""(prepared module, context, instance, trap, error) → future."""

instantiate_linked = _brief(
    raw._wasmtime_linker_instantiate_async,  # noqa: SLF001
    c_void_p,
    *(c_void_p,) * 6,
)
"""(linker, context, module, instance, trap, error) → future."""

find_export = _brief(
    raw._wasmtime_instance_export_get,  # noqa: SLF001
    c_bool,
    *(c_void_p, c_void_p, *_TEXT, c_void_p),
)
"""(context, instance, name, its bytes, extern): write an export; false for none."""

define_item = _brief(
    raw._wasmtime_linker_define,  # noqa: SLF001
    c_void_p,
    *(c_void_p, c_void_p, *_TEXT, *_TEXT, c_void_p),
)
"""(linker, context, module, its bytes, name, its bytes, extern) → error."""

find_item = _brief(
    raw._wasmtime_linker_get,  # noqa: SLF001
    c_bool,
    *(c_void_p, c_void_p, *_TEXT, *_TEXT, c_void_p),
)
"""(linker, context, module, its bytes, name, its bytes, extern): write an item; false for none."""

read_global = _brief(raw._wasmtime_global_get, None, *(c_void_p,) * 3)  # noqa: SLF001
"""(context, global, value): write the value of a global, a wasmtime_val_t."""

set_global = _brief(raw._wasmtime_global_set, c_void_p, *(c_void_p,) * 3)  # noqa: SLF001
"""(context, global, value) → error: set a global to a wasmtime_val_t."""

set_element = _brief(
    raw._wasmtime_table_set,  # noqa: SLF001
    c_void_p,
    *(c_void_p, c_void_p, c_uint64, c_void_p),
)
"""(context, table, index, value) → error: set an element to a wasmtime_val_t."""

table_size = _brief(raw._wasmtime_table_size, c_uint64, c_void_p, c_void_p)  # noqa: SLF001
"""(context, table) → elements."""

get_element = _brief(
    raw._wasmtime_table_get,  # noqa: SLF001
    c_bool,
    *(c_void_p, c_void_p, c_uint64, c_void_p),
)
"""(context, table, index, value): write an element, a wasmtime_val_t; false for none."""

_grow_table = _brief(
    raw._wasmtime_table_grow,  # noqa: SLF001
    c_void_p,
    *(c_void_p, c_void_p, c_uint64, c_void_p, c_void_p),
)
_memory_data = _brief(raw._wasmtime_memory_data, c_void_p, c_void_p, c_void_p)  # noqa: SLF001
memory_size = _brief(raw._wasmtime_memory_size, c_uint64, c_void_p, c_void_p)  # noqa: SLF001
"""(context, memory) → pages of 64 KiB."""

_memory_grow_address = ctypes.cast(raw._wasmtime_memory_grow, c_void_p).value  # noqa: SLF001
assert _memory_grow_address is not None
grow_memory = ctypes.CFUNCTYPE(c_void_p, c_void_p, c_void_p, c_uint64, c_void_p)(
    _memory_grow_address
)
"""(context, memory, pages more, pages before) → error. Without the GIL."""

_Errors = c_uint64 * 2

_libc = ctypes.CDLL(None)
STRLEN: Address = ctypes.cast(_libc.strlen, c_void_p).value or 0
"""libc's strlen: over one flag byte it answers 0 or 1 and so serves as a continuation."""

_no_finalizer = ctypes.cast(0, ctypes.CFUNCTYPE(None, c_void_p))


def define_suspend(linker: wasmtime.Linker, module: str, name: str) -> None:
    """
    Define the one async import, which suspends a guest: (i64 address of the continuation) → ().
    """
    # Arguments and answers pass through the control block, not through this type (decision 3).
    kind = wasmtime.FuncType([wasmtime.ValType.i64()], [])
    callback = ctypes.cast(suspension.callback(), raw.wasmtime_func_async_callback_t)
    check(
        raw.wasmtime_linker_define_async_func(
            linker.ptr(), *_buffer(module), *_buffer(name), kind.ptr(), callback, None,
            _no_finalizer,
        )
    )  # fmt: skip


def new_error(text: bytes) -> Address:
    """Return a new wasmtime_error_t, which belongs to wasmtime once it is passed on."""
    error: Address = _new_error(text)
    return error


def check(error: Any) -> None:
    """Raise the error that a C function returned as a pointer or an address; null means success."""
    if error:
        raise error_at(address_of(error))


def set_wasi(context: Address, config: wasmtime.WasiConfig) -> None:
    """
    Set the WASI configuration of a Store that has no call in progress.

    The previous one is closed; an empty configuration closes all files.
    """
    store = ctypes.cast(context, POINTER(raw.wasmtime_context_t))
    check(raw.wasmtime_context_set_wasi(store, config._consume()))  # noqa: SLF001


def prepare(linker: wasmtime.Linker, module: wasmtime.Module) -> wasmtime.InstancePre:
    """Type-check `module` against `linker` once; the result instantiates it in any Store."""
    pre = POINTER(raw.wasmtime_instance_pre_t)()
    check(raw.wasmtime_linker_instantiate_pre(linker.ptr(), module.ptr(), byref(pre)))
    return wasmtime.InstancePre._from_ptr(pre)  # noqa: SLF001


def deserialized(engine: wasmtime.Engine, code: bytes) -> wasmtime.Module:
    """Return a module from its machine code, without a copy of the code. Raises WasmtimeError."""
    pointer = POINTER(ffi.wasmtime_module_t)()
    data = ctypes.cast(ctypes.c_char_p(code), POINTER(ctypes.c_uint8))
    check(raw.wasmtime_module_deserialize(engine.ptr(), data, len(code), byref(pointer)))
    return wasmtime.Module._from_ptr(pointer)  # noqa: SLF001


def context_of(store: wasmtime.Store) -> Address:
    """Return the context of a Store, an argument that most functions of the C API take."""
    return address_of(store._context())  # noqa: SLF001


def free(owned: Managed[Any]) -> None:
    """
    Delete an object of wasmtime now, unless it has been deleted.

    The `close` of wasmtime-py deletes before it forgets: if a signal handler raises in between, a
    second `close` or the garbage collector deletes the object again.
    """
    with contextlib.suppress(ValueError):  # deleted already
        owned._delete(owned._consume())  # noqa: SLF001


def instantiate(begin: Callable[..., Address], *items: Address) -> None:
    """
    Instantiate a module by `begin(*items, trap, error)`, without running guest code.

    `begin` returns a future. Raises WasmtimeError and Trap.
    """
    errors = _Errors()
    place = ctypes.addressof(errors)
    future = begin(*items, place, place + 8)
    while not poll(future):
        pass
    _delete(future)
    trap, error = errors
    check(error)
    if trap:
        raise trap_at(trap)


class RawInstance:
    """An instance in a Store, a wasmtime_instance_t at an address in `owner`."""

    __slots__ = ("_context", "_owner", "_place")

    def __init__(self, context: Address, place: Address, owner: Any) -> None:
        self._context = context
        self._place = place
        self._owner = owner

    @classmethod
    def linked(
        cls, context: Address, linker: wasmtime.Linker, module: wasmtime.Module
    ) -> RawInstance:
        """Instantiate `module` with the items of `linker`."""
        own = raw.wasmtime_instance_t()
        place = ctypes.addressof(own)
        addresses = address_of(linker.ptr()), context, address_of(module.ptr())
        instantiate(instantiate_linked, *addresses, place)
        return cls(context, place, own)

    def export(self, name: str) -> Any:
        """Return the export called `name`, a wasmtime_extern_t, or None."""
        extern = raw.wasmtime_extern_t()
        place = ctypes.addressof(extern)
        if find_export(self._context, self._place, *_text(name), place):
            return extern
        return None


def function_of(extern: Any) -> array[int]:
    """
    Return a copy of an exported function, a wasmtime_func_t, as an array with a stable address.

    An array takes less memory than the wasmtime_extern_t.
    """
    words = _Function.from_address(ctypes.addressof(extern.of))
    return array("Q", tuple(words))


def grow_table(context: Address, table: Address, elements: int, kind: str) -> None:
    """Grow a table (wasmtime_table_t) by `elements` null elements of `kind`, or raise its error."""
    item, before = raw.wasmtime_val_t(), c_uint64()
    item.kind = _REFERENCES[kind]
    check(_grow_table(context, table, elements, ctypes.addressof(item), ctypes.addressof(before)))


class FunctionValue:
    """
    A wasmtime_val_t at the address `place` that holds a function or null.

    An element of a table is read into it, and written from it.
    """

    __slots__ = ("_item", "_words", "place")

    def __init__(self) -> None:
        self._item = raw.wasmtime_val_t()
        self._item.kind = ffi.WASMTIME_FUNCREF
        self._words = (c_uint64 * (VALUE_SIZE // 8)).from_buffer(self._item)
        self.place: Address = ctypes.addressof(self._item)

    @property
    def identity(self) -> int:
        """A number that distinguishes the function from others of its Store; 0 for null."""
        number: int = self._words[VALUE_OFFSET // 8 + 1]
        return number

    def hold(self, function: Any) -> None:
        """Store a function, a wasmtime_extern_t, in the value, or null for None."""
        if function is None:
            self._words[VALUE_OFFSET // 8] = self._words[VALUE_OFFSET // 8 + 1] = 0
        else:
            self._item.of.funcref = function.of.func


def global_i32(context: Address, place: Address) -> int:
    """Return the value of the global i32 whose wasmtime_global_t is at `place`, as unsigned."""
    item = raw.wasmtime_val_t()
    read_global(context, place, ctypes.addressof(item))
    return int(item.of.i32) & 0xFFFF_FFFF


def define_shared_memory(
    linker: wasmtime.Linker, store: wasmtime.Store, name: str, memory: wasmtime.SharedMemory
) -> None:
    """
    Define a shared memory as an import called `name`.

    `SharedMemory._as_extern` of version 50 builds a wrong pointer.
    """
    union = ffi.wasmtime_extern_union(sharedmemory=memory.ptr())
    extern = ffi.wasmtime_extern_t(ffi.WASMTIME_EXTERN_SHAREDMEMORY, union)
    texts, place = (*_text("arkml"), *_text(name)), ctypes.addressof(extern)
    check(define_item(linker.ptr(), context_of(store), *texts, place))


class Globals:
    """
    The mutable globals that an instance exports, of number and vector types.

    `places` has the address of the wasmtime_global_t of each.

    Args:
        context: The Store.
        externs: The globals, each a wasmtime_extern_t.
        kinds: The types of the globals.

    """

    __slots__ = ("_context", "_externs", "_pairs", "_room", "_size", "_start", "places")

    def __init__(self, context: Address, externs: Sequence[Any], kinds: Sequence[str]) -> None:
        self._context = context
        self._externs = externs  # the globals lie in them
        self._room = _room_for(kinds)
        self._start, self._size = ctypes.addressof(self._room), ctypes.sizeof(self._room)
        self.places: list[Address] = [ctypes.addressof(extern.of) for extern in externs]
        self._pairs = [
            (place, self._start + number * VALUE_SIZE) for number, place in enumerate(self.places)
        ]

    def read(self) -> bytes:
        """Return the values of the globals in the form that `write` takes."""
        for place, value in self._pairs:
            read_global(self._context, place, value)
        return ctypes.string_at(self._start, self._size)

    def write(self, values: bytes) -> None:
        """Set the values of the globals from a result of `read` or `unpacked_globals`."""
        ctypes.memmove(self._start, values, self._size)
        for place, value in self._pairs:
            check(set_global(self._context, place, value))


def packed_globals(values: bytes, kinds: Sequence[str]) -> bytes:
    """Return the values of globals without the padding that `Globals.read` leaves between them."""
    starts = range(VALUE_OFFSET, len(values), VALUE_SIZE)
    return b"".join(
        values[start : start + _SIZES[kind]] for start, kind in zip(starts, kinds, strict=True)
    )


def unpacked_globals(packed: bytes, kinds: Sequence[str]) -> bytes:
    """Return values for `Globals.write`. Raises ValueError for a wrong number of bytes."""
    if len(packed) != sum(_SIZES[kind] for kind in kinds):
        raise ValueError(f"{len(packed)} bytes of globals")
    room, at = _room_for(kinds), 0
    place = ctypes.addressof(room) + VALUE_OFFSET
    for number, kind in enumerate(kinds):
        size = _SIZES[kind]
        ctypes.memmove(place + number * VALUE_SIZE, packed[at : at + size], size)
        at += size
    return bytes(room)


def _room_for(kinds: Sequence[str]) -> Any:
    room = (raw.wasmtime_val_t * len(kinds))()
    for item, kind in zip(room, kinds, strict=True):
        item.kind = _ALL_KINDS[kind]
    return room


class NativeMemory:
    """
    A guest's linear memory, a wasmtime_memory_t at the address `place`.

    Its base never moves: growth stays inside the reservation.
    """

    __slots__ = ("_context", "_owner", "base", "place")

    def __init__(self, context: Address, place: Address, owner: Any) -> None:
        self._context = context
        self._owner = owner  # the wasmtime_memory_t lies in it
        self.place = place
        self.base: Address = _memory_data(context, place)

    def pages(self) -> int:
        """Return the present size in pages of 64 KiB."""
        size: int = memory_size(self._context, self.place)
        return size

    def grow(self, pages: int) -> None:
        """Grow the memory by `pages`, or raise WasmtimeError."""
        before = c_uint64()
        check(grow_memory(self._context, self.place, pages, ctypes.addressof(before)))


def trap_at(address: Address) -> wasmtime.Trap:
    """Return the wasm_trap_t at an address as a Trap, which owns it."""
    trap: wasmtime.Trap = wasmtime.Trap._from_ptr(  # noqa: SLF001
        ctypes.cast(address, POINTER(raw.wasm_trap_t))
    )
    return trap


def error_at(address: Address) -> wasmtime.WasmtimeError:
    """
    Return the wasmtime_error_t at an address as an error, which owns it; an exit is an ExitTrap.
    """
    error: wasmtime.WasmtimeError = wasmtime.WasmtimeError._from_ptr(  # noqa: SLF001
        ctypes.cast(address, POINTER(raw.wasmtime_error_t))
    )
    return error


def frames_of(error: wasmtime.WasmtimeError) -> list[wasmtime.Frame]:
    """Return the frames of wasm in which an error was raised, the innermost first."""
    frames = FrameList(error)
    raw.wasmtime_error_wasm_trace(error.ptr(), byref(frames.vec))
    return [
        wasmtime.Frame._from_ptr(frames.vec.data[index], frames)  # noqa: SLF001
        for index in range(frames.vec.size)
    ]


def address_of(context: Any) -> Address:
    """Return the address that a ctypes pointer holds, 0 for null."""
    return ctypes.cast(context, c_void_p).value or 0


def _text(value: str) -> tuple[bytes, int]:
    data = value.encode()
    return data, len(data)


def _buffer(value: str) -> tuple[Any, int]:
    data, size = _text(value)
    return ctypes.create_string_buffer(data, size), size


__all__ = [
    "CALL",
    "FUNCTION_KIND",
    "KINDS",
    "RAW_VALUE",
    "STRLEN",
    "VALUE_OFFSET",
    "VALUE_SIZE",
    "WASMTIME",
    "Address",
    "FunctionValue",
    "Globals",
    "NativeMemory",
    "RawInstance",
    "address_of",
    "byref",
    "c_uint32",
    "call",
    "call_async",
    "call_at_deadline",
    "check",
    "context_of",
    "define_item",
    "define_shared_memory",
    "define_suspend",
    "delete_error",
    "delete_future",
    "delete_store",
    "error_at",
    "find_export",
    "find_item",
    "frames_of",
    "get_element",
    "global_i32",
    "grow_memory",
    "grow_table",
    "instantiate",
    "instantiate_linked",
    "instantiate_prepared",
    "limit_store",
    "memory_size",
    "new_error",
    "new_store",
    "packed_globals",
    "poll",
    "prepare",
    "read_global",
    "set_element",
    "set_epoch_deadline",
    "set_global",
    "set_wasi",
    "store_context",
    "table_size",
    "trap_at",
    "unpacked_globals",
]  # fmt: skip
