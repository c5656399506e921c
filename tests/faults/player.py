"""A host that takes part in a run without a guest, and what becomes of its rows and processes."""

import contextlib
import os
import signal
import threading
import time
from pathlib import Path

import numpy as np
from tests.children import children_of
from tests.waiting import PATIENCE, NotInTime, eventually

from arkml.abi.codes import EpisodeState
from arkml.batches import ROW, Batch
from arkml.errors import HiveRefused
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.runs import OnConflict, RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.noise import streams
from arkml.runs.hive_access import HiveAccess
from arkml.runs.membership import RunMembership

KILLS = int(os.environ.get("ARKML_FAULTS", "20"))
MINUTES = float(os.environ.get("ARKML_FAULTS_MINUTES", "10"))
"""How often a process is killed, and how long a hive runs flat out."""

FEATURES, ACTIONS, AGENTS = 4, 2, 32
SERVER, LEARNER = "arkml.server", "arkml.learning.worker"
SETTINGS = Settings(
    FEATURES, ACTIONS, hidden=32, batch_size=32, memory_min_size=200, memory_max_size=4_000_000,
    seed=3,
)  # fmt: skip
FRAME = 0.01
NO_WAIT = 0.5
"""Seconds that no submit takes, whatever happens to the hive, on a machine that is never late."""
LATE = 10
"""How many times as long as the machine let a sleep wait a submit may take beyond that."""


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


def learners_of(server):
    """The processes that learn, or wait to, for a server."""
    return set(children_of(server)) & set(processes(LEARNER))


def kill(pid, number=signal.SIGKILL):
    """End a process, if it has not ended by itself."""
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)


def learners_in(data):
    """The learners in the log of a hive's directory, oldest first: process, and updates so far."""
    found = []
    for line in (Path(data) / "hive.log").read_text().splitlines():
        if " learns on " in line:
            words = line.replace(",", "").split()
            found.append((int(words[-1]), int(words[words.index("from") + 1])))
    return found


class Player:
    """
    Takes part in a run with rows of its own, in drop mode.

    `longest` is its longest submit, `late` the most by which it slept for too long, in seconds.
    """

    def __init__(
        self, grant, name="faults", *, settings=SETTINGS, on_conflict=OnConflict.NUMBER, seconds=0
    ):
        self.hives = HiveAccess(grant)
        try:
            self.client = self.hives.client()
            request = RunRequest(name, "faults", settings, on_conflict=on_conflict, seconds=seconds)
            self.run = self.client.create(request).result()
            self.part = RunMembership(
                self.client, self.run, PolicyLibrary(ModelCache()), block=False, sync=False,
                loaders=self.hives.loaders, farewells=self.hives.farewells,
            )  # fmt: skip
            self.policy = self.part.policy()
        except BaseException:
            self.hives.close()
            raise
        self.session = self.part._session
        self.frames = 0
        self.longest = self.late = 0.0
        self.pause = FRAME
        self.reward = None
        self._ids = np.arange(1, AGENTS + 1, dtype=np.uint64)
        self._batch = Batch(
            np.zeros(AGENTS, ROW), np.zeros((AGENTS, FEATURES), "f4"),
            np.zeros((AGENTS, ACTIONS), "f4"), np.zeros(AGENTS, "f4"), np.zeros(AGENTS, np.uint64),
        )  # fmt: skip

    @property
    def version(self):
        return self.part.latest[0]

    @property
    def server(self):
        """The process of an embedded hive."""
        return self.hives._embedded.pid

    def act(self):
        """One submit of all agents; no episode ends."""
        rows, batch = self._batch.rows, self._batch
        rows["id"] = self._ids
        rows["state"] = EpisodeState.RUNNING if self.frames else EpisodeState.INITIAL
        rows["reward"] = rewards(self.frames) if self.reward is None else self.reward
        batch.features[:] = np.random.default_rng(self.frames).normal(size=(AGENTS, FEATURES))
        start = time.monotonic()
        self.policy.act(batch)
        self.longest = max(self.longest, time.monotonic() - start)
        self.frames += 1

    def play(self, seconds):
        """Act at 100 frames a second."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            self.act()
            self.rest(self.pause)

    def rest(self, seconds):
        """Sleep, and note how late the machine is."""
        start = time.monotonic()
        time.sleep(seconds)
        self.late = max(self.late, time.monotonic() - start - seconds)

    @property
    def waited(self):
        """The longest submit beside what none takes here, where other work is late as well."""
        return self.longest / (NO_WAIT + LATE * self.late)

    @contextlib.contextmanager
    def playing(self):
        """Act on another thread meanwhile; an error there is raised here at the end."""
        stop, errors = threading.Event(), []

        def work():
            try:
                while not stop.is_set():
                    self.play(0.1)
            except BaseException as error:  # noqa: BLE001  raised below
                errors.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        try:
            yield
        finally:
            stop.set()
            thread.join()
        if errors:
            raise errors[0]

    def gets_a_version(self, seconds=PATIENCE):
        """Wait for a version newer than the one that acts now."""
        before = self.version
        return eventually(lambda: self.version > before, seconds)

    def recovers(self, data, lives, seconds=PATIENCE):
        """
        Whether another learner than the first `lives` of a hive gives a new version in time.

        A version that its predecessor made just before it died would be no sign of life.
        """
        deadline = time.monotonic() + seconds
        eventually(lambda: len(learners_in(data)) > lives, seconds)
        return self.gets_a_version(deadline - time.monotonic())

    def settled(self):
        """Whether every row has arrived."""
        return self.session.settled + self.session.outbox.dropped >= AGENTS * self.frames

    def audit(self, held=None):
        """What the learner holds, once that is `held` rows, or any, or time is up."""
        return audit(self.client, self.run.id, held)

    def close(self, *, stop=True):
        self.part.leave(stop=stop)
        self.hives.close()


def audit(client, run_id, held=None, seconds=PATIENCE):
    """What the learner of a run holds, once that is `held` rows, or any, or time is up."""
    found = {}

    def is_read():
        # A learner that has just died is one that cannot answer yet.
        with contextlib.suppress(HiveRefused):
            found.update(client.memory(run_id).result().as_json())
        return found and held in (None, found["held"])

    with contextlib.suppress(NotInTime):  # the test compares it, and shows the difference
        eventually(is_read, seconds)
    return found


def rewards(frame):
    """What the agents get for a frame."""
    return (frame * 31 + np.arange(AGENTS)) % 101


def expected_checksum(seed, index, rows):
    """The checksum of the first rows of a player, by the seed of its policy and its session."""
    columns = RowColumns.empty(rows, FEATURES, ACTIONS)
    frames = -(-rows // AGENTS)
    ids = np.arange(1, AGENTS + 1, dtype=np.uint64)
    columns.agent[:] = np.tile(streams(seed, np.zeros(AGENTS, np.uint64), ids), frames)[:rows]
    columns.step[:] = np.repeat(np.arange(frames), AGENTS)[:rows]
    columns.reward[:] = np.concatenate([[]] + [rewards(frame) for frame in range(frames)])[:rows]
    return checksum(row_hashes(index, RowKind.TRAINING, columns))


def assert_all_is_there(*players):
    """What was acknowledged is in the learner's memory once, and nothing was given up."""
    for player in players:
        assert eventually(player.settled)
    held, total = 0, 0
    for player in players:
        ledger = player.session.ledger
        assert player.session.failure is None
        assert ledger.accepted == AGENTS * player.frames
        assert ledger.refused == ledger.discarded == player.session.outbox.dropped == 0
        held, total = held + ledger.accepted, total ^ ledger.checksum
    found = players[0].audit(held)

    assert found["held"] == held
    assert found["overwritten"] == 0
    assert int(found["checksum"]) == total
