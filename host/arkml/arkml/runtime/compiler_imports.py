"""
Handlers of the import module `env`, whose functions compilers such as AssemblyScript's import.
"""

from __future__ import annotations

import logging
import random
from collections.abc import Callable, Mapping
from typing import Any

from arkml.runtime.memory import GuestMemory
from arkml.runtime.wasi.clocks import Clocks, MachineClocks
from arkml.runtime.wasi.virtual import World

_MILLISECOND = 1_000_000  # nanoseconds
MOST_TIMERS = 100
_NUMBERS = 5  # of a trace


class CompilerImports:
    """
    The handlers of the import module `env` for one guest, with its timers and random numbers.

    Args:
        report: Called with the message, file, line and column of a panic.
        say: Called with the level and the text of a line of the log.
        world: Clocks and random numbers; None takes the machine's clocks.
        seed: Seed of random numbers without a `world`.

    """

    def __init__(
        self,
        memory: GuestMemory,
        report: Callable[[str, str, int, int], None],
        say: Callable[[int, str], None],
        world: World | None,
        seed: str,
    ) -> None:
        self._text = memory.assembly_script_text
        self._report = report
        self._say = say
        self._clocks: Clocks = world or MachineClocks()
        self._world = world
        self._seed = seed
        self._random: random.Random | None = None  # made when it is asked for: it is large
        self._timers: dict[str, float] = {}

    def abort(self, message_ptr: int, file_ptr: int, line: int, column: int) -> None:
        """Report a failed assertion; the shim traps when this returns."""
        self._report(self._text(message_ptr), self._text(file_ptr), line, column)

    def process_exit(self, status: int) -> None:
        """Report an exit; the shim traps when this returns."""
        self._report(f"process.exit({status})", "", 0, 0)

    def seed(self) -> float:
        return float(self._bits())

    def math_random(self) -> float:
        return self._bits() / 2.0**53

    def date_now(self) -> float:
        return float(self._clocks.time_of_day() // _MILLISECOND)

    def performance_now(self) -> float:
        return self._clocks.reading() / _MILLISECOND

    def trace(self, text_ptr: int, count: int, *numbers: float) -> None:
        shown = ", ".join(f"{number:g}" for number in numbers[: min(count, _NUMBERS)])
        self._say(logging.INFO, f"{self._text(text_ptr)} {shown}".rstrip())

    def console_log(self, text_ptr: int) -> None:
        self._say(logging.INFO, self._text(text_ptr))

    console_info = console_log

    def console_debug(self, text_ptr: int) -> None:
        self._say(logging.DEBUG, self._text(text_ptr))

    def console_warn(self, text_ptr: int) -> None:
        self._say(logging.WARNING, self._text(text_ptr))

    def console_error(self, text_ptr: int) -> None:
        self._say(logging.ERROR, self._text(text_ptr))

    def console_assert(self, condition: int, text_ptr: int) -> None:
        if not condition:
            self._say(logging.ERROR, f"assertion failed: {self._text(text_ptr)}")

    def console_time(self, text_ptr: int) -> None:
        """Start a timer with this name; a guest has at most a hundred."""
        if len(self._timers) < MOST_TIMERS:
            self._timers[self._text(text_ptr)] = self.performance_now()

    def console_timelog(self, text_ptr: int) -> None:
        name = self._text(text_ptr)
        began = self._timers.get(name)
        if began is None:
            self._say(logging.WARNING, f"{name}: no timer of this name was started")
        else:
            self._say(logging.INFO, f"{name}: {self.performance_now() - began:g} ms")

    def console_timeend(self, text_ptr: int) -> None:
        self.console_timelog(text_ptr)
        self._timers.pop(self._text(text_ptr), None)

    def save(self) -> tuple[Any, dict[str, float]]:
        """Return the state of the random numbers, None if none was drawn, and the timers."""
        drawn = None if self._random is None else self._random.getstate()
        return drawn, dict(self._timers)

    def load(self, drawn: Any, timers: Mapping[str, float]) -> None:
        """Restore the state of the random numbers and the timers that `save` returned."""
        self._random = None
        if drawn is not None:
            self._random = random.Random(self._seed)
            self._random.setstate(drawn)
        self._timers = dict(timers)

    def emscripten_notify_memory_growth(self, memory: int) -> None:
        """Do nothing: the host reads the size of the memory itself."""

    def _bits(self) -> int:
        """Return 53 random bits."""
        if self._world is not None:
            return int.from_bytes(self._world.random(7), "little") >> 3
        if self._random is None:
            self._random = random.Random(self._seed)
        return self._random.getrandbits(53)
