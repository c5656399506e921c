"""The resources of a process, round after round, and the rule by which they are flat."""

from __future__ import annotations

import gc
import os
from collections.abc import Sequence
from dataclasses import astuple, dataclass, fields
from pathlib import Path
from statistics import median

_KIB_PER_MIB = 1024


@dataclass(frozen=True, slots=True)
class Usage:
    """
    The resources of a process and, as `hive`, of the hive that it uses.

    `rss`, `virtual` and `hive` are in MiB: resident memory, address space, and the resident memory
    of the hive. The others are numbers: of mappings, open descriptors, threads, and of processes
    that descend from this one.
    """

    rss: float
    virtual: float
    mappings: float
    descriptors: float
    threads: float
    processes: float
    hive: float


MOST_GROWTH = Usage(
    rss=12.0, virtual=96.0, mappings=40.0, descriptors=3.0, threads=2.0, processes=1.0, hive=12.0
)
"""
The growth that is flat: over the second half of all rounds, by the line that fits it.

The bounds do not grow with the number of rounds, so a longer run finds a smaller leak. They are
what allocators and caches of a bounded size move by: arenas of malloc, compiled modules that are
kept, the reservations of wasm memories.
"""

LEAST_ROUNDS = 8
"""Rounds without which there is no second half to judge."""


def usage(hive: int | None) -> Usage:
    """Return what this process uses; `hive` is the id of its hive's process."""
    gc.collect()
    own = Path("/proc/self")
    sizes = _sizes(os.getpid())
    return Usage(
        rss=sizes["VmRSS"],
        virtual=sizes["VmSize"],
        mappings=(own / "maps").read_bytes().count(b"\n"),
        descriptors=len(list((own / "fd").iterdir())),
        threads=len(list((own / "task").iterdir())),
        processes=len(descendants(os.getpid())),
        hive=0.0 if hive is None else _sizes(hive)["VmRSS"],
    )


def _sizes(process: int) -> dict[str, float]:
    """Return the sizes in a process's status, in MiB."""
    lines = Path(f"/proc/{process}/status").read_text().splitlines()
    pairs = (line.split(":", 1) for line in lines if line.startswith("Vm"))
    return {name: int(value.split()[0]) / _KIB_PER_MIB for name, value in pairs}


def descendants(process: int) -> list[int]:
    """Return the processes that a process has started, and those that these have."""
    found: list[int] = []
    for task in Path(f"/proc/{process}/task").iterdir():
        try:
            children = [int(word) for word in (task / "children").read_text().split()]
        except OSError:  # the thread has ended
            continue
        found += children
        for child in children:
            try:
                found += descendants(child)
            except OSError:
                continue
    return found


def growth(rounds: Sequence[Usage]) -> Usage:
    """
    Return the growth over the second half of the rounds.

    It is the slope of the line that fits that half, by Theil and Sen, times its length: the median
    of the slopes of all pairs, which a few rounds that stand out do not move.
    """
    half = [astuple(each) for each in rounds[len(rounds) // 2 :]]
    length = len(half) - 1
    slopes = [
        median(
            (half[late][place] - half[early][place]) / (late - early)
            for early in range(len(half))
            for late in range(early + 1, len(half))
        )
        for place in range(len(fields(Usage)))
    ]
    return Usage(*(slope * length for slope in slopes))


def what_grows(rounds: Sequence[Usage]) -> dict[str, float]:
    """Return the names of what is not flat, with the growth over the second half."""
    if len(rounds) < LEAST_ROUNDS:
        raise ValueError(f"{len(rounds)} rounds: {LEAST_ROUNDS} at least")
    found = growth(rounds)
    return {
        field.name: getattr(found, field.name)
        for field in fields(Usage)
        if getattr(found, field.name) > getattr(MOST_GROWTH, field.name)
    }
