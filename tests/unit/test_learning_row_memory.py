"""The memory that rows may take: what is left, and arrays that take it as they fill."""

import math
import mmap

import numpy as np
import pytest

from arkml.learning.row_memory import HEADROOM, RowMemory, available_memory, lazy_zeros


def system(root, files):
    """Files of a system below `root`, by path."""
    for path, text in files.items():
        file = root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


MEMINFO = {"proc/meminfo": "MemTotal:  9000 kB\nMemAvailable:  2000 kB\nHugePages_Total: 0\n"}
GROUP_1 = {
    "proc/self/cgroup": "9:name=systemd:/\n4:cpu,memory:/run/job\n0::/\n",
    "sys/fs/cgroup/memory/run/memory.limit_in_bytes": "900000\n",
    "sys/fs/cgroup/memory/run/memory.usage_in_bytes": "500000\n",
    "sys/fs/cgroup/memory/run/memory.stat": "cache 5\ntotal_inactive_file 100000\n",
    "sys/fs/cgroup/memory/run/job/memory.limit_in_bytes": "9223372036854771712\n",
    "sys/fs/cgroup/memory/run/job/memory.usage_in_bytes": "400000\n",
}
GROUP_2 = {
    "proc/self/cgroup": "0::/run/job\n",
    "sys/fs/cgroup/run/job/memory.max": "700000\n",
    "sys/fs/cgroup/run/job/memory.current": "600000\n",
    "sys/fs/cgroup/run/memory.max": "max\n",
    "sys/fs/cgroup/run/memory.current": "600000\n",
}
PROCESS = {
    "proc/self/limits": "Limit  Soft Limit  Hard Limit  Units\n"
    "Max stack size            8388608  unlimited  bytes\n"
    "Max resident set          1500000  unlimited  bytes\n",
    "proc/self/status": "Name:\tpython\nState:\tR (running)\nVmRSS:\t    1000 kB\n",
}
CONTAINER = {
    "proc/self/cgroup": "0::/somewhere/else\n",
    "sys/fs/cgroup/memory.max": "50000\n",
    "sys/fs/cgroup/memory.current": "20000\n",
}


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, math.inf),
        (MEMINFO, 2_000 * 1_024),
        (MEMINFO | GROUP_1, 500_000),
        (MEMINFO | GROUP_2, 100_000),
        (MEMINFO | PROCESS, 1_500_000 - 1_024_000),
        (MEMINFO | CONTAINER, 30_000),
        (MEMINFO | CONTAINER | {"sys/fs/cgroup/memory.current": "what"}, 2_000 * 1_024),
    ],
)
def test_what_is_available_is_the_least_of_machine_groups_and_process(tmp_path, files, expected):
    assert available_memory(system(tmp_path, files)) == expected


def test_the_system_here_says_what_is_available():
    assert 0 < available_memory() < 1 << 50


def test_the_system_is_asked_once_for_many_rows():
    asked = []

    def available():
        asked.append(True)
        return 1 << 40

    memory = RowMemory(1 << 20, available)
    for rows in range(1, 65):
        memory.claim(rows)
    once = len(asked)
    memory.claim(65)

    assert once == 1
    assert len(asked) == 2


def test_rows_are_refused_when_they_do_not_leave_the_headroom():
    memory = RowMemory(1 << 20, lambda: HEADROOM + (3 << 20))
    memory.claim(3)

    with pytest.raises(MemoryError, match="no memory for more than 3 rows of 1,048,576 bytes"):
        memory.claim(7)


def test_lazy_zeros_are_zeros_that_begin_at_a_page():
    made = lazy_zeros((1_000, 3), np.float32)
    made[500] = 1.0

    assert made.sum() == 3.0
    assert made.ctypes.data % mmap.PAGESIZE == 0
