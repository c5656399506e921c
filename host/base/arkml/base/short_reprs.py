"""Representations of records and values that fit on a line."""

from __future__ import annotations

import dataclasses
import reprlib
from typing import TYPE_CHECKING, Any

from arkml.base.handler_errors import is_of_handler

if TYPE_CHECKING:
    import numpy as np

_ITEMS = 6  # items of a list or mapping to show
_LETTERS = 200
_LETTERS_OF_REASON = 300
_LETTERS_OF_REPR = 500
_DIGITS = 30


class _ShortRepr(reprlib.Repr):
    """Represents values like `repr`, but large ones shortened, such as `<4,096 bytes>`."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxtuple = self.maxlist = self.maxdict = self.maxset = self.maxdeque = _ITEMS
        self.maxstring = self.maxother = self.maxlong = _LETTERS

    def repr_bytes(self, value: bytes, _level: int) -> str:
        return repr(value) if len(value) <= _ITEMS else f"<{len(value):,} bytes>"

    repr_bytearray = repr_bytes

    def repr_int(self, value: int, _level: int) -> str:
        try:
            text = repr(value)
        except ValueError:  # an integer with more digits than Python writes
            return f"a number of {value.bit_length():,} bits"
        return text if len(text) <= _DIGITS else f"{text[:_DIGITS]}… ({len(text):,} digits)"

    def repr_ndarray(self, value: np.ndarray[Any, Any], _level: int) -> str:
        return f"<{value.dtype} {list(value.shape)}>"


_SHORT = _ShortRepr()


def short_repr(record: Any) -> str:
    """Return the short representation of a dataclass or named tuple, for use as `__repr__`."""
    if dataclasses.is_dataclass(record):
        names = [field.name for field in dataclasses.fields(record) if field.repr]
    else:
        names = list(record._fields)
    shown = (f"{name}={_SHORT.repr(getattr(record, name))}" for name in names)
    return f"{type(record).__qualname__}({', '.join(shown)})"


def cut_text(value: object) -> str:
    """
    Return the text of a value or exception on one short line, since it may quote untrusted files.
    """
    text = " ".join(str(value).split())
    return text if len(text) <= _LETTERS_OF_REASON else f"{text[:_LETTERS_OF_REASON]}…"


def cut_repr(value: object) -> str:
    """
    Return a shortened representation of an untrusted value, for a sentence.

    Unlike `repr`, it never raises, for example for a number with thousands of digits.
    """
    try:
        text = _SHORT.repr(value)
    except Exception as error:  # of any representation
        if is_of_handler(error):
            raise
        return f"a {type(value).__name__}"
    return text if len(text) <= _LETTERS_OF_REPR else f"{text[:_LETTERS_OF_REPR]}…"
