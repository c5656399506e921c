"""Copies of function tables, for modules whose code changes them."""

from __future__ import annotations

import ctypes
import sys
from array import array
from collections.abc import Sequence
from typing import Any, TypeAlias

from arkml.errors import StateRefused
from arkml.runtime import bindings
from arkml.runtime.module.normalize import FUNCTIONS, StatePlan

SavedTables: TypeAlias = tuple[bytes, ...]
"""The elements of each table: uint32, little-endian, the index of a function, or `_NULL`."""

_NULL, _ELEMENT = 0xFFFF_FFFF, 4


class Tables:
    """
    Tables of an instance, read and written as indices of functions in its module.

    Args:
        store: The context of the Store.
        plan: The parts of instances that can change.
        tables: The tables, each a wasmtime_extern_t.
        functions: The functions that the tables may hold, each a wasmtime_extern_t.

    """

    def __init__(
        self, store: bindings.Address, plan: StatePlan, tables: Sequence[Any],
        functions: Sequence[Any],
    ) -> None:  # fmt: skip
        self._store = store
        self._kinds = [each.element for each in plan.tables]
        self._externs = tables  # the tables lie in them
        self._places = [ctypes.addressof(extern.of) for extern in tables]
        self._value = bindings.FunctionValue()
        self._functions = dict(zip(plan.functions, functions, strict=True))
        self._numbers = {self._identity_of(extern): at for at, extern in self._functions.items()}
        self._numbers[0] = _NULL

    def sizes(self) -> list[int]:
        """Return the present number of elements of each table."""
        return [bindings.table_size(self._store, place) for place in self._places]

    def read(self) -> SavedTables:
        """
        Return the elements of each table. Raises StateRefused for a function of unknown index.
        """
        return tuple(map(self._read, self._kinds, self._places, self.sizes()))

    def exceed(self, saved: SavedTables) -> bool:
        """Return whether a table has more elements than its saved copy."""
        sizes = zip(self.sizes(), saved, strict=True)
        return any(size > len(elements) // _ELEMENT for size, elements in sizes)

    def fit(self, saved: SavedTables) -> None:
        """
        Grow the tables to the sizes of their saved copies, which are not smaller.

        Raises an error of wasmtime if a table cannot grow.
        """
        for kind, place, size, elements in zip(
            self._kinds, self._places, self.sizes(), saved, strict=True
        ):
            if (more := len(elements) // _ELEMENT - size) > 0:
                bindings.grow_table(self._store, place, more, kind)

    def write(self, saved: SavedTables) -> None:
        """Set the elements of the tables, which already have the sizes of the saved copies."""
        value = self._value.place
        for kind, place, elements in zip(self._kinds, self._places, saved, strict=True):
            if kind == FUNCTIONS:  # else all are null
                for index, number in enumerate(_numbers(elements)):
                    self._value.hold(self._functions.get(number))
                    bindings.check(bindings.set_element(self._store, place, index, value))

    def _read(self, kind: str, place: bindings.Address, size: int) -> bytes:
        if kind != FUNCTIONS:
            return _NULL.to_bytes(_ELEMENT, "little") * size
        value, numbers, found = self._value, self._numbers, array("I")
        try:
            for index in range(size):
                bindings.get_element(self._store, place, index, value.place)
                found.append(numbers[value.identity])
        except KeyError:
            raise StateRefused(
                f"element {index:,} of a table is a function that neither an element segment nor"
                " an export of the module has: list it in a segment (elem declare func)"
            ) from None
        return _little(found).tobytes()

    def _identity_of(self, function: Any) -> int:
        self._value.hold(function)
        return self._value.identity


def require_tables(saved: SavedTables, plan: StatePlan, share: int) -> None:
    """
    Raise StateRefused for saved tables that no instance can have.

    `share` is the most elements that a table may have.
    """
    if len(saved) != len(plan.tables):
        raise StateRefused(
            f"the state has {len(saved)} tables that change, the module {len(plan.tables)}"
        )
    functions = {_NULL, *plan.functions}
    for table, elements in zip(plan.tables, saved, strict=True):
        size, rest = divmod(len(elements), _ELEMENT)
        most = share if table.maximum is None else min(share, table.maximum)
        if rest or not table.minimum <= size <= max(most, table.minimum):
            raise StateRefused(
                f"the state has a table of {size:,} elements, and the module takes"
                f" {table.minimum:,} to {most:,} (Limits.table_elements)"
            )
        others = set(_numbers(elements)) - (functions if table.element == FUNCTIONS else {_NULL})
        if others:
            raise StateRefused(
                f"the state has function {min(others):,} in a table, which the module never puts"
                " there: it is damaged"
            )


def _numbers(elements: bytes) -> array[int]:
    return _little(array("I", elements))


def _little(numbers: array[int]) -> array[int]:
    """Return numbers of this machine as little-endian ones, or the reverse, in place."""
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers
