"""A declared `decision_period`, where guests decide at each of their submits."""

import logging

import pytest
from tests.integration.command_line import GUESTS
from tests.integration.command_line import arkml as command

import arkml
from arkml.policies.constant import zeros

SPEC = b'{"behaviors": {"coin": {"decision_period": 8}}}'
SENTENCE = "declares decision_period 8 for coin: it holds in environments and trials, and not here"


@pytest.fixture
def module(tmp_path):
    """The path of a guest whose module declares a period."""
    path = tmp_path / "coin.wasm"
    body = b"\x0aarkml.spec" + SPEC
    path.write_bytes((GUESTS / "c_coin.wasm").read_bytes() + bytes([0, len(body)]) + body)
    return path


def test_evaluations_and_recordings_say_once_that_the_period_does_not_hold(
    module, tmp_path, caplog
):
    with caplog.at_level(logging.WARNING):
        arkml.evaluate(module, zeros(1, 1), episodes=4)
        arkml.record(module, zeros(1, 1), tmp_path / "coin.npz", episodes=4)
        arkml.evaluate(GUESTS / "c_coin.wasm", zeros(1, 1), episodes=4)

    assert sum(SENTENCE in record.getMessage() for record in caplog.records) == 2


def test_a_training_says_once_that_the_period_does_not_hold(module, tmp_path):
    result = arkml.train(
        module, minutes=5, progress=lambda state: not state.versions,
        settings={"algorithm": "drawn"}, directory=tmp_path / "t",
    )  # fmt: skip

    assert sum(SENTENCE in warning for warning in result.warnings) == 1


def test_the_run_of_a_guest_says_once_that_the_period_does_not_hold(module):
    assert command("run", str(module), "--frames", "2").err.count(SENTENCE) == 1
