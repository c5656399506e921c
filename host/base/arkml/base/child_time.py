"""Processor time that other processes used on behalf of a waiting thread."""

from __future__ import annotations

import threading


class _Thread(threading.local):
    used = 0.0


_thread = _Thread()


def add_child_seconds(seconds: float) -> None:
    """Add processor seconds that another process reports for this thread."""
    if seconds >= 0.0:  # False for NaN
        _thread.used += seconds


def take_child_seconds() -> float:
    """Return the processor seconds added on this thread since the last call."""
    used, _thread.used = _thread.used, 0.0
    return used
