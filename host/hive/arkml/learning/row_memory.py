"""Memory for rows: arrays allocated page by page, a check of free memory, and rings of slots."""

from __future__ import annotations

import math
import mmap
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.limits import MIB

HEADROOM = 128 * MIB
"""Bytes that rows leave to everything else."""

_GRANT = 64 * MIB
_NORESERVE = 0x4000  # Linux's value; the module mmap names it from Python 3.13 on

Slots = npt.NDArray[np.int64]


def lazy_zeros(shape: tuple[int, ...], dtype: npt.DTypeLike) -> npt.NDArray[Any]:
    """
    Return an array of zeros that begins at a page and takes memory only where it is written.

    On Windows the system counts the whole array at once. Raises MemoryError if the address space is
    too small.
    """
    kind = np.dtype(dtype)
    size = math.prod(shape) * kind.itemsize
    if sys.platform == "win32":
        return np.zeros(shape, kind)
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
    if sys.platform == "linux":
        flags |= _NORESERVE
    try:
        pages = mmap.mmap(-1, max(size, 1), flags=flags)
    except (OSError, OverflowError) as error:
        raise MemoryError(f"no addresses for {size:,} bytes: {error}") from error
    if sys.platform == "linux":
        with suppress(OSError):  # the kernel has no huge pages
            pages.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(pages, kind, math.prod(shape)).reshape(shape)


class RowMemory:
    """
    A check that there is memory for the rows of a store, made before they are written.

    `available` returns the bytes that this process can take now.
    """

    def __init__(self, row_bytes: int, available: Callable[[], float]) -> None:
        self._row_bytes = row_bytes
        self._available = available
        self._granted = 0  # rows

    def claim(self, rows: int) -> None:
        """
        Raise MemoryError unless there is memory for `rows` rows in total.

        The system is asked only once per 64 MiB, so a call costs almost nothing.
        """
        if rows <= self._granted:
            return
        wanted = max(rows - self._granted, _GRANT // self._row_bytes)
        left = self._available() - HEADROOM
        if (rows - self._granted) * self._row_bytes > left:
            raise MemoryError(
                f"no memory for more than {self._granted:,} rows of {self._row_bytes:,} bytes:"
                f" set a smaller memory_max_size"
            )
        self._granted += int(min(wanted, left // self._row_bytes))


def available_memory(root: Path = Path("/")) -> float:
    """
    Return the bytes that this process can take before the system ends a process.

    The lowest of three limits: the machine's, the limits of the process's control groups, and the
    process's own (`ulimit -m`, which Linux itself does not enforce); infinite where the system does
    not say. `root` is the directory that holds `proc` and `sys`.
    """
    return min((_of_machine(root), _of_process(root), *_of_groups(root)))


def _of_machine(root: Path) -> float:
    numbers = _numbers(root / "proc/meminfo")
    return 1_024 * numbers.get("MemAvailable", math.inf)


def _of_process(root: Path) -> float:
    try:
        lines = (root / "proc/self/limits").read_text().splitlines()
    except OSError:
        return math.inf
    name = "Max resident set"
    limits = [line.removeprefix(name).split()[0] for line in lines if line.startswith(name)]
    if not limits or not limits[0].isdecimal():  # "unlimited"
        return math.inf
    return int(limits[0]) - 1_024 * _numbers(root / "proc/self/status").get("VmRSS", 0.0)


def _of_groups(root: Path) -> Iterator[float]:
    """Yield the bytes left in each control group around this process, of version 1 or 2."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return
    for line in lines:
        number, controllers, path = line.split(":", 2)
        top = root / "sys/fs/cgroup"
        names = ("memory.max", "memory.current", "inactive_file")
        if "memory" in controllers.split(","):
            top /= "memory"
            names = ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file")
        elif number != "0":
            continue
        group = top / path.strip("/")
        # In a container the path may be one of the machine's, and only `top` is there.
        for place in (group, *group.parents):
            yield _left(place, *names)
            if place == top:
                break


def _left(group: Path, limit: str, used: str, reclaimable: str) -> float:
    try:
        most = (group / limit).read_text().strip()
        taken = int((group / used).read_text())
    except (OSError, ValueError):
        return math.inf
    if not most.isdecimal():  # "max"
        return math.inf
    return int(most) - taken + _numbers(group / "memory.stat").get(reclaimable, 0)


def _numbers(path: Path) -> dict[str, float]:
    """Return the first number of each line of a file, by the word before it."""
    try:
        words = [line.split() for line in path.read_text().splitlines()]
    except OSError:
        return {}
    pairs = [(line[0].rstrip(":"), line[1]) for line in words if len(line) > 1]
    return {name: float(number) for name, number in pairs if number.isdecimal()}


class RowRegion:
    """
    A ring of row slots. Rows have numbers, from 0 in the order in which they were added.

    A slot belongs to one region at a time, and may come from anywhere in the store.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        """Most rows held."""
        self.rows = 0
        """Rows added, which is the number of the next one."""
        self.oldest = 0
        """Number of the oldest row held."""
        self.held = 0
        """Rows in the region."""
        self.transitions = 0
        """Rows held that are linked with a next one, which the owner counts."""
        self._slots: Slots = lazy_zeros((limit,), np.int64)

    def slots(self, numbers: Slots) -> Slots:
        """Return the slots of rows in the ring, given their numbers: int64, [n]."""
        return self._slots[numbers % self.limit]

    def push(self, slots: Slots) -> None:
        """Add rows in these slots: int64, [n]. There must be room for them."""
        self._slots[np.arange(self.rows, self.rows + len(slots)) % self.limit] = slots
        self.rows += len(slots)
        self.held += len(slots)

    def release(self, count: int) -> Slots:
        """Remove the `count` oldest rows, and return their slots."""
        slots = self.slots(np.arange(self.oldest, self.oldest + count))
        self.oldest += count
        self.held -= count
        return slots

    def held_slots(self) -> Slots:
        """Return the slots of all rows in the ring, oldest first."""
        return self.slots(np.arange(self.oldest, self.rows))

    def draw(self, random: np.random.Generator, count: int) -> Slots:
        """Draw slots of rows with replacement. There must be at least one row."""
        return self.slots(random.integers(self.oldest, self.rows, count))
