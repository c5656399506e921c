"""Remote workers that a hive places on a Ray cluster of its machine."""

import os
import signal
from pathlib import Path

import pytest
from tests.faults.player import processes
from tests.integration.command_line import GUESTS
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.hive.client import HiveClient
from arkml.hive.embedded import EmbeddedHive

pytestmark = pytest.mark.ray

WORKER = "arkml.training.rollout_worker"
LEARNER = {"hidden": 32, "batch_size": 32, "memory_min_size": 200}


@pytest.fixture
def hive(tmp_path):
    with EmbeddedHive(tmp_path / "data", {"workers": {"total": 2, "runner": "ray"}}) as made:
        yield made


@pytest.fixture
def client(hive):
    with HiveClient(hive.locate) as made:
        yield made


def own_processes(word, hive):
    """The processes with a word in their command line whose ancestor is the hive."""
    return [pid for pid in processes(word) if hive.pid in ancestors(pid)]


def ancestors(pid):
    found = []
    while pid > 1:
        try:
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            break
        pid = int(fields[1])
        found.append(pid)
    return found


def test_workers_on_ray_play_in_the_run_are_replaced_and_end_with_it(hive, client):
    address = hive.locate()
    host, port, token = address.host, address.port, address.token
    grant = HiveGrant(
        f"{host}:{port}", token=token, upload_modules=True, settings=LEARNER, wait_for_learner=True
    )

    def run():
        return next(iter(client.runs().result()), None)

    with Host(hive=grant) as made:
        guest = made.load(GUESTS / "c_reach_workers.wasm")

        def has_joined(sessions):
            guest.update()
            return (known := run()) is not None and known.sessions >= sessions

        eventually(lambda: has_joined(3), 120)
        killed = own_processes(WORKER, hive)[0]
        os.kill(killed, signal.SIGKILL)
        eventually(lambda: has_joined(4), 120)  # the lease of the dead one lasts a while
        details = client.details(run().id).result()
    stopped = client.stop(run().id).result()

    assert sorted(worker.incarnation for worker in details.workers) == [0, 1]
    assert any("SIGKILL" in worker.reason for worker in details.workers)
    assert (stopped.status, stopped.workers) == ("stopped", 0)
    assert eventually(lambda: not own_processes(WORKER, hive))
