"""Mean and variance of columns, with values in them that are out of all proportion."""

import json

import numpy as np
import pytest

from arkml.learning.robust_moments import FIRST, Moments, RobustMoments

RANDOM = np.random.default_rng(0)


def filled(values, body=100, reach=30.0):
    made = RobustMoments(values.shape[1], reach)
    for start in range(0, len(values), body):
        made.add(values[start : start + body])
    return made


def test_moments_of_parts_are_the_moments_of_the_whole():
    values = RANDOM.standard_normal((1_000, 3)) * [1.0, 100.0, 0.01] + [5.0, -300.0, 0.0]
    moments = Moments(3)
    for part in np.array_split(values, [1, 7, 7, 500]):
        moments.add(part)

    assert moments.mean == pytest.approx(values.mean(axis=0))
    assert moments.variance == pytest.approx(values.var(axis=0))


@pytest.mark.parametrize("count", [2, 100, FIRST, 1_000])
@pytest.mark.parametrize("body", [1, 64, 1_000])
def test_without_outliers_they_are_the_moments_of_all_rows(count, body):
    values = RANDOM.standard_normal((count, 3)) * [1.0, 100.0, 0.01] + [5.0, -300.0, 0.0]
    made = filled(values, body)

    assert made.count == count
    assert made.mean == pytest.approx(values.mean(axis=0))
    assert made.deviation == pytest.approx(values.std(axis=0))


@pytest.mark.parametrize("outlier", [1e30, -1e30, 1e6])
def test_one_outlier_in_a_thousand_changes_hardly_anything(outlier):
    values = RANDOM.standard_normal((100_000, 2)) * [1.0, 50.0] + [3.0, -20.0]
    wrong = np.where(RANDOM.random(values.shape) < 1e-3, outlier, values)
    made = filled(wrong.astype(np.float32), body=333)

    assert made.mean == pytest.approx(values.mean(0), rel=0.05)
    assert made.deviation == pytest.approx(values.std(0), rel=0.05)


def test_the_first_rows_may_have_outliers_among_them():
    values = RANDOM.standard_normal((2_000, 1))
    values[[0, 1, 2, 30, 200]] = 1e30
    made = filled(values, body=1)

    assert abs(made.mean[0]) < 0.1
    assert made.deviation[0] == pytest.approx(1.0, rel=0.05)


def test_a_column_that_changes_for_good_is_followed():
    calm = 5.0 + 1e-3 * RANDOM.standard_normal((2_000, 1))
    wild = 1e4 * RANDOM.standard_normal((6_000, 1))
    wild[::500] = 1e30
    made = filled(np.concatenate([calm, wild]), body=50)

    assert made.deviation[0] == pytest.approx(1e4 * np.sqrt(6 / 8), rel=0.1)


def test_a_column_that_has_been_constant_believes_what_comes_and_no_nonsense():
    values = np.full((3_000, 1), 2.0)
    values[1_000::100] = 7.0
    values[500::500] = 1e30
    made = filled(values)
    expected = np.where(values > 1e9, 2.0, values)

    assert made.mean == pytest.approx(expected.mean(0), rel=0.01)
    assert made.deviation == pytest.approx(expected.std(0), rel=0.01)


@pytest.mark.parametrize("value", [0.0, 0.1, -3e30])
def test_a_constant_column_has_no_deviation(value):
    made = filled(np.full((700, 1), value, np.float32))

    assert made.mean[0] == pytest.approx(float(np.float32(value)), rel=1e-9)
    assert made.deviation[0] == 0.0


def test_the_bounds_are_those_of_values_that_are_not_outliers():
    values = -RANDOM.uniform(1, 2, (3_000, 1))
    values[[3, 40, 900, 2_000]] = 1e30
    values[[4, 41, 901, 2_001]] = -1e30
    low, high = filled(values).bounds

    assert low[0] == values[values > -1e29].min()
    assert high[0] == values[np.abs(values) < 1e29].max()


@pytest.mark.parametrize("count", [100, FIRST, 700])
def test_what_was_written_as_json_continues_bit_for_bit(count):
    values = np.where(RANDOM.random((2_000, 2)) < 0.01, 1e30, RANDOM.standard_normal((2_000, 2)))
    made, again = filled(values[:count]), RobustMoments(2, 30.0)
    again.restore(json.loads(json.dumps(made.as_json())))
    for each in (made, again):
        each.add(values[count:])

    assert again.as_json() == made.as_json()
    assert again.deviation.tobytes() == made.deviation.tobytes()
