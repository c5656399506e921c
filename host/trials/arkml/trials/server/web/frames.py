"""The encoding of grpc-web and grpc-websockets: bytes to messages and back, without I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple, NoReturn, TypeAlias, TypeVar
from urllib.parse import quote

from google.protobuf.message import DecodeError, Message

from arkml.trials.core.error import TrialError

CONTENT_TYPE: Final = "application/grpc-web+proto"
CONTENT_TYPES: Final = frozenset({CONTENT_TYPE, "application/grpc-web"})

SUBPROTOCOL: Final = "grpc-websockets"

_DATA, _COMPRESSED, _TRAILERS = 0x00, 0x01, 0x80
_PREFIX: Final = 5  # bytes before the content of a frame: its flag and its length
_MOST_MESSAGE: Final = 1_000  # characters of a grpc-message
_MOST_HEADERS: Final = 8_192  # bytes of the headers of a websocket
_HEADER: Final = re.compile(rb"([!#$%&'*+.^_`|~0-9A-Za-z-]+):[ \t]*([\t -~]*)")
_PLAIN: Final = "".join(chr(code) for code in range(0x20, 0x7F) if chr(code) != "%")

M = TypeVar("M", bound=Message)


class CallStatus(IntEnum):
    """The status codes of gRPC that the web port uses."""

    OK = 0
    INVALID_ARGUMENT = 3
    DEADLINE_EXCEEDED = 4
    ALREADY_EXISTS = 6
    PERMISSION_DENIED = 7
    RESOURCE_EXHAUSTED = 8
    FAILED_PRECONDITION = 9
    UNIMPLEMENTED = 12
    INTERNAL = 13
    UNAVAILABLE = 14
    UNAUTHENTICATED = 16


class CallRefused(TrialError):
    """A call that the web port refuses; `status` is its code."""

    def __init__(self, message: str, status: CallStatus = CallStatus.INVALID_ARGUMENT) -> None:
        super().__init__(message)
        self.status = status


class FrameDecoder:
    """
    Decodes messages from a stream of bytes that arrives in arbitrary parts.

    A message has at most `limit` bytes, and at most one message is buffered.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._buffer = bytearray()
        self._refusal: CallRefused | None = None

    def feed(self, data: bytes) -> list[bytes]:
        """
        Add bytes, and return the messages that they complete.

        Raises CallRefused, now and at every later call, for bytes that are not frames.
        """
        if self._refusal is not None:
            raise self._refusal
        buffer = self._buffer
        buffer += data
        contents: list[bytes] = []
        start = 0
        while len(buffer) - start >= _PREFIX:
            end = start + _PREFIX + self._checked_size(buffer, start)
            if len(buffer) < end:
                break
            contents.append(bytes(buffer[start + _PREFIX : end]))
            start = end
        del buffer[:start]
        return contents

    def finish(self) -> None:
        """Note the end of the stream. Raises CallRefused in the middle of a frame."""
        if self._buffer:
            self._refuse(f"the stream ended after {len(self._buffer)} bytes of a frame")

    def _checked_size(self, buffer: bytearray, start: int) -> int:
        flag = buffer[start]
        if flag == _COMPRESSED:
            self._refuse("compressed messages are not read here", CallStatus.UNIMPLEMENTED)
        if flag != _DATA:
            self._refuse(f"a frame with the flag {flag:#04x} is not one that clients send")
        size = int.from_bytes(buffer[start + 1 : start + _PREFIX], "big")
        if size > self._limit:
            self._refuse(
                f"a message of {size} bytes is longer than {self._limit}",
                CallStatus.RESOURCE_EXHAUSTED,
            )
        return size

    def _refuse(self, text: str, status: CallStatus = CallStatus.INVALID_ARGUMENT) -> NoReturn:
        self._buffer.clear()
        self._refusal = CallRefused(text, status)
        raise self._refusal


class CallHeaders(NamedTuple):
    """The headers of a call, by names in lower case."""

    values: Mapping[str, str]


class HalfClose(NamedTuple):
    """The end of the client's side of a stream; the server may still send."""


SocketEvent: TypeAlias = CallHeaders | HalfClose | bytes
"""A part of a client's call over a websocket; bytes are a message of the call."""


class SocketDecoder:
    """
    Decodes the messages of a client's grpc-websocket.

    The first message has the headers. Later ones carry parts of frames after a byte 0x00; a last
    0x01 ends the client's side of the stream.
    """

    def __init__(self, limit: int) -> None:
        self._frames = FrameDecoder(limit)
        self._has_headers = False
        self._is_closed = False

    def receive(self, message: bytes) -> list[SocketEvent]:
        """Return the contents of a message. Raises CallRefused if it is malformed."""
        if not self._has_headers:
            self._has_headers = True
            return [CallHeaders(_headers_in(message))]
        if self._is_closed:
            raise CallRefused("the client sent more after the end of its stream")
        if message == b"\x01":
            self._frames.finish()
            self._is_closed = True
            return [HalfClose()]
        if message[:1] != b"\x00":
            raise CallRefused(
                f"a message of a {SUBPROTOCOL} begins with 0x00 or is 0x01,"
                f" not {message[:1].hex() or 'empty'}"
            )
        return [*self._frames.feed(message[1:])]


def _headers_in(message: bytes) -> dict[str, str]:
    if len(message) > _MOST_HEADERS:
        raise CallRefused(f"the headers have {len(message)} bytes, more than {_MOST_HEADERS}")
    headers: dict[str, str] = {}
    for line in message.split(b"\r\n"):
        match = _HEADER.fullmatch(line)
        if match is not None:
            name, value = match[1].decode().lower(), match[2].decode()
            headers[name] = f"{headers[name]}, {value}" if name in headers else value
        elif line:
            raise CallRefused(f"{line[:50]!r} is not a header: a websocket begins with headers")
    return headers


def ids_in(values: Iterable[str]) -> list[str]:
    """
    Return the ids of trials in the values of a header, each of which may list several by commas.
    """
    return [one.strip() for value in values for one in value.split(",") if one.strip()]


def parsed(kind: type[M], content: bytes) -> M:
    """Parse a protobuf message of type `kind`. Raises CallRefused for damaged bytes."""
    message = kind()
    try:
        message.ParseFromString(content)
    except DecodeError:
        name = kind.DESCRIPTOR.name
        raise CallRefused(f"{len(content)} bytes are not the message {name}") from None
    return message


def data_frame(message: Message) -> bytes:
    """Encode a protobuf message as a frame."""
    return _frame(_DATA, message.SerializeToString())


def headers_frame() -> bytes:
    """Encode the headers of an answer over a websocket as a frame."""
    return _frame(_TRAILERS, f"content-type: {CONTENT_TYPE}\r\n".encode())


def trailers_frame(status: CallStatus, message: str = "") -> bytes:
    """Encode the end of an answer as a frame; `message` may be any text."""
    encoded = quote(message[:_MOST_MESSAGE], safe=_PLAIN, errors="replace")
    return _frame(_TRAILERS, f"grpc-status: {status:d}\r\ngrpc-message: {encoded}\r\n".encode())


def _frame(flag: int, content: bytes) -> bytes:
    return bytes((flag, *len(content).to_bytes(4, "big"))) + content
