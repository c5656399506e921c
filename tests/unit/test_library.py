import gc
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.unit import policy_models as build
from tests.unit.policy_models import acted

from arkml.abi.codes import SnapshotFormat
from arkml.errors import InvalidArguments, ModelRejected, SnapshotTooLarge
from arkml.limits import Limits
from arkml.policies import onnx_model
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.policy_files import PolicyFile

CERVO = Path(__file__).parents[2] / "fixtures" / "policies" / "cervo"
ONNX, CERVO_FORMAT = SnapshotFormat.ONNX, SnapshotFormat.CERVO
SMALL = build.linear([[2]])

COUNT_THREADS = """
import os
import threading
import time
from pathlib import Path
from arkml.policies.model_cache import ModelCache
def threads(): return set(os.listdir("/proc/self/task"))
before = threads()
ModelCache().onnx(Path("{model}").read_bytes()).load(None)
for thread in threading.enumerate():
    if thread is not threading.main_thread():
        thread.join()
while threads() - before:  # a joined thread is listed until the system has ended it
    time.sleep(0.001)
print(len(threads() - before), os.environ["ORT_DISABLE_TELEMETRY"])
"""

KILL = "; import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
LOADS = {
    "a host": "import arkml.policies.ort; arkml.policies.ort.load()",
    "a learner": "import arkml.learning.policy_graph",
}


@pytest.fixture
def library():
    return PolicyLibrary(ModelCache())


def packed(data, kind=1):
    return b"CRVO" + kind.to_bytes(4, "big") + data


@pytest.mark.parametrize("kind", ["onnx", "nnef", "nnef_b4"])
def test_cervo_assets_answer_what_cervo_answered(library, kind):
    expected = np.load(CERVO / "plain.npz")
    snapshot = (CERVO / f"plain.{kind}.crvo").read_bytes()
    actions = acted(library.load(snapshot, CERVO_FORMAT, 8, 3), expected["in_obs"])

    for name in ("actions_onnxruntime", "actions_cervo_onnx", "actions_cervo_nnef"):
        assert np.abs(actions - expected[name]).max() < 1e-6


@pytest.mark.parametrize("kind", ["onnx", "nnef", "nnef_b4"])
def test_stochastic_cervo_assets_draw_the_same_noise(kind):
    source = PolicyLibrary(build.CACHE, seed=5)
    features = np.load(CERVO / "epsilon.npz")["in_obs"]
    plain = source.load((CERVO / "epsilon.onnx").read_bytes(), ONNX, 8, 3)
    asset = source.load((CERVO / f"epsilon.{kind}.crvo").read_bytes(), CERVO_FORMAT, 8, 3)

    for _ in range(2):
        assert np.abs(acted(plain, features) - acted(asset, features)).max() < 1e-6


def test_a_cervo_container_is_known_by_its_first_bytes(library):
    assert acted(library.load(packed(SMALL), ONNX, 1, 1), [[3]]).tolist() == [[6]]


@pytest.mark.parametrize(
    ("snapshot", "snapshot_format", "message"),
    [
        (SMALL, SnapshotFormat.TENSORFLOW, "no longer supported"),
        (SMALL, CERVO_FORMAT, "starts with CRVO"),
        (b"", CERVO_FORMAT, "starts with CRVO"),
        (packed(b"", kind=9), CERVO_FORMAT, "kind 9"),
        (packed(b"this is not a model"), CERVO_FORMAT, "not"),
        (b"this is not a model", ONNX, "not"),
        (b"", ONNX, "no bytes"),
    ],
)
def test_bad_snapshots_are_refused(library, snapshot, snapshot_format, message):
    with pytest.raises(InvalidArguments, match=message):
        library.load(snapshot, snapshot_format, 1, 1)
    with pytest.raises(InvalidArguments, match=message):
        library.load_network(snapshot, snapshot_format)


def test_a_model_that_does_not_fit_is_refused_with_both_numbers(library):
    with pytest.raises(InvalidArguments, match=r"takes 1 features .* 5 are given"):
        library.load(SMALL, ONNX, 5, 1)
    with pytest.raises(InvalidArguments, match="no output of 2 actions"):
        library.load(SMALL, ONNX, 1, 2)


def test_numbers_that_are_not_given_are_those_of_the_model(library):
    policy = library.load((CERVO / "epsilon.onnx").read_bytes(), ONNX, None, None)

    assert (policy.num_features, policy.num_actions) == (8, 3)


def test_a_snapshot_over_the_limit_is_refused():
    library = PolicyLibrary(ModelCache(), limits=Limits(snapshot_bytes=len(SMALL) - 1))

    with pytest.raises(SnapshotTooLarge, match=str(len(SMALL))):
        library.load(SMALL, ONNX, 1, 1)


def test_an_override_takes_the_place_of_every_snapshot():
    library = PolicyLibrary(ModelCache(), override=PolicyFile(packed(build.linear([[3]]))))

    assert acted(library.load(SMALL, ONNX, 1, 1), [[1]]).tolist() == [[3]]
    assert acted(library.load(b"", SnapshotFormat.TENSORFLOW, 1, 1), [[1]]).tolist() == [[3]]
    with pytest.raises(InvalidArguments, match=r"overrides the guest's: .* 2 are given"):
        library.load(SMALL, ONNX, 2, 1)


def test_the_same_snapshot_is_the_same_policy_while_it_is_used(library):
    policy = library.load(SMALL, ONNX, 1, 1)

    assert library.load(bytes(bytearray(SMALL)), ONNX, 1, 1) is policy
    assert library.load(build.linear([[4]]), ONNX, 1, 1) is not policy


def test_a_policy_that_nobody_uses_is_gone(library):
    policies = library._policies
    policy = library.load(SMALL, ONNX, 1, 1)
    kept = len(policies)
    del policy
    gc.collect()

    assert (kept, len(policies)) == (1, 0)


def test_libraries_share_the_models_of_their_cache(monkeypatch):
    opened = []
    open_session = onnx_model.open_session
    monkeypatch.setattr(
        onnx_model,
        "open_session",
        lambda *given, **options: opened.append(1) or open_session(*given, **options),
    )
    models = ModelCache()
    policies = [PolicyLibrary(models).load(SMALL, ONNX, 1, 1) for _ in range(3)]
    policies.append(PolicyLibrary(models).load(packed(SMALL), CERVO_FORMAT, 1, 1))

    assert opened == [1]
    assert len({id(policy) for policy in policies}) == 4


def test_a_cache_keeps_only_models_in_use_and_a_few_more():
    models = ModelCache()
    used = models.onnx(build.linear([[0.5]])).load(None)
    for number in range(40):
        models.onnx(build.linear([[number]])).load(None)
    gc.collect()
    few = len(models._models)
    models.close()
    gc.collect()

    assert few <= 17
    assert list(models._models.values()) == [used]


def test_threads_that_load_the_same_model_get_the_same():
    models = ModelCache()
    start = threading.Barrier(4)
    loaded = []

    def load():
        start.wait()
        loaded.append(models.onnx(SMALL).load(None))

    threads = [threading.Thread(target=load) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(loaded) == 4
    assert len({id(model) for model in loaded}) == 1


def test_two_threads_act_with_one_model_at_the_same_time():
    models = ModelCache()
    data = (CERVO / "plain.onnx").read_bytes()
    features = np.load(CERVO / "plain.npz")["in_obs"]
    expected = acted(PolicyLibrary(models).load(data, ONNX, 8, 3), features)
    wrong = []

    def act():
        policy = PolicyLibrary(models).load(data, ONNX, 8, 3)
        asked = build.batch(features, 3)
        for _ in range(300):
            asked.actions[:] = 0
            policy.act(asked)
            if not np.array_equal(asked.actions, expected):
                wrong.append(asked.actions.copy())

    threads = [threading.Thread(target=act) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert not wrong


def test_onnxruntime_starts_no_thread_and_sends_no_telemetry():
    printed = subprocess.run(
        [sys.executable, "-c", COUNT_THREADS.format(model=CERVO / "plain.onnx")],
        env=os.environ | {"OPENBLAS_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        check=True,
    )

    assert (printed.stdout.split(), printed.stderr) == (["0", "1"], "")


@pytest.mark.parametrize("work", LOADS)
def test_a_process_that_loads_onnxruntime_and_is_killed_leaves_no_file(tmp_path, work):
    killed = subprocess.run(
        [sys.executable, "-c", LOADS[work] + KILL], env=os.environ | {"TMPDIR": str(tmp_path)},
        capture_output=True, check=False,
    )  # fmt: skip

    assert killed.returncode == -signal.SIGKILL
    assert list(tmp_path.iterdir()) == []


def test_onnxruntime_prints_nothing_about_a_model_it_refuses(library, capfd):
    shapes = [build.weight("a", np.zeros((2, 3))), build.weight("b", np.zeros((4, 3)))]
    nodes = [build.node("MatMul", "obs a", "h"), build.node("MatMul", "h b", "actions")]
    data = build.model(nodes, [build.port("obs", "N", 2)], [build.port("actions", "N", 3)], shapes)

    with pytest.raises(ModelRejected):
        library.load(data, ONNX, 2, 3)
    assert capfd.readouterr() == ("", "")


def test_a_cache_keeps_no_large_models_that_nobody_uses(monkeypatch):
    datas = [build.linear([[number]]) for number in range(8)]
    models = ModelCache()
    held = models.version(datas[0]).load(None).session_bytes
    monkeypatch.setattr("arkml.policies.model_cache._RECENT_BYTES", 3 * held)
    for data in datas:
        models.onnx(data).load(None)
    gc.collect()

    assert len(models._models) == 3


def test_what_acts_is_logged_once_for_each_policy(caplog):
    caplog.set_level("INFO", logger="arkml")
    models = ModelCache()
    for data in (SMALL, SMALL, build.adding(1), build.with_value(flat=True)):
        PolicyLibrary(models).load(data, ONNX, None, None)

    acting = [record.message.split(": ", 1)[1] for record in caplog.records]
    assert acting == [
        "of its outputs, actions acts, no value",
        "of its outputs, actions acts, no value, states: memory_in from memory_out",
        "of its outputs, actions acts, the value is value",
    ]
