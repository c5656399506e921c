"""The parts of the page of players that need no browser; `make test-browser` has the rest."""

from pathlib import Path

import pytest
from tests.node import run_module

import arkml.guest_trials
from arkml import page_scripts

PAGE = Path(arkml.guest_trials.__file__).parent / "page"
PROGRAM = Path(__file__).parent / "play_page.mjs"


def asked(*question):
    folders = {"folder": f"{PAGE.as_uri()}/", "shared": f"{page_scripts.FOLDER.as_uri()}/"}
    return run_module(PROGRAM, {**folders, "questions": [question]})[0]


@pytest.mark.parametrize(
    ("fragment", "slot", "token"),
    [
        ("", "", ""),
        ("#slot=red_0", "red_0", ""),
        ("#slot=red_0&token=a-b_c", "red_0", "a-b_c"),
        ("#token=t", "", "t"),
    ],
)
def test_a_link_has_its_slot_and_its_token_in_the_fragment(fragment, slot, token):
    assert asked("link", fragment) == {"slot": slot, "token": token}


def test_the_token_is_part_of_the_endpoint_alone():
    assert asked("endpoint", "http://127.0.0.1:1", "t/../x") == "http://127.0.0.1:1/j/t%2F..%2Fx"
    assert asked("endpoint", "http://127.0.0.1:1", "") == "http://127.0.0.1:1"


def test_the_token_leaves_the_address_and_lasts_for_the_tab():
    taken = asked("taken", {"hash": "#slot=red_0&token=secret", "stored": {}})

    assert taken["first"] == {"slot": "red_0", "token": "secret"}
    assert taken["again"] == {"slot": "", "token": "secret"}
    assert "secret" not in taken["address"]


def test_keys_drive_continuous_actions_to_their_bounds():
    actions = asked(
        "actions",
        {
            "low": [-2, "-", 0, 1],
            "high": [2, None, 5, 3],
            "branches": [],
            "cases": [
                {},
                {"keys": ["ArrowLeft", "KeyW", "KeyE", "KeyR"]},
                {"keys": ["KeyD", "KeyS", "KeyQ"]},
                {"keys": ["ArrowLeft", "ArrowRight"]},
            ],
        },
    )

    assert [each["continuous"] for each in actions] == [
        [0, 0, 0, 1],
        [-2, 1, 5, 3],
        [2, -1, 0, 1],
        [0, 0, 0, 1],
    ]


def test_a_slider_comes_before_keys_and_keys_come_before_a_gamepad():
    pad = {"axes": [0.5, -1.0], "buttons": []}
    actions = asked(
        "actions",
        {
            "low": [-2, -2],
            "high": [2, 4],
            "branches": [],
            "cases": [
                {"pad": pad},
                {"pad": pad, "keys": ["KeyA"]},
                {"pad": pad, "keys": ["KeyA"], "values": [[0, 1.25]]},
                {"pad": {"axes": [0.05, 0.5], "buttons": []}},
            ],
        },
    )

    assert [each["continuous"] for each in actions] == [[1, 4], [-2, 4], [1.25, 4], [0, -1]]


def test_what_has_no_name_is_called_by_its_number():
    given = {"low": [-1], "high": [1], "branches": [2, 2]}
    plain = asked("mapping", given)
    named = asked("mapping", {**given, "names": ["run", "jump", "gear"], "choices": [*"nylh"]})

    assert [one["name"] for one in plain["continuous"] + plain["branches"]] == [
        "Action 0", "Branch 0", "Branch 1",
    ]  # fmt: skip
    assert [one["names"] for one in plain["branches"]] == [["0", "1"], ["0", "1"]]
    assert [one["name"] for one in named["continuous"] + named["branches"]] == [
        "run", "jump", "gear",
    ]  # fmt: skip
    assert [one["names"] for one in named["branches"]] == [["n", "y"], ["l", "h"]]


def test_a_masked_choice_gives_way_to_one_that_is_allowed():
    cases = [
        {},
        {"keys": ["Digit3"]},
        {"keys": ["Digit3"], "allowed": [True, True, False, True, True]},
        {"keys": ["Digit3"], "rests": [[0, 1]], "allowed": [True, True, False, True, True]},
        {"rests": [[0, 0]], "allowed": [False, True, True, False, True]},
        {"pad": {"axes": [], "buttons": [False, True]}},
    ]
    actions = asked("actions", {"low": [], "high": [], "branches": [3, 2], "cases": cases})

    assert [each["choices"] for each in actions] == [[0, 0], [2, 0], [0, 0], [1, 0], [1, 1], [1, 0]]


def test_rows_of_a_run_that_do_not_count_are_answered_with_choices_that_are_allowed():
    initial, running = 3, 0
    masks = [[0, 1, 1, 1, 1], [0, 0, 1, 0, 1], [0, 0, 0, 1, 1]]

    assert asked("late", [3, 2], [initial, running, running], masks) == [
        [0.5, 0.5, 0.5], [0, 2, 1], [0, 0, 0],
    ]  # fmt: skip
    assert asked("late", [3, 2], [running], None) == [[0, 0, 0]]


def test_no_key_means_two_things():
    mapping = asked("mapping", {"low": [-1] * 9, "high": [1] * 9, "branches": [12, 5, 9]})
    keys = [key for one in mapping["continuous"] for key in one["less"] + one["more"]]
    keys += [key for one in mapping["branches"] for key in one["keys"] if key]

    assert len(keys) == len(set(keys))
    assert [len(one["keys"]) for one in mapping["branches"]] == [12, 5, 9]
    assert mapping["branches"][0]["keys"][9:] == ["Digit0", None, None]
    assert mapping["continuous"][8]["more"] == []


def observed(episode, end=0, final_end=0):
    return {"episode": episode, "end": end, "finalEnd": final_end, "present": True}


def test_returns_are_those_of_episodes():
    views = [
        (0, 0.0, observed(0)),
        (1, 1.0, observed(0)),
        (2, 2.0, observed(0, end=1)),
        (3, 0.0, observed(1)),
        (4, 4.0, observed(1)),
        (5, 8.0, observed(2, final_end=2)),
        (8, 16.0, observed(2)),
        (8, 16.0, observed(2)),
    ]
    returns = asked("returns", views)

    assert returns["ended"] == [
        {"episode": 0, "return": 3, "score": 3, "isCut": False},
        {"episode": 1, "return": 12, "score": 12, "isCut": True},
    ]
    assert returns["present"] == 16
    assert returns["missed"] == 2
    assert returns["rate"] == 10


@pytest.mark.parametrize(
    ("shape", "image"),
    [
        ([8, 6], (8, 6, 1, False)),
        ([8, 6, 3], (8, 6, 3, False)),
        ([3, 8, 6], (8, 6, 3, True)),
        ([1, 84, 84], (84, 84, 1, True)),
        ([3], None),
        ([2, 2], None),
        ([8, 6, 7], None),
        ([2, 8, 6, 3], None),
    ],
)
def test_planes_of_values_are_images(shape, image):
    names = ("height", "width", "channels", "isPlanar")

    assert asked("image", shape) == (image and dict(zip(names, image, strict=True)))


def test_the_channels_of_an_image_become_colors():
    gray = asked("pixels", [0.0, 0.5, 1.0, 2.0] * 4, [4, 4], 0.0, 2.0)
    planar = asked("pixels", [0.0] * 20 + [1.0] * 20 + [0.5] * 20, [3, 4, 5], 0.0, 1.0)

    assert gray[:12] == [0, 0, 0, 255, 64, 64, 64, 255, 128, 128, 128, 255]
    assert planar[:4] == [0, 255, 128, 255]


def test_a_declared_image_is_one_whatever_its_shape():
    part = {"kind": "image", "shape": [3, 2, 5]}

    assert asked("imagePart", part) == {
        "height": 3, "width": 2, "channels": 5, "isPlanar": False,
    }  # fmt: skip
    assert asked("imagePart", {"kind": "vector", "shape": [3, 2, 5]}) is None


@pytest.mark.parametrize(
    ("values", "pixel"),
    [
        ([90], [90, 90, 90, 255]),
        ([90, 80], [90, 80, 0, 255]),
        ([90, 80, 70, 60], [90, 80, 70, 60]),
        ([90, 80, 70, 60, 50], [90, 80, 70, 255]),
    ],
)
def test_a_declared_image_may_have_any_number_of_channels(values, pixel):
    part = {"kind": "image", "shape": [1, 1, len(values)]}

    assert asked("imagePixels", values, part) == pixel


def test_a_cell_has_its_category_or_its_last_channel():
    of_categories = {"count": 5, "channels": 1, "categories": 3}
    of_channels = {"count": 4, "channels": 2, "categories": 0}

    assert asked("cells", [0, 2, 1.5, -1, 3], of_categories, 0) == [
        [0, 0], [2, 1], [0, 0], [0, 0], [0, 0],
    ]  # fmt: skip
    cells = asked("cells", [0, 0, 2, 0, 2, -1, 0, 4], of_channels, 2)
    assert [channel for channel, _ in cells] == [0, 0, 1, 1]
    assert [strength for _, strength in cells] == pytest.approx([0, 1, 0.6, 1])


def test_as_many_entities_are_there_as_the_row_says_and_has():
    assert asked("present", [0, 2, 2.5, -1, 99, "NaN"], 20) == [0, 2, 3, 0, 20, 0]


@pytest.mark.parametrize(
    ("low", "high", "shown"),
    [
        (-1, 1, ["0.00", "0.00", "2.0e-5", "0.50"]),
        (-1e-4, 1e-4, ["0.00", "1.0e-7", "2.0e-5", "0.50"]),
        (None, 1, ["-1.4e-9", "1.0e-7", "2.0e-5", "0.50"]),
    ],
)
def test_rounding_of_float32_within_a_declared_range_is_shown_as_zero(low, high, shown):
    values = [-1.4e-9 if low is None else -1.4e-12, 1e-7, 2e-5, 0.5]

    assert asked("short", values, low, high) == shown
