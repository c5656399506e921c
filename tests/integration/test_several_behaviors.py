"""Guests that start several runs, where one policy is rated, recorded or trained."""

import json
import logging

import pytest
from tests.integration.command_line import arkml as command
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL

import arkml
from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.errors import InvalidArguments, NotFound, UsageError
from arkml.policies.constant import zeros

LENGTH = 4  # steps of an episode
PICKER, HUNTER, DRIVER = ("picker", 1, 1), ("hunter", 1, -1_000), ("driver", 3, -1_000)
"""Runs: the name, the number of actions, and the reward of a step."""


def guest(*runs):
    """Return a module with one agent in each run, that traps where a call is refused."""
    data = starts = frames = ""
    for place, (name, actions, reward) in enumerate(runs):
        text, at = 1_024 + 64 * place, 16 * place
        data += f'(data (i32.const {text}) "{name}")'
        starts += f"""(call $require (call $start (i32.const {text}) (i32.const 0) (i32.const 0)
          (i32.const {text}) (i32.const {len(name)}) (i32.const {text}) (i32.const {len(name)})
          (i32.const 1) (i32.const {actions}) (i32.const {at})))"""
        frames += f"""
          (if (i32.eqz (global.get $has{place})) (then
            (call $require (call $poll (i64.load (i32.const {at})) (i32.const 512)))
            (if (i32.eqz (i32.load8_u (i32.const 512))) (then (return)))
            (call $require (call $take (i64.load (i32.const {at})) (i32.const {at + 8})))
            (global.set $has{place} (i32.const 1))))
          (call $require (call $push (i64.load (i32.const {at + 8}))
            (i64.extend_i32_u (i32.div_u (global.get $turn) (i32.const {LENGTH + 1})))
            (call $state) (f32.const {reward}) (i32.const 256) (i32.const 1) (i32.const 0)
            (i32.const 0) (f32.const 1)))
          (call $require (call $submit (i64.load (i32.const {at + 8})) (i32.const 256)
            (i32.const {actions}) (i32.const 512) (i32.const 1)))"""
    known = "".join(f"(global $has{place} (mut i32) (i32.const 0))" for place in range(len(runs)))
    return f"""(module
      (import "ark-ml-v1" "ml__start_training"
        (func $start (param i32 i32 i32 i32 i32 i32 i32 i32 i32 i32) (result i32)))
      (import "ark-ml-v1" "ml__poll_future_training_handle"
        (func $poll (param i64 i32) (result i32)))
      (import "ark-ml-v1" "ml__take_future_training_handle"
        (func $take (param i64 i32) (result i32)))
      (import "ark-ml-v1" "ml__push_training_observation"
        (func $push (param i64 i64 i32 f32 i32 i32 i32 i32 f32) (result i32)))
      (import "ark-ml-v1" "ml__submit_training_observations"
        (func $submit (param i64 i32 i32 i32 i32) (result i32)))
      (memory (export "memory") 1) {data} {known} (global $turn (mut i32) (i32.const 0))
      (func $require (param i32) (if (local.get 0) (then unreachable)))
      (func $state (result i32) (local $step i32)
        (local.set $step (i32.rem_u (global.get $turn) (i32.const {LENGTH + 1})))
        (if (i32.eqz (local.get $step)) (then (return (i32.const {INITIAL}))))
        (select (i32.const {TERMINAL}) (i32.const {RUNNING})
          (i32.eq (local.get $step) (i32.const {LENGTH}))))
      (func (export "ark_initialize") {starts})
      (func (export "ark_applet_update") {frames}
        (global.set $turn (i32.add (global.get $turn) (i32.const 1)))))""".encode()


SAME, BOTH = guest(PICKER, HUNTER), guest(PICKER, DRIVER)


@pytest.mark.parametrize(("name", "reward"), [("picker", 1), ("hunter", -1_000)])
def test_only_agents_of_the_behavior_that_is_named_are_rated(name, reward):
    result = arkml.evaluate(SAME, zeros(1, 1), episodes=8, behavior=name)

    assert result.returns.tolist() == [reward * LENGTH] * 8


@pytest.mark.parametrize("module", [SAME, guest(HUNTER, PICKER)])
def test_a_policy_that_fits_several_behaviors_needs_the_name_of_one(module, tmp_path):
    calls = (
        lambda: arkml.evaluate(module, zeros(1, 1), episodes=8),
        lambda: arkml.record(module, zeros(1, 1), tmp_path / "same.npz", episodes=8),
    )
    for call in calls:
        with pytest.raises(
            UsageError, match=r"the policy fits both: name the one .* by `behavior`"
        ):
            call()
    assert not list(tmp_path.iterdir())


def test_agents_that_a_policy_does_not_fit_get_zeros_and_do_not_count(caplog):
    with caplog.at_level(logging.WARNING):
        result = arkml.evaluate(BOTH, zeros(1, 1), episodes=8)

    assert result.returns.tolist() == [LENGTH] * 8
    assert [r.getMessage() for r in caplog.records] == [
        "evaluation: agents of driver get zeros, and their episodes do not count: `others`"
        " (--other) gives them a policy"
    ]


def test_a_policy_of_agents_that_start_later_is_rated_by_their_name():
    result = arkml.evaluate(BOTH, zeros(1, 3), episodes=8, behavior="driver")

    assert result.returns.tolist() == [-1_000 * LENGTH] * 8
    with pytest.raises(InvalidArguments):
        arkml.evaluate(BOTH, zeros(1, 3), episodes=8)


def test_a_behavior_that_the_guest_does_not_have_is_said():
    with pytest.raises(NotFound, match="started no training of 'walker', but of picker, hunter,"):
        arkml.evaluate(SAME, zeros(1, 1), episodes=1, frames=20, behavior="walker")


def test_a_recording_has_rows_of_the_named_behavior_only(tmp_path):
    (tmp_path / "same.wasm").write_bytes(SAME)
    (tmp_path / "p.onnx").write_bytes(zeros(1, 1))
    words = ("record", "same.wasm", "--policy", "p.onnx", "-o", "same.npz", "--json")
    refused = command(*words, cwd=tmp_path)
    done = command(*words, "--behavior", "hunter", "--episodes", "8", cwd=tmp_path)
    rows = read_demonstrations(tmp_path / "same.npz").columns

    assert refused.status == 2
    assert "--behavior" in refused.err
    assert json.loads(done.out)["mean_return"] == -1_000 * LENGTH
    assert set(rows.reward.tolist()) == {-1_000.0}
    assert len(rows) == 8 * (LENGTH + 1)


@pytest.mark.learns
@pytest.mark.parametrize("module", [SAME, BOTH])
def test_the_evaluations_of_a_training_rate_its_own_agents(tmp_path, module):
    result = arkml.train(
        module, minutes=5, eval_every=40, settings={"memory_min_size": 20, "batch_size": 8},
        progress=lambda state: not state.evaluations, directory=tmp_path,
    )  # fmt: skip

    assert {value for one in result.evaluations for value in one.returns} == {float(LENGTH)}
    assert not [one for one in result.warnings if "zeros" in one]


@pytest.mark.learns
def test_a_training_of_several_runs_is_rated_by_evaluations_of_the_first(tmp_path):
    result = arkml.train(
        SAME, minutes=5, until_return=-1e9, settings={"memory_min_size": 20, "batch_size": 8},
        directory=tmp_path,
    )  # fmt: skip

    assert result.end_reason == "return"
    assert {value for one in result.evaluations for value in one.returns} == {float(LENGTH)}
    assert not [one for one in result.warnings if "zeros" in one]
