"""An exported function of a guest, with room for its arguments and results."""

from __future__ import annotations

import ctypes
import operator
import struct
from collections.abc import Sequence
from typing import Any

from arkml.errors import UsageError
from arkml.runtime import bindings

_ENCODED = {"i32": "<I", "i64": "<Q", "f32": "<f", "f64": "<d"}
_DECODED = {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}
_BITS = {"i32": 32, "i64": 64}

Number = int | float


class ExportedFunction:
    """
    An exported function of one instance, with room for its arguments, results and errors.

    The room is reused call after call: a guest is in one call at a time.
    """

    __slots__ = (
        "_arguments", "_decode", "_decode_only", "_encode", "_errors", "_extern", "_results",
        "name", "params", "raw", "results",
    )  # fmt: skip

    def __init__(
        self, context: int, extern: Any, name: str, params: Sequence[str], results: Sequence[str]
    ) -> None:
        for kind in (*params, *results):
            if kind not in bindings.KINDS:
                raise UsageError(f"{name} takes or returns a {kind}, which a host cannot pass")
        self.name = name
        self.params = tuple(params)
        self.results = tuple(results)
        self._extern = extern  # the function lies in it
        self._arguments = _values(params)
        self._results = _values(results)
        self._errors = memoryview((ctypes.c_uint64 * 2)()).cast("B").cast("Q")  # trap, error
        self._encode = [struct.Struct(_ENCODED[kind]).pack_into for kind in params]
        self._decode = [struct.Struct(_DECODED[kind]).unpack_from for kind in results]
        self._decode_only = self._decode[0] if len(results) == 1 else None
        errors = ctypes.addressof(ctypes.c_uint64.from_buffer(self._errors))
        self.raw = (
            context,
            ctypes.addressof(extern.of),
            ctypes.addressof(self._arguments),
            len(params),
            ctypes.addressof(self._results),
            len(results),
            errors,
            errors + 8,
        )
        """What `bindings.call_async` takes."""

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
                raise UsageError(f"{self.name}: {value!r} does not fit an {kind}") from None
            offset += bindings.VALUE_SIZE

    def result(self) -> Number | tuple[Number, ...] | None:
        """None, the one result, or a tuple of several. Integers are signed."""
        if self._decode_only is not None:
            only: Number = self._decode_only(self._results, bindings.VALUE_OFFSET)[0]
            return only
        offset = bindings.VALUE_OFFSET
        found: list[Number] = []
        for decode in self._decode:
            found.append(decode(self._results, offset)[0])
            offset += bindings.VALUE_SIZE
        return tuple(found) if found else None

    def sharing(
        self, first: ExportedFunction, results: bindings.Address, errors: bindings.Address
    ) -> Any:
        """What `bindings.call_async` takes to use the arguments of `first` and room elsewhere."""
        context, function, *_ = self.raw
        return (
            context, function, first.raw[2], len(self.params), results, len(self.results),
            errors, errors + 8,
        )  # fmt: skip

    def errors(self) -> tuple[bindings.Address, bindings.Address]:
        """Addresses of the trap and the error that the last call left, 0 for none; forgets them."""
        trap, error = self._errors
        self._errors[0] = self._errors[1] = 0
        return trap, error

    def failed(self) -> bool:
        """Whether the call that just ended left a trap or an error."""
        return self._errors[0] != 0 or self._errors[1] != 0


def _number(kind: str, value: Number) -> Number:
    """`value` as its bits are stored; an integer may be signed or unsigned. Raises ValueError."""
    bits = _BITS.get(kind)
    if bits is None:
        return float(value)
    whole = operator.index(value)  # type: ignore[arg-type]  # a float is a TypeError, which is meant
    if not -(1 << bits - 1) <= whole < 1 << bits:
        raise ValueError(value)
    return whole & (1 << bits) - 1


def _values(kinds: Sequence[str]) -> Any:
    buffer = (ctypes.c_uint8 * (bindings.VALUE_SIZE * max(1, len(kinds))))()
    for index, kind in enumerate(kinds):
        buffer[index * bindings.VALUE_SIZE] = bindings.KINDS[kind]
    return buffer
