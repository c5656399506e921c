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
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
