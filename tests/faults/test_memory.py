"""A hive that runs flat out uses no more memory after a while, and neither does its host."""

import os
import time
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace
from tests.faults.player import MINUTES, SETTINGS, Player, learners_in
from tests.waiting import eventually

from arkml.runs.hive_access import HiveGrant

pytestmark = pytest.mark.faults

MOST = 1.0
"""MB a minute."""

FULL = 20_000
_EVERY = 0.5


def resident(pid):
    """MB in all, and of that what no file is behind."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    sizes = dict(line.split(":", 1) for line in lines)
    return [int(sizes[name].split()[0]) / 1024 for name in ("VmRSS", "RssAnon")]


def slopes(points):
    """MB a minute, of both."""
    numbers = np.array(points)
    return np.polyfit(numbers[:, 0], numbers[:, 1:], 1)[0].tolist()


def test_server_learner_and_host_do_not_grow(tmp_path):
    player = Player(HiveGrant(data=tmp_path), settings=replace(SETTINGS, memory_max_size=FULL))
    player.pause = 0.0
    learner = learners_in(tmp_path)[-1][0]
    sizes = {player.server: [], learner: [], os.getpid(): []}
    with player.playing():
        is_full = eventually(lambda: player.session.ledger.accepted > 10 * FULL)
        begun = time.monotonic()
        while (minutes := (time.monotonic() - begun) / 60) < MINUTES:
            for pid, points in sizes.items():
                points.append((minutes, *resident(pid)))
            time.sleep(_EVERY)
        rows = player.session.ledger.accepted
    found = {pid: slopes(points) for pid, points in sizes.items()}
    player.close()
    print(f"{rows:,} rows, MB a minute: {found}")

    assert is_full
    assert all(max(values) < MOST for values in found.values()), found
