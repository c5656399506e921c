"""Exported addresses in the memories of a fleet's guests, read and written as arrays."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from arkml.base.short_reprs import cut_repr
from arkml.errors import EntryPointMissing, GuestError, TooManyBytes, UsageError
from arkml.guests.guest import Guest, calls_of
from arkml.limits import whole_number
from arkml.runtime import bindings, native
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.memory import PAGE, address_of
from arkml.runtime.module.wasm_types import FunctionType, GlobalType

_ADDRESS = FunctionType((), ("i32",))
_READ_GLOBAL = bindings.address_of(bindings.read_global)
_KINDS = "biufc"  # of numpy's dtypes: numbers
_WIDEST = {"f": 8, "c": 16}  # bytes of what wasm can compute with
_MOST_DIMENSIONS = 32
_MOST_PLANS = 64

Words = npt.NDArray[np.uint64]
Array = npt.NDArray[Any]
Shape = int | Sequence[int]


class FleetMemory:
    """
    Copies between arrays and an exported address in the memory of each guest.

    The address is an export: a function `() -> i32` that returns it, called once for each guest; a
    global i32 that is constant, read once; or a mutable global, read each time. A memory moves and
    shrinks only where `Target.lost` changes: until then an address that was checked once stays
    valid.

    A guest fails if the values do not lie in its memory. Rows of guests whose address is unknown,
    or that are closed, are zeros.
    """

    def __init__(self, module: CompiledModule) -> None:
        self._exports = {export.name: export.type for export in module.info.exports}
        self._name = module.name
        self._most = module.limits.snapshot_bytes
        self._addresses: dict[str, WeakKeyDictionary[Guest, int]] = {}
        self._plans: dict[tuple[str, int, tuple[int, ...] | None], _Plan] = {}
        self._located: set[tuple[str, tuple[int, ...] | None]] = set()
        self._planned: tuple[Sequence[Guest], int] | None = None  # guests, and `Target.lost`
        self._lost = -1  # of `Target.lost`, when the addresses were asked for

    def is_mutable(self, name: str) -> bool:
        """Return whether an export is a mutable global, which has to be read each time."""
        kind = self._exports.get(name) if isinstance(name, str) else None
        return isinstance(kind, GlobalType) and kind.is_mutable

    def unknown(self, target: Target) -> list[int]:
        """
        Return the indices, in `target`, of guests whose function must be called for the address.

        Raises EntryPointMissing if the export is neither such a function nor a global i32.
        """
        name = target.name
        if isinstance(self._address_of(name), GlobalType):
            return []
        if self._lost != (lost := target.lost()):
            self._lost = lost
            self._addresses.clear()  # a guest may have another state, in which it lies elsewhere
        self._renew(target)
        if (name, target.only) in self._located:
            return []
        known = self._addresses.setdefault(name, WeakKeyDictionary())
        indices = [
            index
            for index, guest in enumerate(target.guests)
            if guest not in known and calls_of(guest).instance.refusal() is None
        ]
        if not indices:
            if len(self._located) >= _MOST_PLANS:
                self._located.clear()
            self._located.add((name, target.only))
        return indices

    def require(self, used: FleetMemory) -> None:
        """
        Raise EntryPointMissing unless the module exports all addresses that `used` has looked up.
        """
        for name, *_ in used._plans:
            self._address_of(name)

    def _address_of(self, name: str) -> FunctionType | GlobalType:
        """Return the type of an export that is an address. Raises EntryPointMissing."""
        kind = self._exports.get(name) if isinstance(name, str) else None
        if kind == _ADDRESS or (isinstance(kind, GlobalType) and kind.value == "i32"):
            return kind
        found = "no such export" if kind is None else str(kind)
        raise EntryPointMissing(
            f"{self._name} has no address {cut_repr(name)} ({found}): export a function"
            " () -> (i32) that returns it, or a global i32"
        )

    def note(self, target: Target, indices: Sequence[int], values: Sequence[int | None]) -> None:
        """
        Store the addresses that the function of these guests returned, None if a guest failed.
        """
        known = self._addresses.setdefault(target.name, WeakKeyDictionary())
        for index, address in zip(indices, values, strict=True):
            if address is not None:
                known[target.guests[index]] = address_of(address)
        self._planned = None

    def read(self, target: Target, dtype: npt.DTypeLike, shape: Shape) -> Array:
        """
        Return the values at an address of each guest as an array, [guests, *shape].

        Raises UsageError.
        """
        item, row = _dtype_of(dtype), _shape_of(shape)
        count = len(target.guests)
        size = item.itemsize * math.prod(row)
        plan = self._plan(target, size)
        try:
            values: Array = np.empty((count, *row), item)
        except (MemoryError, ValueError):
            raise UsageError(
                f"shape={cut_repr(shape)}: there is no room for {count} times {size} bytes"
            ) from None
        if size and count:
            plan.gather(values)
        return values

    def write(self, target: Target, values: Array) -> None:
        """
        Copy each row of `values`, [guests, *shape], to the address in the memory of its guest.
        """
        count = len(target.guests)
        if not isinstance(values, np.ndarray):
            raise UsageError(
                f"values is {cut_repr(values)}: it takes a numpy array, [{count}, ...], of the"
                " dtype that the guests have there"
            )
        _require_numbers(values.dtype, "values")
        if isinstance(values, np.ma.MaskedArray):
            raise UsageError("values is an array with a mask: give its numbers, by .filled()")
        if values.dtype.names is not None and _has_gaps(values.dtype):
            raise UsageError(f"values is of {values.dtype}, which has gaps: give records without")
        if not values.ndim or len(values) != count:
            raise UsageError(
                f"values has the shape {cut_repr(list(values.shape))}: it takes a row for each of"
                f" the {count} guests, [{count}, ...]"
            )
        rows = np.ascontiguousarray(values, values.dtype.newbyteorder("<"))
        size = rows.dtype.itemsize * math.prod(rows.shape[1:])
        plan = self._plan(target, size)
        if size and count:
            plan.scatter(rows)
            for index in plan.traced:
                plan.write_one(index, rows[index].tobytes())

    def _plan(self, target: Target, size: int) -> _Plan:
        """Return where `size` bytes of each guest lie. The caller keeps calls out."""
        if size > self._most:
            raise TooManyBytes(
                f"{size} bytes of each guest are over the limit of {self._most}"
                " (Limits.snapshot_bytes)"
            )
        self._renew(target)
        key = target.name, size, target.only
        plan = self._plans.get(key)
        if plan is None:
            plan = _Plan(target, size, self._addresses.get(target.name))
            if len(self._plans) >= _MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        elif plan.moves:
            plan.look()
        return plan

    def _renew(self, target: Target) -> None:
        """Forget the plans if a guest has joined, left, failed or been closed since then."""
        planned, lost = self._planned, target.lost()
        if planned is None or planned[0] is not target.members or planned[1] != lost:
            self._plans.clear()
            self._located.clear()
            self._planned = target.members, lost


class Target(NamedTuple):
    """
    An exported address, and the guests of a fleet in whose memories it is looked up.

    Attributes:
        name: The export.
        is_mutable: True for a global that may change.
        guests: The guests at the indices that the caller chose among `members`, or all.
        members: The guests of the fleet.
        lost: Returns a number that changes when guests fail, are closed, or get another state or
            module; `CallGuard.lost`.

    """

    name: str
    is_mutable: bool
    guests: Sequence[Guest]
    members: Sequence[Guest]
    only: tuple[int, ...] | None
    lost: Callable[[], int]


class _Plan:
    """The machine addresses of `size` bytes of each guest, 0 for a guest without: u64, [guests]."""

    def __init__(
        self, target: Target, size: int, known: WeakKeyDictionary[Guest, int] | None
    ) -> None:
        self._library = native.LIBRARY
        self._target = target
        self._size = size
        count = len(target.guests)
        self._places: Words = np.zeros(count, np.uint64)
        self._bases: Words = np.zeros(count, np.uint64)
        self._sizes: Words = np.zeros(count, np.uint64)
        instances = [calls_of(guest).instance for guest in target.guests]
        open_ = [not instance.is_closed for instance in instances]
        for index, instance in enumerate(instances):
            if open_[index]:
                self._bases[index], self._sizes[index] = instance.memory_place
        self.traced = [index for index, instance in enumerate(instances) if instance.is_traced]
        """Indices of the guests whose traces are told what is written."""
        largest = int(self._sizes.max(initial=0))
        if size > largest and any(open_):
            raise UsageError(
                f"{size} bytes at {target.name} of each guest: the largest of their memories has"
                f" {largest}"
            )
        self.moves = known is None and target.is_mutable and size > 0
        """True if the addresses have to be read each time."""
        self._globals: list[Any] = []  # which lie at the addresses below
        self._contexts: Words = np.zeros(count, np.uint64)
        self._externs: Words = np.zeros(count, np.uint64)
        self._live = np.flatnonzero(open_)
        if known is None:
            self._find_globals()
            self.look()
        else:
            has = [
                is_open and guest in known
                for is_open, guest in zip(open_, target.guests, strict=True)
            ]
            self._live = np.flatnonzero(has)
            self._place(
                np.array([known[target.guests[index]] for index in self._live.tolist()], np.uint64)
            )

    def look(self) -> None:
        """Read the addresses in the globals of the guests."""
        if self._library is not None:
            values = np.zeros((len(self._live), bindings.VALUE_SIZE // 4), np.uint32)
            self._library.read_globals(
                _READ_GLOBAL, self._contexts.ctypes.data, self._externs.ctypes.data,
                len(values), bindings.VALUE_SIZE, values.ctypes.data,
            )  # fmt: skip
            self._place(values[:, bindings.VALUE_OFFSET // 4].astype(np.uint64))
            return
        pairs = zip(self._contexts.tolist(), self._externs.tolist(), strict=True)
        self._place(np.array([bindings.global_i32(*pair) for pair in pairs], np.uint64))

    def gather(self, values: Array) -> None:
        """Fill an array, [guests, …], from the memories."""
        into, size = values.ctypes.data, self._size
        if self._library is not None:
            self._library.gather(self._places.ctypes.data, len(self._places), size, into)
            return
        for place in self._places.tolist():
            if place:
                ctypes.memmove(into, place, size)
            else:
                ctypes.memset(into, 0, size)
            into += size

    def scatter(self, values: Array) -> None:
        """Copy the rows of an array, [guests, …], into the memories."""
        start, size = values.ctypes.data, self._size
        if self._library is not None:
            self._library.scatter(self._places.ctypes.data, len(self._places), size, start)
            return
        for place in self._places.tolist():
            if place:
                ctypes.memmove(place, start, size)
            start += size

    def write_one(self, index: int, content: bytes) -> None:
        """Write the row of one guest through its memory, which is told of it."""
        if place := int(self._places[index]):
            memory = calls_of(self._target.guests[index]).instance.suspended_memory()
            memory.pages = int(self._sizes[index]) // PAGE
            memory.write(place - int(self._bases[index]), content)

    def _find_globals(self) -> None:
        """Note where the globals of the guests lie."""
        instances = [calls_of(self._target.guests[index]).instance for index in self._live.tolist()]
        found = [instance.exported(self._target.name) for instance in instances]
        self._globals = [extern for _, extern in found]
        self._contexts = np.array([context for context, _ in found], np.uint64)
        self._externs = np.array(
            [ctypes.addressof(extern.of) for extern in self._globals], np.uint64
        )

    def _place(self, addresses: Words) -> None:
        """Note the addresses of the live guests, and fail those whose place is not in memory."""
        live, size = self._live, self._size
        ends = addresses + np.uint64(size)
        outside = ends > self._sizes[live]
        if outside.any():  # a memory may have grown since the last look
            for index in live[outside].tolist():
                _, self._sizes[index] = calls_of(self._target.guests[index]).instance.memory_place
            outside = ends > self._sizes[live]
        self._places[live] = np.where(outside, 0, self._bases[live] + addresses)
        if not size:
            return
        for index, address in zip(live[outside].tolist(), addresses[outside].tolist(), strict=True):
            calls = calls_of(self._target.guests[index])
            if calls.instance.failure is None:
                calls.fail(
                    GuestError(
                        f"{calls.name}: {size} bytes at {self._target.name}, {address:#x}, end"
                        f" outside of its memory of {self._sizes[index]} bytes"
                    )
                )


def _dtype_of(dtype: npt.DTypeLike) -> np.dtype[Any]:
    """Return a dtype of numbers, little-endian as in wasm. Raises UsageError."""
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        raise UsageError(f"dtype is {cut_repr(dtype)}: it takes a dtype of numpy") from None
    if dtype is None:
        raise UsageError("dtype is None: name the numbers that guests have there, as np.float32")
    _require_numbers(found, "dtype")
    return found.newbyteorder("<")


def _require_numbers(dtype: np.dtype[Any], what: str) -> None:
    """Raise UsageError unless a dtype has numbers only, or records of numbers."""
    if dtype.subdtype is not None:
        _require_numbers(dtype.subdtype[0], what)
        return
    if dtype.names is not None and dtype.fields is not None:
        for name in dtype.names:
            _require_numbers(dtype.fields[name][0], what)
        return
    is_wide = dtype.kind in "fc" and dtype.itemsize > _WIDEST[dtype.kind]  # it has gaps
    if dtype.kind not in _KINDS or is_wide:
        raise UsageError(f"{what} is {cut_repr(str(dtype))}: it takes numbers, as np.float32")


def _has_gaps(dtype: np.dtype[Any]) -> bool:
    """Return whether records have bytes that belong to no field: they may be the host's."""
    if dtype.subdtype is not None:
        return _has_gaps(dtype.subdtype[0])
    if dtype.names is None or dtype.fields is None:
        return False
    kinds = [dtype.fields[name][0] for name in dtype.names]
    return sum(kind.itemsize for kind in kinds) != dtype.itemsize or any(map(_has_gaps, kinds))


def _shape_of(shape: Shape) -> tuple[int, ...]:
    """Return the shape of a guest's row. Raises UsageError."""
    try:
        sizes = tuple(shape) if isinstance(shape, Sequence | np.ndarray) else (shape,)
        row = tuple(map(whole_number, sizes))
    except TypeError:
        row = (None,)
    whole = tuple(size for size in row if size is not None and size >= 0)
    if len(whole) < len(row) or len(row) > _MOST_DIMENSIONS or isinstance(shape, str | bytes):
        raise UsageError(
            f"shape is {cut_repr(shape)}: it takes the shape of what one guest has there, as 2 or"
            " (3, 4), of whole numbers from 0"
        )
    return whole
