"""Ends the process when its parent ends, whatever the process is doing at that time."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from threading import Thread

_LOOK_EVERY = 1.0


def hold(line: int) -> None:
    """
    Leave with status 0 once the pipe `line` is closed, or the process has another parent.

    The end of the pipe comes late if a sibling has inherited the other side, so both are watched.
    """
    parent = os.getppid()
    _thread("line", lambda: _read(line))
    _thread("parent", lambda: _watch(parent))


def every_second(act: Callable[[], None]) -> None:
    """Call `act` each second from a thread, until it raises an OSError or the process ends."""

    def repeat() -> None:
        while True:
            time.sleep(_LOOK_EVERY)
            act()

    _thread("progress", repeat)


def leave_after(seconds: float) -> None:
    """Leave with status 0 after so many seconds, if the process did not by itself."""

    def wait() -> None:
        time.sleep(max(0.0, seconds))
        os._exit(0)

    _thread("deadline", wait)


def _thread(name: str, target: Callable[[], None]) -> None:
    Thread(target=target, name=f"arkml-{name}", daemon=True).start()


def _read(line: int) -> None:
    try:
        while os.read(line, 4_096):
            pass
    finally:
        os._exit(0)


def _watch(parent: int) -> None:
    while os.getppid() == parent:
        time.sleep(_LOOK_EVERY)
    os._exit(0)
