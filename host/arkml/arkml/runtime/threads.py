"""The number of threads that run the guests of a fleet, and the life of these threads."""

from __future__ import annotations

import os
import sys

from arkml.base.processors import usable_processors
from arkml.limits import MOST_THREADS, Threads, require_threads
from arkml.runtime import native


def number_of_threads(threads: Threads) -> int:
    """
    Return a number of threads, 1 to 256; "auto" takes the usable processors.

    Raises UsageError for anything else.
    """
    number = require_threads(threads)
    return min(usable_processors(), MOST_THREADS) if number == "auto" else number


_users: set[int] = set()


def enter(user: int) -> None:
    """Register a host, for which worker threads may be started when a round needs them."""
    _users.add(user)


def leave(user: int) -> None:
    """Remove a host; the workers end with the last one. Takes no lock: a finalizer may call it."""
    _users.discard(user)
    if not _users and native.LIBRARY is not None:
        native.LIBRARY.end_workers()


if native.LIBRARY is not None and sys.platform != "win32":
    os.register_at_fork(after_in_child=native.LIBRARY.after_fork)
