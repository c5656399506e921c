"""The parts of the page by which versions are watched that need no browser."""

from pathlib import Path

from tests.node import run_module
from tests.unit.test_hive_page import served

PROGRAM = Path(__file__).with_name("watch_page.mjs")
KEPT = {
    "versions": [{"version": 7, "at": 100}, {"version": 8, "at": 200}, {"version": 9, "at": 400}],
    "best": 7,
    "latest": 9,
}


def asked(*question):
    folder = Path(served().name).as_uri()
    [answer] = run_module(PROGRAM, {"folder": f"{folder}/", "questions": [question]})
    return answer


def test_events_are_read_in_whatever_parts_they_arrive():
    text = 'event: head\ndata: {"a": "\u00e9"}\n\n: nothing new\n\nevent: frame\ndata: {"b": 1}\n\n'

    expected = {"found": [["head", {"a": "\u00e9"}], ["frame", {"b": 1}]]}
    for size in (1, 7, len(text)):
        parts = [text[at : at + size] for at in range(0, len(text), size)]
        assert asked("events", parts, 200) == expected


def test_a_refusal_has_the_sentence_of_the_hive():
    answer = asked("events", ['{"error": "4 versions are watched"}'], 429)

    assert answer == {"found": [], "error": "4 versions are watched", "status": 429}


def test_best_and_latest_come_first_and_then_the_newest():
    choices = asked("choicesOf", KEPT)

    assert choices == [
        ["best", "best (7)"], ["latest", "latest (9)"], ["9", "9"], ["8", "8"], ["7", "7"],
    ]  # fmt: skip
    numbers = [asked("numberOf", choice, KEPT) for choice in ("best", "latest", "8", "none")]
    assert numbers == [7, 9, 8, None]


def test_the_worst_is_the_lowest_of_several_that_were_evaluated():
    rated = [{"version": 7, "at": 1, "mean_return": 2.5}, {"version": 8, "at": 2}]
    more = [*rated, {"version": 9, "at": 3, "mean_return": -1200.25}]

    assert asked("worstOf", {"versions": rated}) is None
    assert asked("worstOf", {"versions": more}) == 9
    texts = dict(asked("choicesOf", {"versions": more, "best": None, "latest": 9}))
    assert (texts["7"], texts["8"], texts["9"]) == ("7, evaluated 2.5", "8", "9, evaluated -1200")


def test_a_place_on_the_strip_is_the_nearest_version_and_the_return_is_the_one_before_it():
    assert [asked("nearest", KEPT["versions"], at) for at in (0, 149, 151, 999)] == [0, 0, 1, 2]
    points = [[1, 5.0, 100], [2, 6.0, 200]]
    assert [asked("valueAt", points, at) for at in (50, 150, 200, 900)] == [5.0, 5.0, 6.0, 6.0]
    assert asked("valueAt", [], 50) is None
