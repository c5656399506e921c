"""Declared specs: where they are found, and what is wrong with them."""

import json
import math

import numpy as np
import pytest

from arkml.batches import NO_METADATA
from arkml.envs.core.decisions import choice_masks
from arkml.envs.core.declared_specs import Declarations
from arkml.envs.core.specs import Spec
from arkml.errors import InvalidActions, InvalidSpec, UsageError

PARTS = [{"name": "place", "shape": [2], "low": -1, "high": [1, 2]}, {"shape": [1, 3]}]


def of(given=None, section=None, configuration="", *, name="walker", widths=(5, 3)):
    section = None if section is None else json.dumps(section).encode()
    return Declarations(given, section).of(name, *widths, configuration)


def test_nothing_declared_is_one_observation_and_actions_from_minus_one_to_one():
    spec = of()

    assert spec == Spec.flat(5, 3)
    assert [part.name for part in spec.observations] == ["obs_0"]
    assert spec.observations[0].shape == (5,)
    assert spec.observations[0].low == (-math.inf,) * 5
    assert (spec.actions.low, spec.actions.high) == ((-1.0,) * 3, (1.0,) * 3)


def test_parts_of_observations_have_names_shapes_and_bounds():
    spec = of({"observations": PARTS, "slots": 4, "decision_period": 2, "positions": [0, 1]})

    assert [part.name for part in spec.observations] == ["place", "obs_1"]
    assert spec.observations[0].high == (1.0, 2.0)
    shown = spec.parts(np.arange(10, dtype="f4").reshape(2, 5))
    assert shown[0].tolist() == [[0, 1], [5, 6]]
    assert shown[1].tolist() == [[[2, 3, 4]], [[7, 8, 9]]]
    assert (spec.slots, spec.decision_period, spec.positions) == (4, 2, (0, 1))


def test_actions_are_continuous_first_and_then_a_column_for_each_branch():
    spec = of({"actions": {"discrete": [3, 2], "low": 0, "high": 5}})

    assert (spec.actions.continuous, spec.actions.branches) == (1, (3, 2))
    spec.actions.check(np.array([[5, 2, 1], [0, 0, 0]], "f4"), "it")
    for wrong, message in (
        ([5.5, 0, 0], "from 0 to 5, not 5.5"),
        ([math.nan, 0, 0], "from 0 to 5, not nan"),
        ([1, 3, 0], "branch 0 of it takes whole numbers from 0 to 2, not 3"),
        ([1, 0, -1], "branch 1 of it takes whole numbers from 0 to 1, not -1"),
        ([1, 0.5, 0], "branch 0 of it takes whole numbers from 0 to 2, not 0.5"),
        ([1, math.nan, 0], "branch 0 of it takes whole numbers from 0 to 2, not nan"),
    ):
        with pytest.raises(InvalidActions, match=message):
            spec.actions.check(np.array([wrong], "f4"), "it")


def test_actions_and_choices_have_names_that_pages_show():
    actions = {
        "discrete": [3, 2], "names": ["turn", "weapon", "\x1b[31mjump\u202e"],
        "choices": [["none", "sword", "bow"], []],
    }  # fmt: skip
    named = of({"actions": actions}).actions

    assert named.names == ("turn", "weapon", r"\x1b[31mjump\u202e")
    assert named.choices == ("none", "sword", "bow", "0", "1")
    assert of({"actions": {"discrete": [3, 2]}}).actions.choices == ()
    assert of({"actions": {"discrete": [3, 2], "choices": [[], []]}}).actions.choices == ()


@pytest.mark.parametrize(
    ("section", "message"),
    [
        ({"actions": {"discrete": [65_536, 1]}}, "65537 choices of all branches, 65536 at most"),
        ({"slots": 65_536, "actions": {"discrete": [65_536]}}, "65536 slots have 4295491584"),
        ({"slots": 65_536, "actions": {"discrete": [512]}}, "33554432 at most"),
    ],
)
def test_a_guest_cannot_ask_for_arrays_of_any_size_by_its_declaration(section, message):
    with pytest.raises(InvalidSpec, match=message):
        of(section=section)


def test_masks_of_a_decision_are_bounded_before_they_are_made():
    agents = np.arange(1 << 14)
    few = choice_masks(NO_METADATA, agents[:2], (1 << 16,))

    assert [one.shape for one in few] == [(2, 1 << 16)]
    with pytest.raises(UsageError, match="16384 agents with 65536 choices have 1073741824 masks"):
        choice_masks(NO_METADATA, agents, (1 << 16,))


def test_the_embedder_goes_before_the_module_and_the_module_before_the_guest(tmp_path):
    mine, modules, guests = ({"slots": number} for number in (1, 2, 3))
    configuration = json.dumps({"arkml": {"spec": guests, "gamma": 0.9}, "other": 1})

    assert of(mine, modules, configuration).slots == 1
    assert of(None, modules, configuration).slots == 2
    assert of(None, None, configuration).slots == 3
    path = tmp_path / "spec.json"
    path.write_text(json.dumps(mine))
    assert of(path, modules).slots == of(str(path), modules).slots == 1


def test_a_behavior_is_declared_by_its_name_or_with_all_others():
    declared = {"behaviors": {"walker": {"slots": 1}, "*": {"slots": 2}}}

    assert of(declared).slots == 1
    assert of(declared, name="other").slots == 2
    assert of({"behaviors": {"other": {"slots": 1}}}, {"slots": 3}).slots == 3


@pytest.mark.parametrize(
    ("declared", "message"),
    [
        ({"observations": PARTS[:1]}, "observations of 2 features, where it has 5"),
        ({"observations": [*PARTS[:1], *PARTS[:1]]}, "two observations have one name"),
        ({"observations": [{"shape": [0]}]}, "Expected `int` >= 1"),
        ({"observations": [{"shape": [5], "low": [1, 2]}]}, "2 bounds for 5 values"),
        ({"observations": [{"shape": [5], "low": 2, "high": 1}]}, "not below its upper one"),
        ({"observations": [{"shape": [5], "type": "image"}]}, "Invalid enum value 'image'"),
        ({"actions": {"continuous": 2}}, "2 continuous actions and 0 branches, .* 3 actions"),
        ({"actions": {"discrete": [2] * 4}}, "0 continuous actions and 4 branches"),
        ({"actions": {"discrete": [0]}}, "Expected `int` >= 1"),
        ({"actions": {"sizes": [2]}}, "contains unknown field `sizes`"),
        ({"actions": {"names": ["turn", "go"]}}, "2 names for 3 actions: name each of them"),
        ({"actions": {"names": ["x"] * 513}}, "`array` of length <= 512"),
        ({"actions": {"names": ["a", "b", ""]}}, "`str` of length >= 1"),
        ({"actions": {"names": ["a", "b", "c" * 41]}}, "`str` of length <= 40"),
        ({"actions": {"names": "abc"}}, "Expected `array`, got `str`"),
        (
            {"actions": {"discrete": [2, 2], "choices": [["off", "on"]]}},
            "choices have 1 lists of names for 2 branches",
        ),
        ({"actions": {"choices": [["off", "on"]]}}, "1 lists of names for 0 branches"),
        (
            {"actions": {"discrete": [2, 3], "choices": [["off", "on"], ["a", "b"]]}},
            "2 names for the 3 choices of branch 1: name each of them, or none",
        ),
        (
            {"actions": {"discrete": [2, 1_023], "choices": [["off", "on"], []]}},
            "1025 choices of all branches have no room for names, 1024 at most",
        ),
        ({"positions": [0, 5]}, r"positions \[0, 5\], where it has 5 features"),
        ({"decision_period": 0}, "Expected `int` >= 1"),
        ({"slots": "many"}, "Expected `int | null`, got `str`"),
        ({"speed": 1}, "contains unknown field `speed`"),
        ({"behaviors": []}, "Expected `object`, got `array`"),
        ({"behaviors": {"walker": 5}}, "Expected `object`, got `int`"),
    ],
)
@pytest.mark.parametrize("where", ["spec", "the custom section arkml.spec"])
def test_what_makes_no_sense_is_refused_with_the_place_and_the_value(declared, message, where):
    with pytest.raises(InvalidSpec, match=message) as caught:
        of(declared) if where == "spec" else of(None, declared)

    assert str(caught.value).startswith(where)


def test_a_bound_that_is_no_number_is_refused():
    with pytest.raises(InvalidSpec, match="not below its upper one"):
        of({"observations": [{"shape": [5], "low": math.nan}]})


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (b"{", "Input data was truncated"),
        (b"[]", "Expected `object`, got `array`"),
        (b'{"a":' * 100_000, "recursion|Stack overflow"),  # the latter of Python 3.14
        (b" " * (1 << 21), "2097152 bytes: 1048576 at most"),
        (b"\xff", "malformed"),
        (b'{"slots": 1, "slots": 2}', "the key 'slots' comes twice"),
        (b'{"behaviors": {"a": {}, "a": {"slots": 2}}}', "the key 'a' comes twice"),
        (b'{"slots": ' + b"9" * 5_000 + b"}", "slots|range"),
    ],
)
def test_a_hostile_section_is_refused(section, message):
    with pytest.raises(InvalidSpec, match=message):
        Declarations(None, section)


def test_a_file_that_is_not_there_is_named(tmp_path):
    with pytest.raises(InvalidSpec, match=r"missing.json cannot be read: No such file"):
        Declarations(tmp_path / "missing.json", None)


@pytest.mark.parametrize("arkml", [5, {"spec": 5}, {"spec": {"slots": 0}}])
def test_a_guest_that_declares_nonsense_is_named(arkml):
    with pytest.raises(InvalidSpec, match=r"arkml|walker"):
        of(configuration=json.dumps({"arkml": arkml}))
