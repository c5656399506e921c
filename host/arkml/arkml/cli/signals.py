"""The signals that end a command: the first one interrupts it, later ones hurry its end."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from enum import Enum
from types import FrameType

from arkml.runtime.interrupts import GUARD, put_off

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP")  # of which not every system has all
_DEFAULT = (signal.SIG_DFL, signal.default_int_handler)
_ECHO = 0.5
"""Seconds in which a signal counts once, since it may come to both a process and its group."""


class _Phase(Enum):
    """Part of a command, by the effect of signals in it."""

    ORDINARY = "the first interrupts, another one ends the process at once"
    KEEPING = "the first interrupts, others hurry the end"
    ENDING = "all hurry the end"
    DONE = "any ends the process at once"


class Signals:
    """
    Lets SIGTERM and SIGHUP end a command as Ctrl-C does, with KeyboardInterrupt on the main thread.

    A signal that was ignored when the process started stays ignored. `first` is the number of the
    first signal, or None. `hurry` is True if another signal came while the command was ending.
    """

    def __init__(self) -> None:
        self.first: int | None = None
        self.hurry = False
        self._leave: Callable[[int], object] = lambda _: None
        self._came = 0.0
        self._phase = _Phase.ORDINARY

    @property
    def status(self) -> int:
        """The exit code of a command that a signal ended: 128 plus the signal's number."""
        return 128 + (self.first or signal.SIGINT)

    def ended(self, otherwise: int) -> int:
        """Return `status` if a signal came, else the exit code `otherwise`."""
        return self.status if self.first else otherwise

    @property
    def name(self) -> str:
        """The name of the first signal, such as SIGTERM; empty if none came."""
        return signal.Signals(self.first).name if self.first else ""

    def catch(self, leave: Callable[[int], object]) -> None:
        """
        Handle the signals that have their default handlers. Call it on the main thread.

        `leave` ends the process at once, with an exit code.
        """
        self._leave = leave
        for name in _NAMES:
            number = getattr(signal, name, None)
            if number is not None and signal.getsignal(number) in _DEFAULT:
                signal.signal(number, self._handle)

    def keep(self) -> None:
        """Let only a first signal interrupt from now on, because files are written at the end."""
        self._phase = _Phase.KEEPING

    def begin_end(self) -> None:
        """Let all signals only hurry the end from now on, since the command is ending."""
        self._phase = _Phase.ENDING
        GUARD.requested = False

    def done(self) -> None:
        """Let any signal end the process at once from now on, because everything is written."""
        self._phase = _Phase.DONE

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if put_off(number, frame):
            return
        is_first, now = self.first is None, time.monotonic()
        if is_first:
            self.first, self._came = number, now
        elif now - self._came < _ECHO:
            return
        if self._phase is _Phase.ENDING or (self._phase is _Phase.KEEPING and not is_first):
            self.hurry = True
        elif is_first and self._phase is not _Phase.DONE:
            GUARD.interrupt(number, frame)
        else:
            self._leave(self.status)


SIGNALS = Signals()
"""One per process, as signal handlers are."""
