"""The scores and the map of a game in pages, as far as that needs no browser."""

import json
from pathlib import Path

import pytest
from tests.node import run_module

import arkml.guest_trials
from arkml import page_scripts

PAGE = Path(arkml.guest_trials.__file__).parent / "page"
PROGRAM = Path(__file__).parent / "game_page.mjs"
RETURN = {"name": "catches", "unit": "", "less": False, "observed": False, "feature": 0}
TIME = {"name": "time", "unit": "s", "less": True, "observed": True, "feature": 1}
BOTH = ["me", "policy"]
NONE = "\u2013"


def asked(*question, is_full=False):
    given = {
        "folder": f"{page_scripts.FOLDER.as_uri()}/",
        "page": f"{PAGE.as_uri()}/",
        "isFull": is_full,
        "questions": [question],
    }
    return run_module(PROGRAM, given)[0]


def fixed(value):
    return {"value": value, "scale": 0, "feature": 0, "relative": False}


def moving(feature, *, scale=1, relative=False):
    return {"value": 0, "scale": scale, "feature": feature, "relative": relative}


def game(score=RETURN, targets=(), walls=()):
    return {"title": "", "goal": "", "score": score, "targets": targets, "walls": walls}


def test_targets_and_walls_follow_features_and_their_agent():
    shown = asked(
        "map",
        game(
            targets=[
                {"at": [moving(0, relative=True), fixed(0)], "radius": 1, "name": "hare"},
                {"at": [moving(1, scale=3), moving(1)], "radius": 2, "name": ""},
            ],
            walls=[{"at": [fixed(-1), fixed(-2), fixed(1), moving(0)], "box": True}],
        ),
        [0.5, 2],
        [10, 20],
    )

    assert shown["targets"] == [
        {"x": 10.5, "y": 0, "radius": 1, "name": "hare"},
        {"x": 6, "y": 2, "radius": 2, "name": ""},
    ]
    assert shown["walls"] == [{"from": {"x": -1, "y": -2}, "to": {"x": 1, "y": 0.5}, "box": True}]


def test_what_has_no_place_is_not_drawn():
    targets = [{"at": [moving(7), fixed(0)], "radius": 1, "name": ""}]
    walls = [{"at": [fixed(0), fixed(0), fixed(1), moving(7)], "box": False}]

    assert asked("map", game(targets=targets, walls=walls), [0], [0, 0]) == {
        "targets": [],
        "walls": [],
    }


def test_a_plane_has_room_for_what_never_moves():
    targets = [{"at": [moving(0), fixed(5)], "radius": 1, "name": ""}]
    walls = [{"at": [fixed(-3), fixed(0), fixed(2), moving(0)], "box": False}]

    assert asked("fixed", game(targets=targets, walls=walls)) == [{"x": -3, "y": 0}]


@pytest.mark.parametrize(
    ("score", "end", "text"),
    [
        (RETURN, {"score": 12, "isCut": True}, "Time is up, catches: 12"),
        (TIME, {"score": 8.314, "isCut": False}, "The episode is over, time: 8.31 s"),
        (TIME, {"score": None, "isCut": False}, "The episode is over"),
    ],
)
def test_a_sentence_says_how_an_episode_ended(score, end, text):
    assert asked("ended", score, end) == text


@pytest.mark.parametrize(
    ("score", "goal", "whole", "text"),
    [
        (RETURN, "Catch hares.", True, "catches: 0: the goal says what counts"),
        (RETURN, "", True, "catches: 0"),
        (TIME, "Catch hares.", True, "time: 0 s"),
        (RETURN, "Catch hares.", False, "catches: 0, which does not count, since you took over"),
    ],
)
def test_who_has_gained_nothing_is_told_where_to_read_what_counts(score, goal, whole, text):
    said = asked("ended", score, {"score": 0, "isCut": False}, whole, goal)

    assert said.removesuffix(" on the way") == f"The episode is over, {text}"


def test_rounding_of_float32_within_the_range_of_entities_is_shown_as_zero():
    part = {"name": "foods", "kind": "entities", "shape": [2, 2]}
    bounds = {"low": [-1, None] * 2, "high": [1, None] * 2}
    values = [2, -1.4e-9, -1.4e-9, 0.5, 3]

    shown = asked("entities", part | bounds, values)

    assert shown == [["0.00", "-1.4e-9"], ["0.50", "3.00"]]


def test_the_best_of_today_is_kept_and_that_of_another_day_is_not():
    kept = json.dumps({"day": "TODAY", "value": 3})
    old = json.dumps({"day": "Mon Jan 01 2001", "value": 99})

    assert asked("best", RETURN, kept, [2, 5, 4]) == {
        "before": 3, "better": [False, True, False], "after": 5,
    }  # fmt: skip
    assert asked("best", RETURN, old, [2])["before"] is None
    assert asked("best", TIME, kept, [4, 2]) == {
        "before": 3, "better": [False, True], "after": 2,
    }  # fmt: skip


@pytest.mark.parametrize("kept", ["{", "[]", "null", '"x"', '{"day": 3, "value": "a"}'])
def test_what_others_left_in_the_browser_is_no_score(kept):
    assert asked("best", RETURN, kept, [1]) == {"before": None, "better": [False], "after": 1}


def test_a_browser_that_keeps_nothing_knows_the_best_until_it_is_closed():
    assert asked("best", RETURN, None, [1, 2], is_full=True)["better"] == [False, True]


def test_the_scores_of_the_policy_are_added_up():
    assert asked("tally", RETURN, []) == NONE
    assert asked("tally", RETURN, [1, 4, None]) == "mean 2.50, best 4 of 2"
    assert asked("tally", TIME, [1.5, 4]) == "mean 2.75, best 1.50 of 2"


def views(*ends, players=BOTH):
    """An episode that begins with a tick of 0, its rewards, and its end."""
    first = {"tick": 0, "rewards": [0, 0], "players": players}
    return [first, *({"players": players, **one} for one in ends)]


def test_my_episode_is_shown_and_counts_beside_that_of_the_policy():
    ended = asked(
        "board",
        game(),
        views({"tick": 1, "rewards": [1, 2]}, {"tick": 2, "rewards": [1, 0], "ends": [2, 2]}),
    )

    assert [one["end"] is not None for one in ended["news"]] == [False, False, True]
    assert ended["shown"] == {
        "this episode": "2",
        "your last": "2",
        "your best today": "2",
        "the policy here": "mean 2, best 2 of 1",
        "the policy, evaluated": "3 ± 1 of 20",
        "news": "Time is up, catches: 2.",
    }


def test_the_second_episode_may_be_the_best_of_today():
    ended = asked(
        "board",
        game(),
        views(
            {"tick": 1, "rewards": [1, 0], "ends": [1, 0]},
            {"tick": 2, "rewards": [0, 0], "episode": 1},
            {"tick": 3, "rewards": [3, 0], "episode": 1, "ends": [1, 0]},
        ),
    )

    assert [one["isBest"] for one in ended["news"]] == [False, False, False, True]
    assert ended["shown"]["news"] == "The episode is over, catches: 3, your best today."


def test_an_episode_that_several_have_played_counts_for_none_of_them():
    ended = asked(
        "board",
        game(),
        [
            *views({"tick": 1, "rewards": [5, 5], "players": ["policy", "Ann"]}),
            {"tick": 2, "rewards": [0, 0], "ends": [1, 1], "players": ["me", "policy"]},
        ],
    )

    assert ended["news"][-1]["end"]["score"] == 5
    assert not ended["news"][-1]["isWhole"]
    assert ended["shown"]["news"].endswith(
        ", which does not count, since you took over on the way."
    )
    assert ended["shown"]["your last"] == ended["shown"]["your best today"] == NONE
    assert ended["shown"]["the policy here"] == NONE


def test_the_score_of_an_episode_may_be_a_feature_of_its_last_row():
    ended = asked(
        "board",
        game(TIME),
        views({"tick": 1, "rewards": [0, 0], "values": [0, 7.5], "ends": [1, 1]}),
    )

    assert ended["shown"]["your last"] == "7.50"
    assert ended["shown"]["the policy here"] == "mean 7.50, best 7.50 of 1"


def test_a_gain_stands_out_and_what_comes_in_each_tick_does_not():
    steps = [{"tick": tick, "rewards": [1, 0]} for tick in range(1, 100)]
    ended = asked("board", game(), views(*steps, {"tick": 100, "rewards": [9, 0]}))
    gains = [one["isGain"] for one in ended["news"]]

    assert gains[1]
    assert not any(gains[50:-1])
    assert gains[-1]


def test_a_guest_that_declares_no_game_has_no_scores():
    assert not asked("board", None, views())["isShown"]


def test_a_game_has_the_title_and_the_goals_that_its_guest_declares():
    red = {"name": "red", "game": {**game(), "title": "Tag", "goal": "Run."}}
    blue = {"name": "blue", "game": {**game(), "goal": "Catch red."}}
    plain = {"name": "plain", "game": None}

    assert asked("title", {"guest": "tag.wasm", "classes": [plain, red]}) == "Tag"
    assert asked("title", {"guest": "tag.wasm", "classes": [plain]}) == "tag.wasm"
    assert asked("goals", {"classes": [plain]}) == ""
    assert asked("goals", {"classes": [red, plain]}) == "Run."
    assert asked("goals", {"classes": [red, blue]}) == "red: Run. blue: Catch red."
