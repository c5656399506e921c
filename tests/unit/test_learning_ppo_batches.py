"""Advantages, the order of rows, and the pace of rollouts."""

import gymnasium
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from stable_baselines3.common.buffers import RolloutBuffer as TheirBuffer

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import SPREAD
from arkml.learning.ppo_batches import (
    AdvantageScale,
    count_minibatches,
    draw_minibatches,
    generalized_advantages,
    least_advantage,
    spread_of_returns,
)
from arkml.learning.rollout_buffer import RolloutBuffer, RolloutPace


def test_advantages_of_a_chain_are_those_by_hand():
    rewards, values = np.array([1.0, 2.0]), np.array([10.0, 20.0, 40.0])
    deltas = (1 + 0.5 * 20 - 10, 2 + 0.5 * 40 - 20)
    open_ = generalized_advantages(rewards, values, np.array([1, 2]), np.zeros(2, bool), 0.5, 0.8)
    over = generalized_advantages(
        rewards, values, np.array([1, 2]), np.array([False, True]), 0.5, 0.8
    )

    assert open_ == pytest.approx([deltas[0] + 0.4 * deltas[1], deltas[1]])
    assert over == pytest.approx([deltas[0] + 0.4 * (2 - 20), 2 - 20])


def test_advantages_are_those_of_stable_baselines3():
    random = np.random.default_rng(0)
    steps, agents = 13, 3
    box = gymnasium.spaces.Box(-1, 1, (1,), np.float32)
    theirs = TheirBuffer(steps, box, box, "cpu", gae_lambda=0.9, gamma=0.95, n_envs=agents)
    theirs.rewards[:] = random.standard_normal((steps, agents))
    theirs.values[:] = random.standard_normal((steps, agents))
    starts = random.random((steps + 1, agents)) < 0.2
    theirs.episode_starts[:] = starts[:-1]
    last = random.standard_normal(agents).astype(np.float32)
    theirs.compute_returns_and_advantage(torch.from_numpy(last), starts[-1])
    count = steps * agents
    following = np.arange(count) + agents
    dones = starts[1:].reshape(-1)
    values = np.concatenate([theirs.values.reshape(-1), last, np.zeros(count)]).astype(np.float64)
    following[dones] = count + agents + np.flatnonzero(dones)
    ours = generalized_advantages(theirs.rewards.reshape(-1), values, following, dones, 0.95, 0.9)

    np.testing.assert_allclose(ours, theirs.advantages.reshape(-1), atol=1e-5)


@settings(deadline=None, max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 20), st.booleans()), min_size=1, max_size=6), st.data())
def test_advantages_of_ragged_chains_are_what_a_loop_finds(chains, data):
    """Chains with rows in any order: nothing crosses from one to another."""
    count = sum(length for length, _ in chains)
    random = np.random.default_rng(data.draw(st.integers(0, 99)))
    places = random.permutation(count)
    rewards, values = random.standard_normal(count), random.standard_normal(count + len(chains))
    following, dones, expected = np.zeros(count, int), np.zeros(count, bool), np.zeros(count)
    first = 0
    for number, (length, done) in enumerate(chains):
        rows = places[first : first + length]
        first += length
        following[rows] = [*rows[1:], count + number]
        dones[rows[-1]] = done
        ahead, value = 0.0, 0.0 if done else values[count + number]
        for row in reversed(rows):
            ahead = rewards[row] + 0.9 * value - values[row] + 0.9 * 0.8 * ahead
            expected[row], value = ahead, values[row]

    found = generalized_advantages(rewards, values, following, dones, 0.9, 0.8)
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(st.integers(2, 300), st.integers(1, 3), st.integers(2, 70))
def test_minibatches_have_each_row_once_an_epoch_and_two_at_least(rows, epochs, size):
    drawn = draw_minibatches(np.random.default_rng(0), rows, epochs, size)
    counts = (drawn >= 0).sum(1)

    assert drawn.shape == (epochs * count_minibatches(rows, size), size, 1)
    assert 2 <= counts.min() <= counts.max() <= size
    assert counts.max() - counts.min() <= 1
    for epoch in np.split(drawn, epochs):
        used = epoch[epoch >= 0]
        assert len(np.unique(used)) == len(used) == rows - (size == 2 and rows % 2)


def test_advantages_are_divided_by_their_deviation():
    drawn = np.random.default_rng(0).normal(3.0, 5.0, 4_096)
    first = AdvantageScale().after(drawn)
    scaled = first.scaled(drawn)

    assert (scaled.mean(), scaled.std()) == pytest.approx((0.0, 1.0))
    assert AdvantageScale().after(np.ones(8)).scaled(np.ones(8)).tolist() == [0.0] * 8


def test_small_advantages_after_large_ones_stay_small():
    large, small = np.array([-1.0, 1.0] * 50), np.array([-0.01, 0.01] * 50)
    scale = AdvantageScale()
    for _ in range(3):
        scale = scale.after(large)
    for rollouts in (1, 20, 120):
        later = scale
        for _ in range(rollouts):
            later = later.after(small)
        expected = 1.0 - 0.9**3, 1.0 - 0.9 ** (3 + rollouts)
        of_late = 0.9**rollouts * expected[0] + (expected[1] - 0.9**rollouts * expected[0]) * 1e-4

        assert later.scaled(small).std() == pytest.approx(0.01 / np.sqrt(of_late / expected[1]))
    assert later.scaled(small).std() > 0.9  # in the end they are all that there is
    assert later.after(large).scaled(large).std() == pytest.approx(1.0)  # never more than that


def test_advantages_that_have_been_small_for_long_stay_small_beside_a_bonus_for_entropy():
    noise = np.array([-0.01, 0.01] * 50)
    scale = AdvantageScale()
    for _ in range(200):
        scale = scale.after(noise)
    plain = Settings(1, 1)
    bonus = plain.changed({"entropy_coefficient": 0.01})
    least = least_advantage(bonus, 0.99)

    assert scale.scaled(noise, least).std() == pytest.approx(0.1)
    assert scale.after(50 * noise).scaled(50 * noise, least).std() == pytest.approx(1.0)
    assert least_advantage(bonus, 0.9999) == pytest.approx(0.01)
    assert scale.scaled(noise, least_advantage(plain, 0.99)).std() == pytest.approx(1.0)
    # Without normalization nothing tells what is small.
    assert least_advantage(bonus.changed({"normalize": False}), 0.99) == 0.0


def test_every_epoch_has_an_order_of_its_own():
    first, second = np.split(draw_minibatches(np.random.default_rng(0), 50, 2, 50), 2)

    assert first.tolist() != second.tolist()


def test_normalized_returns_have_a_spread_of_one():
    assert spread_of_returns(Settings(1, 1)) == SPREAD
    assert spread_of_returns(Settings(1, 1, normalize=False)) == 1.0


def paced(rollout_rows=64, **changes):
    of = Settings(1, 1, rollout_rows=rollout_rows, batch_size=16, epochs=3, **changes)
    buffer = RolloutBuffer(of)
    return buffer, RolloutPace(buffer)


def body(first, count, version=1, agent=1):
    rows = RowColumns.empty(count, 1, 1)
    rows.agent[:] = agent
    rows.step[:] = first + np.arange(count)
    rows.state[:] = np.where(rows.step == 0, EpisodeState.INITIAL, EpisodeState.RUNNING)
    rows.version[:] = version
    return rows


def test_the_updates_due_are_those_of_all_epochs_of_a_full_rollout():
    buffer, pace = paced()
    buffer.published(1)
    buffer.add(0, RowKind.TRAINING, body(0, 64))
    before = pace.due(64, 0)
    buffer.add(0, RowKind.TRAINING, body(64, 10))

    assert before == 0
    assert pace.due(74, 0) == 3 * 5  # 73 rows
    assert pace.turn(15) == 15


def test_rows_are_held_from_a_full_rollout_to_the_next_version():
    buffer, pace = paced()
    holds = [pace.holds]
    buffer.published(1)
    pace.awaits_version = False
    holds.append(pace.holds)
    buffer.add(0, RowKind.TRAINING, body(0, 65))
    holds.append(pace.holds)
    buffer.release()
    pace.awaits_version = True
    holds.append(pace.holds)
    pace.awaits_version = False
    holds.append(pace.holds)

    assert holds == [True, False, True, True, False]


@settings(deadline=None, max_examples=40)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(0, 3)), min_size=1, max_size=60))
def test_rows_enough_for_a_rollout_are_always_admitted(bodies):
    """Whatever rows arrive, more are admitted until the rollout is full, also if all are stale."""
    buffer, pace = paced()
    buffer.published(1)
    pace.awaits_version = False
    pace.begin(500, 0)
    first = 0
    for count, version in bodies:
        assert pace.holds or pace.admitted(0) > 500 + buffer.rows
        buffer.add(0, RowKind.TRAINING, body(first, count, version))
        first += count

    assert pace.admitted(0) <= 500 + buffer.rows + 64 + 256


def test_the_time_of_an_update_is_a_moving_average():
    _, pace = paced()
    pace.record(10, 1.0)
    first = pace.update_seconds
    pace.record(10, 2.0)

    assert first == pytest.approx(0.1)
    assert pace.update_seconds == pytest.approx(0.12)
