"""The cluster of a process is its own, and leaves nothing."""

import os
import re
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from tests.integration.actor_parts import Inbox, Plan, assert_loses_a_message_at_most, job
from tests.integration.command_line import ENVIRONMENT, ROOT
from tests.integration.processes_alive import is_running
from tests.ray.processes import addresses, below, command
from tests.waiting import eventually

import arkml
from arkml.async_trainer.runners.ray import RayRunner
from arkml.errors import Unavailable, UsageError
from arkml.workers.ray_cluster import RayCluster

pytestmark = pytest.mark.ray
LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F", "00000000000000000000000001000000"}
SHARED = Path("/dev/shm")


def directories():
    """The directories of clusters: in the temporary directory, or for its long name in /tmp."""
    places = {Path(tempfile.gettempdir()), Path("/tmp")}
    return {path for place in places for path in place.glob("arkml-ray-*")}


def test_the_own_cluster_listens_on_loopback_only_and_has_no_dashboard(own_cluster):
    handle = own_cluster.place("collections:Counter")
    assert own_cluster.ray.get(handle.begin.remote()) == ""
    processes = [pid for pid in below(os.getpid()) if is_running(pid)]
    commands = [command(pid) for pid in processes]

    assert any("gcs_server" in one for one in commands)
    assert any("raylet" in one for one in commands)
    assert not any("dashboard.py" in one for one in commands)
    assert addresses([os.getpid(), *processes])
    assert addresses([os.getpid(), *processes]) <= LOOPBACK


def test_a_token_is_needed_that_is_not_in_a_command_line(own_cluster):
    address = own_cluster.ray.get_runtime_context().gcs_address
    join = f"import ray; ray.init({address!r}, log_to_driver=False)"
    run = subprocess.run(
        [sys.executable, "-c", join], capture_output=True, text=True, check=False,
        env={**ENVIRONMENT, "PYTHONWARNINGS": "", "RAY_AUTH_MODE": "token",
             "RAY_AUTH_TOKEN": "f" * 32, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"},
        timeout=120,
    )  # fmt: skip

    assert run.returncode != 0
    assert re.search("token|[Aa]uthenticat", run.stderr)


def test_a_target_that_a_node_cannot_import_is_a_sentence(own_cluster):
    handle = own_cluster.place("no_such_module:Thing")

    assert own_cluster.ray.get(handle.begin.remote()) == (
        "ModuleNotFoundError: No module named 'no_such_module'"
    )


@pytest.mark.usefixtures("own_cluster")
def test_another_version_of_the_package_is_refused_and_both_are_named(monkeypatch):
    monkeypatch.setattr("arkml.workers.ray_cluster.RELEASE", "9.9.9")
    with RayRunner() as runner:
        runner.start(job())
        runner.publish(0, 0)

        with pytest.raises(Unavailable) as refused:
            Inbox(runner).until(lambda seen: seen.ended)
    assert "arkml 9.9.9" in str(refused.value)
    assert f"arkml {arkml.__version__}" in str(refused.value)


@pytest.mark.usefixtures("own_cluster")
def test_a_second_cluster_beside_the_own_one_is_refused():
    with pytest.raises(
        UsageError, match=r"a Ray cluster of its own, and cannot use .* 10\.0\.0\.1"
    ):
        RayCluster.open("10.0.0.1:6379")


@pytest.mark.usefixtures("own_cluster")
def test_classes_that_pickle_cannot_take_travel():
    class Local(Plan):
        pass

    with RayRunner() as runner:
        runner.start(job(plan=Local(), n_buffer=5))
        runner.publish(0, 0)
        inbox = Inbox(runner).until(lambda seen: seen.messages)

    assert inbox.items()[0] == (0, 1, 0)


@pytest.mark.usefixtures("own_cluster")
def test_a_killed_actor_loses_a_message_at_most_and_never_half_of_one(tmp_path):
    reports = tmp_path / "reports"
    with RayRunner() as runner:
        for actor in range(2):
            runner.start(job(actor, plan=Plan(reports=str(reports), counts=str(tmp_path))))
        runner.publish(0, 0)
        inbox = Inbox(runner).until(lambda seen: min(len(seen.items(n)) for n in (0, 1)) > 200)
        for pid in reports.read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        inbox.until(lambda seen: len(seen.ended) == 2)

    for ended in inbox.ended:
        assert_loses_a_message_at_most(inbox, ended.actor, tmp_path)
        assert f"actor {ended.actor} on the Ray cluster was lost: its process" in ended.reason


@pytest.mark.parametrize("act", ["", "start a process"])
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
def test_a_killed_parent_leaves_no_process_and_no_file(number, act, tmp_path):
    before, shared = directories(), set(SHARED.iterdir())
    with subprocess.Popen(
        [sys.executable, "-m", "tests.integration.actor_parent", "ray", act, tmp_path / "reports"],
        stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, cwd=ROOT,
        env={**ENVIRONMENT, "RAY_ADDRESS": "127.0.0.1:1"},  # which is not read
    ) as parent:  # fmt: skip
        assert parent.stdout.readline() == b"they play\n"
        processes, made = below(parent.pid), directories() - before
        parent.send_signal(number)

    assert len(made) == 1
    assert len(processes) > 5
    eventually(lambda: not any(map(is_running, processes)), 60.0)
    eventually(lambda: not made & directories(), 60.0)
    left = set(SHARED.iterdir()) - shared  # other programs have files there, too
    eventually(lambda: not left & set(SHARED.iterdir()), 60.0)


TRAPS = """
import arkml
from arkml.workers.ray_cluster import RayCluster

GUEST = b'''(module (memory 1)
  (func (export "stop") unreachable)
  (func (export "read") (drop (i32.load (i32.const 0x7fffffff))))
  (func (export "divide") (param i32) (drop (i32.div_s (i32.const 1) (local.get 0)))))'''

def trap():
    with arkml.Host() as host:
        for call in (("stop",), ("read",), ("divide", 0)):
            try:
                host.load(GUEST).call(*call)
            except arkml.GuestTrap as error:
                print(error.code)

trap()
with RayCluster.open():
    trap()
trap()
"""


def test_guests_trap_as_before_in_a_process_that_joins_a_cluster_after_their_host():
    done = subprocess.run(
        [sys.executable, "-c", TRAPS], cwd=ROOT, env=ENVIRONMENT, capture_output=True, text=True,
        check=False,
    )  # fmt: skip

    assert done.returncode == 0, done.stderr
    codes = ["unreachable", "memory out of bounds", "integer division by zero"]
    assert done.stdout.splitlines() == 3 * codes
