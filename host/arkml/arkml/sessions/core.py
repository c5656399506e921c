"""Handlers of `ark-core-v0` to `ark-core-v4`: return slices, logs, panics, pending vectors."""

from __future__ import annotations

import logging

from arkml.abi.codes import LogLevel
from arkml.abi.guest_buffers import DisplayText, OutBuffer
from arkml.errors import InvalidArguments, NotFound
from arkml.sessions.state import Family, GuestState
from arkml.sessions.text import LEVELS, on_one_line, presentable

_SUCCESS = 0  # the result of functions whose u32 is not an ErrorCode


class CoreV0(Family):
    """Handlers of `ark-core-v0`: input and result bytes of an entry point."""

    __slots__ = ()

    def return_slice(self, ptr: bytes, len: int, size: int) -> int:  # noqa: ARG002  `size` is the length
        self._guest.vectors.keep_returned(ptr)
        return _SUCCESS

    def get_input_slice(self, ptr: OutBuffer, size: int, offset: int) -> int:
        data = self._guest.input
        if offset + size > len(data):
            raise InvalidArguments(
                f"bytes {offset} to {offset + size} are outside of an input of {len(data)} bytes"
            )
        ptr.write(data[offset : offset + size])
        return _SUCCESS


class CoreV1(Family):
    """Handlers of `ark-core-v1`: queries for extensions."""

    __slots__ = ()

    def has_extension(self, id: int) -> int:  # noqa: ARG002  there are none
        return 0


class CoreV2(Family):
    """Handlers of `ark-core-v2`: reports of panics."""

    __slots__ = ()

    def register_panic(
        self,
        err_msg: DisplayText,
        location_file: DisplayText,
        location_line: int,
        location_column: int,
    ) -> None:
        record_panic(self._guest, err_msg, location_file, location_line, location_column)


def record_panic(
    guest: GuestState, message: str | DisplayText, file: str | DisplayText, line: int, column: int
) -> None:
    """
    Keep and log a panic: its message, its location if it names a file, and the debug contexts.

    A panic beyond the log rate is not read; an earlier panic of the same call is kept.
    """
    log = guest.log
    admitted = log.admits(message, file)
    if not admitted:
        guest.panic = guest.panic or "panic with a message over the log rate"
        return
    limit = guest.limits.log_bytes
    location = on_one_line(file, limit)
    text = presentable(message, limit) or "panic without a message"
    if location:
        text += f", {location}:{line}:{column}"
    guest.panic = text + log.context()
    log.write(logging.ERROR, f"panic: {text}", admitted)


class CoreV3(Family):
    """Handlers of `ark-core-v3`: log messages."""

    __slots__ = ()

    def log(self, level: int, str: DisplayText) -> None:
        known = LogLevel(level) if level in LEVELS else LogLevel.ERROR
        self._guest.log.say(LEVELS[known], str)


class CoreV4(Family):
    """Handlers of `ark-core-v4`: vector results and debug contexts."""

    __slots__ = ()

    def take_host_return_vec(self, out: OutBuffer) -> None:
        pending = self._guest.vectors.pending
        if pending is None:
            raise NotFound("there is no pending vector")
        out.write(pending)
        self._guest.vectors.drop_pending()

    def add_debug_context(self, name_str: DisplayText, value_str: DisplayText) -> None:
        self._guest.log.add_context(name_str, value_str)

    def remove_debug_context(self, name_str: DisplayText) -> None:
        self._guest.log.remove_context(name_str)
