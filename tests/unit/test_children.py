"""What tests start ends with their test, and with the process of pytest."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from tests import children, prefork
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
    began = children.now()
    eventually(lambda: children.now() > began)
    monkeypatch.setenv(children.TEST, "tests/test_it.py::test_it (call)")
    left = subprocess.Popen(SLEEPS)
    fork = prefork.Process(
        [sys.executable, "-c", "import time; time.sleep(3600)"], env={**os.environ}
    )

    killed = children.kill_those_of("tests/test_it.py::test_it", began)

    assert {left.pid, fork.pid} <= set(killed)
    assert (left.wait(), fork.wait()) == (-signal.SIGKILL, -signal.SIGKILL)
    assert fixture.poll() is None
    fixture.kill()
    fixture.wait()


def test_an_orphan_of_a_failed_test_is_known_by_its_name(monkeypatch):
    monkeypatch.setenv(children.TEST, "tests/test_it.py::test_it (call)")
    program = f"import subprocess; print(subprocess.Popen({SLEEPS}, stdout=-3, stderr=-3).pid)"
    orphan = int(run(program).stdout)
    eventually(Path(f"/proc/{orphan}/environ").read_bytes)  # a new program has none at first

    assert orphan in children.kill_those_of("tests/test_it.py::test_it", children.now())


def test_what_a_test_waits_for_when_its_time_is_over_is_killed(tmp_path):
    """A `with` of a process waits for it, also while the end of the test goes through."""
    path = tmp_path / "test_it.py"
    path.write_text(
        "import subprocess\n"
        "def test_it():\n"
        f"    with subprocess.Popen({SLEEPS}) as process:\n"
        "        process.communicate()\n"
    )
    words = ["-p", "tests.conftest", "-p", "no:cacheprovider", "--timeout", "1", path]
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", *words], capture_output=True, text=True, check=False,
        cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(CONFTEST.parents[1])},
    )  # fmt: skip

    assert ended.returncode == 1
    assert "Timeout" in ended.stdout
    assert "1 failed" in ended.stdout


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
