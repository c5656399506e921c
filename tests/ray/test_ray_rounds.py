"""Nodes are lost and added while a run trains: every acknowledged row is there, and once."""

import os
import shutil
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from functools import reduce
from operator import xor
from pathlib import Path

import numpy as np
import pytest
from ray.cluster_utils import Cluster
from tests.integration.command_line import GUESTS
from tests.integration.processes_alive import is_running
from tests.integration.stored_rows import stored_records
from tests.integration.test_rollout_workers import audited
from tests.ray.processes import below
from tests.waiting import eventually

from arkml import Limits, train
from arkml.hive.client import HiveClient
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.training.actors import placement_of

pytestmark = [pytest.mark.ray, pytest.mark.filterwarnings("ignore::ResourceWarning")]

ROUNDS = 20
NODES, ON_A_NODE = 3, 2
WORKERS = NODES * ON_A_NODE
NODE = {"num_cpus": ON_A_NODE, "object_store_memory": 80 << 20}
FPS = 10.0  # 64 agents in each of seven hosts: what two processors carry, beside the learner
LEARNER = {
    "hidden": 32, "batch_size": 64, "memory_min_size": 640, "memory_max_size": 8_000_000,
    "updates_per_row": 0.01,
}  # fmt: skip
PATIENCE = 180.0
PATIENT = Limits(run_seconds=60.0)  # a loaded machine may keep a guest for longer than a second
SHARED = Path("/dev/shm")


@pytest.fixture
def directory(monkeypatch):
    """A directory, in which `tmp` has the temporary files of all processes."""
    made = Path(tempfile.mkdtemp(prefix="rounds-", dir="/tmp"))  # short: Ray makes sockets there
    temporary = made / "tmp"
    temporary.mkdir()
    monkeypatch.setenv("TMPDIR", str(temporary))
    monkeypatch.setattr(tempfile, "tempdir", None)
    yield made
    shutil.rmtree(made)


@pytest.fixture
def cluster(monkeypatch, directory):
    assert Path(tempfile.gettempdir()).parent == directory  # of Ray's files, too
    monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
    head = {**NODE, "num_cpus": 0, "include_dashboard": False}
    made = Cluster(initialize_head=True, head_node_args=head)
    yield made
    made.shutdown()


class Life:
    """A worker program of the training, with what its events say."""

    def __init__(self, program, job):
        self._program = program
        self.number = job["worker"]
        self.pid = None
        self.sessions = []
        self.rows = 0

    def __getattr__(self, name):
        return getattr(self._program, name)

    def events(self):
        events = self._program.events()
        for event in events:
            match event["event"]:
                case "ready":
                    self.pid = event["pid"]
                case "joined":
                    self.sessions.append(event["index"])
                case "progress":
                    self.rows = event["rows"]
        return events


class Lives:
    """The place of the worker programs, which remembers all that it has started."""

    def __init__(self, placement):
        self._placement = placement
        self.all = []

    def start(self, module, job, name):
        self.all.append(Life(self._placement.start(module, job, name), job))
        return self.all[-1]

    def close(self, seconds=5.0):
        self._placement.close(seconds)

    @property
    def begun(self):
        """Without those that Ray has placed on a node before it knew that the node was lost."""
        return [life for life in self.all if life.pid is not None]

    @property
    def lost(self):
        return [life for life in self.begun if not life.is_alive and life.reason]

    def deliver(self, before):
        """Whether each place has a worker whose rows are more than those `before`, by life."""
        newest = {life.number: life for life in self.all}
        return len(newest) == WORKERS and all(
            life.rows > before.get(life, 0) for life in newest.values()
        )

    def rows(self):
        return {life: life.rows for life in self.all}


class Training:
    """A training on a thread, until it is told to end."""

    def __init__(self, monkeypatch, hive, cluster, directory):
        self._is_over = threading.Event()
        self._pool = ThreadPoolExecutor(1)
        self.lives = None

        def place(options):
            self.lives = Lives(placement_of(options))
            return self.lives

        monkeypatch.setattr("arkml.training.guest_trainer.placement_of", place)
        address = hive.locate()
        host, port, token = address.host, address.port, address.token
        self._result = self._pool.submit(
            train, GUESTS / "c_reach.wasm", minutes=600, fps=FPS, settings=LEARNER,
            directory=directory, hive=f"{host}:{port}", token=token, actors=1 + WORKERS,
            runner="ray", ray_address=cluster.address, progress=self._goes_on, limits=PATIENT,
        )  # fmt: skip

    def until(self, condition):
        """Wait for a condition, or raise what the training fails with."""
        eventually(lambda: self._result.done() or (self.lives and condition()), PATIENCE)
        if self._result.done():
            raise AssertionError(f"the training has ended: {self._result.result()}")

    def end(self):
        self._is_over.set()
        try:
            return self._result.result(PATIENCE)
        finally:
            self._pool.shutdown()

    def _goes_on(self, _):
        return not self._is_over.is_set()


class Logged:
    """The rows in the stored log of the only run of a hive."""

    def __init__(self, data):
        self._records = stored_records(data)
        self.checksum = reduce(
            xor,
            (checksum(row_hashes(r.session, r.header.kind, r.columns)) for r in self._records),
        )

    @property
    def rows(self):
        return sum(len(record.columns) for record in self._records)

    @property
    def sessions(self):
        return {record.session for record in self._records}

    def of(self, session):
        """The agents and the steps of a session's rows, in the order of their acknowledgement."""
        columns = [record.columns for record in self._records if record.session == session]
        return (
            np.concatenate([one.agent for one in columns]),
            np.concatenate([one.step for one in columns]),
        )


def assert_is_consecutive(agents, steps):
    """The rows of each agent are its steps from 0 on, in order, without a gap or a repetition."""
    order = np.argsort(agents, kind="stable")
    agents, steps = agents[order], steps[order]
    firsts = np.flatnonzero(np.append(True, agents[1:] != agents[:-1]))
    counts = np.diff(np.append(firsts, len(agents)))

    assert np.array_equal(steps, np.arange(len(steps)) - np.repeat(firsts, counts))


def assert_kept_once(lives, result, logged):
    """What each worker reported as acknowledged is in the log, exactly where it ended in order."""
    own = logged.sessions
    for life in lives:
        (session,) = life.sessions
        own.remove(session)
        agents, steps = logged.of(session)
        assert_is_consecutive(agents, steps)
        assert len(agents) == life.rows if life.status == 0 else len(agents) >= life.rows > 0
    (session,) = own  # that of the first worker, the host of the training
    agents, steps = logged.of(session)
    assert_is_consecutive(agents, steps)
    assert len(agents) == result.workers[0].rows


def test_rows_are_neither_lost_nor_doubled_while_nodes_come_and_go(
    cluster, directory, monkeypatch, record_testsuite_property
):
    own, shared = set(below(os.getpid())), set(SHARED.iterdir())
    nodes = [cluster.add_node(**NODE) for _ in range(NODES)]
    cluster.wait_for_nodes()
    recoveries, seen = [], set()
    with EmbeddedHive(directory / "hive") as hive, HiveClient(hive.locate) as client:
        training = Training(monkeypatch, hive, cluster, directory / "training")
        try:
            training.until(lambda: training.lives.deliver({}))
            lives = training.lives
            for number in range(ROUNDS):
                seen |= set(below(os.getpid()))
                began = time.monotonic()
                cluster.remove_node(nodes.pop(0), allow_graceful=False)
                lost = ON_A_NODE * (number + 1)
                training.until(lambda lost=lost: len(lives.lost) == lost)
                nodes.append(cluster.add_node(**NODE))
                before = lives.rows()
                training.until(lambda before=before: lives.deliver(before))
                recoveries.append(time.monotonic() - began)
            seen |= set(below(os.getpid()))
        finally:
            result = training.end()
        _, audit = audited(client, result.run_id)
        lost_rows = client.run(result.run_id).result().lost
    logged = Logged(hive.data)
    cluster.shutdown()
    record_testsuite_property("rows", logged.rows)
    record_testsuite_property("started", len(lives.all))
    record_testsuite_property("recoveries", " ".join(f"{seconds:.1f}" for seconds in recoveries))

    assert result.end_reason == "stopped"
    assert len(lives.lost) == ROUNDS * ON_A_NODE
    assert len(lives.begun) == ROUNDS * ON_A_NODE + WORKERS
    assert all("lost: its node" in life.reason for life in set(lives.all) - set(lives.begun))
    assert_kept_once(lives.begun, result, logged)
    assert (audit.held, audit.overwritten, lost_rows) == (logged.rows, 0, 0)
    assert int(audit.checksum) == logged.checksum
    assert result.rows == logged.rows
    seen |= {life.pid for life in lives.begun}
    eventually(lambda: not any(map(is_running, seen - own)))
    assert [path.name for path in (directory / "tmp").iterdir()] == ["ray"]
    assert set(SHARED.iterdir()) <= shared
