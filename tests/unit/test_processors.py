"""The processors that a process may use: its affinity, and the quotas of its cgroups."""

import os
import subprocess
import sys

import pytest

from arkml.base import processors


def test_the_quota_of_a_cgroup_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(processors, "_cgroups", lambda: [tmp_path / "own", tmp_path])
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "cpu.max").write_text("max 100000\n")
    (tmp_path / "cpu.max").write_text("350000 100000\n")

    assert processors._quota() == 3
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(8)))
    assert processors.usable_processors() == 1


def test_the_quota_of_a_cgroup_of_version_1_counts(monkeypatch, tmp_path):
    monkeypatch.setattr(processors, "_CGROUPS", tmp_path)
    own = tmp_path / "cpu" / "docker" / "own"
    own.mkdir(parents=True)
    (own / "cpu.cfs_period_us").write_text("100000\n")
    lines = ["5:cpuset:/", "4:cpu,cpuacct:/docker/own", "0::/"]
    monkeypatch.setattr(processors, "_cgroups", lambda: processors._folders(lines))

    assert processors._folders(lines) == [own, own.parent, tmp_path / "cpu", tmp_path]
    (own / "cpu.cfs_quota_us").write_text("-1\n")
    assert processors._quota() == processors._MANY
    (own / "cpu.cfs_quota_us").write_text("250000\n")
    assert processors._quota() == 2


@pytest.mark.parametrize(("before", "after"), [(0, 3), (2, 3), (3, 3), (5, 5)])
def test_a_process_comes_after_its_parent_and_gets_no_higher_priority(before, after):
    program = (
        "import os; from arkml.base.processors import come_after_parent;"
        f"os.nice({before}); come_after_parent(3);"
        "print(os.getpriority(os.PRIO_PROCESS, 0))"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, check=True)

    assert int(ended.stdout) == min(19, os.getpriority(os.PRIO_PROCESS, os.getpid()) + after)
