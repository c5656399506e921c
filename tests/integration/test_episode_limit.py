"""`max_episode_steps` where episodes are played by a policy: trainings, evaluations, recordings."""

import logging

import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.command_line import arkml as command
from tests.integration.test_environment import INITIAL, RUNNING, scripted

import arkml
from arkml import HiveGrant, Host
from arkml.abi.codes import EpisodeState
from arkml.demonstrations.demonstration_files import read_demonstrations
from arkml.errors import UsageError
from arkml.host import hives_of
from arkml.policies.constant import zeros
from arkml.policies.step_limit import StepLimit
from arkml.training.evaluations import make_evaluating
from arkml.training.outcome import membership_of
from arkml.training.task_runner import Renewal, make_runner
from arkml.training.tasks import find_task

REACH = GUESTS / "c_reach_seeded.wasm"
COIN = GUESTS / "c_coin.wasm"
COIN_SEEDED = GUESTS / "c_coin_seeded.wasm"
CMDLET = GUESTS / "ark_api" / "cmdlet_train_016.wasm"
QUICK = {"hidden": 32, "batch_size": 64, "memory_min_size": 640}
DRAWN = QUICK | {"algorithm": "drawn"}
AGENTS, STEPS, LIMIT = 64, 50, 7
SUBMIT_EACH = scripted(
    [(1, INITIAL, 0)],
    *[[(1, RUNNING, 1)]] * 200,
    each=f"""(call $row (i64.const 2)
      (select (i32.const {INITIAL:d}) (i32.const {RUNNING:d}) (i32.eqz (global.get $turn)))
      (f32.const 1)) (call $answer (i32.const 1))""",
)
"""An applet of two agents, each with a submit of its own in every frame."""
ONE_LEFT = scripted([(1, INITIAL, 0), (2, INITIAL, 0)], *[[(1, RUNNING, 1)]] * 200)


def test_an_evaluation_cuts_episodes_off_and_plays_the_next_ones_in_new_guests():
    result = arkml.evaluate(REACH, zeros(4, 2), episodes=2 * AGENTS + 1, max_episode_steps=LIMIT)

    assert set(result.lengths) == {LIMIT}
    assert len(set(result.returns)) == len(result.returns)  # each guest has a seed of its own
    assert result.shortfall == ""


def test_a_limit_above_the_length_of_episodes_changes_none():
    free = arkml.evaluate(COIN, zeros(1, 1), episodes=16)
    limited = arkml.evaluate(COIN, zeros(1, 1), episodes=16, max_episode_steps=201)

    assert limited.lengths.tolist() == free.lengths.tolist()
    assert limited.returns.tolist() == free.returns.tolist()


@pytest.mark.parametrize(("limit", "truth"), [(50, 30), (100, 55), (150, 80), (201, 105)])
def test_a_limit_prefers_neither_short_nor_long_episodes(limit, truth):
    """Half of the episodes take 10 steps and half 200, with a reward of 1 a step."""
    result = arkml.evaluate(COIN_SEEDED, zeros(1, 1), episodes=800, max_episode_steps=limit)

    assert set(result.lengths) == {10, min(limit, 200)}
    assert result.returns.mean() == pytest.approx(truth, abs=5 * (truth - 10) / 800**0.5)
    assert len(result.returns) == 800


def test_guests_without_a_seed_that_repeat_each_other_are_told_once(caplog):
    with caplog.at_level(logging.WARNING):
        for guest, episodes in ((COIN, 64), (COIN, 16), (COIN_SEEDED, 64)):
            arkml.evaluate(guest, zeros(1, 1), episodes=episodes, max_episode_steps=100)

    assert [record.getMessage() for record in caplog.records] == [
        "evaluation: c_coin.wasm takes no seed, for it exports no arkml_seed: the guest after each"
        " episode that is cut off repeats the episodes of the one before"
    ]


def test_a_recording_with_a_limit_has_as_many_short_episodes_as_long_ones(tmp_path):
    file = tmp_path / "coin.npz"
    recording = arkml.record(COIN_SEEDED, zeros(1, 1), file, episodes=400, max_episode_steps=50)
    rows = read_demonstrations(file).columns
    is_end = (rows.state == EpisodeState.TERMINAL) | (rows.state == EpisodeState.INTERRUPTED)

    assert recording.returns.mean() == pytest.approx(30, abs=5 * 20 / 400**0.5)
    assert sorted(rows.step[is_end]) == sorted(recording.lengths)
    assert len(np.unique(rows.agent)) == len(recording.lengths) == 400
    assert len(rows) == sum(recording.lengths + 1)


def test_agents_with_a_submit_each_are_cut_off_at_the_same_step():
    result = arkml.evaluate(SUBMIT_EACH, zeros(1, 1), episodes=4, max_episode_steps=5)

    assert result.lengths.tolist() == [5] * 4
    assert result.shortfall == ""


def test_an_agent_without_a_row_ends_with_the_one_that_is_over_the_limit():
    result = arkml.evaluate(ONE_LEFT, zeros(1, 1), episodes=1, max_episode_steps=5)

    assert (result.returns.tolist(), result.lengths.tolist()) == ([5.0], [5])
    assert result.shortfall == ""


def test_a_recording_has_the_cut_as_interrupted_and_no_row_after_it(tmp_path, caplog):
    file = tmp_path / "reach.npz"
    with caplog.at_level(logging.WARNING):
        recording = arkml.record(
            REACH, zeros(4, 2), file, episodes=2 * AGENTS, max_episode_steps=LIMIT
        )
    rows = read_demonstrations(file).columns

    assert set(recording.lengths) == {LIMIT}
    assert np.array_equal(rows.state == EpisodeState.INTERRUPTED, rows.step == LIMIT)
    assert not (rows.state == EpisodeState.TERMINAL).any()
    assert rows.step.max() == LIMIT
    assert not caplog.records


@pytest.mark.learns
def test_a_training_and_its_evaluations_have_the_limit(tmp_path):
    evaluated = []

    def goes_on(state):
        evaluated.extend(state.evaluations)
        return not evaluated or state.metrics.get("time/episodes", 0) < 2 * AGENTS

    result = arkml.train(
        REACH, minutes=5, eval_every=60, max_episode_steps=LIMIT, settings=QUICK,
        progress=goes_on, directory=tmp_path,
    )  # fmt: skip

    assert result.metrics["rollout/ep_len_mean"] == LIMIT
    assert result.metrics["time/episodes"] >= 2 * AGENTS
    assert {length for one in result.evaluations for length in one.lengths} == {LIMIT}
    assert result.warnings == ()


@pytest.mark.learns
def test_a_training_with_a_limit_prefers_neither_short_nor_long_episodes(tmp_path):
    result = arkml.train(
        COIN_SEEDED, minutes=5, instances=4, eval_every=400, evaluate_episodes=100, frames=1_200,
        max_episode_steps=50, settings=QUICK, directory=tmp_path,
    )  # fmt: skip
    returns = result.evaluation_returns

    assert result.training_curve.mean_returns.mean() == pytest.approx(30, abs=5 * 20 / 10)
    assert returns.mean() == pytest.approx(30, abs=5 * 20 / len(returns) ** 0.5)


@pytest.mark.learns
def test_the_workers_of_a_training_have_the_limit(tmp_path):
    result = arkml.train(
        REACH, frames=150, actors=2, instances=2, max_episode_steps=LIMIT, settings=QUICK,
        eval_every=None, directory=tmp_path,
    )  # fmt: skip

    assert min(one.rows for one in result.workers) > AGENTS * LIMIT
    assert result.metrics["rollout/ep_len_mean"] == LIMIT
    # A learner that only draws is called stuck where workers are slow to start.
    assert [one for one in result.warnings if not one.startswith("the run is stuck")] == []


def test_a_training_of_a_guest_without_a_seed_says_that_episodes_may_begin_alike(tmp_path):
    result = arkml.train(
        GUESTS / "c_reach.wasm", minutes=5, max_episode_steps=LIMIT, settings=DRAWN,
        progress=lambda state: not state.updates, directory=tmp_path,
    )  # fmt: skip

    assert [one for one in result.warnings if "after each episode that is cut off" in one]


def test_new_guests_take_part_in_the_session_of_those_before(tmp_path):
    grant = HiveGrant(shared=True, wait_for_learner=True, settings=DRAWN, data=tmp_path)
    with Host(hive=grant) as host:
        hives, module = hives_of(host), host.compile(REACH)
        hives.limit = StepLimit(LIMIT)
        renewal, task = Renewal(hives.limit, 3), find_task(module)
        runner = make_runner(host, module, task, instances=1, budget=None, renewal=renewal)
        runner.initialize()
        first = runner.subject.guests[0]
        while not hives.is_training:
            runner.step()
        session = membership_of(runner.subject).session
        lives = {first}
        while len(lives) < 4:
            runner.step()
            lives.add(runner.subject.guests[0])
        last = runner.subject.guests[0]

        assert membership_of(runner.subject).session is session
        assert (first.name, len(runner.subject)) == (last.name, 1)
        assert not session.ended.done()
    assert session.ended.done()
    assert session.failure is None


@pytest.mark.parametrize("limit", [0, -1, 2.5, "5", True])
def test_a_limit_that_is_not_a_number_of_steps_is_refused(tmp_path, limit):
    calls = (
        lambda: arkml.evaluate(REACH, zeros(4, 2), max_episode_steps=limit),
        lambda: arkml.record(REACH, zeros(4, 2), tmp_path / "r.npz", max_episode_steps=limit),
        lambda: arkml.train(REACH, directory=tmp_path / "t", max_episode_steps=limit),
    )
    for call in calls:
        with pytest.raises(UsageError, match=r"max_episode_steps is .*: it takes a whole number"):
            call()
    assert not list(tmp_path.iterdir())


def test_a_guest_that_plays_its_episodes_in_one_call_is_refused(tmp_path):
    calls = (
        lambda: arkml.train(CMDLET, cmdlet="walk 1 3", directory=tmp_path, max_episode_steps=9),
        lambda: arkml.evaluate(CMDLET, zeros(1, 1), cmdlet="walk 1 3", max_episode_steps=9),
    )
    for call in calls:
        with pytest.raises(UsageError, match=r"train_016\.wasm is cmdlet .* ends them by Inter"):
            call()


def test_a_guest_that_fails_in_an_evaluation_with_a_limit_is_told_as_without(host):
    module = host.compile(b'(module (func (export "ark_applet_update") unreachable))')
    task = find_task(module)
    runner, _ = make_evaluating(host, module, task, task.budget(), max_episode_steps=9)
    with pytest.raises(arkml.GuestTrap, match="unreachable"):
        runner.step()


def test_the_commands_take_the_limit(tmp_path):
    words = ["train", str(CMDLET), "--cmdlet", "walk 1 3", "--out", str(tmp_path / "t")]
    refused = command(*words, "--max-episode-steps", "9")
    zero = command("record", str(REACH), "--max-episode-steps", "0")

    assert refused.status == 2
    assert "max_episode_steps is for guests that are called frame by frame" in refused.err
    assert zero.status == 2
    assert "--max-episode-steps" in zero.err
