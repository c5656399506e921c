"""The names that a module gives to its functions, which messages about traps show."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import suppress

from arkml.errors import ModuleRejected
from arkml.runtime.module.binary import Binary
from arkml.runtime.module.wasm_reader import Reader

_SECTION = "name"
_MODULE, _FUNCTIONS = 0, 1
_MOST_BYTES = 1 << 16  # of a name: a trap copies it once for each of up to twenty frames


def check_names(reader: Reader) -> None:
    """
    Raise ModuleRejected for a name that is too long in a custom section `name`.

    Malformed parts of such a section are ignored, as the compiler ignores them.
    """
    for length in _lengths(reader):
        if length > _MOST_BYTES:
            raise ModuleRejected(
                f"the module gives itself or a function a name of {length:,} bytes, the limit is"
                f" {_MOST_BYTES:,}: strip its section `name`"
            )


def function_names(binary: Binary, wanted: Collection[int]) -> dict[int, str]:
    """Return the names that the custom section `name` gives to these functions, by index."""
    place = binary.customs.get(_SECTION)
    found: dict[int, str] = {}
    if place is None:
        return found
    reader = Reader(binary.data, place.start, place.stop, _SECTION)
    with suppress(ModuleRejected):
        while not reader.is_empty:
            kind, size = reader.byte(), reader.u32()
            part = reader.part(size)
            for _ in range(part.u32() if kind == _FUNCTIONS else 0):
                index = part.u32()
                if index in wanted:
                    found[index] = part.name()
                else:
                    _length(part)
    return found


def _lengths(reader: Reader) -> Iterator[int]:
    while not reader.is_empty:
        try:
            kind, size = reader.byte(), reader.u32()
            part = reader.part(size)
        except ModuleRejected:
            return
        with suppress(ModuleRejected):
            if kind == _MODULE:
                yield _length(part)
            elif kind == _FUNCTIONS:
                for _ in range(part.u32()):
                    part.u32()  # its index
                    yield _length(part)


def _length(reader: Reader) -> int:
    length = reader.u32()
    reader.skip(length)
    return length
