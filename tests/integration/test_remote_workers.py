"""Guests that ask for remote workers: real guests, a real hive, real processes."""

import hashlib
import json
import logging
import struct
from contextlib import contextmanager
from types import SimpleNamespace

import pytest
from tests.children import children_of
from tests.integration.command_line import GUESTS, arkml
from tests.integration.training_guest import ACTIONS, FEATURES, LOCAL, QUICK, V1, V2, TrainingGuest
from tests.waiting import eventually

from arkml import HiveGrant, Host
from arkml.abi.codes import ErrorCode
from arkml.hive.client import HiveClient
from arkml.hive.embedded import EmbeddedHive

V5 = "ark-ml-v5"
ASKING = GUESTS / "c_reach_workers.wasm"
PLAYING, TRAINING = 2, 1
UNKNOWN = b'(module (import "env" "unknown" (func)) (func (export "ark_applet_update")))'
LEARNER = {"algorithm": "drawn", "hidden": 32, "batch_size": 32, "memory_min_size": 200}


@contextmanager
def serving(data, **workers):
    """A hive with a client; `workers` are those that it may start."""
    settings = {"workers": workers, "spare": False}
    with EmbeddedHive(data, settings) as hive, HiveClient(hive.locate) as client:
        address = hive.locate()
        host, port, token = address.host, address.port, address.token
        yield SimpleNamespace(hive=hive, client=client, address=f"{host}:{port}", token=token)


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    with serving(tmp_path_factory.mktemp("served") / "data", total=2) as made:
        yield made


def host_of(served, **options):
    allowed = {"upload_modules": True, "settings": LEARNER, **options}
    return Host(hive=HiveGrant(served.address, token=served.token, **allowed))


def step_until(guest, predicate):
    """Step an applet until something is true."""

    def stepped():
        guest.update()
        return predicate()

    return eventually(stepped)


def begun(guest):
    """How an applet plays once its run has started, or cannot start."""
    step_until(guest, lambda: guest.call("mode"))
    return guest.call("mode")


def run_of(served, name):
    """The run of a name, None without one."""
    return next((run for run in served.client.runs().result() if run.name == name), None)


def workers_of(served):
    """The ids of the rollout workers that a hive has started."""
    return children_of(served.hive.pid, "rollout_worker")


def test_the_workers_that_a_guest_asks_for_play_its_module_in_its_run_and_outlive_it(served):
    with host_of(served, wait_for_learner=True) as host:
        guest = host.load(ASKING)
        mode = begun(guest)
        step_until(guest, lambda: run_of(served, "reach").sessions == 3)
    count = len(workers_of(served))
    after = run_of(served, "reach").rows
    eventually(lambda: run_of(served, "reach").rows > after + 500)
    alone = run_of(served, "reach")
    details = served.client.details(alone.id).result()
    runs = served.client.runs().result()
    stopped = served.client.stop(alone.id).result()

    assert mode == TRAINING
    assert details.module == hashlib.sha256(ASKING.read_bytes()).hexdigest()
    assert (alone.status, alone.workers, alone.sessions, count) == ("running", 2, 2, 2)
    # The guests of the workers ask for workers, too, and get none.
    assert [run.name for run in runs if run.game == "reach"] == ["reach"]
    assert [worker.number for worker in details.workers] == [0, 1]
    assert (stopped.status, stopped.workers) == ("stopped", 0)
    assert not workers_of(served)


@pytest.mark.parametrize(
    ("workers", "options", "told"),
    [
        ({"total": 2}, {"upload_modules": False}, "HiveGrant(upload_modules=True)"),
        ({}, {}, "arkml hive serve --workers N"),
        ({"total": 1}, {}, "and a run of this hive may have 1 at most"),
    ],
)
def test_workers_that_one_side_does_not_allow_are_unavailable_and_the_guest_plays_alone(
    tmp_path, caplog, workers, options, told
):
    with serving(tmp_path / "data", **workers) as served:
        with caplog.at_level(logging.INFO), host_of(served, **options) as host:
            mode = begun(host.load(ASKING))
        runs = served.client.runs().result()

    assert mode == PLAYING
    assert told in caplog.text
    assert runs == []
    has_module = (tmp_path / "data" / "modules").exists()
    assert has_module is (workers == {"total": 1})  # sent only where both sides allow it


@pytest.fixture
def guest(served):
    """A guest that calls what a test says, on a host that uploads modules."""
    with host_of(served) as host:
        yield TrainingGuest(host)
    for run in served.client.runs().result():
        served.client.delete(run.id, force=True).result()


def started(guest, name, workers=1):
    """The code of a start with workers, and the handle."""
    shape = (FEATURES, ACTIONS, workers, QUICK)
    future = guest.handle(V2, "start_training", *LOCAL, "game", name, *shape)
    guest.wait(V1, "training_handle", future)
    return guest.take(V1, "training_handle", future, 8)[0]


def link(guest, text):
    return guest.proxy.code(V2, "ml__set_worker_module_link", *guest.proxy.text(text))


def upload(served, data):
    sha256 = hashlib.sha256(data).hexdigest()
    served.client.upload_module(sha256, data).result()
    return sha256


def test_a_link_names_an_uploaded_module_by_its_hash(served, guest):
    sha256 = upload(served, (GUESTS / "c_servlet.wasm").read_bytes())
    codes = link(guest, sha256.upper()), started(guest, "linked", workers=2)
    details = served.client.details(run_of(served, "linked").id).result()
    listed = guest.vector(
        V1, "vec_experiment_info", guest.handle(V1, "list_experiments", *LOCAL), 232
    )

    assert codes == (ErrorCode.SUCCESS, ErrorCode.SUCCESS)
    assert details.module == sha256
    assert [worker.is_alive for worker in details.workers] == [True, True]
    assert struct.unpack_from("<I", listed, 228)[0] == 2


def test_a_link_to_a_module_that_was_not_uploaded_is_not_found(served, guest):
    codes = link(guest, "0" * 64), started(guest, "unlinked")

    assert codes == (ErrorCode.SUCCESS, ErrorCode.NOT_FOUND)
    assert run_of(served, "unlinked") is None


@pytest.mark.parametrize("text", ["", "bafybeigdyrzt5", "0" * 63, "g" * 64, "/" * 64])
def test_a_link_that_is_not_a_hash_is_invalid(guest, text):
    assert link(guest, text) is ErrorCode.INVALID_ARGUMENTS


def test_a_link_is_unavailable_on_a_host_that_uploads_no_modules(served):
    with host_of(served, upload_modules=False) as host:
        assert link(TrainingGuest(host), "0" * 64) is ErrorCode.UNAVAILABLE


def test_a_module_with_imports_that_a_worker_lacks_fails_the_start_with_the_reason(
    served, guest, caplog
):
    import wasmtime

    link(guest, upload(served, bytes(wasmtime.wat2wasm(UNKNOWN.decode()))))
    code = started(guest, "lacking")

    assert code is ErrorCode.UNAVAILABLE
    assert "do not start: " in caplog.text
    assert "unknown" in caplog.text
    assert run_of(served, "lacking") is None
    assert not workers_of(served)


def start_v5(guest, name, module_id, hardware, **settings):
    config = json.dumps({"feature_count": FEATURES, "action_count": ACTIONS, **settings})
    return guest.handle(
        V5, "start_training", *LOCAL, name, config, "space", module_id, 60, 0, hardware
    )


def test_the_id_of_a_module_is_kept_and_shown(served, guest):
    guest.joined(start_v5(guest, "named", "walkers-é", 0))
    shown = arkml(
        "hive", "show", "named", "--hive", served.address, "--json", ARKML_HIVE_TOKEN=served.token
    )

    assert shown.json["run"]["module_id"] == "walkers-é"
    assert shown.json["run"]["workers"] == 0
    assert shown.json["settings"]["device"] == "cpu"


@pytest.mark.parametrize("hardware", [1, 2])
def test_hardware_that_the_hive_lacks_is_unavailable(served, guest, caplog, hardware):
    future = start_v5(guest, "gpu", "", hardware)
    guest.wait(V1, "training_handle", future)
    code = guest.take(V1, "training_handle", future, 8)[0]

    assert code is ErrorCode.UNAVAILABLE
    assert "cuda" in caplog.text
    assert run_of(served, "gpu") is None


def test_the_configuration_of_a_run_names_the_device_before_its_hardware_does(served, guest):
    guest.joined(start_v5(guest, "own", "", 1, device="cpu"))

    assert served.client.details(run_of(served, "own").id).result().settings.device == "cpu"


def test_unknown_hardware_is_invalid(guest):
    room = guest.proxy.room(8)
    texts = [*guest.proxy.text("x"), *guest.proxy.text("{}"), *guest.proxy.text("space")]
    arguments = [*guest.proxy.text("localhost"), 12356, *texts, *guest.proxy.text(""), 60, 0, 3]
    code = guest.proxy.code(V5, "ml__start_training", *arguments, room)

    assert code is ErrorCode.INVALID_ARGUMENTS
