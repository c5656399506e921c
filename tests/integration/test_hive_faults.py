"""Processes killed for real: what was acknowledged is in memory once, and acting goes on."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.hives import HiveGrant, Hives
from arkml.participation import Participation
from arkml.policies.library import PolicyLibrary
from arkml.policies.models import ModelCache

FEATURES, ACTIONS, AGENTS = 4, 2, 32
SERVER, LEARNER = "arkml.server", "arkml.learning.worker"
SETTINGS = Settings(FEATURES, ACTIONS, hidden=32, batch_size=32, memory_min_size=200, seed=3)


def processes(word):
    """The processes whose command line has the word and which have not ended."""
    found = []
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            words = (status.parent / "cmdline").read_bytes().split(b"\0")
            ended = "State:\tZ" in status.read_text()
        except OSError:
            continue
        if word.encode() in words and not ended:
            found.append(int(status.parent.name))
    return found


def until(condition, seconds):
    """Whether something becomes true in time."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.02)
    return False


class Player:
    """Takes part in a run with rows of its own, as a host does."""

    def __init__(self, name, folder):
        self.hives = Hives(HiveGrant(data=folder))
        self.client = self.hives.client()
        self.run = self.client.create(RunRequest(name, "faults", SETTINGS)).result()
        self.part = Participation(
            self.client, self.run, PolicyLibrary(ModelCache()), block=False, sync=False,
            loaders=self.hives.loaders, farewells=self.hives.farewells,
        )  # fmt: skip
        self.policy = self.part.policy()
        self.session = self.part._session
        self.frames = 0

    def play(self, seconds):
        """Append rows at 200 frames a second; agents never end."""
        random = np.random.default_rng(self.frames)
        end = time.monotonic() + seconds
        agents = np.arange(1, AGENTS + 1, dtype=np.uint64)
        while time.monotonic() < end:
            state = np.full(AGENTS, 0 if self.frames else 3, np.uint32)
            steps = np.full(AGENTS, self.frames, np.uint64)
            features = random.normal(size=(AGENTS, FEATURES)).astype("f4")
            self.session.outbox.append(
                agents, steps, self.part.latest[0], features[:, 0], state, features,
                np.zeros((AGENTS, ACTIONS), "f4"),
            )  # fmt: skip
            self.frames += 1
            time.sleep(0.005)

    @property
    def version(self):
        return self.part.latest[0]

    def settled(self):
        """Whether every row has arrived."""
        return self.session._delivery.arrived == self.session.outbox.appended

    def audit(self):
        """What the learner holds of this session, once it has read everything."""
        found = {}

        def is_read():
            found.update(self.client.memory(self.run.id).result())
            return found["held"] == AGENTS * self.frames

        until(is_read, 20)
        return found

    def close(self):
        self.part.leave(stop=True)
        self.hives.close()


@pytest.fixture
def player(tmp_path):
    made = Player("faults", tmp_path)
    yield made
    made.close()


def children_of(pid):
    return set(map(int, Path(f"/proc/{pid}/task/{pid}/children").read_text().split()))


def assert_all_is_there(player):
    assert until(player.settled, 30)
    audit, ledger = player.audit(), player.session.ledger

    assert audit["held"] == ledger.accepted == AGENTS * player.frames
    assert int(audit["checksum"]) == ledger.checksum
    assert ledger.refused == ledger.discarded == player.session.outbox.dropped == 0


def test_a_learner_that_is_killed_is_replaced_and_no_row_is_missing(player):
    player.play(0.5)
    for _ in range(3):
        for pid in children_of(player.hives._embedded.pid) & set(processes(LEARNER)):
            os.kill(pid, signal.SIGKILL)
        before = player.version
        player.play(0.5)

        assert until(lambda before=before: player.version > before, 60)

    assert_all_is_there(player)


def test_a_server_that_is_killed_is_started_again_and_no_row_is_missing_or_there_twice(player):
    player.play(0.5)
    for _ in range(3):
        before, dead = player.version, player.hives._embedded.pid
        os.kill(dead, signal.SIGKILL)
        player.play(1.0)

        assert until(lambda before=before: player.version > before, 60)
        assert player.hives._embedded.pid != dead

    assert player.session.failure is None
    assert_all_is_there(player)


HOST = """
import os, sys, time
from pathlib import Path
sys.path.insert(0, {root!r})
from tests.integration.test_hive_faults import Player
player = Player("host", Path({folder!r}))
player.play(0.3)
if os.fork() == 0:
    time.sleep(60)
print(player.hives._embedded.pid, flush=True)
player.play(60)
"""


def test_a_host_that_is_killed_leaves_no_process_though_a_fork_of_it_lives(tmp_path):
    script = HOST.format(root=str(Path(__file__).parents[2]), folder=str(tmp_path))
    host = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    server = int(host.stdout.readline())
    learners, forked = children_of(server), children_of(host.pid) - {server}
    host.kill()
    host.wait()
    gone = until(
        lambda: not ({server} | learners) & set(processes(SERVER) + processes(LEARNER)), 30
    )
    for pid in forked:
        os.kill(pid, signal.SIGKILL)
    host.stdout.close()

    assert learners
    assert gone
