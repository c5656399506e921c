"""WASI clocks and random numbers of guests in environments."""

from __future__ import annotations

import os
import struct
from typing import Protocol

from arkml.errors import InvalidArguments
from arkml.runtime.memory import GuestMemory
from arkml.runtime.wasi.clocks import Clocks, MachineClocks
from arkml.runtime.wasi.linking import WasiGrant
from arkml.runtime.wasi.waiting_calls import Errno, WasiCalls

_LAST = (1 << 63) - 1  # nanoseconds; a guest may read them as an i64


class World(Clocks, Protocol):
    """The clocks and random numbers of one guest, in place of the machine's (decision 11)."""

    def random(self, size: int) -> bytes:
        """Return the next `size` pseudo-random bytes."""


class MachineWorld(MachineClocks):
    """
    The machine's clocks and random numbers, answered by the host so that a trace can record them.
    """

    def random(self, size: int) -> bytes:
        """Return `size` random bytes of the operating system."""
        return os.urandom(size)


class VirtualCalls(WasiCalls):
    """
    Handlers of WASI calls for clocks and random numbers, for a guest with a `World` of its own.
    """

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
        """
        Fill a buffer with random bytes; the shim asks for at most `RANDOM_PIECE` bytes at a time.
        """
        try:
            self._memory.check(buffer, size)
        except InvalidArguments:
            return Errno.FAULT
        self._memory.write(buffer, self._world.random(size))
        return Errno.SUCCESS
