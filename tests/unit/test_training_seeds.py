"""What several seeds of a training come to, by numbers worked out by hand."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from arkml.training.seeds import SeedResult, band_of, draw_band, median_rows
from arkml.training.training_files import draw_curve, note_empty


def result(seed, series=(), goal=10.0, **document):
    document = {"mean_return": {"series": [list(point) for point in series]}} | document
    return SeedResult(seed, Path(f"seed-{seed}"), 0, document, goal)


def test_the_goal_is_reached_by_a_training_that_it_has_ended():
    series = [(100, 3.0), (200, 12.0), (300, 5.0)]

    assert result(0, series, end_reason="return", rows=350).rows_to_goal == 350
    assert result(0, series, end_reason="frames", rows=350).rows_to_goal is None
    assert result(0, series, goal=None, end_reason="return", rows=350).rows_to_goal is None


def test_the_best_return_is_that_after_the_choice_or_else_that_by_which_it_was_made():
    series = [(100, 3.0), (200, 12.0), (300, 5.0)]

    assert result(0, series, policy={"score": 7.5, "confirmed": None}).best_return == 7.5
    assert result(0, series, policy={"score": 7.5, "confirmed": {"mean": 6.0}}).best_return == 6.0
    assert result(0, series, policy={"score": None}).best_return is None
    assert result(0, series).best_return is None


def test_a_training_that_left_nothing_has_reached_nothing():
    failed = SeedResult(3, Path("seed-3"), 2, {"error": "no such file"}, 1.0)

    assert (failed.rows_to_goal, failed.best_return, failed.series) == (None, None, [])
    assert failed.as_json() == {
        "seed": 3, "status": 2, "directory": "seed-3", "rows_to_goal": None, "best_return": None,
        "error": "no such file",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("rows", "expected"),
    [
        ((100, 300, 200), 200.0),
        ((100, None, 200), 200.0),
        ((100, 200), 150.0),
        ((100, None), None),
        ((None, None, 200), None),
        ((), None),
    ],
)
def test_a_seed_that_does_not_reach_the_goal_counts_as_never(rows, expected):
    results = [
        result(seed, [(5, 20.0)], end_reason="return" if at else "minutes", rows=at or 900)
        for seed, at in enumerate(rows)
    ]

    assert median_rows(results) == expected


def test_a_band_is_the_median_and_the_extremes_at_all_points():
    band = band_of([[(0, 0.0), (10, 10.0)], [], [(10, 4.0)], [(5, 1.0), (20, 4.0)]])

    assert band.rows.tolist() == [0, 5, 10, 20]
    assert band.median.tolist() == [0.0, 3.0, 4.0, 4.0]
    assert band.low.tolist() == [0.0, 1.0, 2.0, 4.0]
    assert band.high.tolist() == [0.0, 5.0, 10.0, 10.0]


def test_without_any_point_there_is_no_band():
    assert band_of([[], []]) is None
    assert draw_band("nothing", [result(0)]).startswith(b"\x89PNG")


def test_a_band_is_drawn_as_a_picture():
    assert draw_band("two", [result(0, [(1, 2.0)]), result(1, [(1, 3.0), (2, 4.0)])]).startswith(
        b"\x89PNG"
    )


def test_a_picture_without_a_mean_return_says_so():
    axes = Figure().add_subplot()
    note_empty(axes)

    assert [text.get_text() for text in axes.texts] == ["no mean return was reported"]
    assert draw_curve("nothing", (), ()) != draw_curve("nothing", ((1, 2.0),), ())
