"""What draws the charts of the hive's page, as far as it needs no browser."""

import hashlib
import json
from pathlib import Path

import pytest
from tests.documented_metrics import documented
from tests.unit.test_hive_page import respondent

import arkml.server.page

SITE = Path(arkml.server.page.__file__).parent / "site"
TRUNK = {"name": "a", "x": [1, 2, 4], "y": [5, -1, 9], "mode": "lines"}
VENDORED = {
    "LICENSE": "8f989229699b4fe2f1a0432d0e9edc338a8a911e250e2d1b01ecd770a5f5b1bd",
    "uPlot.esm.js": "5dd9b3281aa64b461b42d9945f6adb2649d346502b12281a9ae0d46599a80eba",
    "uPlot.min.css": "df630c6a8d6f8eeaff264b50f73ce5b114f646ffd9a0bb74f049b0a00135fa04",
}


def all_asked(*questions):
    return respondent("hive_charts.mjs").ask(*questions)


def asked(*question):
    return all_asked(question)[0]


@pytest.mark.parametrize(("name", "digest"), VENDORED.items())
def test_uplot_is_the_published_one(name, digest):
    """Of uplot 1.6.32 at npm, unchanged, with its license."""
    content = (SITE / "vendor" / "uplot" / name).read_bytes()

    assert hashlib.sha256(content).hexdigest() == digest


def test_curves_of_other_places_lie_over_one_axis():
    other = {"x": [2, 2, 3], "y": [7, 8, None]}
    places, first, second = asked("aligned", [TRUNK, other])

    assert places == [1, 2, 2, 3, 4]
    assert first == [5, -1, "no point", "no point", 9]
    assert second == ["no point", 7, 8, None, "no point"]


def test_a_logarithmic_axis_has_gaps_where_values_are_not_above_zero():
    assert asked("aligned", [TRUNK], True)[1] == [5, None, 9]


def test_an_area_lies_between_a_filled_trace_and_the_one_before_it():
    traces = [TRUNK, {**TRUNK, "fill": "red"}, TRUNK]

    assert asked("bands", traces) == [{"series": [2, 1], "fill": "red"}]


def test_values_have_room_around_them_also_one_alone_and_the_largest():
    around, zero, alone, none, largest = all_asked(
        ("roomy", 0, 10), ("roomy", 2, 10, True), ("roomy", 4, 4), ("roomy", None, None),
        ("roomy", -1.7e308, 1.7e308),
    )  # fmt: skip

    assert around == [-0.5, 10.5]
    assert zero == [0, 10.5]
    assert alone == [2, 6]
    assert none == [0, 1]
    assert largest == [None, None]  # beyond a float


@pytest.mark.parametrize(
    ("value", "step", "text"),
    [
        (1_000_000, 250_000, "1M"),
        (1_250_000, 250_000, "1.25M"),
        (0.1 + 0.2, 0.1, "0.3"),
        (-145, 5, "-145"),
        (0, 1, "0"),
        (20_001, 1, "20.001k"),
        (123_456.7892, 0.0002, "123.4567892k"),
        (0.0002, 0.0001, "2.0e-4"),
    ],
)
def test_a_tick_has_the_digits_that_its_step_needs(value, step, text):
    assert asked("tick", value, step) == text


def test_ticks_of_times_name_a_day_where_it_begins():
    hour = 3_600_000
    first, second, third = asked("times", [-hour, 0, hour], hour)

    assert [one.count("-") for one in (first, second, third)].count(0) >= 1
    assert "\n" in first
    assert asked("times", [0, 24 * hour], 24 * hour)[0].count("-") == 2
    assert asked("times", [0, 4_999.7], 5_000)[1].endswith(":05")


def test_the_nearest_place_is_found():
    found = all_asked(*(("nearest", [1, 5, 9], x) for x in (-9, 2, 4, 7.5, 99)))

    assert found == [0, 0, 1, 2, 2]


def test_values_have_their_units():
    found = all_asked(
        ("value", {}, -1310.45678),
        ("value", {}, 1e-9),
        ("value", {"format": ".0%"}, 0.25),
        ("value", {"unit": "B"}, 2048.4),
        ("ticks", {"format": ".0%"}, [0.5, 1], 0.5),
        ("ticks", {"unit": "B"}, [0, 2e6], 1e6),
    )

    assert found == ["-1,310.46", "1.000e-9", "25 %", "2 KiB", ["50 %", "100 %"], ["0B", "2MB"]]


def test_a_summary_says_where_a_line_begins_and_ends_and_its_best():
    spec = {"title": "Return of training"}
    line = {**TRUNK, "x": [200, 2_000, 4_800], "y": [-1310, None, -145.6]}
    edge = {**TRUNK, "isAside": True, "y": [99, 99, 99]}
    best = {**TRUNK, "marker": {"symbol": "star"}}
    up, down, neither, alone = all_asked(
        ("summary", spec, [edge, line, best], "rows", "higher"),
        ("summary", spec, [line], "rows", "lower"),
        ("summary", spec, [line], "rows", ""),
        ("summary", spec, [{**line, "x": [3], "y": [1]}], "updates", "higher"),
    )

    begin = "Return of training: from -1,310 at 200 rows to -145.6 at 4,800 rows"
    assert up == f"{begin}, best -145.6 at 4,800 rows."
    assert down == f"{begin}, best -1,310 at 200 rows."
    assert neither == f"{begin}, lowest -1,310, highest -145.6."
    assert alone == "Return of training: 1 at 3 updates."


def test_a_summary_of_many_lines_names_six():
    lines = [{**TRUNK, "name": f"run {number}"} for number in range(9)]
    text = asked("summary", {"title": "Loss"}, lines, "rows", "lower")

    assert "run 5: from 5 at 1 rows to 9 at 4 rows, best -1 at 2 rows" in text
    assert "run 6" not in text
    assert text.endswith("and 3 more lines.")


def test_a_summary_of_a_histogram_says_where_most_values_are():
    heat = {"x": [10, 20], "edges": [0, 1, 2], "z": [[0.9, 0.2], [0.1, 0.8]], "colors": []}

    assert asked("summary", {"title": "Values"}, [heat], "rows") == (
        "Values: 2 histograms from 10 rows to 20 rows; most values of the last one are from 1 to 2."
    )
    assert asked("summary", {"title": "Values"}, [], "rows") == "Values: no values yet."


def test_a_table_has_a_column_for_each_line_and_sixty_rows_at_most():
    many = {"name": "many", "x": list(range(1_000)), "y": list(range(1_000))}
    few = {"name": "few", "x": [0, 999], "y": [0.5, None]}
    raw, best = {**many, "isAside": True}, {**few, "marker": {"symbol": "star"}}
    found = asked("table", {"title": "t"}, [raw, many, few, best], "rows")

    assert found["header"] == ["rows", "many", "few"]
    assert (len(found["rows"]), found["left"]) == (60, 940)
    assert found["rows"][0] == ["0 rows", "0", "0.5"]
    assert found["rows"][-1] == ["999 rows", "999", ""]


def test_a_table_of_a_histogram_has_a_column_for_each_bin():
    heat = {"x": [10], "edges": [0, 1, 2], "z": [[0.25], [0.75]], "colors": []}

    assert asked("table", {"title": "t"}, [heat], "rows") == {
        "header": ["rows", "0 to 1", "1 to 2"],
        "rows": [["10 rows", "25 %", "75 %"]],
        "left": 0,
    }


def test_a_dash_is_a_list_of_pixels_or_has_a_name():
    assert all_asked(("dash", [5, 2]), ("dash", "dot"), ("dash", "no such")) == [[5, 2], [2, 3], []]


def test_every_documented_metric_is_described_in_a_sentence():
    known = json.loads((SITE / "metrics.json").read_text())
    names = documented("sac", (2,)) | documented("ppo", (2,))
    choices = {name for name in names if name.startswith("actions/branch_")}

    assert set(known) == names - choices | {"actions/branch_B_share_C"}
    for text, good in known.values():
        assert text[0].isupper() or text[0].isdigit()
        assert text.endswith(".")
        assert good in ("", "higher", "lower")


def test_a_description_says_which_direction_is_good():
    known = json.loads((SITE / "metrics.json").read_text())
    reward, branch, other = all_asked(
        ("description", "eval/mean_reward", known),
        ("description", "actions/branch_1_share_3", known),
        ("description", "guest/speed", known),
    )

    assert reward["text"].endswith("Higher is better.")
    assert reward["good"] == "higher"
    assert branch["text"] == "Share of one choice among the choices of a branch."
    assert other == {"text": "", "good": ""}
