"""Memory of learners and disk space of runs, measured as the operating system counts them."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Collection
from pathlib import Path

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused

_log = SafeLogger(__name__)

_OWN = ("RssAnon:", "RssShmem:", "VmSwap:")
"""The lines of `/proc/PID/status` for memory that cannot be taken back, in KiB."""

_USER_TICKS, _SYSTEM_TICKS = 11, 12
"""Positions in `/proc/PID/stat` after the name of the process, which may hold spaces."""

_BLOCK = 512
"""Bytes of a block in `st_blocks`."""

_FULL = 507


def memory_of(pid: int) -> int:
    """
    Return the bytes of memory that only this process uses, 0 if they are not known.

    Pages of files, such as shared libraries and the log, do not count.
    """
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except OSError:
        return 0
    return sum(int(line.split()[1]) << 10 for line in lines if line.startswith(_OWN))


def cpu_seconds_of(pid: int) -> float | None:
    """
    Return the seconds of processor time that a process has used, None if they are not known.

    All threads of the process count.
    """
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    ticks = int(fields[_USER_TICKS]) + int(fields[_SYSTEM_TICKS])
    return ticks / os.sysconf("SC_CLK_TCK")


class CpuShares:
    """
    The number of processors that processes used between two measurements.

    1.0 stands for one busy processor. Call `keep` to forget processes that have ended.
    """

    def __init__(self) -> None:
        self._spent: dict[int, tuple[float, float]] = {}  # by process: seconds of CPU, and when

    def measure(self, pid: int) -> float | None:
        """
        Return the number of processors that a process has used since its last measurement.

        Returns None if the number is not known.
        """
        now, spent = time.monotonic(), cpu_seconds_of(pid)
        if spent is None:
            return None
        before = self._spent.get(pid)
        self._spent[pid] = spent, now
        if before is None or now <= before[1]:
            return None
        return max(0.0, spent - before[0]) / (now - before[1])

    def keep(self, pids: Collection[int]) -> None:
        """Forget all processes except the ones with these ids."""
        self._spent = {pid: self._spent[pid] for pid in pids if pid in self._spent}


def learner_points(shares: CpuShares, pid: int, memory: int, disk: int) -> list[tuple[str, float]]:
    """
    Return metrics of a run's learner: its memory, its disk space, and the processors it uses.

    Args:
        shares: Measures the processors.
        pid: The process of the learner.
        memory: Bytes of memory that it uses.
        disk: Bytes of disk that its run uses.

    """
    points = [("system/memory_bytes", float(memory)), ("system/disk_bytes", float(disk))]
    share = shares.measure(pid)
    shares.keep({pid})
    return points if share is None else [*points, ("system/cpu_share", share)]


class DiskUse:
    """
    The disk space of a hive's directory and of each run in it, measured now and then.

    `most` is the number of bytes that the hive may use, 0 for no limit.
    """

    def __init__(self, directory: Path, most: int) -> None:
        self._directory = directory
        self._most = most
        self._measured = 0
        self._taken = 0  # since the measurement began
        self._runs: dict[str, int] = {}
        self._is_full = False

    @property
    def used(self) -> int:
        """The bytes on disk, including bytes that were allocated since the last measurement."""
        return self._measured + self._taken

    def of_run(self, run_id: str) -> int:
        """Return the bytes that a run used at the last measurement, 0 before the first."""
        return self._runs.get(run_id, 0)

    def take(self, size: int) -> None:
        """Count `size` bytes that are about to be allocated. Raises HiveRefused without room."""
        used, most = self.used, self._most
        was_full, self._is_full = self._is_full, bool(most) and used + size > most
        if self._is_full:
            reason = (
                f"the hive has {sized(used)} on disk, and may have {sized(most)} (--max-disk):"
                " delete runs that are over, by arkml hive rm"
            )
            if not was_full:
                _log.error("%s", reason)
            raise HiveRefused(reason, _FULL)
        self._taken += size

    async def measure(self) -> None:
        """Measure the disk space of the directory and its runs again."""
        before = self._taken
        total, runs = await asyncio.to_thread(self._measure)
        self._measured, self._runs = total, runs
        self._taken -= before

    def _measure(self) -> tuple[int, dict[str, int]]:
        """Return the bytes of all files, and the bytes of each run."""
        runs = self._directory / "runs"
        sizes = {entry.name: _size(entry) for entry in _entries(runs)}
        others = (entry for entry in _entries(self._directory) if entry.name != runs.name)
        return sum(sizes.values()) + sum(map(_size, others)), sizes


def _entries(directory: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(directory) as entries:
            return list(entries)
    except OSError:  # it was deleted meanwhile
        return []


def _size(entry: os.DirEntry[str]) -> int:
    """Return the bytes on disk of a file, or of all files in a directory."""
    try:
        if entry.is_dir(follow_symlinks=False):
            return sum(map(_size, _entries(entry.path)))
        return entry.stat(follow_symlinks=False).st_blocks * _BLOCK
    except OSError:
        return 0


def sized(size: int) -> str:
    """Return a number of bytes as text in MiB, such as "64 MiB"."""
    return f"{size / (1 << 20):,.0f} MiB"
