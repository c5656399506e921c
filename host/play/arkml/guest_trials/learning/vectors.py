"""
Conversion of messages of a user's types to rows of numbers, all of one width.

All numeric fields count, also in nested messages, in the order of their field numbers; repeated
fields follow one another, and truth values are 0 or 1. A field that is not set is zero.
Enumerations are numbers in observations. In actions, an enumeration whose values are 0, 1, 2, … is
a choice; choices come after all numbers.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.descriptor import EnumDescriptor, FieldDescriptor
from google.protobuf.message import DecodeError, Message

from arkml.hive.protocol.rows import MAX_WIDTH
from arkml.trials.core.error import TrialError


@dataclass(slots=True)
class _Row:
    numbers: list[float] = field(default_factory=list)
    choices: list[float] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    lengths: list[tuple[str, int]] = field(default_factory=list)


class Vectors:
    """
    Converts messages of one type to rows of numbers.

    `branches` are the numbers of choices for the last columns of a row, known after the first
    message. Raises TrialError for a type that has text, bytes or maps, or contains itself.
    """

    def __init__(self, kind: type[Message], *, has_choices: bool = False) -> None:
        self._kind = kind
        self._has_choices = has_choices
        self._lengths: list[tuple[str, int]] | None = None
        self.branches: tuple[int, ...] = ()
        self.width = 0
        _check(kind.DESCRIPTOR, ())

    def row(self, content: bytes, where: str) -> list[float]:
        """
        Return the numbers in a serialized message; `where` names the message in errors.

        Raises TrialError if it cannot be parsed, or if its width differs from the first message's.
        """
        message = self._kind()
        name = self._kind.DESCRIPTOR.name
        try:
            message.ParseFromString(content)
        except (DecodeError, RecursionError):
            raise TrialError(
                f"{where} cannot be parsed as {name}: is this the spec of its trial?"
            ) from None
        row = _Row()
        self._read(message, "", row)
        if self._lengths is None:
            self._begin(row, name)
        elif row.lengths != self._lengths:
            before, now = _difference(self._lengths, row.lengths)
            raise TrialError(
                f"{now} in {where}, and {before} in the first {name}: only rows of one width can be"
                " exported"
            )
        return row.numbers + row.choices

    def _begin(self, row: _Row, name: str) -> None:
        width = len(row.numbers) + len(row.choices)
        if not width:
            raise TrialError(f"{name} has no numbers to export")
        self._lengths, self.branches, self.width = row.lengths, tuple(row.sizes), width

    def _read(self, message: Message, path: str, row: _Row) -> None:
        for described in _fields(message.DESCRIPTOR):
            name = f"{path}{described.name}"
            value: Any = getattr(message, described.name)
            values = value if described.is_repeated else (value,)
            if described.is_repeated:
                row.lengths.append((name, len(value)))
            if len(row.numbers) + len(row.choices) + len(values) > MAX_WIDTH:
                raise TrialError(f"{self._kind.DESCRIPTOR.name} has more than {MAX_WIDTH} numbers")
            if described.message_type is not None:
                for part in values:
                    self._read(part, f"{name}.", row)
            elif self._has_choices and described.enum_type is not None:
                self._choose(described.enum_type, values, row)
            else:
                row.numbers.extend(map(float, values))

    def _choose(self, kind: EnumDescriptor, values: Any, row: _Row) -> None:
        count = len(kind.values)
        if sorted(value.number for value in kind.values) == [*range(count)]:
            row.choices.extend(map(float, values))
            row.sizes.extend([count] * len(values))
        else:
            row.numbers.extend(map(float, values))


def _fields(kind: Any) -> list[FieldDescriptor]:
    return sorted(kind.fields, key=lambda described: described.number)


def _check(kind: Any, above: tuple[str, ...]) -> None:
    """Raise TrialError for a type whose messages are not rows of numbers."""
    if kind.full_name in above:
        raise TrialError(f"{kind.full_name} contains itself: it is not a row of numbers")
    for described in _fields(kind):
        what = ""
        if described.cpp_type == FieldDescriptor.CPPTYPE_STRING:
            is_bytes = described.type == FieldDescriptor.TYPE_BYTES
            what = "bytes" if is_bytes else "text"
        elif described.message_type is not None:
            if described.message_type.GetOptions().map_entry:
                what = "a map"
            else:
                _check(described.message_type, (*above, kind.full_name))
        if what:
            raise TrialError(
                f"field {described.name!r} of {kind.full_name} is {what}: only numbers can be"
                " exported"
            )


def _difference(before: list[tuple[str, int]], now: list[tuple[str, int]]) -> tuple[int, str]:
    """
    Return the first difference of two lists of lengths: the number before, and words for the new.

    The fields of one type come in one order, so the first lists that differ have one name.
    """
    return next(
        (old, f"{name!r} has {new} values")
        for (name, old), (_, new) in zip(before, now, strict=False)
        if old != new
    )
