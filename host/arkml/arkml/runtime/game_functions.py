"""Functions of the embedder's game that guests import, such as a raycast."""

from __future__ import annotations

import inspect
import struct
import sys
import threading
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property
from pathlib import Path
from pkgutil import resolve_name
from typing import Any, SupportsIndex, TypeAlias, TypeVar, get_args

import numpy as np
import numpy.typing as npt

from arkml.arrays import real, real_array
from arkml.base.handler_errors import is_of_handler
from arkml.base.short_reprs import cut_repr, cut_text
from arkml.errors import GameFunctionFailed, InvalidArguments, LinkError, UsageError
from arkml.limits import whole_number
from arkml.runtime.memory import PAGE, BytesLike, GuestMemory, address_of, bytes_of, size_of
from arkml.runtime.module.description import ImportInfo
from arkml.runtime.module.imports import RESERVED
from arkml.runtime.module.wasm_types import FunctionType

Imports: TypeAlias = Mapping[Any, Any] | str
"""
Functions of a game: by module and name, as `{("env", "raycast"): f}`, or objects with methods, by
module, as `{"env": Physics()}`; or the place of such a mapping, as "mygame:functions".
"""

_KINDS = {"i32": np.int32, "i64": np.int64, "f32": np.float32, "f64": np.float64}
_READ = {"i32": "i4x", "i64": "q", "f32": "f4x", "f64": "d"}
_BITS = {"i32": 32, "i64": 64}
_WHOLE = frozenset(_BITS)
_COMPUTED = (property, cached_property)
_MARK = "_arkml_game_function"
_F = TypeVar("_F", bound=Callable[..., Any])

Indices: TypeAlias = npt.NDArray[np.int64]
Columns: TypeAlias = npt.NDArray[np.uint64]
"""Arguments or results of guests as their 64 bits: [values, n]."""


@dataclass(frozen=True, slots=True)
class _Mark:
    name: str | None
    many: bool


def game_function(*, name: str | None = None, many: bool = False) -> Callable[[_F], _F]:
    """
    Declare how guests import a function or method of a game; see `Host`.

    Args:
        name: The name of the import, for a method whose own name differs, such as "ray-cast".
        many: True lets the function answer all guests of a fleet that called it in the same round
            at once. It then gets an array for each parameter of the import, [n], of int32, int64,
            float32 or float64, and returns an array for each result, [n]. A parameter annotated
            with `arkml.CallingGuests` tells which guests they are. A guest that is not in a fleet
            comes alone: n is 1.

    Example:
        @arkml.game_function(many=True)
        def raycast(x, y, angle):
            return world.distances(x, y, angle)

        host = arkml.Host(imports={("env", "raycast"): raycast})

    """
    if not isinstance(name, str | None):
        raise UsageError(f"name is {cut_repr(name)}: it takes the name of an import, or None")
    if not isinstance(many, bool):
        raise UsageError(f"many is {cut_repr(many)}: it takes True or False")

    def marked(function: _F) -> _F:
        try:
            setattr(function, _MARK, _Mark(name, many))
        except AttributeError:
            raise UsageError(
                f"{cut_repr(function)} cannot be declared: it is a bound method or a function in C,"
                " so declare a function of your own that calls it"
            ) from None
        return function

    return marked


class Memory:
    """
    The memory of a guest, for the time in which it calls a function of the game.

    A function of the game gets it by a parameter with this annotation, in any position. Addresses
    are i32 as the guest passes them, signed or unsigned.

    Example:
        def show(memory: arkml.Memory, text: int, size: int) -> None:
            print(memory.read(text, size).decode())

    """

    __slots__ = ("_memory", "_pages", "_time")

    def __init__(self, memory: GuestMemory, pages: int, time: _Time) -> None:
        self._memory = memory
        self._pages = pages
        self._time = time

    def __len__(self) -> int:
        """Return the size of the memory in bytes."""
        return self._pages * PAGE

    def read(self, pointer: SupportsIndex, size: SupportsIndex) -> bytes:
        """
        Return a copy of `size` bytes.

        Raises InvalidArguments for a range that reaches beyond the memory, and once the call of the
        game's function is over, and TooManyBytes over `Limits.snapshot_bytes`.
        """
        address, count = address_of(pointer), size_of(size)
        with self._time.using:
            return self._open().read(address, count)

    def read_c_string(self, pointer: SupportsIndex) -> bytes:
        """
        Return the bytes up to a NUL, without it, as C ends a text.

        Raises InvalidArguments as `read` does, and where the memory ends before a NUL, and
        TextTooLong over `Limits.text_bytes`.
        """
        address = address_of(pointer)
        with self._time.using:
            return self._open().c_string(address)

    def write(self, pointer: SupportsIndex, data: BytesLike) -> None:
        """Write bytes. Raises InvalidArguments as `read` does, in which case none is written."""
        address, content = address_of(pointer), bytes_of(data)
        with self._time.using:
            self._open().write(address, content)

    def _open(self) -> GuestMemory:
        if self._time.is_over:
            raise InvalidArguments(
                "a guest's memory can be used in a function of the game until that returns: use"
                " Guest.read_memory between its calls"
            )
        self._memory.pages = self._pages
        return self._memory


@dataclass(frozen=True, slots=True)
class CallingGuest:
    """
    The guest that calls a function of the game; a parameter with this annotation gets it.

    Attributes:
        name: Name of the guest, such as `npc.wasm#3`.
        index: Its index in its fleet, 0 for a guest that is not in a fleet.
        memory: Its memory, until the function returns.

    """

    name: str
    index: int
    memory: Memory


class CallingGuests(Sequence[CallingGuest]):
    """
    The guests that call a function of the game at once, in the order of its arrays.

    Attributes:
        indices: Their indices in their fleet, int64, [n], to choose rows of an array of the game,
            as in `positions[callers.indices]`.

    """

    __slots__ = ("_make", "indices")

    def __init__(self, indices: Indices, make: Callable[[int], CallingGuest]) -> None:
        self.indices: Indices = indices
        self._make = make

    def __len__(self) -> int:
        return len(self.indices)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return [self._make(each) for each in range(len(self))[place]]
        return self._make(range(len(self))[place])


class _Time:
    """The time of one call, which its memories are used in: it ends when none is in use."""

    __slots__ = ("is_over", "using")

    def __init__(self) -> None:
        self.is_over = False
        self.using = threading.RLock()  # a function may give a memory to a thread

    def end(self) -> None:
        """Close the memories, after what other threads have begun to read or write."""
        self.is_over = True  # first: a signal handler may raise in the wait
        with self.using:
            pass


Each: TypeAlias = Callable[[int], tuple[str, GuestMemory, int]]
"""Returns the name, the memory and its pages of the guest at a place of an array."""


_OF_ONE, _OF_MANY = {"Memory": False, "CallingGuest": True}, {"CallingGuests": True}
"""Annotations that a function gets no number for, and whether each is a caller, by its kind."""


class BoundFunction:
    """A function of the game, bound to one import of a module."""

    __slots__ = (
        "_answered", "_call", "_given", "_params", "_read", "_results", "_write", "label", "many",
    )  # fmt: skip

    def __init__(self, entry: ImportInfo, function: Callable[..., Any], module: str) -> None:
        """Take a function. Raises LinkError if it cannot take what the import passes."""
        kind = _numbers_of(entry)
        self.label = f"{entry.module}.{entry.name}"
        self.many: bool = _mark_of(function).many
        self._call = function
        self._params, self._results = kind.params, kind.results
        self._read = struct.Struct("<" + "".join(_READ[each] for each in kind.params))
        self._answered = struct.Struct("<" + "".join(_READ[each] for each in kind.results))
        self._write = [struct.Struct("<" + _READ[each][0]).pack_into for each in kind.results]
        self._given = self._parameters(entry, module)

    @property
    def counts(self) -> tuple[int, int]:
        """The number of parameters, and the number of results."""
        return len(self._params), len(self._results)

    @property
    def takes_memory(self) -> bool:
        """Whether the function may use the memory of the guest that calls it."""
        return bool(self._given)

    def answer(
        self, name: str, index: int, memory: GuestMemory, words: memoryview, at: int
    ) -> None:
        """
        Call the function with the arguments at byte `at` of `words`, and store its results there.

        Raises GameFunctionFailed if it raises, or returns what the import cannot take.
        """
        if self.many:
            self._answer_one_of_many(name, index, memory, words, at)
            return
        numbers = self.arguments(words, at)
        time: _Time | None = None
        if self._given:
            time = _Time()
            caller = CallingGuest(name, index, Memory(memory, memory.pages, time))
            numbers = _placed(numbers, self._given, caller.memory, caller)
        try:
            value = self._call(*numbers)
            count = len(self._results)
            values = (value,) if count == 1 else self._several(value, count)
            for place, (write, kind, each) in enumerate(
                zip(self._write, self._results, values, strict=True)
            ):
                try:
                    write(words, at + 8 * place, each if kind in _WHOLE else real(each))
                except (TypeError, OverflowError, struct.error):
                    write(words, at + 8 * place, _signed(kind, each))
        except Exception as error:
            if is_of_handler(error):
                raise
            raise self.failure(name, error) from error
        finally:
            if time is not None:
                time.end()

    def arguments(self, words: memoryview, at: int) -> tuple[int | float, ...]:
        """Return the arguments of a call, at byte `at` of `words`, where `answer` finds them."""
        return self._read.unpack_from(words, at)

    def results(self, stored: bytes) -> tuple[int | float, ...]:
        """Return the results of a call, from the 8 bytes of each, as `answer` stores them."""
        return self._answered.unpack(stored)

    def answer_many(self, indices: Indices, each: Each, arguments: Columns) -> Columns:
        """
        Call the function once for many guests, with arguments [params, n].

        `indices`, [n], are those of the guests in their fleet. Returns [results, n].

        Raises what the function raises, and UsageError if it returns what the import cannot take.
        """
        time = _Time()
        numbers: tuple[Any, ...] = tuple(map(_array, self._params, arguments))
        if self._given:
            callers = CallingGuests(indices, _maker(indices, each, time))
            numbers = _placed(numbers, self._given, callers, callers)
        try:
            value = self._call(*numbers)
            count = len(self._results)
            values = (value,) if count == 1 else self._several(value, count)
            columns = np.zeros((count, len(indices)), np.uint64)
            for column, kind, each in zip(columns, self._results, values, strict=True):
                column[:] = self._column(kind, each, len(indices))
        finally:
            time.end()
        return columns

    def failure(self, guest: str, error: Exception) -> GameFunctionFailed:
        """Return the error with which a guest ends because the function raised an exception."""
        text = f"raised {type(error).__name__}: {cut_text(error)}".rstrip(": ")
        if isinstance(error, _Wrong):
            text = str(error)
        failed = GameFunctionFailed(f"{guest}: the game's function {self.label} {text}")
        failed.__cause__ = error
        return failed

    def _answer_one_of_many(
        self, name: str, index: int, memory: GuestMemory, words: memoryview, at: int
    ) -> None:
        params, results = self.counts
        room = np.frombuffer(words, np.uint64, max(params, results, 1), at)
        pages = memory.pages
        indices = np.array([index])
        try:
            columns = self.answer_many(
                indices, lambda _: (name, memory, pages), room[:params, None].copy()
            )
        except Exception as error:
            if is_of_handler(error):
                raise
            raise self.failure(name, error) from error
        room[:results] = columns[:, 0]

    def _several(self, value: Any, count: int) -> Sequence[Any]:
        """Return the values of a function with no result, or with several."""
        if count == 0:
            if value is None:
                return ()
            _close(value)
            raise _Wrong(f"returned {cut_repr(value)}: its import has no result")
        if isinstance(value, tuple | list) and len(value) == count:
            return value
        raise _Wrong(f"returned {cut_repr(value)}: it takes a tuple of {count} results")

    def _column(self, kind: str, value: Any, count: int) -> Columns:
        """Return the results of many guests as 64 bits, [n]."""
        array = None
        if isinstance(value, np.ndarray | list | tuple):
            with suppress(TypeError, ValueError):
                array = real_array(value)
        if array is None or array.shape != (count,):
            _close(value)
            raise _Wrong(
                f"returned {cut_repr(value)}: a function that takes many returns an array of"
                f" {count} numbers for each result"
            )
        wanted = np.dtype(_KINDS[kind])
        if kind in _WHOLE and not _fits(array, wanted):
            raise _Wrong(f"returned {cut_repr(array)}: its numbers do not fit an {kind}")
        stored = array.astype(wanted)
        return stored.view(np.uint32 if wanted.itemsize == 4 else np.uint64).astype(np.uint64)

    def _parameters(self, entry: ImportInfo, module: str) -> tuple[tuple[int, bool], ...]:
        """
        Return the places of parameters that are no numbers, and whether each wants the caller.

        The others are compared with the import. Raises LinkError.
        """
        try:
            signature = inspect.signature(self._call, eval_str=True)
        except NameError:
            signature = inspect.signature(self._call)  # annotations stay texts
        except (TypeError, ValueError):
            return ()  # of a function in C that does not tell
        given, numbers = [], list[inspect.Parameter]()
        takes_any = False
        for place, parameter in enumerate(signature.parameters.values()):
            if parameter.kind is parameter.VAR_POSITIONAL:
                takes_any = True
            elif parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD):
                wants = self._wants(parameter, module)
                if wants is None:
                    numbers.append(parameter)
                else:
                    given.append((place, wants))
            elif parameter.kind is parameter.KEYWORD_ONLY and parameter.default is parameter.empty:
                raise LinkError(
                    f"{module}: the game's function {self.label} needs {parameter.name!r} by name,"
                    " and a guest passes numbers by place only"
                )
        required = sum(parameter.default is parameter.empty for parameter in numbers)
        count = len(self._params)
        if count < required or (count > len(numbers) and not takes_any):
            takes = f"{required} or more" if takes_any else str(len(numbers))
            raise LinkError(
                f"{module} imports {self.label} as {entry.type}, with {count} parameters: the"
                f" game's function takes {takes} numbers"
            )
        for kind, parameter in zip(self._params, numbers, strict=False):
            self._compare(parameter.annotation, kind, f"{parameter.name!r}", module)
        if len(self._results) == 1:
            self._compare(signature.return_annotation, self._results[0], "its result", module)
        return tuple(given)

    def _wants(self, parameter: inspect.Parameter, module: str) -> bool | None:
        """
        Return True for a caller, False for a memory, None for a number.

        Raises LinkError for an annotation that is for functions of the other kind.
        """
        annotation = parameter.annotation
        name = getattr(annotation, "__name__", annotation)
        text = name.rpartition(".")[2] if isinstance(name, str) else ""
        if text in (_OF_ONE if self.many else _OF_MANY):
            way_out = (
                "takes many guests at once: annotate it with arkml.CallingGuests, each of which"
                " has a memory"
                if self.many
                else "takes one guest: annotate it with arkml.CallingGuest, or declare the function"
                " with arkml.game_function(many=True)"
            )
            raise LinkError(
                f"{module}: the game's function {self.label} has {parameter.name!r} annotated with"
                f" {text}, and {way_out}"
            )
        return (_OF_MANY if self.many else _OF_ONE).get(text)

    def _compare(self, annotation: Any, kind: str, what: str, module: str) -> None:
        """Raise LinkError for a number whose annotation contradicts the import."""
        text = annotation if isinstance(annotation, str) else getattr(annotation, "__name__", "")
        is_wrong = text == ("float" if kind in _WHOLE else "int")
        if is_wrong and not self.many and not get_args(annotation):
            raise LinkError(
                f"{module} imports {self.label} with an {kind}, where the game's function has"
                f" {what} annotated with {text}"
            )


class GameFunctions:
    """
    The functions of a game, by module and name.

    Args:
        imports: Functions or objects, as for `Host`. Raises UsageError.

    """

    def __init__(self, imports: Imports | None = None) -> None:
        self._functions: dict[tuple[str, str], Callable[..., Any]] = {}
        self._listed: set[tuple[str, str]] = set()
        """Functions that were given by name, and that no module has imported yet."""
        if imports is None:
            return
        place = "imports"
        if isinstance(imports, str):
            place, imports = imports, _found(imports)
        if not isinstance(imports, Mapping):
            raise UsageError(
                f"{place} is {cut_repr(imports)}: it takes functions by module and name, as"
                ' {("env", "raycast"): f}, or an object by module, as {"env": Physics()}'
            )
        for key, value in imports.items():
            if isinstance(key, str):
                methods = dict(_methods(key, value))
                if not methods:
                    raise UsageError(
                        f"imports[{key!r}] is {cut_repr(value)}: it has no public methods"
                    )
                for name, method in methods.items():
                    self._add(key, name, method)
            elif isinstance(key, tuple) and len(key) == 2 and all(isinstance(k, str) for k in key):
                self._add(*key, value)
                self._listed.add(key)
            else:
                raise UsageError(
                    f"imports has the key {cut_repr(key)}: it takes a module and a name, as"
                    ' ("env", "raycast")'
                )

    @property
    def names(self) -> frozenset[tuple[str, str]]:
        """The module and the name of each function."""
        return frozenset(self._functions)

    def bind(self, imports: Sequence[ImportInfo], module: str) -> tuple[BoundFunction, ...]:
        """
        Return the functions that a module imports, in the order of its imports. Raises LinkError.
        """
        return tuple(
            BoundFunction(entry, self._functions[entry.module, entry.name], module)
            for entry in imports
        )

    def unused(self, imports: Collection[tuple[str, str]]) -> Iterator[str]:
        """Yield a message for each function that no module has imported yet, once for each."""
        for key in sorted(self._listed):
            self._listed.discard(key)
            if key in imports:
                continue
            close = get_close_matches(".".join(key), map(".".join, imports), 1)
            hint = f"; it imports {close[0]}" if close else ""
            yield f"the game's function {'.'.join(key)} is imported by nobody{hint}"

    def _add(self, module: str, name: str, function: Any) -> None:
        label = f"imports[{(module, name)!r}]"
        if module.startswith(RESERVED):
            raise UsageError(f"{label}: functions of {module} are the host's own")
        if not callable(function):
            raise UsageError(f"{label} is {cut_repr(function)}: it takes a function")
        if inspect.iscoroutinefunction(function):
            raise UsageError(
                f"{label} is a coroutine function: a guest waits for its answer within its frame,"
                " so that it takes a plain function"
            )
        self._functions[module, name] = function


NO_FUNCTIONS = GameFunctions()
"""Those of a host without a game."""


class _Wrong(Exception):
    """What a function returned does not fit its import."""


def _signed(kind: str, value: Any) -> int:
    """Return the signed integer with the bits of an unsigned one. Raises `_Wrong` for others."""
    bits = _BITS.get(kind)
    whole = None if bits is None else whole_number(value)
    if bits is None or whole is None or not 0 <= whole < 1 << bits:
        _close(value)
        raise _Wrong(f"returned {cut_repr(value)}: it takes a number that fits an {kind}")
    return whole - (1 << bits)


def _numbers_of(entry: ImportInfo) -> FunctionType:
    assert isinstance(entry.type, FunctionType)
    return entry.type


def _found(place: str) -> Any:
    """Return the object at a place such as "mygame:functions". Raises UsageError."""
    module, colon, name = place.partition(":")
    if not (module and colon and name):
        raise UsageError(
            f"imports is {cut_repr(place)}: it takes MODULE:NAME, as mygame:functions for the"
            " object `functions` of mygame.py"
        )
    here = str(Path.cwd())
    is_new = here not in sys.path and "" not in sys.path
    if is_new:  # for a command, as `python -m` does
        sys.path.insert(0, here)
    try:
        return resolve_name(place)
    except (ImportError, AttributeError, ValueError) as error:
        raise UsageError(f"imports {place} cannot be found: {cut_text(error)}") from error
    finally:
        if is_new:
            sys.path.remove(here)


def _mark_of(function: Callable[..., Any]) -> _Mark:
    mark = getattr(function, _MARK, None)
    return mark if isinstance(mark, _Mark) else _Mark(None, many=False)


def _methods(module: str, given: object) -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the public methods of an object, by the names of their imports."""
    if inspect.isclass(given):
        raise UsageError(f"imports[{module!r}] is the class {given.__name__}: give an object of it")
    if isinstance(given, Mapping):  # its own methods are meant by nobody
        name = next(iter(given), "name")
        raise UsageError(
            f"imports[{module!r}] is a mapping: give each of its functions by module and name, as"
            f" {{({module!r}, {cut_repr(name)}): f}}"
        )
    for name in dir(given):
        if name.startswith("_") or isinstance(inspect.getattr_static(given, name, None), _COMPUTED):
            continue  # the value of a property may not be there yet
        if callable(method := getattr(given, name)):
            yield _mark_of(method).name or name, method


def _placed(
    numbers: tuple[Any, ...], given: Sequence[tuple[int, bool]], memory: Any, caller: Any
) -> tuple[Any, ...]:
    """Return the arguments of a function, with those that are no numbers in their places."""
    arguments = list(numbers)
    for place, is_caller in given:
        arguments.insert(place, caller if is_caller else memory)
    return tuple(arguments)


def _maker(indices: Indices, each: Each, time: _Time) -> Callable[[int], CallingGuest]:
    def make(place: int) -> CallingGuest:
        name, memory, pages = each(place)
        return CallingGuest(name, int(indices[place]), Memory(memory, pages, time))

    return make


def _array(kind: str, bits: npt.NDArray[np.uint64]) -> npt.NDArray[Any]:
    """Return numbers of a wasm type from the 64 bits that each was stored in."""
    wanted = np.dtype(_KINDS[kind])
    return (bits.astype(np.uint32) if wanted.itemsize == 4 else bits.copy()).view(wanted)


def _fits(array: npt.NDArray[Any], wanted: np.dtype[Any]) -> bool:
    """Return whether whole numbers, signed or unsigned, fit the bits of an integer."""
    if array.dtype.kind not in "biu":
        return False
    if not array.size or array.dtype.kind == "b":
        return True
    bits = 8 * wanted.itemsize
    return int(array.min()) >= -(1 << bits - 1) and int(array.max()) < 1 << bits


def _close(value: Any) -> None:
    """Close a coroutine that a function returned, so that Python does not warn of it later."""
    if inspect.iscoroutine(value):
        value.close()
