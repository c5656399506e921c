"""What tests start ends with their test, and with the process of pytest."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import children
from tests.waiting import eventually

CONFTEST = Path(children.__file__).with_name("conftest.py")
SLEEPS = [sys.executable, "-I", "-S", "-c", "import time; time.sleep(3600)"]
STARTS_ONE = """
import os, subprocess, sys
from tests import children

warden = children.start_warden()
print(subprocess.Popen({command}).pid, flush=True)
{ends}
"""


def is_alive(pid):
    try:
        return " Z " not in Path(f"/proc/{pid}/stat").read_text()
    except FileNotFoundError:
        return False


def run(program):
    root = CONFTEST.parents[1]
    command, environment = [sys.executable, "-c", program], {**os.environ, "PYTHONPATH": str(root)}
    return subprocess.run(command, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.parametrize("ends", ["os._exit(1)", "os.kill(os.getpid(), 9)", "raise SystemExit(0)"])
def test_children_end_when_the_process_of_pytest_ends(ends):
    ended = run(STARTS_ONE.format(command=SLEEPS, ends=ends))

    assert eventually(lambda: not is_alive(int(ended.stdout)))


def test_what_a_failed_test_left_is_killed_and_what_a_fixture_started_is_not(monkeypatch):
    monkeypatch.setenv(children.TEST, "tests/test_it.py::test_it (setup)")
    fixture = subprocess.Popen(SLEEPS)
    monkeypatch.setenv(children.TEST, "tests/test_it.py::test_it (call)")
    left = subprocess.Popen(SLEEPS)
    eventually(Path(f"/proc/{left.pid}/environ").read_bytes)  # a new program has none at first

    assert children.kill_those_of("tests/test_it.py::test_it") == [left.pid]

    assert left.wait() == -signal.SIGKILL
    assert fixture.poll() is None
    fixture.kill()
    fixture.wait()


def test_children_of_a_run_in_the_background_can_be_interrupted():
    program = (
        "import signal, subprocess, sys\n"
        "for number in (signal.SIGINT, signal.SIGHUP): signal.signal(number, signal.SIG_IGN)\n"
        "from tests import children\n"
        "children.take_signals()\n"
        f"child = subprocess.Popen({SLEEPS})\n"
        "child.send_signal(signal.SIGHUP)\n"
        "print(child.wait(), signal.getsignal(signal.SIGINT) is signal.default_int_handler)\n"
    )

    assert run(program).stdout.split() == ["-1", "True"]
