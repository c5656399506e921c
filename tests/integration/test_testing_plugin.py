"""The pytest plugin and its fakes, in a pytest of their own."""

import os
import re
import subprocess
import sys
import tomllib

import numpy as np
import pytest
import wasmtime
from tests.integration.command_line import ENVIRONMENT, FRAMES, GUESTS, LOOP, ROOT

import arkml
import arkml.testing
from arkml.abi.codes import EpisodeState
from arkml.errors import InvalidArguments, Unavailable, UsageError
from arkml.sessions.session import InferenceSession, Origin, TrainingSession
from arkml.testing import (
    ConstantPolicy,
    MemoryQueue,
    Proxy,
    RecordingPolicies,
    RecordingSink,
    proxy_text,
)
from arkml.testing.guest_thread import WorkThread

APPLET = GUESTS / "c_applet.wasm"
ALARM = """
import signal

class TimeUp(Exception):
    pass

def ring(number, frame):
    raise TimeUp("the test took too long")

def arm(seconds):
    signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, seconds)
"""


@pytest.fixture
def run_pytest(tmp_path):
    """Run a test file in a pytest that has nothing but the plugin."""

    def run(test, *words, conftest=""):
        (tmp_path / "test_it.py").write_text(test)
        (tmp_path / "conftest.py").write_text(conftest)
        (tmp_path / "pytest.ini").write_text("[pytest]\nfilterwarnings = error\n")
        environment = {
            **ENVIRONMENT,
            "PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1",
            "PYTHONPATH": f"{ENVIRONMENT['PYTHONPATH']}{os.pathsep}{tmp_path}",
        }
        environment.pop("PYTHONWARNINGS")
        return subprocess.run(
            [sys.executable, "-m", "pytest", "-p", "arkml.testing.plugin", "-p", "no:cacheprovider",
             *map(str, words)],
            cwd=tmp_path, env=environment, capture_output=True, text=True, check=False, timeout=300,
        )  # fmt: skip

    return run


def examples():
    page = (ROOT / "docs" / "testing.md").read_text()
    return re.findall(r"```python\n(.*?)```", page, re.DOTALL)


def test_pytest_finds_the_plugin_by_itself():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())

    assert project["project"]["entry-points"]["pytest11"] == {"arkml": "arkml.testing.plugin"}


def test_the_examples_of_the_page_pass(run_pytest):
    run = run_pytest("\n\n".join(block for block in examples() if "FakeGame(" not in block),
                     f"--guest={APPLET}", f"--guest={GUESTS / 'as_applet.wasm'}", "-v")  # fmt: skip

    assert run.returncode == 0, run.stdout
    assert "14 passed" in run.stdout
    assert "test_it_runs_for_ten_seconds[as_applet.wasm] PASSED" in run.stdout


def test_the_example_of_a_game_passes(run_pytest, tmp_path):
    (tmp_path / "npc.wasm").write_bytes(wasmtime.wat2wasm("""(module
        (import "env" "raycast" (func $raycast (param f32 f32) (result f32)))
        (memory (export "memory") 1)
        (func (export "ark_applet_update")
            (drop (call $raycast (f32.const 0) (f32.const 1)))))"""))  # fmt: skip
    (example,) = [block for block in examples() if "FakeGame(" in block]

    run = run_pytest(example, "--guest=npc.wasm")

    assert run.returncode == 0, run.stdout
    assert "2 passed" in run.stdout


def test_a_test_suite_names_its_guest_and_options_itself(run_pytest):
    run = run_pytest(
        "def test_it(guest, host, arkml_host):\n"
        "    guest.update()\n"
        "    assert guest.guest.module.limits.rows == 7\n"
        "    assert guest.statistics.errors\n"
        "    assert host is arkml_host\n",
        conftest="import pytest\nfrom arkml import Limits\n"
        f"@pytest.fixture\ndef guest_file():\n    return {str(APPLET)!r}\n"
        "@pytest.fixture(scope='session')\n"
        "def arkml_options():\n    return {'limits': Limits(rows=7)}\n",
    )

    assert run.returncode == 0, run.stdout


def test_a_guest_of_the_plugin_is_saved_viewed_timed_and_reloaded(run_pytest):
    run = run_pytest(
        "from arkml import Reloaded\n"
        "def test_it(guest, guest_file):\n"
        "    saved = guest.snapshot()\n"
        "    before = bytes(guest.read_memory(0, 65536))\n"
        "    guest.update(frames=5)\n"
        "    assert guest.account.run_seconds > 0\n"
        "    assert guest.name == guest_file.name\n"
        "    assert guest.reload(guest_file) is Reloaded.KEPT\n"
        "    guest.restore(saved)\n"
        "    with guest.memory() as view:\n"
        "        assert bytes(view[:65536]) == before\n",
        f"--guest={APPLET}",
    )

    assert run.returncode == 0, run.stdout


def test_a_fleet_of_the_plugin_is_called_fed_saved_and_ended_by_a_time_limit(run_pytest, tmp_path):
    (tmp_path / "counter.wat").write_text("""(module
        (memory (export "memory") 1) (global (export "count") i32 (i32.const 64))
        (func (export "spin") (loop (br 0)))
        (func (export "same") (param i32) (result i32) (local.get 0))
        (func (export "ark_applet_update")
            (i32.store (i32.const 64) (i32.add (i32.const 1) (i32.load (i32.const 64))))))""")
    run = run_pytest(
        f"{ALARM}\n"
        "import numpy as np\n"
        "import pytest\n"
        "def test_it(arkml_host):\n"
        "    with arkml_host.fleet('counter.wat', 3) as fleet:\n"
        "        assert fleet.update(2) == {}\n"
        "        saved = fleet.snapshot()\n"
        "        fleet.write('count', np.int32([5, 6, 7]))\n"
        "        assert fleet.read('count', np.int32).tolist() == [5, 6, 7]\n"
        "        fleet.restore(saved)\n"
        "        assert fleet.read('count', np.int32, only=[1]).tolist() == [2]\n"
        "        assert fleet.call('same', np.arange(3)).values == [0, 1, 2]\n"
        "        assert len(fleet) == len(fleet.guests) == 3\n"
        "        arm(0.05)\n"
        "        with pytest.raises(TimeUp):\n"
        "            fleet.call('spin', budget=None)\n",
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "panicked" not in run.stderr


def test_a_test_without_a_guest_says_what_to_do(run_pytest):
    run = run_pytest("def test_it(guest):\n    pass\n")

    assert run.returncode == 1
    assert "which guest? Give --guest=PATH, or override the fixture guest_file" in run.stdout


def test_a_guest_that_is_not_there_is_one_sentence_before_collection(run_pytest):
    run = run_pytest("raise SystemExit('collected')\n", "--guest=nope.wasm")

    assert run.returncode == pytest.ExitCode.USAGE_ERROR
    assert (
        run.stderr.strip() == "ERROR: --guest=nope.wasm cannot be read: No such file or directory"
    )
    assert "collected" not in run.stdout


def test_lines_of_a_guest_come_to_caplog_from_the_level_on_that_was_set(run_pytest):
    run = run_pytest(
        "def lines(caplog):\n"
        "    return [r.getMessage() for r in caplog.records if r.name.startswith('arkml.guest.')]\n"
        "def test_info(guest, caplog):\n"
        "    caplog.set_level('INFO', logger='arkml.guest')\n"
        "    guest.update(frames=60)\n"
        "    assert any('8 episodes' in line for line in lines(caplog))\n"
        "def test_default(guest, caplog):\n"
        "    guest.update(frames=60)\n"
        "    assert lines(caplog) == []\n",
        f"--guest={APPLET}",
    )

    assert run.returncode == 0, run.stdout


def test_the_packages_list_their_public_names_only():
    assert dir(arkml) == sorted(arkml.__all__)
    assert dir(arkml.testing) == sorted(arkml.testing.__all__)


def test_a_host_of_another_plugin_stays_theirs(run_pytest, tmp_path):
    (tmp_path / "theirs.py").write_text(
        "import pytest\n@pytest.fixture\ndef host():\n    return 'example.org'\n"
    )
    run = run_pytest("def test_it(host):\n    assert host == 'example.org'\n", "-p", "theirs")

    assert run.returncode == 0, run.stdout


def test_the_plugin_loads_nothing_heavy_until_it_is_used(run_pytest):
    run = run_pytest(
        "import sys\n"
        "def test_it():\n"
        "    heavy = {'numpy', 'wasmtime', 'onnx', 'onnxruntime', 'typer', 'rich', 'arkml.host'}\n"
        "    assert heavy & set(sys.modules) == set()\n"
    )

    assert run.returncode == 0, run.stdout


@pytest.mark.parametrize("more", [0, 0.007, 0.011])
def test_a_signal_handler_that_raises_ends_the_test_alone(run_pytest, tmp_path, more):
    (tmp_path / "loop.wat").write_text(LOOP)
    (tmp_path / "frames.wat").write_text(FRAMES)
    run = run_pytest(
        f"{ALARM}\n"
        "import pytest\n"
        "from arkml.errors import GuestCancelled, GuestFailed\n"
        "def test_a_loop(arkml_host):\n"
        "    guest = arkml_host.load('loop.wat')\n"
        "    for again in range(3):\n"
        f"        arm(0.05 + {more})\n"
        "        with pytest.raises((TimeUp, GuestFailed)):\n"
        "            guest.update(budget=None)\n"
        "    assert isinstance(guest.failure, GuestCancelled)\n"
        "    signal.setitimer(signal.ITIMER_REAL, 0)\n"
        "def test_many_short_calls(arkml_host):\n"
        "    guest = arkml_host.load('frames.wat')\n"
        "    arm(0.05)\n"
        "    with pytest.raises(TimeUp):\n"
        "        guest.update(frames=10**9)\n"
        "def test_another_guest_runs_afterwards(guest):\n"
        "    guest.update(frames=10)\n"
        "    assert guest.statistics.rows == 80\n",
        f"--guest={APPLET}",
    )

    assert run.returncode == 0, run.stdout + run.stderr
    assert "3 passed" in run.stdout
    assert "panicked" not in run.stderr


def test_work_that_was_not_begun_is_not_done_after_the_wait_for_it_ended():
    worker = WorkThread()
    done = []
    result = worker.run(lambda: done.append(1) or 5)
    with pytest.raises(ZeroDivisionError):
        worker.run(lambda: 1 / 0)
    worker.close()

    assert result == 5
    assert done == [1]


def test_a_session_acts_on_a_queue_in_memory_with_a_constant_policy():
    queue = MemoryQueue(2, 3, key=9)
    policy = ConstantPolicy(2, 3, actions=[1, 2, 3], value=0.5)
    session = InferenceSession(queue, policy, key=9, num_features=2, num_actions=3)
    queue.push(11, [0.25, -1], state=EpisodeState.INITIAL, metadata=[("speed", 2.0)])
    queue.push(12, [5, 6], reward=4.0, actions=[7, 8, 9])
    batch = session.answer()
    session.close()

    assert batch.actions.tolist() == [[1, 2, 3], [1, 2, 3]]
    assert batch.values.tolist() == [0.5, 0.5]
    assert batch.pushed_actions[1].tolist() == [7, 8, 9]
    assert policy.batches[0].ids == [11, 12]
    assert policy.batches[0].states == [EpisodeState.INITIAL, EpisodeState.RUNNING]
    assert policy.batches[0].rewards == [0.0, 4.0]
    assert np.array_equal(policy.batches[0].features, [[0.25, -1], [5, 6]])
    assert [(item.row, item.name, item.value) for item in queue.metadata()] == [(0, "speed", 2.0)]
    assert policy.forgotten == [9]
    assert not queue.is_open


def test_a_training_session_hands_its_rows_to_a_sink_in_memory():
    queue, sink = MemoryQueue(2, 3), RecordingSink()
    policy = ConstantPolicy(2, 3)
    session = TrainingSession(queue, policy, key=9, num_features=2, num_actions=3, sink=sink)
    queue.push(11, [0.25, -1], actions=[7, 8, 9], metadata=[("speed", 2.0)])
    session.hand_over(Origin.DEMONSTRATION)
    session.stop()
    ((rows, origin),) = sink.accepted

    assert (rows.ids, origin, len(queue)) == ([11], Origin.DEMONSTRATION, 0)
    assert rows.pushed_actions.tolist() == [[7, 8, 9]]
    assert rows.metadata == [(0, "speed", 2.0)]
    assert sink.held() is None
    assert sink.left == [True]
    assert not queue.is_open


def test_the_batch_of_a_queue_keeps_its_actions_until_its_rows_change():
    queue = MemoryQueue(1, 1)
    queue.push(1, [0])
    queue.batch().actions[:] = 5
    kept = queue.batch().actions.tolist()
    queue.push(2, [0])

    assert kept == [[5]]
    assert queue.batch().actions.tolist() == [[0], [0]]


def test_fakes_raise_the_failure_that_a_test_gives_them():
    queue, policy = MemoryQueue(1, 1), ConstantPolicy(1, 1)
    sink, policies = RecordingSink(failure=Unavailable("no room")), RecordingPolicies()
    policy.failure = policies.failure = Unavailable("not now")
    queue.push(1, [0])

    with pytest.raises(Unavailable, match="not now"):
        policy.act(queue.batch())
    with pytest.raises(Unavailable, match="not now"):
        policies.load(b"model", 0, 1, 1)
    with pytest.raises(Unavailable, match="not now"):
        policies.load_network(b"model", 0)
    with pytest.raises(Unavailable, match="no room"):
        sink.accept(queue.batch(), [], Origin.AUGMENTED)
    assert [batch.ids for batch in policy.batches] == [[1]]
    assert (sink.accepted, policies.policies) == ([], [])


def test_the_fakes_refuse_what_makes_no_sense():
    queue = MemoryQueue(2, 3)
    with pytest.raises(InvalidArguments, match="expected 2 features, got 3"):
        queue.push(1, [1, 2, 3])
    with pytest.raises(InvalidArguments, match="expected 3 actions, got 2"):
        queue.push(1, [1, 2], actions=[1, 2])
    with pytest.raises(InvalidArguments, match="2 actions for a session of 3"):
        ConstantPolicy(2, 3, actions=[1, 2])
    with pytest.raises(InvalidArguments, match="does not say how many"):
        RecordingPolicies().load(b"", 0, None, 3)
    with pytest.raises(Unavailable, match="has no networks"):
        RecordingPolicies().load_network(b"", 0)

    assert len(queue.batch()) == 0


@pytest.mark.parametrize(
    "wrong", [-1, -(1 << 63), 1 << 64, True, 8.0, np.int32(-4), np.bool_(True), None, "8"], ids=repr
)
def test_the_fakes_refuse_numbers_that_no_session_has(wrong):
    queue = MemoryQueue(1, 1)
    text = f" is {re.escape(repr(wrong))}: it takes a whole number from 0 to"
    for name, take in {
        "num_features": lambda: MemoryQueue(wrong, 1),
        "num_actions": lambda: MemoryQueue(1, wrong),
        "key": lambda: MemoryQueue(1, 1, key=wrong),
        "agent": lambda: queue.push(wrong, [0.5]),
    }.items():
        with pytest.raises(InvalidArguments, match=f"^{name}{text}"):
            take()
    with pytest.raises(InvalidArguments, match=f"^num_features{text}"):
        ConstantPolicy(wrong, 1)
    with pytest.raises(InvalidArguments, match=f"^num_actions{text}"):
        ConstantPolicy(1, wrong)
    for take in (lambda: proxy_text(pages=wrong), lambda: Proxy(None, pages=wrong)):
        with pytest.raises(UsageError, match=f"^pages is {re.escape(repr(wrong))}: "):
            take()
    if wrong is not None:
        with pytest.raises(InvalidArguments, match=f"^num_features{text}"):
            RecordingPolicies(num_features=wrong)

    assert len(queue) == 0
