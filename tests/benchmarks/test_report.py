import json
import math
from pathlib import Path

import pytest
from tests.benchmarks import report, stored
from tests.benchmarks.measuring import Spread
from tests.benchmarks.rows import AtLeast, AtMost, NotWithin, Row, Verdict, against, alone, by_seed
from tests.benchmarks.stored import Result

DOCS = Path(__file__).parents[2] / "docs"
THEIRS = "another learner"


def learned(ours, theirs=(), **options):
    competitor = {"competitor": THEIRS, "theirs": theirs} if theirs else {}
    return by_seed("learning", "pendulum", "steps", ours, AtMost(1.25), **competitor, **options)


def round_trip(result):
    return stored.from_json(json.loads(json.dumps(stored.as_json(result), allow_nan=False)))


def test_the_table_shows_each_seed_of_each_learner():
    lines = report.table([learned([100.0, 300.0, 200.0], [200.0, 400.0, 200.0])]).splitlines()

    assert lines[1].split("  ")[1].strip() == "200 steps"
    assert "1.00x" in lines[1]
    assert lines[3].split() == ["each", "seed", "learner", "0", "1", "2"]
    assert lines[4].split() == ["pendulum,", "steps", "ours", "100", "300", "200"]
    assert lines[5].split()[-3:] == ["200", "400", "200"]


def test_the_spread_of_a_row_with_seeds_is_that_of_ours_over_the_seeds():
    (*_, spread) = report.cells(learned([100.0, 300.0, 200.0], [200.0, 400.0, 200.0]), "")

    assert spread == "100-300 steps"


def test_a_seed_that_did_not_reach_the_goal_is_shown_with_its_bound():
    row = learned([100.0, NotWithin(48_000), 200.0])
    _, line = report.each_seed([row])

    assert line[2:] == ("100", "not within 48000", "200")
    assert report.cells(row, "")[1] == "200 steps"
    assert report.cells(row, "")[-1] == "100 steps to not reached"


def test_rows_with_fewer_seeds_leave_the_last_columns_empty():
    rows = [learned([1.0, 2.0]), alone("frame", "1 agent", "µs", [3.0]), learned([4.0])]
    headings, first, second = report.each_seed(rows)

    assert headings[2:] == ("0", "1")
    assert first[2:] == ("1.00", "2.00")
    assert second[2:] == ("4.00", "")


def test_without_seeds_there_is_no_table_of_them():
    row = alone("frame", "1 agent", "µs", [3.0])

    assert [*report.each_seed([row])] == []
    assert len(report.table([row]).splitlines()) == 2


def test_a_goal_that_most_seeds_did_not_reach_is_missed_and_said_so():
    row = learned([100.0, NotWithin(500), NotWithin(500)], [100.0, 100.0, 100.0])

    assert row.verdict is Verdict.MISSED
    assert report.cells(row, "")[1] == "not reached"
    assert report.cells(row, "")[3] == ""


def test_where_neither_learner_reached_the_goal_nothing_is_asserted():
    row = learned([NotWithin(500)], [NotWithin(600)])

    assert row.ratio is None
    assert row.verdict is Verdict.NOT_ASSERTED
    assert report.cells(row, "")[2] == f"{THEIRS} not reached"


def test_returns_stand_side_by_side_without_a_ratio():
    row = by_seed(
        "learning", "rating", "", [-150.0], competitor=THEIRS, theirs=[-100.0], has_ratio=False
    )

    assert report.cells(row, "")[1:4] == ("-150", f"{THEIRS} -100", "")
    assert report.cells(row, "")[-1] == "-150 to -150"
    assert row.verdict is Verdict.REPORTED


def test_a_limit_without_a_competitor_is_missed_by_a_goal_that_is_not_reached():
    row = by_seed("learning", "pendulum", "steps", [NotWithin(500)], AtMost(500))

    assert row.verdict is Verdict.MISSED


ROWS = [
    against("frame", "1 agent", "µs", [3.0], "peer", [2.0], AtMost(1.4)),
    against("frame", "64 agents", "µs", [3.0], "peer", None, AtLeast(1.4)),
    learned([100.0, NotWithin(500), NotWithin(500)], [100.0, 200.0, 100.0]),
    Row("learning", "start-up", "s", Spread(1.0, 0.5, 2.0), why_not="cut short"),
]


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name)
def test_a_row_is_read_from_json_as_it_was_written(row):
    result = Result({"cores": 2}, {row.topic: ["A note."]}, [row])

    assert round_trip(result) == result


def test_json_has_null_for_what_was_not_reached():
    document = stored.as_json(Result({}, {}, [learned([1.0, NotWithin(5), NotWithin(5)])]))
    (row,) = document["rows"]

    assert math.isinf(learned([NotWithin(5)]).ours.median)
    assert row["ours"] == {"median": None, "low": 1.0, "high": None}
    assert row["seeds"] == {"ours": [1.0, {"not within": 5}, {"not within": 5}]}


def test_topics_measured_again_take_the_place_of_the_old_ones():
    old = Result({}, {"frame": ["Old."], "learning": ["Kept."]}, [alone("frame", "old", "µs", [1])])
    new = Result({}, {"frame": ["New."], "push": ["New."]}, [alone("frame", "new", "µs", [2])])
    found = old.with_topics(new, ["push", "frame", "fleet", "learning"])

    assert list(found.notes.items()) == [
        ("push", ["New."]), ("frame", ["New."]), ("learning", ["Kept."]),
    ]  # fmt: skip
    assert [row.name for row in found.rows] == ["new"]


def test_a_topic_that_was_measured_on_another_machine_says_so():
    here = stored.machine()
    there = here | {"processor": "Another"}
    notes, order = {"frame": ["A note."]}, ["push", "frame"]
    old = Result(there, {"push": ["A note."]}, [alone("push", "old", "µs", [1])])
    found = old.with_topics(Result(here, notes, [alone("frame", "new", "µs", [2])]), order)
    again = found.with_topics(Result(there, notes, []), order)

    assert found.elsewhere == {"frame": here}
    assert round_trip(found).elsewhere == found.elsewhere
    assert "`make bench` on Another: " in report.page(found)
    assert report.page(found).count("Measured on ") == 1
    assert again.elsewhere == {}


def test_a_topic_without_rows_says_that_it_was_not_measured():
    machine = stored.machine()
    text = report.page(Result(machine, {"learning": ["A note."]}, []))

    assert "## Learning\n\nA note.\n\nNot measured since it was changed.\n" in text


def test_the_page_of_the_documentation_is_that_of_the_figures_beside_it():
    result = stored.from_json(json.loads((DOCS / "bench.json").read_text()))

    assert (DOCS / "benchmarks.md").read_text() == report.page(result)
