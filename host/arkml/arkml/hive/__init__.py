"""The hive as a host sees it: the wire, the client, and the hive that a host starts itself."""

from __future__ import annotations

import os
import sys
import threading

NICE = 5
"""The niceness of threads that serve frames, but may run after them."""


def give_way() -> None:
    """
    Give this thread a lower priority than the frames, where a thread can have its own: on Linux.

    In a process that has a lower one already it stays: to raise it is refused to most users.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        if os.getpriority(os.PRIO_PROCESS, thread) < NICE:
            os.setpriority(os.PRIO_PROCESS, thread, NICE)
