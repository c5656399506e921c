"""The number of threads that run the guests of a fleet, and the life of these threads."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from arkml.limits import MOST_THREADS, Threads, require_threads
from arkml.runtime import native


def number_of_threads(threads: Threads) -> int:
    """Return a number of threads, 1 to 256. Raises UsageError for anything else."""
    number = require_threads(threads)
    return min(usable_processors(), MOST_THREADS) if number == "auto" else number


def usable_processors() -> int:
    """Return the processors that this process may use: by its affinity, and its cgroup's quota."""
    if sys.platform == "linux":
        return max(1, min(len(os.sched_getaffinity(0)), _quota()))
    return os.cpu_count() or 1


def _quota() -> int:
    """Return the processors that the cgroups of the process allow it, or many without a limit."""
    allowed = MOST_THREADS
    for folder in _cgroups():
        try:
            quota, period = (folder / "cpu.max").read_text().split()  # "max 100000" for no limit
            allowed = min(allowed, int(quota) // int(period))
        except (OSError, ValueError):
            continue
    return allowed


def _cgroups() -> list[Path]:
    """Return the folders of the process's cgroup of version 2 and its parents."""
    root = Path("/sys/fs/cgroup")
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        return [root]
    own = next((line[3:] for line in lines if line.startswith("0::")), "/")
    folder = root / own.lstrip("/")
    return [folder, *(parent for parent in folder.parents if parent.is_relative_to(root))]


_users: set[int] = set()


def enter(user: int) -> None:
    """Note a host, for which worker threads may be started when a round needs them."""
    _users.add(user)


def leave(user: int) -> None:
    """Forget a host; the workers end with the last one. Takes no lock: a finalizer may call it."""
    _users.discard(user)
    if not _users and native.LIBRARY is not None:
        native.LIBRARY.end_workers()


if native.LIBRARY is not None and sys.platform != "win32":
    os.register_at_fork(after_in_child=native.LIBRARY.after_fork)
