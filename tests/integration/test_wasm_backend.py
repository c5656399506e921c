"""Hosts that run models as WebAssembly: what they answer, refuse, and leave alone."""

import json

import numpy as np
import pytest
from tests.integration.command_line import GUESTS, arkml
from tests.integration.guest_text import python
from tests.integration.test_policy_changes import (
    FIRST,
    SECOND,
    adding,
    choosing,
    linear,
    noisy,
    played,
    player,
)
from tests.unit import policy_models as build

from arkml.errors import ModelRejected, UsageError

FRAMES, GUESTS_OF_FLEET = range(12), 3
MODELS = {
    "linear": linear(FIRST), "noise": noisy(FIRST), "memory": adding(FIRST, width=5),
    "memory and noise": adding(FIRST, width=2, noise=True), "choices": choosing([1, 3, 2]),
}  # fmt: skip
CUMULATIVE = build.model(
    [build.node("CumSum", "obs one", "sums"), build.node("MatMul", "sums w", "actions")],
    [build.port("obs", "N", 2)], [build.port("actions", "N", 1)],
    [build.weight("w", np.ones((2, 1))),
     build.numpy_helper.from_array(np.array(1, np.int64), "one")],
)  # fmt: skip


def actions(make_host, model, backend, guests=GUESTS_OF_FLEET, **options):
    fleet = make_host(backend=backend, seed=9, **options).fleet(player(model), guests)
    assert set(fleet.call("open0").values) == {0}
    return np.float32(played(fleet, FRAMES))


@pytest.mark.parametrize("is_of_guest", [True, False])
@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_guests_get_the_answers_of_onnxruntime_but_for_the_last_bits(make_host, model, is_of_guest):
    given = {} if is_of_guest else {"policy": model}
    ours = actions(make_host, model, "wasm", **given)
    theirs = actions(make_host, model, "onnxruntime", **given)

    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-5)
    assert len(np.unique(ours)) > len(FRAMES) or model == MODELS["choices"]


@pytest.mark.parametrize("model", MODELS.values(), ids=MODELS)
def test_a_guest_alone_gets_the_bits_of_a_guest_in_a_fleet(make_host, model):
    one, many = (actions(make_host, model, "wasm", guests=n) for n in (1, GUESTS_OF_FLEET))

    assert np.array_equal(one[:, 0], many[:, 0])


def test_without_the_native_library_the_bits_are_the_same(make_host):
    script = """
import os, sys, json
os.environ["ARKML_PURE"] = "1"
import numpy as np
from arkml import Host
from tests.integration.test_wasm_backend import MODELS, FRAMES
from tests.integration.test_policy_changes import played, player
found = []
for model in MODELS.values():
    with Host(backend="wasm", seed=9) as host:
        fleet = host.fleet(player(model), 3)
        fleet.call("open0")
        found.append(played(fleet, FRAMES))
print(json.dumps(found))
"""
    printed = json.loads(python(script).stdout)

    for found, model in zip(printed, MODELS.values(), strict=True):
        assert np.array_equal(np.float32(found), actions(make_host, model, "wasm"))


def test_a_change_of_policy_goes_on_with_what_agents_remember(make_host):
    fleet = make_host(backend="wasm", policy=adding(FIRST)).fleet(player(linear(FIRST)), 1)
    fleet.call("open0")
    before = played(fleet, range(3))
    other = make_host(backend="onnxruntime", policy=adding(FIRST)).fleet(player(linear(FIRST)), 1)
    other.call("open0")
    expected = played(other, range(3))
    fleet.use(adding(SECOND)).result()
    other.use(adding(SECOND)).result()

    assert before == expected
    assert played(fleet, range(3, 6)) == played(other, range(3, 6))


def test_a_policy_that_cannot_be_compiled_is_refused_with_its_operators(make_host):
    with pytest.raises(
        ModelRejected, match='no CumSum; hosts run the model by backend="onnxruntime"'
    ):
        make_host(backend="wasm", policy=CUMULATIVE)

    make_host(policy=CUMULATIVE)


def test_a_guest_whose_model_cannot_be_compiled_gets_a_code(make_host, caplog):
    guest = make_host(backend="wasm").load(player(CUMULATIVE))

    assert guest.call("open0") != 0
    assert "no CumSum" in caplog.text


@pytest.mark.parametrize("backend", ["tract", None, 3])
def test_a_backend_that_there_is_not_is_refused(make_host, backend):
    with pytest.raises(UsageError, match="it takes 'onnxruntime' or 'wasm'"):
        make_host(backend=backend)


def test_a_network_for_several_rows_at_once_is_refused(make_host):
    model = build.adding(2, batch=4)

    with pytest.raises(ModelRejected, match="takes 4 rows at once, and not one"):
        make_host(backend="wasm", policy=model)


def test_the_command_line_runs_a_policy_as_webassembly(tmp_path):
    refused, policy = tmp_path / "refused.onnx", tmp_path / "policy.onnx"
    refused.write_bytes(CUMULATIVE)
    policy.write_bytes(build.linear(np.ones((4, 2))))
    words = ["run", GUESTS / "c_npc.wasm", "--frames", "20", "--json", "--policy"]
    runs = [arkml(*words, policy, "--backend", name) for name in ("wasm", "onnxruntime")]

    assert [run.status for run in runs] == [0, 0]
    told = arkml(*words, refused, "--backend", "wasm")
    assert told.status != 0
    assert "refused.onnx" in told.err
    assert "no CumSum" in told.err
