"""Statistics of features and rewards, and when a policy gets to see them."""

import json

import numpy as np
import pytest

from arkml.learning import normalizer as module
from arkml.learning.normalizer import CLIP, SPREAD, Moments, Normalizer, Scaling

RANDOM = np.random.default_rng(0)


def rows(count=1_000, width=3):
    drawn = RANDOM.standard_normal((count, width)) * [1.0, 100.0, 0.01][:width]
    return (drawn + [5.0, -300.0, 0.0][:width]).astype(np.float32)


def test_moments_of_parts_are_the_moments_of_the_whole():
    values = rows()
    moments = Moments(3)
    for part in np.array_split(values, [1, 7, 7, 500]):
        moments.add(part)

    assert moments.mean == pytest.approx(values.mean(axis=0, dtype=np.float64))
    assert moments.variance == pytest.approx(values.var(axis=0, dtype=np.float64))


def test_features_are_normalized_once_the_statistics_are_adopted():
    made = Normalizer(3, active=True)
    values = rows()
    made.observe(values, np.zeros(0))
    before = made.current
    made.adopt()
    scaled = made.current.features(values)

    assert before.mean.tolist() == [0.0, 0.0, 0.0]
    assert scaled.dtype == np.float32
    assert scaled.mean(axis=0) == pytest.approx(np.zeros(3), abs=1e-3)
    assert scaled.std(axis=0) == pytest.approx(np.ones(3), abs=0.02)


def test_rewards_are_scaled_by_the_spread_of_returns():
    made = Normalizer(3, active=True)
    returns = RANDOM.standard_normal(10_000) * 40.0 + 1_000.0
    made.observe(rows(), returns)
    made.adopt()

    assert made.current.reward == pytest.approx(returns.std() / SPREAD)


@pytest.mark.parametrize("returns", [np.zeros(0), np.zeros(50), np.full(50, 7.0)])
def test_rewards_without_a_spread_are_left_alone(returns):
    made = Normalizer(3, active=True)
    made.observe(rows(), returns)
    made.adopt()

    assert made.current.reward == 1.0


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6, -3e30])
def test_a_constant_feature_becomes_zero_and_stays_bounded_when_it_moves(value):
    made = Normalizer(1, active=True)
    constant = np.full((500, 1), value, np.float32)
    made.observe(constant, np.zeros(0))
    made.adopt()
    moved = np.nextafter(constant, np.float32(np.inf))
    far = constant + np.float32(1e3) + np.abs(constant)

    assert np.abs(made.current.features(constant)).max() < 0.01
    assert np.abs(made.current.features(moved)).max() < 0.2
    assert made.current.features(far).max() == CLIP


def test_without_normalization_everything_stays_as_it_is():
    made = Normalizer(3, active=False)
    made.observe(rows(), np.arange(9.0))
    made.adopt()

    assert made.current.mean.tolist() == [0.0, 0.0, 0.0]
    assert made.current.inverse.tolist() == [1.0, 1.0, 1.0]
    assert made.current.reward == 1.0


def test_statistics_are_frozen_after_so_many_rows(monkeypatch):
    monkeypatch.setattr(module, "FROZEN_AFTER", 1_000)
    made = Normalizer(3, active=True)
    made.observe(rows(), np.arange(9.0))
    made.adopt()
    before = made.as_json()
    made.observe(rows() * 9, np.arange(99.0))
    made.adopt()

    assert made.as_json() == before


def test_what_was_written_as_json_goes_on_bit_for_bit():
    made, again = Normalizer(3, active=True), Normalizer(3, active=True)
    made.observe(rows(), np.arange(9.0))
    made.adopt()
    made.observe(rows(), np.arange(9.0) * 3)
    again.restore(json.loads(json.dumps(made.as_json())))

    assert again.as_json() == made.as_json()
    assert again.current.inverse.tobytes() == made.current.inverse.tobytes()


def test_the_identity_clips_what_is_out_of_bounds():
    assert Scaling.identity(2).features(np.float32([[1e30, -0.5]])).tolist() == [[CLIP, -0.5]]
