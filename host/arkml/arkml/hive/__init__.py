"""The hive as a host sees it: its protocol, a client, and a hive that the host starts itself."""

from __future__ import annotations

import os
import sys
import threading

NICE = 5
"""The niceness of threads that serve frames, but may run after them."""


def give_way() -> None:
    """
    Lower the priority of this thread below the threads of frames, on Linux; elsewhere do nothing.

    A process that has a lower priority already keeps it, because most users may not raise it.
    """
    if sys.platform == "linux":
        thread = threading.get_native_id()
        if os.getpriority(os.PRIO_PROCESS, thread) < NICE:
            os.setpriority(os.PRIO_PROCESS, thread, NICE)
