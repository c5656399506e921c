"""Processes killed for real: what was acknowledged is in memory once, and acting goes on."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests.children import children_of
from tests.faults.player import (
    LEARNER,
    SERVER,
    Player,
    assert_all_is_there,
    kill,
    learners_of,
    processes,
)
from tests.waiting import eventually

from arkml.runs.hive_access import HiveGrant


@pytest.fixture
def player(tmp_path):
    made = Player(HiveGrant(data=tmp_path))
    yield made
    made.close()


@pytest.mark.learns
def test_a_learner_that_is_killed_is_replaced_and_no_row_is_missing(player):
    player.play(0.5)
    for _ in range(3):
        for pid in learners_of(player.server):
            kill(pid)
        before = player.version
        player.play(0.5)

        assert eventually(lambda before=before: player.version > before)

    assert_all_is_there(player)


@pytest.mark.learns
def test_a_server_that_is_killed_is_started_again_and_no_row_is_missing_or_there_twice(player):
    player.play(0.5)
    for _ in range(3):
        before, dead = player.version, player.server
        kill(dead)
        player.play(1.0)

        assert eventually(lambda before=before: player.version > before)
        assert player.server != dead

    assert player.session.failure is None
    assert_all_is_there(player)


HOST = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from arkml.runs.hive_access import HiveGrant
from tests.faults.player import Player
player = Player(HiveGrant(data=Path({folder!r})))
player.play(0.3)
if os.fork() == 0:
    time.sleep(60)
print(player.server, flush=True)
player.play(60)
"""


def test_a_host_that_is_killed_leaves_no_process_though_a_fork_of_it_lives(tmp_path):
    script = HOST.format(root=str(Path(__file__).parents[2]), folder=str(tmp_path))
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    server = int(host.stdout.readline())
    learners, forked = set(children_of(server)), set(children_of(host.pid)) - {server}
    host.kill()
    host.wait()
    gone = eventually(
        lambda: not ({server} | learners) & set(processes(SERVER) + processes(LEARNER)), 30
    )
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
    host.stdout.close()

    assert learners
    assert gone
