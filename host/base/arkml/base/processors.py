"""The processors that this process may use, and its priority on them."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path

_CGROUPS = Path("/sys/fs/cgroup")
_MANY = 1 << 16


def usable_processors() -> int:
    """Return how many processors this process may use, by its affinity and its cgroup's quota."""
    if sys.platform == "linux":
        return max(1, min(len(os.sched_getaffinity(0)), _quota()))
    return os.cpu_count() or 1


def come_after_parent(steps: int) -> None:
    """
    Let all threads of this process come after those of its parent, by steps of niceness.

    The thread that started this process may have a lower priority than its process. A priority is
    never raised, which most users may not do. Call this before other threads start.
    """
    parent = os.getpriority(os.PRIO_PROCESS, os.getppid())
    os.nice(max(0, parent + steps - os.nice(0)))


def _quota() -> int:
    """Return the processors that the cgroups of the process allow it, or many without a limit."""
    return min((_allowed(folder) for folder in _cgroups()), default=_MANY)


def _allowed(folder: Path) -> int:
    """Return the processors that one cgroup allows, of version 2 or 1, or many without a limit."""
    try:
        if (limit := folder / "cpu.max").exists():
            quota, period = limit.read_text().split()  # "max 100000" for no limit
        else:
            quota = (folder / "cpu.cfs_quota_us").read_text()  # -1 for no limit
            period = (folder / "cpu.cfs_period_us").read_text()
        return int(quota) // int(period) if int(quota) > 0 else _MANY
    except (OSError, ValueError):
        return _MANY


def _cgroups() -> list[Path]:
    """Return the folders of the cgroups of the process that may limit processors."""
    try:
        lines = Path("/proc/self/cgroup").read_text().splitlines()
    except OSError:
        lines = ["0::/"]
    return _folders(lines)


def _folders(lines: Sequence[str]) -> list[Path]:
    """Return the folders of cgroups and their parents, by lines as `4:cpu,cpuacct:/own`."""
    found = []
    for line in lines:
        number, controllers, own = line.split(":", 2)
        if number == "0" or "cpu" in controllers.split(","):
            root = _CGROUPS if number == "0" else _CGROUPS / "cpu"  # of version 2, or 1
            folder = root / own.lstrip("/")
            found += [folder, *(at for at in folder.parents if at.is_relative_to(root))]
    return found
