"""Exported functions of guests, with memory for their arguments and results."""

from __future__ import annotations

import ctypes
import operator
import struct
from array import array
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.arrays import real
from arkml.base.short_reprs import cut_repr
from arkml.errors import UsageError
from arkml.runtime import bindings

_ENCODE = {
    kind: struct.Struct(code).pack_into
    for kind, code in {"i32": "<I", "i64": "<Q", "f32": "<f", "f64": "<d"}.items()
}
_DECODE = {
    kind: struct.Struct(code).unpack_from
    for kind, code in {"i32": "<i", "i64": "<q", "f32": "<f", "f64": "<d"}.items()
}
_BITS = {"i32": 32, "i64": 64}
_STORED = {"i32": np.uint32, "i64": np.uint64, "f32": np.float32, "f64": np.float64}
_NUMBERS = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}

Number = int | float
Numbers: TypeAlias = Number | npt.NDArray[Any]
"""An argument of many guests: a number for all, or an array, [guests], of one for each."""
Calls: TypeAlias = npt.NDArray[np.uint64]
"""Arguments of `bindings.call_async` for several guests, [n, 8]."""
Rows: TypeAlias = npt.NDArray[np.intp]
"""Indices of guests, [n]."""
RawCall: TypeAlias = tuple[
    bindings.Address, bindings.Address, bindings.Address, int, bindings.Address, int,
    bindings.Address, bindings.Address,
]  # fmt: skip
"""Arguments of `bindings.call_async`."""
CALL_WORDS = 8
"""Numbers of a RawCall."""
_CONTEXT, _PLACE, _ARGUMENTS, _ARGUMENT_COUNT, _RESULTS, _RESULT_COUNT, _TRAP, _ERROR = range(
    CALL_WORDS
)

_Words = ctypes.c_uint64 * CALL_WORDS
_nothing = (ctypes.c_uint8 * bindings.VALUE_SIZE)()
_NO_VALUES: bindings.Address = ctypes.addressof(_nothing)


class RawFunction(NamedTuple):
    """
    The addresses of one instance's function, for calling it in many guests at once.

    Attributes:
        context: The context of its Store.
        place: The address of its wasmtime_func_t.
        errors: The address of two words for the trap and the error of its call.
        owner: The object that holds the wasmtime_func_t.

    """

    context: bindings.Address
    place: bindings.Address
    errors: bindings.Address
    owner: Any


_FOR_MANY = ": it takes a number, or a numpy array of one for each guest"


def calls_of(functions: Iterable[RawFunction]) -> Calls:
    """Return records, uint64, [n, 8], that call functions without arguments and results."""
    found = array("Q")
    for context, place, errors, _ in functions:
        found.extend((context, place, errors))
    rows = np.frombuffer(found, np.uint64).reshape(-1, 3)
    calls: Calls = np.full((len(rows), CALL_WORDS), _NO_VALUES, np.uint64)
    calls[:, (_CONTEXT, _PLACE, _TRAP)] = rows
    calls[:, (_ARGUMENT_COUNT, _RESULT_COUNT)] = 0
    calls[:, _ERROR] = calls[:, _TRAP] + 8
    return calls


class ExportedFunction:
    """
    An exported function of one instance, with memory for its arguments and results.

    The memory is allocated at the first call and reused, since a guest is in one call at a time;
    calls of a fleet use a `ResultRoom`.
    """

    __slots__ = (
        "_arguments", "_decode_only", "_function", "_results", "_words", "address", "name",
        "params", "raw", "results",
    )  # fmt: skip

    def __init__(
        self,
        function: RawFunction,
        name: str,
        params: Sequence[str] = (),
        results: Sequence[str] = (),
    ) -> None:
        """Take a function of numbers. Raises UsageError for other parameters and results."""
        for kind in (*params, *results):
            if kind not in bindings.KINDS:
                raise UsageError(f"{name} takes or returns a {kind}, which a host cannot pass")
        self.name = name
        self.params = tuple(params)
        self.results = tuple(results)
        self._function = function
        self._arguments: Any = None
        self._results: Any = None
        self._decode_only = _DECODE[results[0]] if len(results) == 1 else None
        self.raw: RawCall | None = None
        """Arguments of `bindings.call_async`, once there is room for them; see `ready`."""
        self.address: bindings.Address = 0
        """Address of these arguments as words, once they are; see `placed`."""
        self._words: Any = None

    def ready(self) -> RawCall:
        """
        Return the arguments for `bindings.call_async`, with memory for the function's arguments.
        """
        if self.raw is None:
            self._arguments = _values(self.params)
            self._results = _values(self.results)
            context, place, errors, _ = self._function
            self.raw = (
                context,
                place,
                self.arguments,
                len(self.params),
                _address(self._results),
                len(self.results),
                errors,
                errors + 8,
            )
        return self.raw

    def placed(self) -> bindings.Address:
        """Return the address of the arguments for `bindings.call_async`, stored as words."""
        if not self.address:  # most loops of a fleet are called by `raw` alone
            self._words = _Words(*self.ready())
            self.address = ctypes.addressof(self._words)
        return self.address

    @property
    def arguments(self) -> bindings.Address:
        """The address of the function's arguments, after `ready`."""
        return _address(self._arguments)

    def require_count(self, count: int) -> None:
        """Raise UsageError unless the function takes `count` arguments."""
        if count != len(self.params):
            raise UsageError(
                f"{self.name} takes {len(self.params)} arguments ({' '.join(self.params)}),"
                f" {count} given"
            )

    def set_arguments(self, arguments: Sequence[Number], way_out: str = "") -> None:
        """Store the arguments of the next call, or raise UsageError, which ends with `way_out`."""
        self.require_count(len(arguments))
        self.ready()
        offset = bindings.VALUE_OFFSET
        for kind, value in zip(self.params, arguments, strict=True):
            try:
                _ENCODE[kind](self._arguments, offset, _number(kind, value))
            except (TypeError, ValueError, OverflowError, struct.error):
                raise UsageError(
                    f"{self.name}: {cut_repr(value)} does not fit an {kind}{way_out}"
                ) from None
            offset += bindings.VALUE_SIZE

    def result(self) -> Number | tuple[Number, ...] | None:
        """Return the result: None, one number, or a tuple of several. Integers are signed."""
        if self._decode_only is not None:
            only: Number = self._decode_only(self._results, bindings.VALUE_OFFSET)[0]
            return only
        offset = bindings.VALUE_OFFSET
        values: list[Number] = []
        for kind in self.results:
            values.append(_DECODE[kind](self._results, offset)[0])
            offset += bindings.VALUE_SIZE
        return tuple(values) if values else None


class ResultRoom:
    """
    Memory for the arguments and results of one exported function of many guests, side by side.

    `functions` has the function of each guest, and `first` that of the first guest, whose arguments
    all guests share. Once an argument is an array, each guest has arguments of its own.
    """

    def __init__(self, first: ExportedFunction, functions: Iterable[RawFunction]) -> None:
        self._first = first
        self._kinds = first.results
        self._functions = array("Q")  # side by side, and not an object for each
        calls = calls_of(self._kept(functions))
        self._count = len(calls)
        self._size = bindings.VALUE_SIZE * max(1, len(self._kinds))
        self._room = (ctypes.c_uint8 * (self._size * self._count))()
        first.ready()
        order = np.arange(self._count, dtype=np.uint64)
        place, words = self._functions.buffer_info()
        calls[:, _PLACE] = place + order * (words * self._functions.itemsize // self._count)
        calls[:, _ARGUMENTS], calls[:, _ARGUMENT_COUNT] = first.arguments, len(first.params)
        calls[:, _RESULTS] = ctypes.addressof(self._room) + order * self._size
        calls[:, _RESULT_COUNT] = len(self._kinds)
        self.calls = calls
        """Arguments of `bindings.call_async` for each guest: [n, 8]."""
        self._shared = self.calls
        self._own: Calls | None = None
        self._cells: npt.NDArray[np.uint8] = np.zeros(0, np.uint8)  # of arguments, if they are own

    def _kept(self, functions: Iterable[RawFunction]) -> Iterator[RawFunction]:
        for function in functions:
            self._functions.extend(function.owner)
            yield function

    def set_arguments(self, arguments: Sequence[Numbers], rows: Rows | None, total: int) -> None:
        """
        Store the arguments of all calls, or raise UsageError.

        An array has a number for each of `total` guests. Only the guests at `rows`, [n], are
        called; None calls all.
        """
        if not any(_is_array(one) for one in arguments):
            self.calls = self._shared
            if arguments or self._first.params:
                self._first.set_arguments(arguments, _FOR_MANY)  # type: ignore[arg-type]  # no array
            return
        self._first.require_count(len(arguments))
        name = self._first.name
        columns = [
            _column_of(f"argument {index + 1} of {name}", kind, value, total)
            for index, (kind, value) in enumerate(zip(self._first.params, arguments, strict=True))
        ]
        if self._own is None:
            self._own = self._with_own_arguments()
        for index, (kind, column) in enumerate(zip(self._first.params, columns, strict=True)):
            start = index * bindings.VALUE_SIZE + bindings.VALUE_OFFSET
            number = np.dtype(_STORED[kind])
            cells = self._cells[:, start : start + number.itemsize].view(number)[:, 0]
            cells[:] = column if rows is None or not column.ndim else column[rows]
        self.calls = self._own

    def _with_own_arguments(self) -> Calls:
        """Return the calls with room for the arguments of each guest."""
        size = bindings.VALUE_SIZE * len(self._first.params)
        self._cells = np.zeros((self._count, size), np.uint8)
        for index, kind in enumerate(self._first.params):
            self._cells[:, index * bindings.VALUE_SIZE] = bindings.KINDS[kind]
        own = self._shared.copy()
        own[:, _ARGUMENTS] = self._cells.ctypes.data + size * np.arange(self._count)
        return own

    def results(self) -> list[Any]:
        """Return the results of all calls; the result of a failed call is meaningless."""
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
        return real(value)
    whole = operator.index(value)  # type: ignore[arg-type]  # a float is a TypeError, which is meant
    if not -(1 << bits - 1) <= whole < 1 << bits:
        raise ValueError(value)
    return whole & (1 << bits) - 1


def _is_array(value: Numbers) -> bool:
    return isinstance(value, np.ndarray) and value.ndim > 0


def _column_of(what: str, kind: str, value: Numbers, count: int) -> npt.NDArray[Any]:
    """
    Return one argument of `count` guests as its bits are stored: [count], or [] for all alike.

    Raises UsageError, which begins with `what`, such as "argument 1 of player".
    """
    if not isinstance(value, np.ndarray) or not value.ndim:
        try:
            return np.array(_number(kind, value), _STORED[kind])  # type: ignore[arg-type]
        except (TypeError, ValueError, OverflowError):
            raise UsageError(
                f"{what}: {cut_repr(value)} does not fit an {kind}{_FOR_MANY}"
            ) from None
    if isinstance(value, np.ma.MaskedArray):
        raise UsageError(f"{what} is an array with a mask: give its numbers, by .filled()")
    if value.shape != (count,):
        raise UsageError(
            f"{what} has the shape {cut_repr(list(value.shape))}: it takes a number for each of the"
            f" {count} guests that are called, [{count}]"
        )
    bits = _BITS.get(kind)
    if value.dtype.kind not in ("biu" if bits else "biuf"):
        way = ", by .astype() if they are whole" if value.dtype.kind == "f" else ""
        raise UsageError(
            f"{what} is of {value.dtype}, as {cut_repr(value[:1].tolist())}: an {kind} takes"
            f" {'whole ' if bits else ''}numbers{way}"
        )
    if bits is None:
        with np.errstate(over="ignore"):
            column = value.astype(_STORED[kind])
        wrong = np.isinf(column) & ~np.isinf(value)
    elif value.dtype.itemsize * 8 > bits:
        wrong = (value < -(1 << bits - 1)) | (value >= 1 << bits)
        column = value.astype(_STORED[kind])
    else:
        return value.astype(_STORED[kind])
    if wrong.any():
        place = int(wrong.argmax())
        raise UsageError(f"{what}: {value[place]} of guest {place} does not fit an {kind}")
    return column


def _address(room: Any) -> bindings.Address:
    """Return the address of room for values, which may not be null where there are none."""
    return _NO_VALUES if room is None else ctypes.addressof(room)


def _values(kinds: Sequence[str]) -> Any:
    """Return room for values of these kinds, or None for none."""
    if not kinds:
        return None
    buffer = (ctypes.c_uint8 * (bindings.VALUE_SIZE * len(kinds)))()
    for index, kind in enumerate(kinds):
        buffer[index * bindings.VALUE_SIZE] = bindings.KINDS[kind]
    return buffer
