"""The embedded hive: there when it is needed, and gone with its host however that ends."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import httpx
import pytest
from tests.children import children_of
from tests.integration.hive_service import SETTINGS, Service, request, start_hive
from tests.waiting import eventually

import arkml
from arkml.errors import HiveUnreachable
from arkml.hive.client import HiveClient
from arkml.hive.embedded import EmbeddedHive

ROOT = Path(arkml.__file__).parents[1]
TWO_LEARNERS = {"spare": True, "timeouts": {"spare": 0.0}}

HOST = """
import json, os, sys, time
from pathlib import Path
import httpx
from arkml.hive.embedded import EmbeddedHive

settings, request, fork = json.loads(sys.argv[1])
hive = EmbeddedHive(None, settings)
address = hive.locate()
host, port, token = address.host, address.port, address.token
headers = {"authorization": f"Bearer {token}"}
with httpx.Client(base_url=f"http://{host}:{port}/v1", headers=headers, timeout=300) as http:
    made = http.post("/runs", json=request).json()["run"]["id"]
    http.get(f"/runs/{made}/policy?after=0&wait=20")
forked = 0
if fork:
    forked = os.fork()
    if not forked:
        time.sleep(60)
        os._exit(0)
print(json.dumps({"hive": hive.pid, "data": str(hive.data), "forked": forked}), flush=True)
time.sleep(60)
"""


@pytest.fixture(autouse=True)
def forked_processes():
    """No fork is among the hives of this file."""


def is_alive(pid):
    """Whether a process runs; one that only waits to be asked for its status does not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.fixture
def hive(tmp_path):
    with start_hive(tmp_path / "data", spare=True) as made:
        yield made


@pytest.fixture
def start_host():
    """A factory of hosts with an embedded hive; what they left is killed at the end."""
    started = []

    def start(*, fork=False, learner=None):
        settings = {**SETTINGS, **TWO_LEARNERS, **({"learner": learner} if learner else {})}
        process = subprocess.Popen(
            [sys.executable, "-c", HOST, json.dumps([settings, request(), fork])],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parents[2]}"},
        )
        started.append(process)
        told = json.loads(process.stdout.readline())
        return process, told

    yield start
    for process in started:
        process.kill()
        process.stdout.close()
        process.wait()


def test_it_answers_on_loopback_to_whoever_has_its_token(hive):
    address = hive.locate()
    host, port, token = address.host, address.port, address.token
    url = f"http://{host}:{port}/v1/runs"
    with httpx.Client(trust_env=False) as http:
        known = http.get(url, headers={"authorization": f"Bearer {token}"})
        unknown = http.get(url)

    assert host == "127.0.0.1"
    assert (known.status_code, unknown.status_code) == (200, 401)


def test_its_token_is_in_no_argument_and_no_variable(hive):
    token = hive.locate().token.encode()
    seen = [
        Path(f"/proc/{pid}/{name}").read_bytes()
        for pid in (hive.pid, *children_of(hive.pid))
        for name in ("cmdline", "environ")
    ]

    assert not any(token in text for text in seen)


def test_locating_it_again_finds_the_same_one(hive):
    first, pid = hive.locate(), hive.pid

    assert hive.locate() == first
    assert hive.pid == pid


def test_many_threads_start_one(hive):
    found = []
    threads = [threading.Thread(target=lambda: found.append(hive.locate())) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(found) == 8
    assert len(set(found)) == 1


def test_it_outlives_the_thread_that_started_it(hive):
    starter = threading.Thread(target=hive.locate)
    starter.start()
    starter.join()
    service = Service(hive)
    answers = [service.get("/health").status_code for _ in range(3)]
    service.close()

    assert answers == [200] * 3
    assert not hive.is_dead


def test_it_is_started_again_on_the_same_directory(hive):
    service = Service(hive)
    run_id = service.create()
    first = hive.pid
    os.kill(first, signal.SIGKILL)
    eventually(lambda: hive.is_dead)
    service.close()
    service.connect()
    found = service.run(run_id)
    service.close()

    assert found["id"] == run_id
    assert hive.pid != first


def test_it_has_a_process_group_of_its_own_so_that_ctrl_c_is_for_the_host(hive):
    hive.locate()

    assert os.getpgid(hive.pid) == hive.pid


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has priorities of threads")
def test_frames_go_before_the_hive_and_before_learners(tmp_path):
    """Linux may compare the priorities of one session's processes only: theirs is the host's."""
    own = os.getpriority(os.PRIO_PROCESS, os.getpid())
    with EmbeddedHive(tmp_path, {"spare": True}) as hive:
        starter = threading.Thread(target=lambda: (os.nice(5), hive.locate()))  # as a client's is
        starter.start()
        starter.join()
        learner = eventually(lambda: next(iter(children_of(hive.pid)), None))
        for pid, steps in ((hive.pid, 5), (learner, 10)):
            niceness = min(19, own + steps)
            eventually(lambda: os.getpriority(os.PRIO_PROCESS, pid) == niceness)  # noqa: B023
            assert os.getsid(pid) == os.getsid(0)
        assert os.getpgid(learner) == learner


def test_closing_it_ends_everything_and_removes_a_temporary_directory():
    hive = EmbeddedHive(None, {**SETTINGS, **TWO_LEARNERS})
    service = Service(hive)
    service.create()
    data, pid = hive.data, hive.pid
    processes = eventually(lambda: len(found := children_of(pid)) >= 2 and found)
    service.close()
    hive.close()
    hive.close()

    assert not data.exists()
    assert [one for one in (pid, *processes) if is_alive(one)] == []
    with pytest.raises(HiveUnreachable, match="closed"):
        hive.locate()


def test_a_training_of_some_seconds_does_not_start_a_learner_that_nobody_takes(tmp_path):
    learners = {}
    for seconds in (3_600.0, 0.0):
        with start_hive(tmp_path / f"{seconds}", spare=True, timeouts={"spare": seconds}) as hive:
            service = Service(hive)
            policy = f"/runs/{service.create()}/policy?after=0&wait=1"
            eventually(lambda one=service, path=policy: one.get(path).status_code == 200)
            if not seconds:
                eventually(lambda hive=hive: len(children_of(hive.pid)) == 2)
            learners[seconds] = len(children_of(hive.pid))
            service.close()

    assert learners == {3_600.0: 1, 0.0: 2}


def test_one_that_is_closed_while_it_starts_is_not_waited_for(tmp_path):
    hive, errors = start_hive(tmp_path / "data"), []

    def locate():
        try:
            hive.locate()
        except HiveUnreachable as error:
            errors.append(str(error))

    starter = threading.Thread(target=locate)
    starter.start()
    pid = eventually(lambda: hive.pid)
    os.kill(pid, signal.SIGSTOP)  # it never says where it is
    hive.close()
    starter.join()

    assert errors == ["the embedded hive does not start: it was closed meanwhile"]
    assert not is_alive(pid)


FORK = """
import json, os, sys
from arkml.hive.embedded import EmbeddedHive

with EmbeddedHive(None, json.loads(sys.argv[1])) as hive:
    hive.locate()
    forked = os.fork()
    if not forked:
        hive.close()
        os._exit(0)
    os.waitpid(forked, 0)
    print(json.dumps([hive.is_dead, hive.data.exists()]))
"""


def test_a_fork_that_closes_it_leaves_it_to_the_host():
    done = subprocess.run(
        [sys.executable, "-c", FORK, json.dumps(SETTINGS)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": f"{ROOT}{os.pathsep}{Path(__file__).parents[2]}"},
        timeout=300,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [False, True]


def test_a_directory_that_was_given_stays_with_everything_in_it(tmp_path):
    with start_hive(tmp_path / "data") as hive:
        service = Service(hive)
        run_id = service.create()
        sid = service.sid(run_id)
        service.wait_for_status(run_id, "running")
        service.close()
    with start_hive(tmp_path / "data") as again:
        service = Service(again)
        found = service.post(f"/sessions/{sid}/beat").status_code
        checkpoints = service.get(f"/runs/{run_id}/checkpoints").json()["checkpoints"]
        service.close()

    assert found == 200
    assert checkpoints


def test_one_that_cannot_start_says_why(tmp_path):
    (tmp_path / "data").write_text("a file")
    wrong = start_hive(tmp_path / "other", nonsense=1)

    with pytest.raises(HiveUnreachable, match=r"does not start: .*data"):
        start_hive(tmp_path / "data").locate()
    with wrong, pytest.raises(HiveUnreachable, match=r"does not start: .*'nonsense'"):
        wrong.locate()


def test_its_children_hold_no_file_of_the_host(hive, tmp_path):
    secret = tmp_path / "secret"
    secret.write_text("open in the host")
    with secret.open() as file:
        os.set_inheritable(file.fileno(), True)
        hive.locate()
        held = [
            path.resolve()
            for pid in (hive.pid, *children_of(hive.pid))
            for path in Path(f"/proc/{pid}/fd").iterdir()
        ]

    assert secret not in held


@pytest.mark.parametrize("fork", [False, True], ids=["alone", "with a fork alive"])
def test_everything_is_gone_soon_after_the_host_was_killed(start_host, fork):
    host, told = start_host(fork=fork)
    processes = eventually(lambda: len(found := children_of(told["hive"])) >= 2 and found)
    everything = (told["hive"], *processes)
    host.kill()
    host.wait()
    eventually(lambda: not any(is_alive(pid) for pid in everything), 300)
    if told["forked"]:
        os.kill(told["forked"], signal.SIGKILL)

    assert not Path(told["data"]).exists()


def test_a_learner_that_ignores_everything_is_gone_too(start_host, tmp_path):
    deaf = tmp_path / "deaf.py"
    deaf.write_text(
        "import signal\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "from tests.integration import fake_learner\n"
        "fake_learner.FakeLearner.handle = lambda self, message: None\n"
        "fake_learner.main()\n"
    )
    host, told = start_host(learner=[str(deaf)])
    everything = (told["hive"], *children_of(told["hive"]))
    host.kill()
    host.wait()

    assert eventually(lambda: not any(is_alive(pid) for pid in everything), 300)


@pytest.mark.parametrize(
    ("place", "sentence"),
    [
        ("file/data", "cannot use its directory .*file/data: Not a directory"),
        ("file", "cannot use its directory .*file: File exists"),
        ("data", "does not start: the data directory .*data: it cannot be used"),
        ("piped", "cannot use its directory .*piped: hive.log: it is not a plain file"),
    ],
)
def test_a_hive_whose_directory_cannot_be_used_says_so_to_whoever_asks(tmp_path, place, sentence):
    (tmp_path / "file").touch()
    (tmp_path / "data" / "lock").mkdir(parents=True)
    (tmp_path / "piped").mkdir()
    os.mkfifo(tmp_path / "piped" / "hive.log")
    hive = start_hive(tmp_path / place)

    with hive, HiveClient(hive.locate) as client:
        with pytest.raises(HiveUnreachable, match=sentence):
            hive.locate()
        with pytest.raises(HiveUnreachable, match=sentence):
            client.health().result(300)


TEMPORARY = """
import sys
from arkml.hive.embedded import EmbeddedHive

hive = EmbeddedHive(None, {"spare": False})
hive.locate()
print(hive.pid, hive.data, flush=True)
sys.stdin.read()
hive.close()
"""


@pytest.fixture
def temporary(tmp_path):
    """A factory of hosts with a temporary hive, below a directory for temporary files."""
    hosts = []
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}

    def start():
        command = [sys.executable, "-c", TEMPORARY]
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
        hosts.append(subprocess.Popen(command, env=environment, **pipes))
        pid, data = hosts[-1].stdout.readline().split()
        return hosts[-1], int(pid), Path(data)

    yield start
    for host in hosts:
        host.kill()
        host.communicate()


def test_the_directory_of_a_killed_host_is_removed_at_the_next_start(temporary):
    killed, pid, left = temporary()
    _, _, used = temporary()
    os.kill(pid, signal.SIGKILL)  # before the host, or it would clean up
    killed.kill()
    killed.wait()
    had_been_left = left.exists()
    last, _, own = temporary()
    remained = [left.exists(), used.exists(), own.exists()]
    last.communicate("")

    assert had_been_left
    assert remained == [False, True, True]
    assert not own.exists()


def test_a_young_directory_that_has_no_lock_yet_is_left_alone(temporary, tmp_path):
    young, old = tmp_path / "arkml-hive-young", tmp_path / "arkml-hive-old"
    for path in (young, old):
        path.mkdir()
    os.utime(old, (1, 1))
    (tmp_path / "arkml-hive-link").symlink_to(tmp_path / "arkml-hive-young")
    temporary()

    assert young.exists()
    assert (tmp_path / "arkml-hive-link").is_symlink()
    assert not old.exists()
