"""`arkml train` that is ended: by signals, by a terminal that closes, by a hive that is gone."""

import json
import os
import pty
import re
import signal
import subprocess
import sys
import threading
from contextlib import suppress

import onnxruntime
import pytest
from tests.children import children_of
from tests.integration.command_line import ENVIRONMENT, GUESTS, ROOT, start
from tests.integration.test_embedded_hive import is_alive
from tests.waiting import eventually

pytestmark = pytest.mark.learns

REACH = GUESTS / "c_reach.wasm"
QUICK = {"algorithm": "drawn", "hidden": 32, "batch_size": 64, "memory_min_size": 640}
LONG = 60.0
FILES = {
    "c_reach.onnx",
    "c_reach.last.onnx",
    "c_reach.crvo",
    "learning_curve.png",
    "training.json",
}


@pytest.fixture
def config(tmp_path):
    path = tmp_path / "quick.json"
    path.write_text(json.dumps(QUICK))
    return path


class Training:
    """A process that trains without evaluations; what it says is read as it comes."""

    def __init__(self, config, out, *words, ignored=(), **options):
        names = " ".join(signal.Signals(number).name[3:] for number in ignored)
        trap = f"trap '' {names}; " if names else ""
        command = [
            sys.executable, "-m", "arkml", "train", REACH, "--config", config, "--out", out,
            "--eval-every", "never",
        ]  # fmt: skip
        self.out = out
        self.err = ""
        self.process = subprocess.Popen(
            ["sh", "-c", f'{trap}exec "$@"', "sh", *map(str, (*command, *words))],
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT,
            **{"env": ENVIRONMENT, **options},
        )  # fmt: skip
        self._reader = threading.Thread(target=self._read)
        self._reader.start()

    def _read(self):
        for line in self.process.stderr:
            self.err += line

    def wait_until_it_learns(self, data=None):
        policies = (data or self.out / "hive") / "runs"
        eventually(lambda: list(policies.glob("*/policies/*3.onnx")), LONG)

    def says(self, text):
        eventually(lambda: text in self.err, LONG)

    def ended(self):
        """Its status and what it printed."""
        out = self.process.stdout.read()
        status = self.process.wait(LONG)
        self._reader.join()
        return status, out

    def close(self):
        self.process.kill()
        self.process.wait()
        self._reader.join()
        self.process.stdout.close()
        self.process.stderr.close()


@pytest.fixture
def train(config, tmp_path):
    """A factory of trainings."""
    started = []

    def begin(*words, **options):
        started.append(Training(config, tmp_path / "out", *words, **options))
        return started[-1]

    yield begin
    for one in started:
        one.close()


@pytest.fixture
def served(tmp_path):
    """A hive in a process of its own: the process, its address and its directory."""
    data = tmp_path / "data"
    with start("hive", "serve", "--port", "0", "--data", data) as process:
        address = re.search(r"http://(\S+)", process.stderr.readline())[1]
        yield process, address, data
        process.kill()


def descendants_of(pid):
    found = children_of(pid)
    return found + [one for child in found for one in descendants_of(child)]


def assert_is_all_there(out):
    """The policy can act, and nothing is half written."""
    assert {path.name for path in out.iterdir()} - {"hive"} == FILES
    onnxruntime.InferenceSession(out / "c_reach.onnx")
    assert (out / "learning_curve.png").read_bytes()[-8:-4] == b"IEND"


HANGUP = pytest.param(signal.SIGHUP, marks=pytest.mark.slow)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, HANGUP])
def test_a_signal_ends_a_training_with_its_files_and_its_children(train, number):
    training = train("--minutes", "5", "--json")
    training.wait_until_it_learns()
    children = descendants_of(training.process.pid)
    training.process.send_signal(number)
    status, out = training.ended()
    eventually(lambda: not any(map(is_alive, children)))

    assert status == 128 + number, training.err
    assert json.loads(out)["policy"]["which"] in ("best", "now", "latest")
    assert f"interrupted by {number.name}" in training.err
    assert len(children) >= 2
    assert_is_all_there(training.out)


def test_a_training_that_is_deaf_to_ctrl_c_and_hangups_ends_with_sigterm(train):
    training = train("--minutes", "5", ignored=[signal.SIGINT, signal.SIGHUP])
    training.wait_until_it_learns()
    training.process.send_signal(signal.SIGHUP)
    training.process.send_signal(signal.SIGINT)
    before = set((training.out / "hive").glob("runs/*/policies/*"))
    eventually(lambda: set((training.out / "hive").glob("runs/*/policies/*")) - before)
    training.process.send_signal(signal.SIGTERM)
    status, _ = training.ended()

    assert status == 143, training.err
    assert "interrupted by SIGTERM" in training.err
    assert_is_all_there(training.out)


@pytest.mark.parametrize("number", [signal.SIGINT, HANGUP])
def test_a_signal_to_the_whole_group_leaves_the_hive_to_its_host(train, number):
    training = train("--minutes", "5", "--json", start_new_session=True)
    training.wait_until_it_learns()
    os.killpg(training.process.pid, number)
    status, out = training.ended()

    assert status == 128 + number, training.err
    assert json.loads(out)["policy"]["which"] != "held"
    assert "the hive is gone" not in training.err
    assert_is_all_there(training.out)


ON_A_TERMINAL = """
import fcntl, os, signal, sys, termios
signal.signal(signal.SIGHUP, signal.SIG_DFL)  # `nohup` has it ignored
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_a_terminal_that_closes_ends_a_training_with_its_files(config, tmp_path):
    out = tmp_path / "out"
    words = ["train", REACH, "--config", config, "--out", out, "--minutes", "5"]
    ours, theirs = pty.openpty()
    command = [sys.executable, "-c", ON_A_TERMINAL, sys.executable, "-m", "arkml", *map(str, words)]
    process = subprocess.Popen(
        command, stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, env=ENVIRONMENT
    )
    os.close(theirs)
    eventually(lambda: list((out / "hive" / "runs").glob("*/policies/*3.onnx")), LONG)
    children = descendants_of(process.pid)
    os.close(ours)
    status = process.wait(LONG)
    eventually(lambda: not any(map(is_alive, children)))

    assert status == 129
    assert_is_all_there(out)


@pytest.mark.slow
def test_more_signals_while_it_ends_hurry_it_and_lose_no_file(train):
    training = train("--minutes", "5")
    training.wait_until_it_learns()
    hives = children_of(training.process.pid)
    for pid in hives:
        os.kill(pid, signal.SIGSTOP)  # a hive that answers nothing holds the end up
    while training.process.poll() is None:
        training.process.send_signal(signal.SIGTERM)
        with suppress(subprocess.TimeoutExpired):
            training.process.wait(0.2)
    status, _ = training.ended()
    for pid in hives:
        os.kill(pid, signal.SIGCONT)  # it finds that its parent has exited
    eventually(lambda: not any(map(is_alive, hives)))

    assert status == 143, training.err
    assert_is_all_there(training.out)


@pytest.mark.parametrize("pace", [(), ("--fps", "60")], ids=["block", "drop"])
def test_a_hive_that_was_killed_is_told_and_the_policy_at_hand_is_written(train, served, pace):
    hive, address, data = served
    training = train("--minutes", "5", "--hive", address, "--json", *pace)
    training.wait_until_it_learns(data)
    hive.kill()
    training.says("the hive is gone: no hive answers at")
    training.process.send_signal(signal.SIGINT)
    status, out = training.ended()
    document = json.loads(out)

    assert status == 130, training.err
    assert training.err.count("the hive is gone") == 1
    assert document["policy"]["which"] == "held"
    assert document["type"] == "HiveUnreachable"
    assert_is_all_there(training.out)


@pytest.mark.slow
def test_a_training_that_comes_to_its_end_without_its_hive_failed(train, served):
    hive, address, data = served
    training = train("--minutes", "0.2", "--hive", address, "--fps", "60")
    training.wait_until_it_learns(data)
    hive.kill()
    status, out = training.ended()

    assert status == 1, training.err
    assert "policy at hand" in out
    assert_is_all_there(training.out)


@pytest.mark.parametrize("pace", [(), ("--fps", "60")], ids=["block", "drop"])
def test_an_embedded_hive_that_was_killed_is_started_again(train, pace):
    training = train("--minutes", "5", "--json", *pace)
    training.wait_until_it_learns()
    (hive,) = children_of(training.process.pid)
    os.kill(hive, signal.SIGKILL)
    eventually(lambda: not is_alive(hive))
    eventually(lambda: children_of(training.process.pid) not in ([], [hive]), LONG)
    training.process.send_signal(signal.SIGTERM)
    status, out = training.ended()

    assert status == 143, training.err
    assert json.loads(out)["run"]
    assert_is_all_there(training.out)


@pytest.mark.slow
def test_an_embedded_hive_that_stays_dead_costs_neither_policy_nor_curve(train):
    training = train("--minutes", "5", "--json")
    training.wait_until_it_learns()
    (hive,) = children_of(training.process.pid)
    (training.out / "hive").rename(training.out.parent / "moved")
    (training.out / "hive").write_text("no directory any more")
    os.kill(hive, signal.SIGKILL)
    training.says("the hive is gone: the embedded hive does not start")
    training.process.send_signal(signal.SIGINT)
    status, out = training.ended()

    assert status == 130, training.err
    assert json.loads(out)["policy"]["which"] == "held"
    assert_is_all_there(training.out)
