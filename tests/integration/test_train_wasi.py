"""Guests with a C library and WASI are trained, evaluated and recorded, where that is granted."""

import pytest
from tests.integration.command_line import arkml
from tests.integration.guest_text import GUESTS
from tests.integration.test_train_evaluations import QUICK
from tests.published_policies import scoring

import arkml as library
from arkml.errors import LinkError

DRIFT = GUESTS / "c_drift.wasm"
REFUSED = "WASI is not granted"


def test_a_guest_of_wasi_is_trained_by_workers_and_rated(tmp_path):
    def goes_on(progress):
        return len(progress.workers) < 2 or not all(each.rows for each in progress.workers)

    result = library.train(
        DRIFT, minutes=2, eval_every=100, settings=QUICK, actors=2, directory=tmp_path, wasi=True,
        progress=goes_on,
    )  # fmt: skip

    assert result.updates > 0
    assert result.evaluations
    assert [worker.rows > 0 for worker in result.workers] == [True, True]


def test_wasi_is_not_granted_unless_it_is_asked_for(tmp_path):
    policy = scoring(2, 1)
    for refused in (
        lambda: library.train(DRIFT, frames=10, settings=QUICK, directory=tmp_path),
        lambda: library.evaluate(DRIFT, policy, episodes=1),
        lambda: library.record(DRIFT, policy, tmp_path / "a.npz", episodes=1),
    ):
        with pytest.raises(LinkError, match=REFUSED):
            refused()


def test_commands_take_the_grant(tmp_path):
    policy, rows = tmp_path / "a.onnx", tmp_path / "a.npz"
    policy.write_bytes(scoring(2, 1))
    words = ["record", DRIFT, "--policy", policy, "-o", rows, "--episodes", "2"]
    refused, done = arkml(*words), arkml(*words, "--wasi")

    assert refused.status != 0
    assert REFUSED in refused.err
    assert done.status == 0, done.err
    assert rows.exists()


def test_a_card_has_the_returns_of_a_guest_of_wasi(tmp_path):
    library.publish(DRIFT, scoring(2, 1), tmp_path / "site", episodes=2)
    assert "args: {episodes: 2, seed: 0}" in (tmp_path / "site/README.md").read_text()
