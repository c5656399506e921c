"""Exported functions of guests, with room for their arguments and results."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Sequence
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.runtime import bindings

_ENCODED = {"i32": "<I", "i64": "<Q", "f32": "<f", "f64": "<d"}
_DECODED = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}
_BITS = {"i32": 32, "i64": 64}
_NUMBERS = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}

Number = int | float
RawCall: TypeAlias = tuple[
    bindings.Address, bindings.Address, bindings.Address, int, bindings.Address, int,
    bindings.Address, bindings.Address,
]  # fmt: skip
"""Arguments of `bindings.call_async`."""

_nothing = (ctypes.c_uint8 * bindings.VALUE_SIZE)()
_NO_VALUES: bindings.Address = ctypes.addressof(_nothing)  # the address may not be null


class ExportedFunction:
    """
    An exported function of one instance, with room for its arguments and results.

    The room is reused for every call, as a guest is in one call at a time. `errors` is the address
    of two words for the trap and the error of its call.
    """

    __slots__ = (
        "_arguments", "_decode", "_decode_only", "_encode", "_results", "extern", "name", "params",
        "raw", "results",
    )  # fmt: skip

    def __init__(
        self,
        context: bindings.Address,
        extern: Any,
        name: str,
        errors: bindings.Address,
        params: Sequence[str] = (),
        results: Sequence[str] = (),
    ) -> None:
        """Make the room. Raises UsageError for parameters and results that are not numbers."""
        for kind in (*params, *results):
            if kind not in bindings.KINDS:
                raise UsageError(f"{name} takes or returns a {kind}, which a host cannot pass")
        self.name = name
        self.params = tuple(params)
        self.results = tuple(results)
        self.extern = extern
        """The wasmtime_extern_t that the function lies in."""
        self._arguments = _values(params)
        self._results = _values(results)
        self._encode = [struct.Struct(_ENCODED[kind]).pack_into for kind in params]
        self._decode = [struct.Struct(_DECODED[kind]).unpack_from for kind in results]
        self._decode_only = self._decode[0] if len(results) == 1 else None
        self.raw = (
            context,
            ctypes.addressof(extern.of),
            ctypes.addressof(self._arguments) if params else _NO_VALUES,
            len(params),
            ctypes.addressof(self._results) if results else _NO_VALUES,
            len(results),
            errors,
            errors + 8,
        )
        """Arguments of `bindings.call_async`."""

    def set_arguments(self, arguments: Sequence[Number]) -> None:
        """Store the arguments, or raise UsageError."""
        if len(arguments) != len(self.params):
            raise UsageError(
                f"{self.name} takes {len(self.params)} arguments ({' '.join(self.params)}),"
                f" {len(arguments)} given"
            )
        offset = bindings.VALUE_OFFSET
        for kind, encode, value in zip(self.params, self._encode, arguments, strict=True):
            try:
                encode(self._arguments, offset, _number(kind, value))
            except (TypeError, ValueError, OverflowError, struct.error):
                raise UsageError(f"{self.name}: {cut_repr(value)} does not fit an {kind}") from None
            offset += bindings.VALUE_SIZE

    def result(self) -> Number | tuple[Number, ...] | None:
        """Return None, the one result, or a tuple of several. Integers are signed."""
        if self._decode_only is not None:
            only: Number = self._decode_only(self._results, bindings.VALUE_OFFSET)[0]
            return only
        offset = bindings.VALUE_OFFSET
        values: list[Number] = []
        for decode in self._decode:
            values.append(decode(self._results, offset)[0])
            offset += bindings.VALUE_SIZE
        return tuple(values) if values else None

    def sharing(self, first: ExportedFunction, results: bindings.Address) -> RawCall:
        """Return arguments for `call_async`: those of `first`, with results at an address."""
        context, function, _, _, _, _, trap, error = self.raw
        return (
            context, function, first.raw[2], len(self.params), results, len(self.results),
            trap, error,
        )  # fmt: skip


class ResultRoom:
    """Room for the results of one exported function of many guests, side by side."""

    def __init__(self, entries: Sequence[ExportedFunction]) -> None:
        self._first = entries[0]
        self._kinds = entries[0].results
        self._count = len(entries)
        self._size = bindings.VALUE_SIZE * max(1, len(self._kinds))
        self._room = (ctypes.c_uint8 * (self._size * self._count))()
        room = ctypes.addressof(self._room)
        calls = [
            entry.sharing(entries[0], room + i * self._size) for i, entry in enumerate(entries)
        ]
        self.calls: npt.NDArray[np.uint64] = np.array(calls, np.uint64)
        """
        Arguments of `bindings.call_async` for each guest, with the arguments of the first: [n, 8].
        """

    def set_arguments(self, arguments: Sequence[Number]) -> None:
        """Store the arguments of all calls, or raise UsageError."""
        if arguments or self._first.params:
            self._first.set_arguments(arguments)

    def results(self) -> list[Any]:
        """Return the results of the calls; the result of a failed call is meaningless."""
        if not self._kinds:
            return [None] * self._count
        columns = [self._column(index, kind) for index, kind in enumerate(self._kinds)]
        return columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))

    def _column(self, index: int, kind: str) -> list[Number]:
        cells: npt.NDArray[np.uint8] = np.ctypeslib.as_array(self._room).reshape(-1, self._size)
        start = index * bindings.VALUE_SIZE + bindings.VALUE_OFFSET
        number = np.dtype(_NUMBERS[kind])
        column: list[Number] = (
            np.ascontiguousarray(cells[:, start : start + number.itemsize])
            .view(number)[:, 0]
            .tolist()
        )
        return column


def _number(kind: str, value: Number) -> Number:
    """
    Return `value` as its bits are stored; an integer may be signed or unsigned.

    An i32 of -1, for example, becomes 4_294_967_295. Raises ValueError and TypeError.
    """
    bits = _BITS.get(kind)
    if bits is None:
        return float(value)
    whole = operator.index(value)  # type: ignore[arg-type]  # a float is a TypeError, which is meant
    if not -(1 << bits - 1) <= whole < 1 << bits:
        raise ValueError(value)
    return whole & (1 << bits) - 1


def _values(kinds: Sequence[str]) -> Any:
    """Return room for values of these kinds, or None for none."""
    if not kinds:
        return None
    buffer = (ctypes.c_uint8 * (bindings.VALUE_SIZE * len(kinds)))()
    for index, kind in enumerate(kinds):
        buffer[index * bindings.VALUE_SIZE] = bindings.KINDS[kind]
    return buffer
