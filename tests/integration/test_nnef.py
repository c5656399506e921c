import contextlib
import io
import os
import resource
import select
import signal
import subprocess
import sys
import tarfile
import threading
from pathlib import Path

import numpy as np
import pytest
from tests.integration.guest_text import MODEL, NNEF, WITH_NNEF, data
from tools.houses import PYTHONPATH

from arkml.abi.codes import ErrorCode
from arkml.base.child_time import add_child_seconds, take_child_seconds
from arkml.errors import ModelRejected, Unavailable
from arkml.limits import Limits
from arkml.policies import nnef_child, nnef_process
from arkml.policies.cervo import AssetKind, unpack
from arkml.policies.model_cache import ModelCache
from arkml.policies.nnef import CHILD_BYTES, NnefModel
from arkml.policies.nnef_process import ChildPlaces
from arkml.policies.run_limit import RunLimit
from arkml.policies.workspace import PolicyWorkspace
from arkml.runtime.account import counted_seconds

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "fixtures" / "policies" / "cervo"
KINDS = ["onnx", "nnef", "nnef_b4"]


def payload(name):
    return unpack((ASSETS / f"{name}.crvo").read_bytes())


def changed(change):
    """An archive whose graph is that of `plain`, changed."""
    made = io.BytesIO()
    with (
        tarfile.open(fileobj=io.BytesIO(payload("plain.nnef")[1])) as plain,
        tarfile.open(fileobj=made, mode="w", format=tarfile.USTAR_FORMAT) as archive,
    ):
        for member in plain:
            content = plain.extractfile(member).read()
            if member.name == "graph.nnef":
                content = change(content.decode()).encode()
            copy = tarfile.TarInfo(member.name)
            copy.size = len(content)
            archive.addfile(copy, io.BytesIO(content))
    return made.getvalue()


def with_large_constants(text):
    """Add 80 MB of constants, each a small one repeated."""
    lines, last = [], "h0_ab"
    for number in range(5):
        lines += [
            f"w{number}a = tile(w0_0, repeats = [1, 4000]);",
            f"w{number}b = add(w{number}a, {number}.5);",
            f"w{number}c = matmul(obs, w{number}b, transposeA = false, transposeB = false);",
            f"w{number}d = max_reduce(w{number}c, axes = [1]);",
            f"w{number}e = add({last}, w{number}d);",
        ]
        last = f"w{number}e"
    return text.replace("h0 = add(h0_ab,", "\n".join([*lines, f"h0 = add({last},"]))


def recorded(name):
    """Inputs by port name, and the actions that Cervo gave."""
    with np.load(ASSETS / f"{name}.npz") as file:
        feeds = {key.removeprefix("in_"): file[key] for key in file if key.startswith("in_")}
        return feeds, file["actions_cervo_onnx"]


@pytest.fixture
def model():
    with_batch_4 = NnefModel(payload("plain.nnef_b4")[1])
    yield with_batch_4
    with_batch_4.close()


@pytest.mark.parametrize("name", ["plain", "epsilon"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [1, 4, 7, 32])
def test_every_asset_gives_what_cervo_gave(name, kind, count):
    feeds, expected = recorded(name)
    held, data = payload(f"{name}.{kind}")
    cache = ModelCache()
    file = cache.onnx(data) if held == AssetKind.ONNX else cache.nnef(data)
    model = file.load(None)
    actions = np.zeros((count, 3), np.float32)
    rows = {key: np.ascontiguousarray(array[:count]) for key, array in feeds.items()}
    for call in model.prepare(count, rows, {"actions": actions}, RunLimit(PolicyWorkspace())):
        call()

    np.testing.assert_allclose(actions, expected[:count], rtol=0, atol=1e-6)


def test_a_model_says_what_it_takes(model):
    assert [(port.name, port.shape) for port in model.inputs] == [("obs", (8,))]
    assert [(port.name, port.shape) for port in model.outputs] == [("actions", (3,))]
    assert model.fixed_batch == 4


def test_no_rows_need_no_run(model):
    (actions,) = model.run({"obs": np.zeros((0, 8), np.float32)})

    assert actions.shape == (0, 3)


def test_rows_of_another_shape_are_not_sent(model):
    with pytest.raises(ValueError, match=r"obs has shape \(2, 9\), expected \(2, 8\)"):
        model.run({"obs": np.zeros((2, 9), np.float32)})


def test_a_request_larger_than_a_pipe_arrives(model):
    rows = np.tile(recorded("plain")[0]["obs"], (1_024, 1))
    model.seconds = 30.0
    (actions,) = model.run({"obs": rows})

    np.testing.assert_allclose(actions[-32:], recorded("plain")[1], rtol=0, atol=1e-6)


def test_a_child_that_dies_in_the_run_of_one_guest_is_replaced_for_another(model):
    rows = {"obs": np.zeros((1, 8), np.float32)}
    hostile, other = (RunLimit(PolicyWorkspace(), b"digest") for _ in range(2))
    os.kill(model.pid, signal.SIGKILL)

    for reason in (r"has failed: its process ended with status -9$", "not run again"):
        with pytest.raises(Unavailable, match=reason):
            model.run(rows, hostile)
    for _ in range(2):
        assert model.run(rows, other)[0].shape == (1, 3)


def test_a_child_that_hangs_is_given_up_and_ended():
    model = NnefModel(payload("plain.nnef")[1], seconds=10.0)
    model.seconds = 0.05
    handle = os.pidfd_open(model.pid)
    os.kill(model.pid, signal.SIGSTOP)

    with pytest.raises(Unavailable, match=r"took longer than 0\.05 s"):
        model.run({"obs": np.zeros((1, 8), np.float32)})
    assert select.select([handle], [], [], 20.0)[0]
    os.close(handle)


def test_a_child_ends_with_its_parent():
    script = (
        "import os, sys; from arkml.policies.cervo import unpack;"
        "from arkml.policies.nnef import NnefModel;"
        "model = NnefModel(unpack(open(sys.argv[1], 'rb').read())[1]);"
        "print(model.pid, flush=True); sys.stdin.read()"
    )
    parent = subprocess.Popen(
        [sys.executable, "-c", script, ASSETS / "plain.nnef.crvo"],
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    with parent:
        handle = os.pidfd_open(int(parent.stdout.readline()))
        parent.kill()

    assert select.select([handle], [], [], 20.0)[0]
    os.close(handle)


def test_a_model_that_was_late_for_one_guest_runs_for_another():
    model = NnefModel(payload("plain.nnef")[1], seconds=60.0)
    hasty, other = RunLimit(PolicyWorkspace(), b"digest"), RunLimit(PolicyWorkspace(), b"digest")
    hasty._workspace.run_seconds = 0.05
    rows = {"obs": np.ones((1, 8), np.float32)}
    first = model.pid
    os.kill(first, signal.SIGSTOP)

    for reason in (r"took longer than 0\.05 s", r"not run again"):
        with pytest.raises(Unavailable, match=reason):
            model.run(rows, hasty)
    assert model.run(rows, other)[0].shape == (1, 3)
    assert model.pid != first
    model.close()


def test_no_more_children_run_than_may_and_another_waits_for_the_end_of_one(monkeypatch):
    monkeypatch.setattr(nnef_process, "WAIT_SECONDS", 0.01)
    data, places = payload("plain.nnef")[1], ChildPlaces(1)
    first = NnefModel(data, places=places)

    with pytest.raises(Unavailable, match="1 NNEF models are in use, each in a process of its own"):
        NnefModel(data, places=places)
    first.close()
    NnefModel(data, places=places).close()


def test_a_place_is_given_back_in_the_middle_of_another_being_taken(monkeypatch):
    monkeypatch.setattr(nnef_process, "WAIT_SECONDS", 0.01)
    places = ChildPlaces(1)
    places.take()

    def finalize(_frame, event, called):
        """Give places back wherever the collector may run a finalizer."""
        if event == "c_call" and called.__name__ not in ("put", "setprofile"):
            places.leave()

    def take():
        sys.setprofile(finalize)
        try:
            places.take()
        finally:
            sys.setprofile(None)

    thread = threading.Thread(target=take, daemon=True)
    thread.start()
    thread.join(300)

    assert not thread.is_alive()


def test_a_child_is_heard_in_a_host_that_has_many_descriptors_open():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    with contextlib.ExitStack() as opened:
        opened.callback(resource.setrlimit, resource.RLIMIT_NOFILE, (soft, hard))
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(2_048, hard), hard))
        for _ in range(1_100):
            opened.enter_context(open(os.devnull))  # noqa: PTH123
        model = NnefModel(payload("plain.nnef")[1])
        opened.callback(model.close)

        assert model._child._from > 1_024
        assert model.run({"obs": np.zeros((1, 8), np.float32)})[0].shape == (1, 3)


def test_a_cache_ends_the_children_of_idle_models_before_it_starts_another():
    models = ModelCache(Limits(nnef_processes=1))
    models.nnef(payload("plain.nnef")[1])

    assert models.nnef(payload("epsilon.nnef")[1]).layout.inputs


def test_a_child_that_does_not_load_returns_its_place(monkeypatch):
    monkeypatch.setattr(nnef_process, "WAIT_SECONDS", 0.0)
    places = ChildPlaces(1)
    data = payload("plain.nnef")[1].replace(b"w0_0 = variable", b"w0_0 = variably")
    with pytest.raises(ModelRejected):
        NnefModel(data, places=places)

    places.take()
    with pytest.raises(Unavailable):
        places.take()


def test_a_model_counts_what_its_child_has_in_memory():
    plain = ModelCache().nnef(payload("plain.nnef")[1]).load(None)
    large = ModelCache().nnef(changed(with_large_constants)).load(None)

    assert plain.session_bytes > CHILD_BYTES
    assert large.session_bytes > plain.session_bytes + (16 << 20)


def test_a_model_says_how_long_its_child_had_the_processor():
    take_child_seconds()
    model = NnefModel(payload("plain.nnef")[1])
    loading = take_child_seconds()
    model.run({"obs": np.ones((50_000, 8), np.float32)})
    running = take_child_seconds()
    fields = Path(f"/proc/{model.pid}/stat").read_text().rpartition(")")[2].split()
    used = (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
    model.close()

    assert loading > 0
    assert running > 0
    assert loading + running == pytest.approx(used, abs=0.05)


def test_a_wait_for_a_child_counts_as_long_as_the_child_had_the_processor():
    counted_seconds(0.0)
    add_child_seconds(0.5)
    add_child_seconds(float("nan"))
    add_child_seconds(-1.0)

    assert 0.5 <= counted_seconds(30.0, may_wait=True) < 20.0
    assert counted_seconds(30.0, may_wait=True) == 30.0
    add_child_seconds(50.0)
    assert counted_seconds(30.0, may_wait=True) == 30.0


def test_a_guest_pays_for_the_child_of_its_model(host):
    guest = host.load(WITH_NNEF)
    assert guest.call("open") == 0
    vetting = guest.account.vetting_seconds
    for _ in range(20):
        assert guest.call("frame", 1_000) == 0
    account = guest.account

    assert vetting > 0.01  # another interpreter starts and loads tract
    assert account.model_seconds > 0
    assert account.session_bytes > CHILD_BYTES
    assert account.policy_seconds == 0


def test_a_guest_that_finds_no_place_for_its_model_lives_with_the_answer(make_host):
    host = make_host(limits=Limits(nnef_processes=1))
    other = data(MODEL, NNEF.replace(b"graph network", b"graph netwerk")).encode()
    first = host.load(WITH_NNEF)
    second = host.load(WITH_NNEF.replace(data(MODEL, NNEF).encode(), other))

    assert first.call("open", budget=None) == 0
    assert second.call("open") == ErrorCode.UNAVAILABLE
    assert second.failure is None
    first.close()
    assert second.call("open", budget=None) == 0


def test_a_child_has_a_bare_environment_and_limits(monkeypatch):
    monkeypatch.setenv("ARKML_SECRET", "hidden")
    with_secret = NnefModel(payload("plain.nnef")[1])
    process = Path(f"/proc/{with_secret.pid}")
    environment, limits = ((process / name).read_text() for name in ("environ", "limits"))
    with_secret.close()
    soft = {line[:26].strip(): line[26:47].strip() for line in limits.splitlines()}

    names = {entry.split("=")[0] for entry in environment.split("\0") if entry}
    assert names <= {"PYTHONPATH", "PYTHONHOME", "LD_LIBRARY_PATH", "OPENBLAS_NUM_THREADS"}
    assert soft["Max open files"] == str(nnef_child.FILES)
    assert int(soft["Max address space"]) < 8 << 30
    assert int(soft["Max cpu time"]) < 60


def test_a_child_that_uses_up_its_time_on_the_processor_is_ended():
    script = (
        "import resource, sys; from arkml.policies import nnef_child;"
        "nnef_child._limit_time(0)\nwhile True: pass"
    )
    run = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": PYTHONPATH},
        timeout=300,
        check=False,
    )

    assert run.returncode == -signal.SIGXCPU


def test_without_tract_the_message_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "tract", None)

    with pytest.raises(Unavailable, match=r"pip install arkml\[nnef\]"):
        NnefModel(payload("plain.nnef")[1])


def test_what_tract_does_not_take_is_refused_with_its_reason():
    data = payload("plain.nnef")[1].replace(b"w0_0 = variable", b"w0_0 = variably")
    with pytest.raises(ModelRejected, match="variably"):
        NnefModel(data)


def test_an_archive_is_vetted_before_a_process_is_started(monkeypatch):
    monkeypatch.setitem(sys.modules, "tract", None)

    with pytest.raises(ModelRejected, match="not an NNEF archive"):
        NnefModel(b"no tar at all" * 100, Limits())
