"""Data directories that two hives want, or that go away, are full, or cannot be written."""

import contextlib
import shutil
import subprocess
import sys
import time

import pytest
from tests.faults.player import Player, assert_all_is_there
from tests.faults.serving import ROOT, Served, environment, free_port
from tests.faults.test_learning_faults import grant_of
from tests.waiting import eventually

from arkml.hive.embedded import EmbeddedHive

pytestmark = pytest.mark.faults

SEGMENT = {"segment_bytes": 1 << 18}
"""Segments of a log that are full after a second or two."""

STILL = 3.0
"""Seconds without an acknowledged row, after which rows are refused."""


@contextlib.contextmanager
def mounted(path, size):
    """A file system of its own of so many MiB, which needs the right to mount one."""
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", path], check=True)
    try:
        yield path
    finally:
        subprocess.run(["umount", "--lazy", path], check=True)


def serve(data):
    """`arkml hive serve` on a directory, to its end."""
    words = ["hive", "serve", "--data", str(data), "--port", str(free_port())]
    return subprocess.run(
        [sys.executable, "-m", "arkml", *words], capture_output=True, text=True, timeout=60,
        cwd=ROOT, env=environment(), check=False,
    )  # fmt: skip


def fill(path):
    with contextlib.suppress(OSError), path.open("wb", buffering=0) as file:
        while True:
            file.write(bytes(1 << 12))


def nothing_is_acknowledged(player):
    """Whether frames go on and no row of them is acknowledged for a while."""
    state = [player.session.ledger.accepted, time.monotonic()]

    def is_still():
        if player.session.ledger.accepted != state[0]:
            state[:] = player.session.ledger.accepted, time.monotonic()
        return time.monotonic() - state[1] > STILL

    frames = player.frames
    return eventually(is_still) and player.frames > frames


def test_a_second_hive_on_one_directory_says_so_and_the_first_one_serves(tmp_path):
    with Served(tmp_path / "data") as served:
        player = Player(served.grant())
        with player.playing():
            assert player.gets_a_version()
            second = serve(served.data)
            is_followed = player.gets_a_version()
        assert_all_is_there(player)
        player.close()

    assert second.returncode == 2
    assert "is in use by another hive" in second.stderr
    assert is_followed


def test_rows_wait_for_room_on_a_file_system_that_is_full(tmp_path):
    with (
        mounted(tmp_path / "disk", 64) as disk,
        EmbeddedHive(disk / "data", SEGMENT) as hive,
    ):
        player = Player(grant_of(hive))
        with player.playing():
            assert player.gets_a_version()
            fill(disk / "hog")
            is_refused = nothing_is_acknowledged(player)
            (disk / "hog").unlink()
            is_followed = player.gets_a_version()
        waited = player.waited
        assert_all_is_there(player)
        player.close()

    assert is_refused
    assert is_followed
    assert waited < 1


def test_rows_wait_for_a_directory_that_is_away(tmp_path):
    data, away = tmp_path / "data", tmp_path / "away"
    with EmbeddedHive(data, SEGMENT) as hive:
        player = Player(grant_of(hive))
        with player.playing():
            assert player.gets_a_version()
            data.rename(away)
            is_refused = nothing_is_acknowledged(player)
            away.rename(data)
            is_followed = player.gets_a_version()
        waited = player.waited
        assert_all_is_there(player)
        player.close()

    assert is_refused
    assert is_followed
    assert waited < 1


def test_a_directory_that_is_removed_takes_no_row_and_the_hive_says_so(tmp_path):
    data = tmp_path / "data"
    with EmbeddedHive(data, SEGMENT) as hive:
        player = Player(grant_of(hive))
        with player.playing():
            assert player.gets_a_version()
            shutil.rmtree(data / "runs")
            is_refused = nothing_is_acknowledged(player)
            told = player.client.runs().result()
        is_there = not hive.is_dead
        waited = player.waited
        player.hives.close()

    assert is_refused
    assert is_there
    assert [info.status for info in told] == ["not_found"]
    assert waited < 1


def test_a_hive_that_cannot_begin_in_its_directory_says_why_in_a_sentence(tmp_path):
    with mounted(tmp_path / "disk", 1) as disk:
        (disk / "data" / "runs").mkdir(parents=True)
        fill(disk / "hog")
        full = serve(disk / "data")
        (disk / "hog").unlink()
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        read_only, new = serve(disk / "data"), serve(disk / "other")

    for ended, reason in (
        (full, "its disk is full"),
        (read_only, "Read-only file system"),
        (new, "Read-only file system"),
    ):
        assert ended.returncode == 2
        assert reason in ended.stderr
        assert len(ended.stderr.splitlines()) == 1
