"""The hive as a host sees it: the wire, the client, and the hive that a host starts itself."""

from __future__ import annotations

import os
import sys
import threading

NICE = 5
"""Added to the priority of threads that serve frames and may run after them."""


def give_way() -> None:
    """
    Give this thread a lower priority than the frames, where threads have priorities of their own.
    """
    if sys.platform == "linux":
        os.setpriority(os.PRIO_PROCESS, threading.get_native_id(), NICE)
