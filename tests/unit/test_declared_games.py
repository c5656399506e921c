"""What a spec says of a game: its title, goal, score, targets and walls, and what is refused."""

import json
import math

import pytest

from arkml.envs.core.declared_specs import Declarations
from arkml.errors import InvalidSpec
from arkml.guest_trials.described_games import described_game
from arkml.hive.protocol.shown_games import (
    ShownCoordinate,
    ShownGame,
    ShownScore,
    ShownTarget,
    ShownWall,
)
from arkml.replays.documents import shown_behaviors
from arkml.sessions.declarations import behavior_of

PARTS = [
    {"name": "hare", "shape": [2]},
    {"name": "place", "shape": [2]},
    {"name": "coins", "kind": "entities", "shape": [2, 1]},
    {"name": "time", "shape": [1]},
]
WIDTH = 8
SPEC = {
    "observations": PARTS,
    "positions": [2, 3],
    "title": "Hare chase",
    "goal": "Catch it.",
    "score": {"of": "time", "name": "seconds", "unit": "s", "better": "less"},
    "targets": [
        {"name": "hare", "at": ["hare 0", "hare 1"], "relative": True, "scale": 2, "radius": 0.1}
    ],
    "walls": [{"at": [-1, -1, 1, "hare 1"]}, {"at": [0, 0, 1, 1], "shape": "box"}],
}


def fixed(value):
    return ShownCoordinate(value)


def game_of(**changes):
    return Declarations({**SPEC, **changes}, None).of("hunter", WIDTH, 2).game


def test_a_spec_says_what_people_play_for():
    game = game_of()

    assert game == ShownGame(
        "Hare chase",
        "Catch it.",
        ShownScore("seconds", "s", less=True, observed=True, feature=7),
        [
            ShownTarget(
                (
                    ShownCoordinate(0.0, 2.0, 0, relative=True),
                    ShownCoordinate(0.0, 2.0, 1, relative=True),
                ),
                0.1,
                "hare",
            )
        ],
        [
            ShownWall((fixed(-1), fixed(-1), fixed(1), ShownCoordinate(0.0, 1.0, 1))),
            ShownWall((fixed(0), fixed(0), fixed(1), fixed(1)), box=True),
        ],
    )


def test_the_return_counts_unless_told_otherwise():
    game = game_of(score=None)

    assert game.score == ShownScore("return")


def test_without_any_of_it_there_is_no_game():
    assert Declarations({"positions": [0, 1]}, None).of("hunter", 4, 2).game is None


def test_features_without_names_have_those_that_pages_print():
    spec = {"positions": [0, 1], "targets": [{"at": ["obs_0 2", "obs_0 3"]}]}
    [target] = Declarations(spec, None).of("hunter", 4, 2).game.targets

    assert [one.feature for one in target.at] == [2, 3]


def test_trials_replays_and_published_pages_show_the_same():
    game = game_of()
    section = json.dumps({"behaviors": {"hunter": SPEC}}).encode()
    [shown] = shown_behaviors(section, [(WIDTH, 2)])
    message = described_game(game)

    assert shown.game == game
    assert (message.title, message.goal, message.score.name) == (
        "Hare chase",
        "Catch it.",
        "seconds",
    )
    assert (message.score.less, message.score.observed, message.score.feature) == (True, True, 7)
    assert [one.feature for one in message.targets[0].at] == [0, 1]
    assert [one.relative for one in message.targets[0].at] == [True, True]
    assert [one.value for one in message.walls[0].at] == [-1, -1, 1, 0]
    assert [one.box for one in message.walls] == [False, True]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"title": "x" * 81}, r"length <= 80 - at `\$.title`"),
        ({"goal": "x" * 201}, r"length <= 200 - at `\$.goal`"),
        ({"walls": [{"at": [0, 0, 1, 1]}] * 10_000}, r"length <= 256 - at `\$.walls`"),
        ({"targets": [{"at": [0, 0]}] * 65}, r"length <= 64 - at `\$.targets`"),
        ({"walls": [{"at": [0, math.nan, 1, 1]}]}, "a coordinate is nan, and takes a number from"),
        ({"walls": [{"at": [0, 0, 1, 1e9]}]}, r"a coordinate is 1e\+09"),
        ({"targets": [{"at": [0, 0], "radius": -1}]}, "the radius of a target is -1"),
        ({"targets": [{"at": [0, 0], "radius": math.inf}]}, "the radius of a target is inf"),
        (
            {"targets": [{"at": ["time", 0], "scale": math.nan}]},
            "the scale of a coordinate is nan",
        ),
        (
            {"targets": [{"at": ["hares 0", 0]}]},
            "a coordinate is 'hares 0', which is not a feature: name one of 'hare 0', 'hare 1'",
        ),
        ({"targets": [{"at": ["hare", 0]}]}, "a coordinate is 'hare', which is not a feature"),
        ({"score": {"of": "points"}}, "the score is 'points', which is not a feature"),
        ({"score": {"better": "most"}}, "Invalid enum value 'most'"),
        ({"walls": [{"at": [0, 0, 1, 1], "shape": "ring"}]}, "Invalid enum value 'ring'"),
        ({"walls": [{"at": [0, 0, 1]}]}, r"at `\$.walls\[0\].at`"),
        ({"walls": [{"at": [0, 0, 1, 1], "color": "red"}]}, "unknown field `color`"),
        ({"positions": None}, "it needs positions as well"),
    ],
)
def test_what_cannot_be_drawn_is_refused(changes, sentence):
    with pytest.raises(InvalidSpec, match=sentence):
        game_of(**changes)


def test_texts_of_a_guest_have_no_characters_that_hide_or_reorder():
    game = game_of(title="<b>\u202ehare\x1b[31m", goal="a\u200bb", score={"name": "\x07points"})

    assert game.title == "<b>\\u202ehare\\x1b[31m"
    assert game.goal == "a\\u200bb"
    assert game.score.name == "points"


def test_a_few_words_tell_of_the_game():
    told = behavior_of(SPEC, "spec").game_text

    assert told == (
        "title 'Hare chase'; goal 'Catch it.'; score time in s, less is better; 1 target; 2 walls"
    )
    assert behavior_of({}, "spec").game_text == ""
