"""Types of wasm imports and exports, with their parsers and text forms."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from arkml.runtime.module.wasm_reader import Reader

PAGE = 1 << 16

_MAX_PARAMETERS = 1_000
_MAX_FIELDS = 10_000
_MAX_SUBTYPES = 1_000_000
_HEAP_TYPES = {
    0x74: "noexn",
    0x73: "nofunc",
    0x72: "noextern",
    0x71: "none",
    0x70: "func",
    0x6F: "extern",
    0x6E: "any",
    0x6D: "eq",
    0x6C: "i31",
    0x6B: "struct",
    0x6A: "array",
    0x69: "exn",
}
_SHORT_NAMES = {
    "noexn": "nullexnref",
    "nofunc": "nullfuncref",
    "noextern": "nullexternref",
    "none": "nullref",
}
_NUMBERS = {0x7F: "i32", 0x7E: "i64", 0x7D: "f32", 0x7C: "f64", 0x7B: "v128"}
_VALUES = _NUMBERS | {
    code: _SHORT_NAMES.get(name, f"{name}ref") for code, name in _HEAP_TYPES.items()
}
_PACKED = {0x78: "i8", 0x77: "i16"}
_REF_NULL, _REF = 0x63, 0x64


@dataclass(frozen=True, slots=True)
class FunctionType:
    """The parameters and results of a function, as names of wasm value types."""

    params: tuple[str, ...] = ()
    results: tuple[str, ...] = ()

    def __str__(self) -> str:
        return f"({' '.join(self.params)}) -> ({' '.join(self.results)})"


@dataclass(frozen=True, slots=True)
class TableType:
    """A table of `minimum` elements that may grow to `maximum`, or to the host's limit."""

    element: str
    minimum: int
    maximum: int | None = None

    def __str__(self) -> str:
        return f"table {_range(self.minimum, self.maximum)} {self.element}"


@dataclass(frozen=True, slots=True)
class MemoryType:
    """A memory of `minimum` pages that may grow to `maximum`, or to the host's limit."""

    minimum: int
    maximum: int | None = None
    is_shared: bool = False
    is_64: bool = False
    page_size: int = PAGE

    def __str__(self) -> str:
        marks = " 64-bit" * self.is_64 + " shared" * self.is_shared
        return f"memory {_range(self.minimum, self.maximum)}{marks}"


@dataclass(frozen=True, slots=True)
class GlobalType:
    """The type of a wasm global variable: its value type, and whether it is mutable."""

    value: str
    is_mutable: bool = False

    def __str__(self) -> str:
        return f"global {'mut ' * self.is_mutable}{self.value}"


@dataclass(frozen=True, slots=True)
class TagType:
    """An exception tag; `payload` holds the types of the values thrown."""

    payload: FunctionType

    def __str__(self) -> str:
        return f"tag ({' '.join(self.payload.params)})"


ExternalType: TypeAlias = FunctionType | TableType | MemoryType | GlobalType | TagType


def _range(minimum: int, maximum: int | None) -> str:
    return f"{minimum}.." if maximum is None else f"{minimum}..{maximum}"


def value_type(reader: Reader) -> str:
    code = reader.byte()
    if code in _VALUES:
        return _VALUES[code]
    if code not in (_REF_NULL, _REF):
        raise reader.rejected(f"{code:#x} is not a value type")
    heap = heap_type(reader)
    return f"(ref null {heap})" if code == _REF_NULL else f"(ref {heap})"


def heap_type(reader: Reader) -> str:
    number = reader.s33()
    if number >= 0:
        return str(number)
    if number & 0x7F in _HEAP_TYPES and number >= -0x40:
        return _HEAP_TYPES[number & 0x7F]
    raise reader.rejected(f"{number} is not a heap type")


def definitions(reader: Reader) -> list[FunctionType | None]:
    """Read one entry of the type section; types other than functions are None."""
    code = reader.peek()
    if code != 0x4E:  # a recursion group
        return [_subtype(reader)]
    reader.byte()
    return [_subtype(reader) for _ in range(reader.count(_MAX_SUBTYPES, "types"))]


def _subtype(reader: Reader) -> FunctionType | None:
    code = reader.byte()
    if code in (0x4F, 0x50):  # final and open subtypes
        for _ in range(reader.count(_MAX_FIELDS, "supertypes")):
            reader.u32()
        code = reader.byte()
    match code:
        case 0x60:
            params = _values(reader, "parameters")
            return FunctionType(params, _values(reader, "results"))
        case 0x5F:
            for _ in range(reader.count(_MAX_FIELDS, "fields")):
                _field(reader)
        case 0x5E:
            _field(reader)
        case _:
            raise reader.rejected(f"{code:#x} is not a kind of type")
    return None


def _values(reader: Reader, items: str) -> tuple[str, ...]:
    return tuple([value_type(reader) for _ in range(reader.count(_MAX_PARAMETERS, items))])


def _field(reader: Reader) -> None:
    if reader.peek() in _PACKED:
        reader.byte()
    else:
        value_type(reader)
    _flag(reader, "mutability")


def _flag(reader: Reader, name: str) -> bool:
    value = reader.byte()
    if value > 1:
        raise reader.rejected(f"{value:#x} is not a {name}")
    return bool(value)


def global_type(reader: Reader) -> GlobalType:
    value = value_type(reader)
    return GlobalType(value, _flag(reader, "mutability"))


def table_type(reader: Reader) -> TableType:
    element = value_type(reader)
    flags = reader.byte()
    if flags & ~0b101:
        raise reader.rejected(f"{flags:#x} are not the limits of a table")
    minimum, maximum = _limits(reader, has_maximum=bool(flags & 1), is_64=bool(flags & 4))
    return TableType(element, minimum, maximum)


def memory_type(reader: Reader) -> MemoryType:
    flags = reader.byte()
    if flags & ~0b1111:
        raise reader.rejected(f"{flags:#x} are not the limits of a memory")
    is_64 = bool(flags & 4)
    minimum, maximum = _limits(reader, has_maximum=bool(flags & 1), is_64=is_64)
    exponent = reader.u32() if flags & 8 else 16
    if exponent not in (0, 16):
        raise reader.rejected(f"a page size of 2^{exponent} bytes")
    if flags & 2 and maximum is None:
        raise reader.rejected("a shared memory without a maximum")
    most = (1 << (64 if is_64 else 32)) >> exponent
    if max(minimum, maximum or 0) > most:
        raise reader.rejected(f"a memory of {max(minimum, maximum or 0):,} pages")
    return MemoryType(minimum, maximum, bool(flags & 2), is_64, 1 << exponent)


def _limits(reader: Reader, *, has_maximum: bool, is_64: bool) -> tuple[int, int | None]:
    number = reader.u64 if is_64 else reader.u32
    minimum = number()
    maximum = number() if has_maximum else None
    if maximum is not None and minimum > maximum:
        raise reader.rejected(f"a minimum of {minimum:,} above a maximum of {maximum:,}")
    return minimum, maximum
