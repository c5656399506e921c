"""The resources that a hive uses now and has used lately: processor time, memory, disk, GPUs."""

from __future__ import annotations

import asyncio
import os
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Collection, Mapping

from msgspec.structs import replace

from arkml.hive.protocol.page_messages import GpuUse, ProcessUse, UsageEntry
from arkml.server.usage import CpuShares, memory_of

_KEPT = 900
"""Measurements that are kept, of every other second."""

_GPU_EVERY = 10.0
_GPU_WITHIN = 5.0
_GPU = (
    "nvidia-smi",
    "--query-gpu=name,utilization.gpu,memory.used,memory.total",
    "--format=csv,noheader,nounits",
)


class ResourceMeter:
    """
    Measures this process, learners' processes and GPUs; keeps the last measurements in `entries`.
    """

    def __init__(self) -> None:
        self.entries: deque[UsageEntry] = deque(maxlen=_KEPT)
        self._shares = CpuShares()
        self._has_gpus = shutil.which(_GPU[0]) is not None
        self._gpus: list[GpuUse] = []
        self._gpus_at = -_GPU_EVERY

    async def measure(self, learners: Mapping[str, int | None], disk: int) -> UsageEntry:
        """
        Measure the resources in use now, in a thread, and add the measurement to `entries`.

        Args:
            learners: The id of each learner's process by the id of its run, None for no process.
            disk: The bytes that all runs take on disk.

        """
        pids = {run: pid for run, pid in learners.items() if pid is not None}
        entry = await asyncio.to_thread(self._measure, {"": os.getpid(), **pids}, disk)
        self.entries.append(entry)
        return entry

    def _measure(self, pids: dict[str, int], disk: int) -> UsageEntry:
        measure = self._shares.measure
        processes = [
            ProcessUse(run, measure(pid) or 0.0, memory_of(pid)) for run, pid in pids.items()
        ]
        self._shares.keep(pids.values())
        if self._has_gpus and time.monotonic() - self._gpus_at >= _GPU_EVERY:
            self._gpus, self._gpus_at = _measure_gpus(), time.monotonic()
        return UsageEntry(time.time_ns(), disk, processes, self._gpus)


def of_runs(entry: UsageEntry, runs: Collection[str]) -> UsageEntry:
    """Return a measurement that lists only the hive's process and the learners of these runs."""
    own = [one for one in entry.processes if not one.run or one.run in runs]
    return replace(entry, processes=own)


def _measure_gpus() -> list[GpuUse]:
    """Return the use of each GPU; empty if nvidia-smi does not report it."""
    try:
        answer = subprocess.run(
            _GPU, capture_output=True, text=True, timeout=_GPU_WITHIN, check=True
        )
        return [_read_gpu(line) for line in answer.stdout.splitlines()]
    except (OSError, subprocess.SubprocessError, ValueError):
        return []


def _read_gpu(line: str) -> GpuUse:
    name, share, used, total = line.rsplit(",", 3)
    return GpuUse(name.strip(), float(share) / 100, int(used) << 20, int(total) << 20)
