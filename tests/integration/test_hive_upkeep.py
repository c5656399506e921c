"""A hive that is backed up while it serves, restored, upgraded, and ended in order."""

import contextlib
import http.client
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
from functools import partial
from pathlib import Path

import httpx
import numpy as np
import pytest
from tests.integration.command_line import ENVIRONMENT, ROOT, arkml
from tests.integration.hive_service import Service, rows, start_hive
from tests.waiting import eventually

from arkml.hive.protocol.audit import checksum, row_hashes
from arkml.hive.protocol.rows import RowColumns
from arkml.server.access.callers import AccessRole
from arkml.server.access.token_file import TokenFile
from arkml.server.backup import write_backup
from arkml.server.restore import restore_backup
from arkml.server.upgrade import DATA_VERSION, STEPS

LEARNER = {"learner": ["-m", "arkml.learning.worker"]}
SMALL = {"hidden": 16, "batch_size": 16}
WRITTEN = ROOT / "fixtures" / "hive"
BODY = 40


def served(data, **settings):
    """A hive and requests to it, that are closed at the end."""
    return contextlib.closing(Served(data, settings))


class Served(Service):
    def __init__(self, data, settings):
        super().__init__(start_hive(data, **settings))

    def close(self):
        super().close()
        self.hive.close()


def audit(service, run_id):
    """The audit of a learner that has read everything, None while there is none."""
    found = service.get(f"/runs/{run_id}/memory")
    told = found.json() if found.status_code == 200 else None
    return told if told and told["cursor"] == told["committed"] else None


def body_rows(session, seq):
    columns = rows(BODY, BODY * (seq - 1))
    columns.features[:] += session
    return columns


class Sender(threading.Thread):
    """Sends bodies of rows to a run until it is stopped, as one session."""

    def __init__(self, service, run_id, number):
        super().__init__()
        self.acked = 0
        self.key = f"sender-{number:04}"
        self._number = number
        self._service = service
        self._sid = service.sid(run_id, self.key)
        self._stop_sending = threading.Event()

    def run(self):
        while not self._stop_sending.is_set():
            columns = body_rows(self._number, self.acked + 1)
            answer = self._service.push(self._sid, columns, self.acked + 1)
            assert answer.status_code == 200, answer.text
            self.acked = answer.json()["acked"]

    def stop(self):
        self._stop_sending.set()
        self.join()


def expected_checksum(bodies):
    """The checksum of the first bodies of each session, by its index."""
    total = 0
    for index, count in bodies.items():
        for seq in range(1, count + 1):
            total ^= checksum(row_hashes(index, 0, body_rows(index, seq)))
    return total


@pytest.mark.learns
def test_a_backup_that_is_made_while_rows_are_sent_has_all_that_was_acknowledged(tmp_path):
    before = []
    with served(tmp_path / "data") as service:
        run_id = service.create()
        senders = [Sender(service, run_id, number) for number in range(3)]
        for sender in senders:
            sender.start()
        for number in range(5):
            least = senders[0].acked + 20
            eventually(lambda least=least: senders[0].acked > least)
            before.append([sender.acked for sender in senders])
            write_backup(tmp_path / "data", tmp_path / f"{number}.tar")
            if number == 2:
                late = Sender(service, run_id, len(senders))
                late.start()
                senders.append(late)
        for sender in senders:
            sender.stop()
    found = []
    for number in range(5):
        data = tmp_path / f"restored-{number}"
        restore_backup(tmp_path / f"{number}.tar", data)
        with served(data) as service:
            known = [service.join(run_id, sender.key).json() for sender in senders]
            newcomer = service.join(run_id, "a newcomer").json()
            told = eventually(lambda service=service: audit(service, run_id))
            found.append((known, newcomer, told, service.run(run_id)))

    for acked, (known, newcomer, told, info) in zip(before, found, strict=True):
        bodies = {int(index): one["acked"] for index, one in told["sessions"].items()}
        assert all(bodies[index] >= count for index, count in enumerate(acked))
        assert told["held"] == info["rows"] == BODY * sum(bodies.values())
        assert told["checksum"] == expected_checksum(bodies)
        assert info["lost"] == 0
        assert [one["index"] for one in known] == list(range(len(senders)))
        assert newcomer["index"] == len(senders)
        assert newcomer["acked"] == 0


def beating(service, sid, run_id):
    """The run, whose host shows that it is there: a learner may be long in coming."""
    service.post(f"/sessions/{sid}/beat")
    return service.run(run_id)


@pytest.mark.learns
def test_a_restored_run_resumes_and_learns(tmp_path):
    with served(tmp_path / "data", **LEARNER) as service:
        run_id = service.create(settings=SMALL)
        sid = service.sid(run_id, "a-join-key")
        for seq in range(1, 6):
            service.push(sid, rows(BODY, BODY * (seq - 1)), seq)
        eventually(lambda: beating(service, sid, run_id)["n_opts"] > 0)
        saved = service.post(f"/runs/{run_id}/checkpoints").json()["checkpoint"]
        archive = tmp_path / "hive.tar"
        made = arkml("hive", "backup", tmp_path / "data", "-o", archive, "--json")
    restored = tmp_path / "restored"
    told = arkml("hive", "restore", archive, "--data", restored, "--json")
    with served(restored, **LEARNER) as service:
        joined = service.join(run_id, "a-join-key").json()
        service.wait_for_status(run_id, "running")
        began = service.run(run_id)
        for seq in range(6, 12):
            service.push(joined["sid"], rows(BODY, BODY * (seq - 1)), seq)
        saved_updates = int(saved.rpartition("@")[2])
        now = partial(beating, service, joined["sid"], run_id)
        learns = eventually(lambda: now()["n_opts"] > saved_updates + 100)
        version = eventually(lambda: now()["policy_version"] > began["policy_version"])
        held = eventually(lambda: audit(service, run_id))["held"]

    assert made.status == told.status == 0
    assert made.json["runs"] == told.json["runs"] == [run_id]
    assert made.json["bytes"] == archive.stat().st_size
    assert joined["sid"] == sid
    assert joined["acked"] == 5
    assert learns
    assert version
    assert held == 11 * BODY


def test_the_commands_say_what_they_did_or_why_not(tmp_path):
    with served(tmp_path / "data") as service:
        service.create()
    TokenFile(tmp_path / "data").add("alice", AccessRole.ACT, None)
    archive, restored = tmp_path / "hive.tar", tmp_path / "new one"
    made = arkml("hive", "backup", tmp_path / "data", "-o", archive)
    told = arkml("hive", "restore", archive, "--data", restored)
    again = arkml("hive", "restore", archive, "--data", restored)
    nowhere = arkml("hive", "backup", "127.0.0.1:12356", "-o", archive)
    lost = arkml("hive", "backup", tmp_path / "data", "-o", tmp_path / "gone" / "hive.tar")
    other = arkml("hive", "restore", ROOT / "README.md", "--data", tmp_path / "other", "--json")

    assert (made.status, made.err) == (0, "")
    assert made.out.startswith(f"{archive}: 1 run, ")
    assert lost.status == 2
    assert f"{tmp_path}/gone/hive.tar cannot be written: {tmp_path}/gone is no direct" in lost.err
    assert told.status == 0
    assert "1 token of the backup is valid there" in told.err
    assert told.err.endswith(f": alice; arkml hive token revoke NAME --data '{restored}'\n")
    assert told.out.startswith(f"{restored}: 1 run, ")
    assert again.status == nowhere.status == other.status == 2
    assert "is not empty: restore into a new directory" in again.err
    assert "127.0.0.1:12356 is not a directory: name the data directory" in nowhere.err
    assert "README.md is not a whole backup of a hive: it has no header" in other.json["error"]
    assert not (tmp_path / "other").exists()


def test_there_is_data_of_each_earlier_version():
    assert sorted(path.name for path in WRITTEN.iterdir()) == [f"version_{n}" for n in STEPS]


@pytest.mark.learns
@pytest.mark.parametrize("version", STEPS)
def test_data_of_an_earlier_release_is_upgraded_in_place_and_learned_from(tmp_path, version):
    data = tmp_path / "data"
    shutil.copytree(WRITTEN / f"version_{version}", data)
    (run,) = (data / "runs").iterdir()
    before = (run / "run.json").read_bytes()
    was = json.loads(before)
    with served(data, **LEARNER) as service:
        info = service.run(run.name)
        metrics = service.get(f"/runs/{run.name}/metrics").json()["metrics"]
        histograms = service.get(f"/runs/{run.name}/histograms").json()["histograms"]
        policy = service.get(f"/runs/{run.name}/snapshot?which=latest")
        widths = info["features"], info["actions"]
        sid = service.join(run.name, "a-join-key", features=3, actions=1).json()["sid"]
        service.wait_for_status(run.name, "running")
        columns = RowColumns.empty(400, *widths)
        columns.agent[:] = 1
        columns.step[:] = np.arange(400)
        service.push(sid, columns, 1)
        learns = eventually(lambda: service.run(run.name)["n_opts"] > was["n_opts"])
        held = eventually(lambda: audit(service, run.name))["held"]
    after = json.loads((run / "run.json").read_bytes())

    assert (info["status"], info["rows"], info["n_opts"]) == ("stopped", was["rows"], was["n_opts"])
    assert info["lost"] == 0
    assert {name for name, *_ in metrics} >= {"rollout/ep_rew_mean", "train/critic_loss"}
    assert len(histograms) == (4 if version > 1 else 0)
    assert policy.status_code == 200
    assert learns
    assert held == was["rows"] + 400
    assert after["version"] == DATA_VERSION
    assert (run / f"version-{version}" / "run.json").read_bytes() == before


RUNS = 3


def poll(service, run_id):
    """A connection on which a poll for a policy was sent, and not answered."""
    address = httpx.URL(service.base)
    waiting = http.client.HTTPConnection(address.host, address.port, timeout=300)
    headers = {"authorization": f"Bearer {service.token}"}
    waiting.request("GET", f"/v1/runs/{run_id}/policy?after=4000000000&wait=25", headers=headers)
    service.run(run_id)  # which the hive answers after it has read the poll
    return waiting


@pytest.mark.learns
def test_a_hive_with_several_learners_ends_in_order(tmp_path):
    patient = {"stop": 60.0}  # learners give way to whatever else runs in this session
    with served(tmp_path / "data", timeouts=patient, **LEARNER) as service:
        ids = [service.create(f"run {number}") for number in range(RUNS)]
        senders = [Sender(service, run_id, number) for number, run_id in enumerate(ids)]
        for sender in senders:
            sender.start()
        for run_id in ids:
            eventually(lambda run_id=run_id: service.run(run_id)["n_opts"] > 0)
        polls = [poll(service, run_id) for run_id in ids]
        for sender in senders:
            sender.stop()
        pid = service.hive.pid
        os.kill(pid, signal.SIGTERM)
        eventually(lambda: service.hive.is_dead)
        answers = [waiting.getresponse().status for waiting in polls]
        for waiting in polls:
            waiting.close()
        directories = [tmp_path / "data" / "runs" / run_id for run_id in ids]
        documents = [json.loads((path / "run.json").read_bytes()) for path in directories]
        saved = [sorted(path.glob("checkpoints/*.safetensors")) for path in directories]
        log = (tmp_path / "data" / "hive.log").read_text()
        status = service.hive._process.returncode

    assert status == 0
    assert answers == [204] * RUNS
    assert [int(files[-1].stem) for files in saved] == [one["n_opts"] for one in documents]
    assert all(one["n_opts"] > 0 and one["status"] == "running" for one in documents)
    assert "exits now" not in log
    assert not Path(f"/proc/{pid}").exists()


def test_a_hive_whose_learners_do_not_stop_ends_all_the_same(tmp_path):
    with served(tmp_path / "data") as service:
        ids = [service.create(f"run {number}", misbehavior="waits") for number in range(RUNS)]
        for run_id in ids:
            directory = tmp_path / "data" / "runs" / run_id
            for word in ("hello", "policy"):
                (directory / word).touch()
            service.wait_for_status(run_id, "running")
        os.kill(service.hive.pid, signal.SIGTERM)
        eventually(lambda: service.hive.is_dead)
        status = service.hive._process.returncode

    assert status == 0


def test_a_service_that_hangs_at_its_end_ends_with_its_process():
    code = "import threading; from arkml.server.hive_service import _exit_unless as wait"
    hung = subprocess.run(
        [sys.executable, "-c", f"{code}; wait(threading.Event(), 0.01); print('it goes on')"],
        capture_output=True, text=True, env=ENVIRONMENT, check=False,
    )  # fmt: skip
    ended = subprocess.run(
        [sys.executable, "-c", f"{code}; e = threading.Event(); e.set(); wait(e, 60)"],
        capture_output=True, text=True, env=ENVIRONMENT, check=False,
    )  # fmt: skip

    assert (hung.returncode, hung.stdout) == (1, "")
    assert "has not ended within 0.01 s, so its process exits now" in hung.stderr
    assert (ended.returncode, ended.stderr) == (0, "")
