"""Dispatch of a guest's import calls to their Python handlers, by the tables of the ABI."""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol, TypeAlias, TypeVar, assert_never

import numpy as np

from arkml.abi.codes import ErrorCode
from arkml.abi.layout import (
    leaves_by_pointer,
    member,
    pack,
    scalar_of,
    size_of,
    slots,
    struct_size,
    unpack,
)
from arkml.abi.schema import (
    F64,
    Api,
    Block,
    Bytes,
    Function,
    Handle,
    Lane,
    Out,
    OutBlock,
    Outcome,
    OutSlice,
    Param,
    Ref,
    Scalar,
    Slice,
    Str,
    Struct,
    Text,
)
from arkml.base.handler_errors import is_of_handler
from arkml.base.loggers import SafeLogger
from arkml.errors import (
    AbiError,
    ApiNotAvailable,
    HttpRequestFailed,
    InvalidArguments,
    LimitError,
    NotFound,
    Unavailable,
)
from arkml.runtime.memory import GuestBuffer, GuestMemory
from arkml.runtime.shared_engine import IMPORTS

logger = SafeLogger(__name__)

# The one place, beside the shim, that knows codes. The first class that matches counts.
ERROR_CODES: tuple[tuple[type[AbiError], ErrorCode], ...] = (
    (InvalidArguments, ErrorCode.INVALID_ARGUMENTS),
    (NotFound, ErrorCode.NOT_FOUND),
    (Unavailable, ErrorCode.UNAVAILABLE),
    (ApiNotAvailable, ErrorCode.API_NOT_AVAILABLE),
    (HttpRequestFailed, ErrorCode.HTTP_REQUEST_FAILED),
)

_Key = TypeVar("_Key")
Raw: TypeAlias = tuple[Any, ...]
Decoder: TypeAlias = Callable[[GuestMemory, Raw], Any]
Offer: TypeAlias = Callable[[bytes], None]


class HandlerOwner(Protocol):
    """The guest whose imports handlers answer."""

    def handler(self, module: str) -> object:
        """Return an object with the handlers of an import module: a method for each function."""

    def offer(self, data: bytes) -> None:
        """Keep bytes until the guest takes them by `core__take_host_return_vec`."""

    def has_warned(self, kind: str) -> bool:
        """Return whether `warn_once` has logged a message of a kind."""

    def warn_once(self, kind: str, text: str) -> None:
        """Log a message as a warning if it is the first of its kind."""

    def admits_line(self, text: str) -> int:
        """
        Return 0 if logging a text would exceed the guest's log rate, else its number of lines.
        """


_NO_ERRORS: Mapping[ErrorCode, int] = MappingProxyType({})
_NO_LIMITS: Mapping[str, int] = MappingProxyType({})
_NONE_INVALID: Mapping[str, tuple[str, int]] = MappingProxyType({})


class Handlers:
    """
    The handlers of a guest's imports.

    `errors` counts refused calls by code, `limits` by the name of the error, such as TooManyRows.
    `refusal` is a sentence about the last import refused in the guest's present call, "" for none.
    `invalid` has, by the name of the function, the last such sentence on invalid arguments, and the
    number of these calls.
    """

    __slots__ = ("errors", "invalid", "limits", "owner", "refusal")

    def __init__(self, owner: HandlerOwner) -> None:
        self.owner = owner
        self.errors = _NO_ERRORS
        self.limits = _NO_LIMITS
        self.invalid = _NONE_INVALID
        self.refusal = ""

    def note(self, error: AbiError) -> None:
        """Count `error` and log it, if it means that a limit was reached."""
        if self.count(error):
            self.owner.warn_once(type(error).__name__, str(error))

    def trace(self, name: str, error: AbiError) -> None:
        """Log at DEBUG that the function `name` was refused."""
        if logger.isEnabledFor(logging.DEBUG):
            text = str(error)[:_MOST_TEXT]
            if self.owner.admits_line(text):
                logger.debug("%s: %s", name, text)

    def reject(self, name: str, *, is_unread: bool) -> None:
        """
        Count the `refusal` of the function `name` for its invalid arguments.

        It is logged once for each function if an argument could not even be read: `is_unread`.
        """
        _, count = self.invalid.get(name, ("", 0))
        self.invalid = {**self.invalid, name: (self.refusal, count + 1)}
        if is_unread:
            self.owner.warn_once(name, self.refusal)

    def count(self, error: AbiError) -> bool:
        """Count `error`, and return whether it means that a limit was reached."""
        is_limit = isinstance(error, LimitError)
        if is_limit:
            self.limits = _counted(self.limits, type(error).__name__)
        return is_limit


def _counted(counts: Mapping[_Key, int], key: _Key) -> Mapping[_Key, int]:
    """Return new counts with one more for a key: most guests have none, and share an empty one."""
    return {**counts, key: counts.get(key, 0) + 1}


_MOST_TEXT = 1_000  # letters of the text of an error

_FORMATS = {"i32": "I4x", "i64": "Q", "f32": "f4x", "f64": "d"}
_F64 = struct.Struct("<d")


def error_code(error: Exception) -> ErrorCode:
    """Return the code that the guest receives for `error`."""
    for kind, code in ERROR_CODES:
        if isinstance(error, kind):
            return code
    return ErrorCode.INTERNAL_ERROR


class ImportCall:
    """
    An import that Python answers, with the decoders of its arguments and the encoder of its result.
    """

    def __init__(self, api: Api, function: Function) -> None:
        self.name = f"{api.module}.{api.symbol(function)}"
        self._cannot_fail = function.outcome is Outcome.CODE and not function.errors
        self._has_output = leaves_by_pointer(function)
        self.is_value = function.outcome is Outcome.VALUE
        self.is_float = self.is_value and function.returns is F64
        self.is_log = function.lane is Lane.LOG
        self.leaves_nothing = function.leaves_nothing
        self._module = api.module
        self._function = function
        lowered = slots(function)
        self._read = struct.Struct("<" + "".join(_FORMATS[slot.wasm] for slot in lowered))
        self._index = {slot.name: index for index, slot in enumerate(lowered)}
        self._decoders = [self._decoder(param) for param in function.params]

    def __call__(
        self,
        memory: GuestMemory,
        handlers: Handlers,
        arguments: memoryview,
        position: int,
    ) -> int:
        """
        Answer the call whose arguments are at `position` of the column memory.

        Returns the wasm result. An AbiError becomes its code. Any other exception of a handler is
        a bug of the host: it is logged with its traceback and answered with INTERNAL_ERROR.
        """
        raw = self._read.unpack_from(arguments, position)
        is_unread = True
        try:
            if self._has_output and not self._function.consumes:
                memory.check(raw[-1], self._result_size())
            handler = getattr(handlers.owner.handler(self._module), self._function.handler)
            decoded = [decode(memory, raw) for decode in self._decoders]
            is_unread = False
            value = handler(*decoded)
            if self.is_float:  # in the place of the first argument
                _F64.pack_into(arguments, position, value)
                return int(ErrorCode.SUCCESS)
            if self.is_value:
                return int(value) & 0xFFFF_FFFF
            if self._has_output:
                memory.check(raw[-1], self._result_size())
                memory.write(raw[-1], self._encode(value, handlers.owner.offer))
        except AbiError as error:
            handlers.trace(self.name, error)
            handlers.note(error)
            if self._cannot_fail:
                return int(ErrorCode.SUCCESS)
            code = error_code(error)
            handlers.refusal = f"{self.name} answered {code.name}: {str(error)[:_MOST_TEXT]}"
            if isinstance(error, InvalidArguments):
                handlers.reject(self.name, is_unread=is_unread)
        except Exception as error:
            if is_of_handler(error):
                raise
            logger.exception("%s failed: a bug of the host", self.name)
            code = ErrorCode.INTERNAL_ERROR
        else:
            return int(ErrorCode.SUCCESS)
        handlers.errors = _counted(handlers.errors, code)
        return int(code)

    def _result_size(self) -> int:
        match self._function.returns:
            case Bytes() | Text() | None:
                return 4
            case kind:
                return size_of(kind)

    def _encode(self, value: Any, offer: Offer) -> bytes:
        match self._function.returns:
            case Bytes():
                offer(value)
                return struct.pack("<I", len(value))
            case Text():
                data = value.encode()
                offer(data)
                return struct.pack("<I", len(data))
            case Struct() as kind:
                return pack(kind, value)
            case Scalar() | Handle() as kind:
                return np.array(value, scalar_of(kind).dtype).tobytes()
            case None:
                return b""
            case kind:
                assert_never(kind)

    def _decoder(self, param: Param) -> Decoder:
        name, kind = param.name, param.type
        match kind:
            case Str(lossy=lossy):
                pointer, length = self._index[f"{name}_ptr"], self._index[f"{name}_len"]
                if lossy:
                    return lambda memory, raw: memory.display_text(raw[pointer], raw[length])
                return lambda memory, raw: memory.text(raw[pointer], raw[length])
            case Slice(item=item):
                pointer, length = self._index[f"{name}_ptr"], self._index[f"{name}_len"]
                size = size_of(item)
                return lambda memory, raw: _items(
                    item, memory.read(raw[pointer], raw[length] * size)
                )
            case OutSlice(item=item):
                pointer, length = self._index[f"{name}_ptr"], self._index[f"{name}_len"]
                size = size_of(item)
                return lambda memory, raw: GuestBuffer(memory, raw[pointer], raw[length], size)
            case Ref(struct=record):
                index, size = self._index[name], struct_size(record)
                return lambda memory, raw: unpack(record, memory.read(raw[index], size))
            case Out(type=item):
                index, size = self._index[name], size_of(item)
                return lambda memory, raw: GuestBuffer(memory, raw[index], 1, size)
            case Block(size=count):
                index, length = self._index[name], self._index[count]
                return lambda memory, raw: memory.read(raw[index], raw[length])
            case OutBlock(size=count):
                index, length = self._index[name], self._index[count]
                return lambda memory, raw: GuestBuffer(memory, raw[index], raw[length], 1)
            case Scalar(name="i64"):
                index = self._index[name]
                return lambda _, raw: raw[index] - (raw[index] >> 63 << 64)
            case Scalar() | Handle():
                index = self._index[name]
                return lambda _, raw: raw[index]
            case type():
                index = self._index[name]
                return lambda _, raw: member(kind, raw[index])
            case _:
                assert_never(kind)


@cache
def import_calls() -> Sequence[ImportCall]:
    """Return the imports that Python answers; the shim suspends with their indices in this list."""
    return tuple(ImportCall(api, function) for api, function in IMPORTS)


def _items(item: Scalar | Handle | Struct, data: bytes) -> Any:
    match item:
        case Struct():
            size = struct_size(item)
            return [unpack(item, data[i : i + size]) for i in range(0, len(data), size)]
        case Scalar(size=1):
            return data
        case Scalar() | Handle():
            return np.frombuffer(data, scalar_of(item).dtype)
        case _:
            assert_never(item)
