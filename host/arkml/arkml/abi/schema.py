"""The vocabulary of the ABI tables: types of values, structs, parameters and functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum, IntEnum
from typing import TypeAlias

from arkml.abi.codes import ErrorCode


@dataclass(frozen=True, slots=True)
class Scalar:
    """
    A type of value that crosses as one wasm argument; `size` is its number of bytes in memory.
    """

    name: str
    size: int
    wasm: str
    c: str
    dtype: str


BOOL = Scalar("bool", 1, "i32", "bool", "<u1")
U8 = Scalar("u8", 1, "i32", "uint8_t", "<u1")
U32 = Scalar("u32", 4, "i32", "uint32_t", "<u4")
U64 = Scalar("u64", 8, "i64", "uint64_t", "<u8")
I64 = Scalar("i64", 8, "i64", "int64_t", "<i8")
F32 = Scalar("f32", 4, "f32", "float", "<f4")
F64 = Scalar("f64", 8, "f64", "double", "<f8")


@dataclass(frozen=True, slots=True)
class Handle:
    """
    The type of a handle, a number for a host object of one kind; guests must not interpret it.
    """

    name: str
    doc: str
    scalar: Scalar = U64


@dataclass(frozen=True, slots=True)
class FixedStr:
    """A u32 length followed by `capacity` bytes of UTF-8."""

    capacity: int


@dataclass(frozen=True, slots=True)
class Array:
    """An array of `count` scalars without gaps."""

    item: Scalar
    count: int


@dataclass(frozen=True, slots=True)
class Pad:
    """Bytes that align the next field, written as zero and ignored when read."""

    size: int


@dataclass(frozen=True, slots=True)
class Field:
    """One member of a struct."""

    name: str
    type: FieldType
    doc: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Struct:
    """
    A record in C layout. Padding is written out, so every byte has a name.

    Structs compare by identity, so that the caches that they are keys of are fast.
    """

    name: str
    doc: str
    fields: Sequence[Field]


@dataclass(frozen=True, slots=True)
class Str:
    """
    UTF-8 text, lowered to `NAME_ptr` and `NAME_len` (bytes).

    `lossy` text is for display and may be invalid UTF-8: bytes that cannot be decoded are replaced.
    Its handler gets a `DisplayText`, to read as much as is shown.
    """

    lossy: bool = False


@dataclass(frozen=True, slots=True)
class Slice:
    """Read-only items, lowered to `NAME_ptr` and `NAME_len` (items)."""

    item: Scalar | Struct


@dataclass(frozen=True, slots=True)
class OutSlice:
    """Guest memory that the host fills, lowered to `NAME_ptr` and `NAME_len` (items)."""

    item: Scalar | Struct


@dataclass(frozen=True, slots=True)
class Ref:
    """One record that the guest lends (`&T`), lowered to a pointer."""

    struct: Struct


@dataclass(frozen=True, slots=True)
class Out:
    """Guest memory for one value that the host writes (`&mut T`), lowered to a pointer."""

    type: Scalar | Handle | Struct


@dataclass(frozen=True, slots=True)
class Block:
    """Bytes that the guest lends, lowered to a pointer; `size` is the parameter of their count."""

    size: str


@dataclass(frozen=True, slots=True)
class OutBlock:
    """Bytes that the host fills, lowered to a pointer; `size` is the parameter of their count."""

    size: str


@dataclass(frozen=True, slots=True)
class Bytes:
    """
    A `Vec<u8>` result.

    The host keeps the bytes and writes their count to a last pointer `__ark_byte_size`; the guest
    fetches them with `core__take_host_return_vec`.
    """


@dataclass(frozen=True, slots=True)
class Text:
    """A `String` result: UTF-8, handed over like `Bytes`."""


class Lane(Enum):
    """How a function of the ABI is answered: by the shim alone, by Python, or by a policy."""

    HOST = "host"  # a Python handler, called once per guest call
    PUSH = "push"  # in the shim alone: appends one row to the session's columns
    SUBMIT = "submit"  # checked in the shim, which then suspends the guest until it is answered
    LOG = "log"  # left by the shim where the level of the line is off, else a Python handler
    ANSWER = "answer"  # suspends until the policy has answered, then a handler makes the bytes

    @property
    def has_handler(self) -> bool:
        """True if a Python handler takes part."""
        return self in (Lane.HOST, Lane.LOG, Lane.ANSWER)


class Outcome(Enum):
    """The meaning of a function's wasm result."""

    CODE = "code"  # an ErrorCode; the value, if any, leaves through a last pointer
    VALUE = "value"  # the value itself, in one i32, or in one f64 if that is its type
    NONE = "none"  # nothing; the value, if any, leaves through a last pointer
    NEVER = "never"  # nothing, because the call does not return


FieldType: TypeAlias = "Scalar | Handle | FixedStr | Array | Pad | type[IntEnum] | Struct"
ParamType: TypeAlias = (
    "Scalar | Handle | Str | Slice | OutSlice | Ref | Out | Block | OutBlock | type[IntEnum]"
)
ReturnType: TypeAlias = "Scalar | Handle | Struct | Bytes | Text"


@dataclass(frozen=True, slots=True)
class Param:
    """One named parameter of a function."""

    name: str
    type: ParamType


@dataclass(frozen=True, slots=True, eq=False)  # looked up in caches, where comparing takes long
class Function:
    """
    One import, equal to itself alone. `errors` are the codes that it can answer besides Success.

    `consumes` marks a call that uses up its handle even where its result cannot be written. For
    other calls the memory of the result is checked before the call has any effect.
    `leaves_nothing` marks a call that leaves the host no state to clear when the entry point ends.
    """

    name: str
    doc: str
    params: Sequence[Param] = ()
    returns: ReturnType | None = None
    outcome: Outcome = Outcome.CODE
    lane: Lane = Lane.HOST
    errors: Sequence[ErrorCode] = ()
    consumes: bool = False
    leaves_nothing: bool = False

    @property
    def handler(self) -> str:
        """The name of the Python method that handles the import, such as `drop_future`."""
        return self.name.replace(".", "_").lower()


@dataclass(frozen=True, slots=True)
class Api:
    """A versioned import module. A guest imports `PREFIX__NAME`, or `NAME` without a prefix."""

    module: str
    prefix: str
    doc: str
    functions: Sequence[Function]
    id: int | None = None
    enums: Sequence[type[IntEnum]] = ()
    handles: Sequence[Handle] = ()
    structs: Sequence[Struct] = ()

    @property
    def stem(self) -> str:
        """The module's name as an identifier, such as `ml_v1` for `ark-ml-v1`."""
        return self.module.removeprefix("ark-").replace("-", "_")

    def symbol(self, function: Function) -> str:
        """Return the name under which a guest imports `function`."""
        return f"{self.prefix}__{function.name}" if self.prefix else function.name
