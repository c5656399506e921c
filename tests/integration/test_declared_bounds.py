"""Continuous actions as guests take them, whatever bounds they declare."""

import json
import logging

import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.command_line import arkml as command
from tests.unit.policy_models import model, node, port, weight

import arkml
from arkml import GuestEnv, HiveGrant, Host, Limits
from arkml.abi.codes import EpisodeState
from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.training.evaluations import EpisodePlayer, EvaluationTask

WALKERS = GUESTS / "c_walkers.wasm"  # an eighth of each action is added to the agent's position
SENTENCE = "declares actions in [-8, 8] for 'red': they hold in environments and trials, and not"
START = np.array([41, 82, 123]) / 128 - 1  # of the three agents
STEPS = 4
DRAWN = {"algorithm": "drawn"}


def declaring(guest, name, path):
    """The path of a guest whose module declares actions in [-8, 8] for `name`."""
    spec = {"behaviors": {name: {"actions": {"low": -8, "high": 8}}}}
    body = b"\x0aarkml.spec" + json.dumps(spec).encode()
    path.write_bytes(guest.read_bytes() + bytes([0, len(body)]) + body)
    return path


@pytest.fixture
def module(tmp_path):
    return declaring(WALKERS, "red", tmp_path / "walkers.wasm")


def returned(actions):
    """The return of each agent that takes these actions, one after the other."""
    places = START[:, None] + 0.125 * np.cumsum(actions)
    return -np.abs(places).sum(axis=1)


def sevens(rows):
    return np.full((len(rows), 1), 7.0)


def fed_back():
    """actions = 3 - the action before"""
    steps = [
        node("MatMul", "obs none", "zero"), node("Sub", "three prev_action", "rest"),
        node("Add", "rest zero", "action"),
    ]  # fmt: skip
    ports = [port("obs", "N", 2), port("prev_action", "N", 1)]
    weights = [weight("none", [[0], [0]]), weight("three", [3])]
    return model(steps, ports, [port("action", "N", 1)], weights)


def played(module, **options):
    options = {"episodes": 3, "max_episode_steps": STEPS} | options
    return sorted(arkml.evaluate(module, **options).returns)


def test_an_evaluation_plays_the_actions_that_environments_play(module):
    with GuestEnv(module) as env:
        env.reset()
        steps = [env.step(np.full((3, 1), 7.0)).decisions[0] for _ in range(STEPS)]
    rewards = np.sum([step.rewards for step in steps], axis=0)

    assert sorted(rewards) == pytest.approx(sorted(returned([7.0] * STEPS)))
    assert played(module, policy=sevens) == pytest.approx(sorted(rewards))
    assert played(WALKERS, policy=sevens) == pytest.approx(sorted(rewards))


def test_a_policy_is_told_the_action_before_as_it_was_taken(module):
    returns = played(module, policy=fed_back())

    assert returns == pytest.approx(sorted(returned([3.0, 0.0, 3.0, 0.0])))


def test_a_version_of_a_training_is_rated_by_the_actions_that_its_agents_take(host):
    steps = [node("MatMul", "features none", "zero"), node("Add", "zero seven", "actions")]
    ports = [port("features", "N", 2)], [port("actions", "N", 1)]
    version = model(steps, *ports, [weight("none", [[0], [0]]), weight("seven", [7])])
    task = EvaluationTask("walkers", None, Limits(), False, 3, 100, STEPS)
    played = EpisodePlayer(host, task, WALKERS.read_bytes()).play("red", 1, 3, version)

    assert sorted(played["returns"]) == pytest.approx(sorted(returned([1.0] * STEPS)))


def test_a_recording_has_the_actions_that_were_taken_and_says_that_learners_take_others(
    module, tmp_path, caplog
):
    file = tmp_path / "rows.npz"
    with caplog.at_level(logging.WARNING):
        recording = arkml.record(module, sevens, file, episodes=3, max_episode_steps=STEPS)
    read = read_demonstrations(file)
    goes_on = read.columns.state != EpisodeState.INTERRUPTED
    warning = "12 of 15 rows of {} have actions outside of [-1, 1]: learners take the nearest bound"

    assert sorted(recording.returns) == pytest.approx(sorted(returned([7.0] * STEPS)))
    assert set(read.columns.action[goes_on].flat) == {7.0}
    assert read.warnings == (warning.format(file),)
    assert warning.format(file) in caplog.messages


def test_actions_that_are_not_finite_are_recorded_as_they_are_answered(tmp_path):
    steps = [node("MatMul", "obs none", "zero"), node("Add", "zero infinity", "action")]
    weights = [weight("none", [[0], [0]]), weight("infinity", [np.inf])]
    infinite = model(steps, [port("obs", "N", 2)], [port("action", "N", 1)], weights)
    file = tmp_path / "rows.npz"
    arkml.record(WALKERS, infinite, file, episodes=3, max_episode_steps=STEPS)
    read = read_demonstrations(file)

    assert (len(read), read.warnings) == (15, ())
    assert not read.columns.action.any()


def test_a_training_says_once_that_its_actions_are_others(module, tmp_path):
    result, plain = (
        arkml.train(
            guest, minutes=5, progress=lambda state: not state.versions, settings=DRAWN,
            directory=tmp_path / name,
        )
        for name, guest in (("t", module), ("p", WALKERS))
    )  # fmt: skip

    assert sum(SENTENCE in warning for warning in result.warnings) == 1
    assert not any("declares actions" in warning for warning in plain.warnings)


def test_a_host_with_a_hive_logs_once_that_its_actions_are_others(module, tmp_path, caplog):
    with (
        caplog.at_level(logging.WARNING),
        Host(hive=HiveGrant(data=tmp_path, shared=True, settings=DRAWN)) as host,
    ):
        guests = [host.load(module) for _ in range(2)]
        for guest in guests:
            guest.initialize()
            guest.update()

    assert sum(SENTENCE in message for message in caplog.messages) == 1


def test_smoke_says_that_trainings_give_other_actions(tmp_path):
    pendulum = declaring(GUESTS / "c_pendulum.wasm", "pendulum", tmp_path / "pendulum.wasm")
    said = " ".join(command("smoke", str(pendulum), "--frames", "2").out.split())

    assert "declares 'pendulum'; actions in [-8, 8] for 'pendulum', where trainings give" in said
