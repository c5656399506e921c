"""Statistics of features and rewards, and when a policy gets to see them."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.hive.protocol.rows import RowColumns
from arkml.learning.normalizer import (
    CLIP,
    LEAST_OF_WHOLE,
    REMEMBERED,
    REWARD_CLIP,
    SPREAD,
    Normalizer,
    Scaling,
)
from arkml.learning.replay_buffer import ReplayBuffer

RANDOM = np.random.default_rng(0)


def rows(count=1_000, width=3):
    drawn = RANDOM.standard_normal((count, width)) * [1.0, 100.0, 0.01][:width]
    return (drawn + [5.0, -300.0, 0.0][:width]).astype(np.float32)


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


def test_statistics_follow_for_as_long_as_there_are_rows():
    made = Normalizer(1, active=True)
    for part in (np.zeros(2_000_000), np.full(2_000_000, 4.5)):
        made.observe(part[:, None].astype(np.float32), part)
        made.adopt()

    assert made.current.mean == pytest.approx([2.25])
    assert made.current.inverse == pytest.approx([1 / 2.25])
    assert made.current.reward == pytest.approx(2.25 / SPREAD)


@pytest.mark.parametrize(("step", "least"), [(1.0, LEAST_OF_WHOLE), (0.25, 0.0)])
def test_flags_that_hardly_ever_change_do_not_blow_up(step, least):
    flags = np.zeros((10_000, 2), np.float32)
    flags[::500, 0] = flags[::2, 1] = step
    made = Normalizer(2, active=True)
    made.observe(flags[:5_000], np.zeros(0))
    made.observe(flags[5_000:], np.zeros(0))
    made.adopt()
    expected = np.maximum(flags.std(axis=0), least)

    assert made.current.inverse == pytest.approx(1 / expected, rel=1e-4)
    assert made.current.features(flags).max() == pytest.approx(2.0 if least else CLIP, abs=0.01)


def test_what_is_shown_once_is_not_cut_for_a_policy_that_remembers():
    random = np.random.default_rng(2)
    rows = np.full((10_000, 3), -1.0, np.float32)
    rows[::200, 0] = random.uniform(0.0, 10.0, 50)
    rows[:, 1] = random.standard_normal(10_000)
    rows[:, 2] = 1_000.0 + random.standard_normal(10_000)
    rows[3_000, 1] = 1e6  # an outlier
    scaled = []
    for remembers in (False, True):
        made = Normalizer(3, active=True, remembers=remembers)
        made.observe(rows[:5_000], np.zeros(0))
        made.observe(rows[5_000:], np.zeros(0))
        made.adopt()
        scaled.append(made.current.features(rows))
    shown = scaled[0][::200, 0], scaled[1][::200, 0]

    assert (shown[0] == CLIP).sum() > 20
    assert len(np.unique(shown[1])) == 50
    assert 0.9 * REMEMBERED < shown[1].max() <= REMEMBERED * 1.001
    assert np.array_equal(scaled[1][:, 1:], scaled[0][:, 1:])


def test_a_feature_with_one_fraction_is_none_of_whole_numbers():
    made = Normalizer(2, active=True)
    values = np.zeros((10_000, 2), np.float32)
    values[::500] = 1.0
    values[9_999, 1] = 1.25
    made.observe(values[:9_000], np.zeros(0))
    made.observe(values[9_000:], np.zeros(0))
    made.adopt()

    assert made.current.inverse == pytest.approx([2.0, 1 / values[:, 1].std()], rel=1e-4)


def test_checkpoints_from_before_whole_numbers_scale_as_they_did():
    made, again = Normalizer(1, active=True), Normalizer(1, active=True)
    flags = np.zeros((10_000, 1), np.float32)
    flags[17] = 1.0
    made.observe(flags, np.zeros(0))
    older = made.as_json()
    del older["whole"]
    again.restore(older)
    again.adopt()

    assert again.current.inverse == pytest.approx(1 / flags.std(axis=0), rel=1e-4)


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


def test_statistics_of_another_width_are_refused_and_change_nothing():
    made, other = Normalizer(3, active=True), Normalizer(2, active=True)
    made.observe(rows(), np.arange(9.0))
    made.adopt()
    before = made.as_json()

    for changes in (
        {"mean": [0.0]},
        {"reward": 0.0},
        {"inverse": [1.0, np.inf, 1.0]},
        {"whole": [True]},
    ):
        with pytest.raises(ValueError, match=r"expected"):
            made.restore(made.as_json() | changes)
    for name in ("features", "returns"):
        with pytest.raises(ValueError, match=r"expected"):
            made.restore(made.as_json() | {name: other.as_json()["features"]})
    assert made.as_json() == before


FORMS = {
    "plain": (1.0, 0.0, 1.0),
    "rewards x 1e6": (1.0, 0.0, 1e6),
    "rewards x 1e-6": (1.0, 0.0, 1e-6),
    "features x 1e4 + 1e3": (1e4, 1e3, 1.0),
    "features x 1e-6": (1e-6, 0.0, 1.0),
    "features + 1e3": (1.0, 1e3, 1.0),
}


def play(factor, offset, reward, outliers=0.0, count=6_000, agents=16, body=64, seed=0):
    """The scaled features and rewards of a run's rows; the last feature is constant."""
    random = np.random.default_rng(seed)
    made, buffer = Normalizer(3, active=True), ReplayBuffer(count, 3, 1, gamma=0.99)
    features = np.ones((count, 3)) * 0.1
    features[:, 0] = np.sin(np.arange(count) / 37)
    features[:, 1] = 8.0 * random.uniform(-1, 1, count)
    scaled = (features * factor + offset).astype(np.float32)
    rewards = (-reward * random.uniform(0, 16, count)).astype(np.float32)
    is_wrong = random.random(count) < outliers
    columns = RowColumns.empty(count, 3, 1)
    columns.agent[:], columns.step[:] = np.arange(count) % agents, np.arange(count) // agents
    columns.features[:] = np.where(is_wrong[:, None], np.float32(1e30), scaled)
    columns.reward[:] = np.where(is_wrong, np.float32(1e30), rewards)
    for start in range(0, count, body):
        part = columns.take(slice(start, start + body))
        made.observe(part.features, buffer.add(0, 0, part).returns)
    made.adopt()
    return made.current.features(scaled), made.current.rewards(rewards)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("outliers", [0.0, 1e-3, 1e-2])
def test_a_hard_form_is_scaled_as_the_plain_one(form, outliers):
    features, rewards = play(*FORMS["plain"])
    hard_features, hard_rewards = play(*FORMS[form], outliers)
    size = np.abs(features[:, :2]).max(0)

    assert np.abs(hard_features - features)[:, :2].max(0) / size == pytest.approx([0, 0], abs=0.02)
    assert hard_rewards == pytest.approx(rewards, rel=0.02)
    assert np.abs(hard_features[:, 2]).max() < 0.01  # the constant one


@pytest.mark.parametrize("body", [1, 7, 1_000])
@pytest.mark.parametrize("agents", [1, 16])
def test_the_size_of_bodies_does_not_blind_the_statistics(body, agents):
    plain = play(*FORMS["plain"], count=2_000, agents=agents)
    hard = play(*FORMS["plain"], outliers=5e-3, count=2_000, agents=agents, body=body)

    for mine, theirs in zip(hard, plain, strict=True):
        assert np.abs(mine - theirs).max() <= 0.03 * np.abs(theirs).max()


@settings(deadline=None, max_examples=30)
@given(
    st.integers(0, 2**32 - 1),
    st.floats(-6, 6),
    st.floats(-100, 100),
    st.sampled_from([0.0, 1e-3, 2e-2]),
    st.sampled_from([5, 64, 3_000]),
)
def test_whatever_the_scale_features_become_those_of_a_standard_normal(
    seed, exponent, offset, outliers, body
):
    random = np.random.default_rng(seed)
    normal = random.standard_normal((3_000, 2))
    raw = (10.0**exponent * (normal + offset)).astype(np.float32)
    given_rows = np.where(random.random((3_000, 2)) < outliers, np.float32(-1e30), raw)
    made = Normalizer(2, active=True)
    for start in range(0, 3_000, body):
        made.observe(given_rows[start : start + body], np.zeros(0))
    made.adopt()
    expected = (normal - normal.mean(0)) / normal.std(0)

    assert made.current.features(raw) == pytest.approx(expected, rel=0.05, abs=0.05)
    assert np.isfinite(made.current.features(given_rows)).all()


@settings(deadline=None, max_examples=100)
@given(
    st.lists(
        st.lists(
            st.floats(width=32, allow_nan=False, allow_infinity=False), min_size=1, max_size=9
        ),
        min_size=1,
        max_size=6,
    )
)
def test_finite_rows_have_finite_scaled_forms_whatever_they_are(bodies):
    made, buffer = Normalizer(1, active=True), ReplayBuffer(100, 1, 1, gamma=0.9)
    for number, values in enumerate(bodies):
        columns = RowColumns.empty(len(values), 1, 1)
        columns.step[:] = 10 * number + np.arange(len(values))
        columns.features[:, 0] = columns.reward[:] = values
        made.observe(columns.features, buffer.add(0, 0, columns).returns)
        made.adopt()
        rewards = made.current.rewards(np.array(values, np.float32))

        assert np.isfinite(made.current.features(columns.features)).all()
        assert np.isfinite(rewards).all()
        assert np.abs(rewards).max() <= REWARD_CLIP
        assert np.isfinite(made.current.inverse).all()
        assert (made.current.inverse > 0).all()
    again = Normalizer(1, active=True)
    again.restore(json.loads(json.dumps(made.as_json())))
    assert again.as_json() == made.as_json()


def test_scaled_rewards_are_bounded_only_with_normalization():
    made, without = Normalizer(1, active=True), Normalizer(1, active=False)
    for each in (made, without):
        each.observe(rows(width=1), RANDOM.standard_normal(1_000))
        each.adopt()
    raw = np.float32([1e9, -1e9])

    assert made.current.rewards(raw).tolist() == [REWARD_CLIP, -REWARD_CLIP]
    assert without.current.rewards(raw).tolist() == raw.tolist()
