"""Figures of features and actions, their histograms, and how those add up."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arkml.abi.codes import EpisodeState
from arkml.hive.protocol.histograms import (
    MOST_BINS,
    MOST_HISTOGRAMS,
    Bins,
    Histogram,
    added,
    bins_of,
    checked,
    common_grid,
    on_grid,
    thin_histograms,
)
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.reports import HOUR, MINUTE
from arkml.hive.protocol.rows import NO_ROW, RowColumns
from arkml.hive.protocol.settings import Settings
from arkml.learning.normalizer import Scaling
from arkml.learning.pace_figures import PaceFigures
from arkml.learning.row_figures import FIGURES_EVERY, HISTOGRAMS_EVERY, MOST_SHARES, RowFigures

VALUES = st.lists(st.floats(-(2.0**127), 2.0**127, width=32), min_size=1, max_size=50)


def rows(count, features=3, actions=2, metas=0, images=0):
    made = RowColumns.empty(count, features, actions, metas, images=images)
    made.state[:] = EpisodeState.RUNNING
    return made


def taken(figures, now=0.0, scaling=None, features=3):
    points, histograms = figures.take(scaling or Scaling.identity(features), now)
    return dict(points), {one.name: one for one in histograms}


@settings(deadline=None)
@given(VALUES)
def test_each_value_lies_in_its_bin(values):
    bins = bins_of(np.array(values, np.float32))
    width = 2.0**bins.exponent
    edges = [(bins.first + number) * width for number in range(len(bins.counts) + 1)]

    assert len(bins.counts) <= MOST_BINS
    assert sum(bins.counts) == len(values)
    assert edges[0] <= min(values)
    assert max(values) < edges[-1]
    for low, high, count in zip(edges[:-1], edges[1:], bins.counts, strict=True):
        assert sum(low <= value < high for value in values) == count


@settings(deadline=None)
@given(st.lists(VALUES, min_size=1, max_size=5))
def test_histograms_add_up_exactly(parts):
    made = [
        Histogram("a", bins_of(np.array(part, np.float32)), min(part), max(part), 0.5)
        for part in parts
    ]
    whole = added(made)
    width = 2.0**whole.bins.exponent
    values = [value for part in parts for value in part]

    assert len(whole.bins.counts) <= MOST_BINS
    assert (whole.lowest, whole.highest, whole.at_bounds) == (min(values), max(values), 0.5)
    assert added([whole]) == whole
    for number, count in enumerate(whole.bins.counts, whole.bins.first):
        assert sum(number * width <= value < (number + 1) * width for value in values) == count


def test_a_common_grid_holds_all_in_the_bins_of_the_widest():
    narrow, wide = Bins(-2, -3, [1, 2, 3]), Bins(0, 1, [5])
    grid = common_grid([narrow, wide])

    assert grid == (0, -1, 1)
    assert on_grid(narrow, *grid) == [6, 0, 0]
    assert on_grid(wide, *grid) == [0, 0, 5]


def test_the_range_from_minus_one_to_one_has_32_bins():
    bins = bins_of(np.linspace(-1.0, 1.0 - 2.0**-24, 500))

    assert (bins.exponent, bins.first, len(bins.counts)) == (-4, -16, 32)


def test_thinned_histograms_are_the_sums_of_their_intervals():
    one = Histogram("a", Bins(0, 0, [1, 2]), 0.0, 1.5, 0.25)
    reports = [(minute * MINUTE, (minute, [one])) for minute in range(90)]
    first, second = thin_histograms(reports, HOUR)

    assert (first[0], first[1][0], second[1][0]) == (59 * MINUTE, 59, 89)
    assert first[1][1] == [Histogram("a", Bins(0, 0, [60, 120]), 0.0, 1.5, 0.25)]
    assert thin_histograms([first, second], HOUR) == [first, second]


@pytest.mark.parametrize(
    "damage",
    [[], ["a", [0, 0, [1]], 0.0, 1.0], ["a", [0, 0, []], 0.0, 1.0, 0.0],
     ["a", [0, 0, [-1]], 0.0, 1.0, 0.0], ["a", [0, 0, [1]], 0.0, float("inf"), 0.0],
     ["a", [5_000, 0, [1]], 0.0, 1.0, 0.0], ["a", [0, 0, [1] * 99], 0.0, 1.0, 0.0]],
)  # fmt: skip
def test_what_is_not_a_histogram_is_refused(damage):
    with pytest.raises((TypeError, ValueError)):
        checked(damage)


def test_a_histogram_comes_back_from_its_message():
    one = Histogram("a", bins_of(np.arange(5.0)), 0.0, 4.0, 0.25)

    assert checked(json.loads(json.dumps(one))) == one


def test_features_are_counted_that_are_constant_or_clipped():
    figures, made = RowFigures(Settings(3, 2)), rows(100)
    made.features[:, 0] = np.arange(100)
    made.features[:, 2] = 5.0
    figures.add(made)
    points, histograms = taken(figures)

    assert points["features/constant"] == 2.0
    assert points["features/clipped"] == 1.0  # beyond 10 without a scaling
    assert histograms["features/0"].at_bounds == 0.9
    assert (histograms["features/0"].lowest, histograms["features/0"].highest) == (0.0, 99.0)
    assert histograms["features/2"].bins.counts == [100]


def test_parts_are_looked_at_by_their_kinds():
    parts = (
        Part("me", (1,)),
        Part("view", (1, 2, 1), "image"),
        Part("it", (2, 1), "entities"),
        Part("cells", (1, 1), "grid", 3),
    )
    figures = RowFigures(Settings(7, 2, parts=parts, algorithm="ppo"))
    made = rows(100, 7, images=2)
    made.features[:] = [1.0, 2.0, 0.0, 0.0, 2.0]  # all of them are constant
    made.features[0, 1], made.features[0, 4] = 3.0, 2.5
    figures.add(made, outside=3)
    points, histograms = taken(figures, features=5)

    assert points["features/constant"] == 1.0
    assert points["features/outside"] == 5.0, "two, and those that were clipped before they came"
    assert [name for name in histograms if name.startswith("features")] == [
        f"features/{place}" for place in (0, 3, 4, 5, 6)
    ], "features have the numbers that they have in the row"


def test_a_feature_that_changed_once_is_not_constant():
    figures = RowFigures(Settings(1, 1))
    for value in (1.0, 2.0, 2.0):
        made = rows(10, 1, 1)
        made.features[:] = value
        figures.add(made)
        points, _ = taken(figures, now=value + FIGURES_EVERY * value, features=1)

    assert points == {} or points["features/constant"] == 0.0


def test_actions_count_where_agents_acted():
    figures, made = RowFigures(Settings(3, 2)), rows(10)
    made.action[:5] = [1.5, 0.0]
    made.state[8:] = EpisodeState.TERMINAL
    figures.add(made)
    points, histograms = taken(figures)

    assert points["actions/saturated"] == 5 / 16
    assert sum(histograms["actions/0"].bins.counts) == 8
    assert (histograms["actions/0"].highest, histograms["actions/0"].at_bounds) == (1.5, 5 / 8)


def test_branches_have_the_shares_of_their_choices_and_of_their_masks():
    figures, made = RowFigures(Settings(3, 3, branches=(2, 3))), rows(8, 3, 3, metas=7)
    made.action[:, 1] = [0, 0, 0, 0, 0, 0, 1, 1]
    made.action[:, 2] = 2
    made.meta["name"] = [0, 1, 2, 3, 4, 5, 1]
    made.meta["value"] = 1.0
    made.meta["row"] = [0, 1, 2, 3, 4, 5, NO_ROW]
    figures.add(made)
    points, histograms = taken(figures)

    assert points["actions/branch_0_share_0"] == 0.75
    assert [points[f"actions/branch_1_share_{choice}"] for choice in range(3)] == [0, 0, 1]
    assert points["actions/masked_share"] == 5 / (8 * 5)  # 5 is no mask, and one has no row
    assert histograms["actions/1"].bins == Bins(0, 0, [6, 2])


def test_many_choices_have_a_bounded_number_of_shares():
    figures = RowFigures(Settings(3, 1, branches=(100,)))
    figures.add(rows(8, 3, 1))
    points, histograms = taken(figures)

    assert sum("share" in name for name in points) == MOST_SHARES + 1
    assert len(histograms["actions/0"].bins.counts) == 1


def test_figures_are_made_at_intervals_and_from_bounded_samples():
    figures = RowFigures(Settings(3, 2))
    for _ in range(100):
        figures.add(rows(4_096))
    sampled = figures.sampled
    first, early = taken(figures, 1.0)
    figures.add(rows(10))
    again, none = taken(figures, 2.0)
    later, still_none = taken(figures, 1.0 + FIGURES_EVERY)
    figures.add(rows(10))
    _, histograms = taken(figures, 1.0 + HISTOGRAMS_EVERY)

    assert sampled == 1_024
    assert first
    assert early
    assert (again, none) == ({}, {})
    assert later
    assert not still_none
    assert histograms


def test_wide_rows_have_histograms_of_their_worst_features():
    width = 7_056
    figures, made = RowFigures(Settings(width, 1)), rows(400, width, 1)
    made.features[:] = np.random.default_rng(0).normal(size=made.features.shape)
    made.features[:, 7_000] = 3.0
    made.features[:, 6_000] = 50.0 * made.features[:, 0]
    figures.add(made)
    figures.add(made)
    sampled = figures.sampled
    points, histograms = taken(figures, features=width)
    named = [name for name in histograms if name.startswith("features/")]

    assert sampled * width <= 1 << 20
    assert (points["features/constant"], points["features/clipped"]) == (1.0, 1.0)
    assert len(named) == MOST_HISTOGRAMS
    assert {"features/0", "features/6000", "features/7000"} <= set(named)
    assert "features/100" not in named


OF = Settings(3, 2, batch_size=64)


def test_the_pace_is_that_of_the_last_seconds():
    figures, settings = PaceFigures(0.0, 0, is_on_policy=False), 64.0
    for second in range(1, 200):
        quick = 2 if second > 100 else 1
        points = dict(figures.points(float(second), 10, 10 * quick * second, OF))

    assert points["pace/samples_per_insert_wanted"] == settings
    assert points["pace/samples_per_insert_reached"] == pytest.approx(2 * settings)
    assert points["pace/updates_per_second"] == pytest.approx(20.0)


def test_an_on_policy_learner_wants_its_epochs():
    figures = PaceFigures(0.0, 0, is_on_policy=True)
    points = dict(figures.points(1.0, 0, 0, Settings(3, 2, epochs=7)))

    assert points["pace/samples_per_insert_wanted"] == 7.0
    assert "pace/samples_per_insert_reached" not in points


def test_updates_count_by_the_minibatches_that_they_had():
    figures = PaceFigures(0.0, 0, is_on_policy=True)
    dict(figures.points(1.0, 256, 4, OF))
    points = dict(figures.points(2.0, 768, 10, Settings(3, 2, batch_size=128)))

    assert points["pace/samples_per_insert_reached"] == (4 * 64 + 6 * 128) / 1_024


def test_a_report_after_a_long_pause_counts_from_the_one_before():
    figures = PaceFigures(0.0, 0, is_on_policy=False)
    dict(figures.points(1.0, 10, 10, OF))
    points = dict(figures.points(101.0, 100, 110, OF))

    assert points["pace/updates_per_second"] == pytest.approx(1.0)
    assert points["pace/samples_per_insert_reached"] == pytest.approx(64.0)


def test_rewards_are_equal_as_long_as_no_row_but_the_first_of_an_episode_has_another():
    figures, made = RowFigures(Settings(features=3, actions=2)), rows(40)
    made.reward[:] = 2.0
    first = rows(2)
    first.state[:] = EpisodeState.INITIAL
    before = list(figures.rewards())
    for one in (first, made, made):
        figures.add(one)
    equal = list(figures.rewards())
    made.reward[39] = 2.5
    figures.add(made)

    assert before == []
    assert equal == [("rollout/equal_rewards", 1.0)]
    assert list(figures.rewards()) == [("rollout/equal_rewards", 0.0)]
