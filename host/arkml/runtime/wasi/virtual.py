"""The WASI calls by which a guest of an environment reads clocks and draws random numbers."""

from __future__ import annotations

import struct
from typing import Protocol

from arkml.errors import InvalidArguments
from arkml.runtime.memory import GuestMemory
from arkml.runtime.wasi.calls import Errno, WasiCalls
from arkml.runtime.wasi.clocks import Clocks
from arkml.runtime.wasi.linking import WasiGrant

_PIECE = 1 << 20  # bytes that are drawn at once
_LAST = (1 << 63) - 1  # nanoseconds that a guest may read as an i64


class World(Clocks, Protocol):
    """Time and chance of one guest, in place of the machine's."""

    def random(self, size: int) -> bytes:
        """So many bytes, other ones each time."""


class VirtualCalls(WasiCalls):
    """The calls of `WasiCalls`, and those that only guests with a `World` of their own make."""

    def __init__(self, grant: WasiGrant, memory: GuestMemory, world: World) -> None:
        super().__init__(grant, memory, world)
        self._world = world

    def clock_time_get(self, clock: int, precision: int, time: int) -> int:
        del precision
        match clock:
            case 0:
                now = self._world.time_of_day()
            case 1:
                now = self._world.reading()
            case _:
                return Errno.BADF
        try:
            self._memory.write(time, struct.pack("<Q", min(now, _LAST)))
        except InvalidArguments:
            return Errno.FAULT
        return Errno.SUCCESS

    def random_get(self, buffer: int, size: int) -> int:
        try:
            self._memory.check(buffer, size)
        except InvalidArguments:
            return Errno.FAULT
        for start in range(0, size, _PIECE):
            self._memory.write(buffer + start, self._world.random(min(_PIECE, size - start)))
        return Errno.SUCCESS
