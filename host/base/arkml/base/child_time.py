"""Processor time that other processes used for a thread that waits for them."""

from __future__ import annotations

import threading


class _Thread(threading.local):
    used = 0.0


_thread = _Thread()


def add_child_seconds(seconds: float) -> None:
    """Add seconds of the processor that another process says to have used for this thread."""
    if seconds >= 0.0:  # False for what is not a number
        _thread.used += seconds


def take_child_seconds() -> float:
    """Return the seconds that were added on this thread since this was called last."""
    used, _thread.used = _thread.used, 0.0
    return used
