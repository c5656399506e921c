"""Who goes first on the cores: frames, then what serves them, then learners."""

from __future__ import annotations

import os
import sys
import threading

NICE = 5


def give_way() -> None:
    """Let this thread run after those of the frames, where threads have a priority of their own."""
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
