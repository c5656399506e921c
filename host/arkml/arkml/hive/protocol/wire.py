"""
JSON on the wire: typed objects, and messages between a server and its learner.

A typed object checks its fields when it is read, and raises an error with a sentence if they do not
fit. A message is any JSON object with a kind. In a stream of messages, each follows its length in 4
bytes.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Self

import msgspec
from msgspec import Meta, inspect

from arkml.base.short_reprs import cut_repr
from arkml.errors import ArkmlError, ProtocolError

MAX_COUNT = (1 << 63) - 1
"""The largest count or time on the wire: guests and the index of metrics have 64 bits."""

MAX_VERSION = (1 << 32) - 1
"""The largest policy version: rows carry it in 32 bits."""

MAX_MESSAGE = 4 << 20
"""The most bytes of a message between a server and its learner."""

Message = dict[str, Any]
"""A message between a server and its learner."""

Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
PolicyVersion = Annotated[int, Meta(ge=0, le=MAX_VERSION)]

_SHOWN = 80  # characters of a refused value
_MOST_NAMES = 40  # of the names that a sentence lists

_LENGTH = struct.Struct("<I")
_PLACE = re.compile(r" - at `(?:key` in `)?\$([^`]*)`$")
_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
_UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)
_MISSING = re.compile(r"Object missing required field `(.*)`")


class WireStruct(msgspec.Struct, frozen=True):
    """
    A JSON object whose fields have types and ranges.

    Values are checked where an object is read (`from_json`, `from_query`, `from_bytes`), not where
    Python code makes one. `refusal` is the class of the error for values that do not fit.
    """

    refusal: ClassVar[type[ArkmlError]] = ProtocolError

    def as_json(self) -> dict[str, Any]:
        """Return the object as dicts, lists, texts and numbers."""
        values: dict[str, Any] = _listed(msgspec.to_builtins(self))
        return values

    def as_bytes(self) -> bytes:
        """Return the object as JSON text."""
        return msgspec.json.encode(self)

    @classmethod
    def from_json(cls, values: object) -> Self:
        """Return the object with these parsed values. Raises `refusal` if they do not fit."""
        return cls._converted(values, strict=True)

    @classmethod
    def from_query(cls, values: Mapping[str, str]) -> Self:
        """
        Return the object with the values of a query, such as {"since": "0"}.

        Raises `refusal` if they do not fit.
        """
        return cls._converted(dict(values), strict=False)

    @classmethod
    def from_bytes(cls, data: bytes) -> Self:
        """Return the object in JSON text. Raises `refusal`, and ProtocolError if it is not JSON."""
        try:
            return msgspec.json.decode(data.decode(), type=cls)  # all of it has to be UTF-8
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise _refusal(cls, _parsed(data), str(error)) from None

    @classmethod
    def _converted(cls, values: object, *, strict: bool) -> Self:
        try:
            return msgspec.convert(values, cls, strict=strict)
        except msgspec.ValidationError as error:
            raise _refusal(cls, values, str(error)) from None


class Nothing(WireStruct, frozen=True):
    """An object without fields, for requests without parameters."""


def compact_json(value: object) -> bytes:
    """
    Return a value as JSON without spaces, and with letters such as é unescaped.

    Raises ValueError for a surrogate in a text, such as U+D800 from an escape in other JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
    except UnicodeEncodeError as error:
        found = ord(error.object[error.start])
        raise ValueError(f"U+{found:04X}, which is not a character") from None


def pack(kind: str, **fields: Any) -> bytes:
    """Return a message of this kind as bytes: its length, and JSON with the fields."""
    data = json.dumps({"kind": kind, **fields}).encode()
    return _LENGTH.pack(len(data)) + data


class Unpacker:
    """A buffer that splits the bytes of a stream into messages."""

    def __init__(self) -> None:
        self._data = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        """Add bytes, and return the messages that they complete. Raises ProtocolError."""
        self._data += data
        messages: list[Message] = []
        while len(self._data) >= _LENGTH.size:
            (size,) = _LENGTH.unpack_from(self._data)
            if size > MAX_MESSAGE:
                raise ProtocolError(f"a message of {size} bytes, {MAX_MESSAGE} at most")
            end = _LENGTH.size + size
            if len(self._data) < end:
                break
            message = json.loads(self._data[_LENGTH.size : end])
            if not isinstance(message, dict) or not isinstance(message.get("kind"), str):
                raise ProtocolError(f"a message is an object with a kind, not {message!r}")
            messages.append(message)
            del self._data[:end]
        return messages


def _listed(value: Any) -> Any:
    """Return built-in values with lists in place of tuples."""
    if isinstance(value, dict):
        return {key: _listed(item) for key, item in value.items()}
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


def _parsed(data: bytes) -> object:
    try:
        return msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ProtocolError(f"{_shown(data)} is not JSON: {error}") from None


def _refusal(cls: type[WireStruct], values: object, text: str) -> ArkmlError:
    """Return the error for values that msgspec refuses with this text."""
    place = _PLACE.search(text)
    problem = text[: place.start()] if place else text
    kind: inspect.Type = inspect.type_info(cls)
    error, path, value = cls.refusal, "", values
    for name, number in _STEP.findall(place[1]) if place else ():
        path += (f".{name}" if path else name) if name else f"[{number}]"
        kind, value = _inner(kind, value, name or number)
        if isinstance(kind, inspect.StructType) and issubclass(kind.cls, WireStruct):
            # A part that has no error of its own is refused as the whole is.
            error = error if kind.cls.refusal is ProtocolError else kind.cls.refusal
    inner = _container(kind)
    fields = inner.fields if isinstance(inner, inspect.StructType) else ()
    prefix = f"{path}." if path else ""
    if fields and (unknown := _UNKNOWN.fullmatch(problem)):
        names = _alternatives([field.encode_name for field in fields][:_MOST_NAMES])
        return error(f"{prefix}{_shown(unknown[1], str)} is unknown: it takes {names}")
    if missing := _MISSING.fullmatch(problem):
        expected = {field.encode_name: _expected(field.type) for field in fields}
        return error(f"{prefix}{missing[1]} is missing: it takes {expected.get(missing[1])}")
    return error(f"{path or 'the document'} is {_shown(value)}: it takes {_expected(kind)}")


def _inner(kind: inspect.Type, value: object, step: str) -> tuple[inspect.Type, object]:
    """Return the type and the value of a field or an item, or the whole value if it has none."""
    kind = _container(kind)
    match kind:
        case inspect.StructType(fields=fields):
            kind = next((one.type for one in fields if one.encode_name == step), kind)
        case inspect.NamedTupleType(fields=fields) if step.isdecimal():
            kind = fields[int(step)].type
        case inspect.TupleType(item_types=types) if step.isdecimal():
            kind = types[int(step)]
        case inspect.ListType(item_type=item) | inspect.VarTupleType(item_type=item):
            kind = item
        case inspect.DictType(value_type=item):
            kind = item
        case _:
            pass
    match value:
        case Mapping():
            return kind, value.get(step, value)
        case list() | tuple() if step.isdecimal() and int(step) < len(value):
            return kind, value[int(step)]
        case _:
            return kind, value


def _container(kind: inspect.Type) -> inspect.Type:
    """Return the object or list among the alternatives of a union; other types are unchanged."""
    if not isinstance(kind, inspect.UnionType):
        return kind
    containers = (
        inspect.StructType, inspect.ListType, inspect.VarTupleType, inspect.DictType,
    )  # fmt: skip
    return next((one for one in kind.types if isinstance(one, containers)), kind)


def _expected(kind: inspect.Type) -> str:
    """Return the values that a type takes in words, such as "a whole number from 0 to 9"."""
    match kind:
        case inspect.IntType(ge=least, le=most, multiple_of=factor):
            return f"a{'n even' if factor == 2 else ''} whole number" + _range(least, most)
        case inspect.FloatType(ge=least, le=most):
            return "a number" + _range(least, most)
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType(min_length=least, max_length=most):
            return "a text" + _length(least, most, "letters")
        case inspect.LiteralType(values=values):
            return _alternatives(list(values))
        case inspect.EnumType(cls=names):
            return _alternatives([name.value for name in names])
        case inspect.NoneType():
            return "null"
        case inspect.UnionType(types=types):
            return " or ".join(_expected(one) for one in types)
        case (
            inspect.ListType(item_type=item, min_length=least, max_length=most)
            | inspect.VarTupleType(item_type=item, min_length=least, max_length=most)
        ):
            return f"a list{_length(least, most, 'items')}, each {_expected(item)}"
        case inspect.NamedTupleType(fields=fields):
            return f"a list of {_alternatives([one.name for one in fields], 'and')}"
        case inspect.TupleType(item_types=types):
            return f"a list of {_alternatives([_expected(one) for one in types], 'and')}"
        case _:
            return "an object"


def _range(least: float | None, most: float | None) -> str:
    if least is None:
        return ""
    return f" from {_number(least)}" + ("" if most is None else f" to {_number(most)}")


def _number(value: float) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value)


def _length(least: int | None, most: int | None, unit: str) -> str:
    if most is None:
        return "" if least is None else f" of at least {least} {unit}"
    return f" of {least or 0} to {most} {unit}"


def _alternatives(names: Sequence[object], word: str = "or") -> str:
    *first, last = map(str, names)
    return f"{', '.join(first)} {word} {last}" if first else last


def _shown(value: object, text: type[str] | Any = cut_repr) -> str:
    shown: str = text(value)
    return shown if len(shown) <= _SHOWN else f"{shown[:_SHOWN]}..."
