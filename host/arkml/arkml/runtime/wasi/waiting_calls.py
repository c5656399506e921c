"""The WASI calls that may wait: poll_oneoff, sched_yield and the standard streams."""

from __future__ import annotations

import logging
import re
import struct
import time
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum
from typing import Any

from arkml.base.handler_errors import is_of_handler
from arkml.base.loggers import SafeLogger, notice
from arkml.base.terminal import harmless
from arkml.errors import InvalidArguments
from arkml.runtime.memory import GuestMemory
from arkml.runtime.waits import Wait
from arkml.runtime.wasi.clocks import Clocks, MachineClocks
from arkml.runtime.wasi.linking import WasiGrant
from arkml.runtime.wasi.standard_streams import ProgramOutput, Stdin

logger = SafeLogger(__name__)

_SUBSCRIPTION = struct.Struct("<QB7x32s")  # userdata, tag, the clock or the descriptor
_CLOCK = struct.Struct("<I4xQQH6x")  # id, timeout, precision, flags
_EVENT = struct.Struct("<QHB5xQH6x")  # userdata, errno, tag, bytes, flags
_BUFFER = struct.Struct("<II")
_ABSOLUTE = 1
_MOST_SUBSCRIPTIONS = 1_024
_MOST_BYTES = 1 << 20  # of one read or write
_STDERR, _KEPT = 2, 2_000
# As Rust, Go and Zig, `assert` of C, C++, AssemblyScript and Swift begin what they write before
# they trap or exit.
_PANIC = re.compile(
    r"^(?:thread .*panicked at |(?:thread \d+ )?panic: |fatal error: |Assertion failed: "
    r"|libc\+\+abi(?:\.dylib)?: |terminate called |\w+ was thrown in -fno-exceptions mode"
    r"|memory allocation of \d+ bytes failed|abort: |(?:.*: )?Fatal error: ).*",
    re.MULTILINE,
)
# What Rust's runtime writes last, alone or behind a panic.
_ABORT = re.compile(r"^fatal runtime error: .*", re.MULTILINE)


class Errno(IntEnum):
    """The `errno` numbers of WASI preview 1 that this module returns."""

    SUCCESS = 0
    BADF = 8
    FAULT = 21
    INVAL = 28
    IO = 29


class Tag(IntEnum):
    """The kind of event of a subscription of `poll_oneoff`."""

    CLOCK = 0
    READ = 1
    WRITE = 2


@dataclass(frozen=True, slots=True)
class Subscription:
    """One event that `poll_oneoff` waits for; a clock's `at` is a reading of `Clocks.reading`."""

    userdata: int
    tag: Tag
    at: int = 0
    fd: int = 0

    @property
    def reads_input(self) -> bool:
        """True for a read of standard input, the only read that may have to wait."""
        return self.tag is Tag.READ and self.fd == 0

    @property
    def is_ready(self) -> bool:
        """True for a write or a read of a file, which are always ready."""
        return self.tag is not Tag.CLOCK and not self.reads_input


class WasiCalls:
    """
    Handlers, for one guest, of the WASI calls that may wait.

    A call that has to wait sets a Wait in `waiting`; the guest stays suspended until it is over.
    `clocks` measure the waits, by default the machine's clocks.
    """

    def __init__(self, grant: WasiGrant, memory: GuestMemory, clocks: Clocks | None = None) -> None:
        self._memory = memory
        self._clocks = clocks or MachineClocks()
        self._stdin = Stdin(grant.stdin)
        self._writers: dict[int, Callable[[bytes], Any]] = {
            1: grant.stdout or ProgramOutput("stdout"),
            2: grant.stderr or ProgramOutput("stderr"),
        }
        self._lost: set[int] = set()
        self._errors = b""  # the last bytes written to standard error
        self.waiting: Wait | None = None

    def sched_yield(self) -> int:
        self.waiting = Wait(lambda _timeout: True)
        return Errno.SUCCESS

    def fd_read(self, fd: int, buffers: int, count: int, num_read: int) -> int:
        if fd != 0:
            return Errno.BADF
        try:
            target = self._buffers(buffers, count)
            self._memory.check(num_read, 4)
        except InvalidArguments:
            return Errno.FAULT
        self.waiting = Wait(self._stdin.ready, lambda: self._read(target, num_read))
        return Errno.SUCCESS

    def fd_write(self, fd: int, buffers: int, count: int, num_written: int) -> int:
        write = self._writers.get(fd)
        if write is None:
            return Errno.BADF
        try:
            data = b"".join(self._memory.read(*source) for source in self._buffers(buffers, count))
            self._memory.write(num_written, struct.pack("<I", len(data)))
        except InvalidArguments:
            return Errno.FAULT
        if fd == _STDERR:
            self._errors = (self._errors + data)[-_KEPT:]
        try:
            write(data)
        except Exception as error:  # of any stream or callback, and it is told
            if is_of_handler(error):
                raise
            self._warn_once(fd, f"output of a guest to descriptor {fd} is lost: {_text(error)}")
            return Errno.IO
        return Errno.SUCCESS

    def printed_panic(self) -> str | None:
        """Return the text of the panic that was last written to standard error, or None."""
        text = self._errors.decode("utf-8", "replace")
        found = _last(_PANIC, text) or _last(_ABORT, text)
        if found is None:
            return None
        lines = text[found.start() :].splitlines()
        return harmless("\n".join(line for line in lines if not line.startswith("note: ")).strip())

    def forget_printed(self) -> None:
        """Forget what the guest wrote to standard error, before its next call."""
        self._errors = b""

    def _warn_once(self, fd: int, text: str) -> None:
        """Log the first fault of a descriptor, since the guest may repeat it."""
        if fd not in self._lost:
            self._lost.add(fd)
            notice(logger, logging.WARNING, text)

    def poll_oneoff(
        self, subscriptions: int, events: int, count: int, num_events: int, now: int
    ) -> int:
        if not 0 < count <= _MOST_SUBSCRIPTIONS:
            return Errno.INVAL
        try:
            data = self._memory.read(subscriptions, count * _SUBSCRIPTION.size)
            self._memory.check(events, count * _EVENT.size)
            self._memory.check(num_events, 4)
            wanted = [
                self._subscription(data[i : i + _SUBSCRIPTION.size], now)
                for i in range(0, len(data), _SUBSCRIPTION.size)
            ]
        except InvalidArguments:
            return Errno.FAULT
        except ValueError:
            return Errno.INVAL
        self.waiting = self._wait(wanted, lambda: self._events(wanted, events, num_events))
        return Errno.SUCCESS

    def _wait(self, wanted: list[Subscription], answer: Callable[[], int]) -> Wait:
        """Return the wait for the first of `wanted`; a check takes the same time for any number."""
        if any(one.is_ready for one in wanted):
            return Wait(lambda _timeout: True, answer)
        until = min((one.at for one in wanted if one.tag is Tag.CLOCK), default=None)
        reads = any(one.tag is Tag.READ for one in wanted)

        def is_over() -> bool:
            passed = until is not None and self._clocks.reading() >= until
            return passed or (reads and self._stdin.ready(0))

        def ready(timeout: float) -> bool:
            if is_over():
                return True
            self._clocks.wait(until, timeout, self._stdin.ready if reads else time.sleep)
            return is_over()

        earliest = 0.0 if reads or until is None else self._clocks.earliest(until)
        return Wait(ready, answer, earliest=earliest)

    def _events(self, wanted: list[Subscription], events: int, num_events: int) -> int:
        now = self._clocks.reading()
        has_input = any(one.reads_input for one in wanted) and self._stdin.ready(0)
        happened = [
            one
            for one in wanted
            if one.is_ready
            or (one.tag is Tag.CLOCK and now >= one.at)
            or (one.reads_input and has_input)
        ]
        data = b"".join(_EVENT.pack(one.userdata, 0, one.tag, 1, 0) for one in happened)
        self._memory.write(events, data)
        self._memory.write(num_events, struct.pack("<I", len(happened)))
        return Errno.SUCCESS

    def _subscription(self, data: bytes, now: int) -> Subscription:
        """Decode a subscription. Raises ValueError for an unknown kind or clock."""
        userdata, tag, body = _SUBSCRIPTION.unpack(data)
        if Tag(tag) is not Tag.CLOCK:
            return Subscription(userdata, Tag(tag), fd=int.from_bytes(body[:4], "little"))
        clock, timeout, _, flags = _CLOCK.unpack(body)
        if clock not in (0, 1):
            raise ValueError(f"unknown clock {clock}")
        if flags & _ABSOLUTE:
            timeout = max(0, timeout - (self._clocks.time_of_day() if clock == 0 else now))
        return Subscription(userdata, Tag.CLOCK, self._clocks.reading() + timeout)

    def _buffers(self, pointer: int, count: int) -> list[tuple[int, int]]:
        if count > _MOST_SUBSCRIPTIONS:
            raise InvalidArguments(
                f"{count} buffers in one call, the limit is {_MOST_SUBSCRIPTIONS}"
            )
        data = self._memory.read(pointer, count * _BUFFER.size)
        buffers = list(_BUFFER.iter_unpack(data))
        for start, size in buffers:
            self._memory.check(start, size)
        if sum(size for _, size in buffers) > _MOST_BYTES:
            buffers = _cut(buffers, _MOST_BYTES)
        return buffers

    def _read(self, buffers: list[tuple[int, int]], num_read: int) -> int:
        try:
            data = self._stdin.read(sum(size for _, size in buffers))
        except Exception as error:  # of any stream, and it is told
            if is_of_handler(error):
                raise
            self._warn_once(0, f"standard input cannot be read: {_text(error)}")
            return Errno.IO
        self._memory.write(num_read, struct.pack("<I", len(data)))
        taken = 0
        for start, size in buffers:
            self._memory.write(start, data[taken : taken + size])
            taken += size
        return Errno.SUCCESS


def _last(pattern: re.Pattern[str], text: str) -> re.Match[str] | None:
    """Return the last match of a pattern, or None."""
    found = None
    for found in pattern.finditer(text):  # noqa: B007
        pass
    return found


def _text(error: Exception) -> str:
    """Return the message of an error, with its type unless that is an OSError."""
    return str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"


def _cut(buffers: list[tuple[int, int]], most: int) -> list[tuple[int, int]]:
    """Return the first `most` bytes of a list of buffers."""
    kept: list[tuple[int, int]] = []
    for start, size in buffers:
        kept.append((start, min(size, most)))
        most -= kept[-1][1]
    return kept
