"""Branches of actions, as guests declare and mask them."""

import json

import pytest

from arkml.errors import NotTrainable
from arkml.hive.protocol.masks import mask_names, masked_choice
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.run_request import HiveAddress, TrainingRequest

PICKER = {"actions": {"discrete": [3, 2]}}
DRIVER = {"actions": {"continuous": 2, "discrete": [3]}}
MOVER = {"actions": {"continuous": 2}}


def declared(document):
    return DeclaredBranches(json.dumps(document).encode())


@pytest.mark.parametrize(
    ("document", "name", "actions", "branches"),
    [
        ({"behaviors": {"picker": PICKER, "driver": DRIVER}}, "picker", 2, (3, 2)),
        ({"behaviors": {"picker": PICKER, "driver": DRIVER}}, "driver", 3, (3,)),
        ({"behaviors": {"*": PICKER}}, "other", 2, (3, 2)),
        (PICKER, "other", 5, (3, 2)),
        (MOVER, "other", 2, ()),
        ({"observations": []}, "other", 2, ()),
        ({}, "other", 2, ()),
    ],
)
def test_the_branches_of_a_behavior_are_those_that_are_declared_for_it(
    document, name, actions, branches
):
    assert declared(document).of(name, 4, actions) == branches


@pytest.mark.parametrize(
    ("section", "message"),
    [
        (b"", "Input data was truncated"),
        (b"{", "Input data was truncated"),
        (b"[" * 100_000, "Expected `object`, got `array`"),
        (b"\xff", "malformed"),
        (b'{"behaviors": {"co\xffin": {}}}', "can't decode byte 0xff in position 2"),
        (b"[1]", "Expected `object`, got `array`"),
        (b'{"behaviors": 3}', "Expected `object`, got `int`"),
        (b'{"actoins": {"discrete": [3, 2]}}', "unknown field `actoins`"),
        (b'{"actions": {"discrete": "3"}}', "Expected `array`, got `str`"),
        (b'{"behaviors": {"other": {}}}', "declares 'other', and the guest has 'any'"),
        (b'{"observations": [{"shape": [5]}]}', "observations of 5 features, where it has 4"),
        (b'{"actions": {"continuous": 3}}', "3 continuous actions and 0 branches, where it has 2"),
        (b'{"observations": [{"shape": [4], "low": 2, "high": 1}]}', "not below its upper one"),
    ],
)
def test_a_run_is_refused_for_a_section_that_is_malformed_or_fits_no_behavior(section, message):
    branches = DeclaredBranches(section)

    with pytest.raises(NotTrainable, match=message) as caught:
        branches.of("any", 4, 2, PICKER if b"other" not in section else None)
    assert str(caught.value).startswith("the custom section arkml.spec")


def test_many_behaviors_with_long_names_make_a_short_sentence():
    branches = declared({"behaviors": {f"{number:0100}": PICKER for number in range(5_000)}})

    with pytest.raises(NotTrainable, match="declare that name") as caught:
        branches.of("any", 4, 2)
    assert len(str(caught.value)) < 2_000


def test_a_guest_without_a_section_declares_nothing_but_in_the_configuration_of_its_run():
    branches = DeclaredBranches(None)

    assert branches.of("any", 4, 3) == ()
    assert branches.of("any", 4, 2, PICKER) == (3, 2)


def test_the_module_precedes_the_configuration():
    assert declared(MOVER).of("any", 4, 2, PICKER) == ()


@pytest.mark.parametrize(
    ("document", "actions", "choices", "branches"),
    [
        ({"behaviors": {"picker": PICKER, "driver": DRIVER}}, 2, None, (3, 2)),
        ({"behaviors": {"picker": PICKER, "driver": DRIVER}}, 3, None, (3,)),
        ({"behaviors": {"picker": PICKER, "driver": DRIVER}}, 1, 4, ()),
        ({"behaviors": {"picker": PICKER, "other": PICKER}}, 2, None, (3, 2)),
        ({"behaviors": {"picker": PICKER, "mover": MOVER}}, 2, None, ()),
        ({"behaviors": {"picker": PICKER, "mover": MOVER}}, 2, 5, (3, 2)),
        ({"behaviors": {"picker": PICKER, "mover": MOVER}}, 2, 6, ()),
        ({"behaviors": {"picker": PICKER, "driver": DRIVER}}, None, 3, (3,)),
        (PICKER, None, None, (3, 2)),
        ({"observations": [{"shape": [5]}], "actions": {"discrete": [3, 2]}}, 2, 5, ()),
        ({}, 1, 7, (7,)),
        ({}, 2, 7, ()),
        ({}, 1, None, ()),
    ],
)
def test_the_branches_of_rows_without_a_name_are_those_of_the_behavior_that_they_fit(
    document, actions, choices, branches
):
    assert declared(document).of_rows(4, actions, choices) == branches


def test_the_declaration_of_a_run_that_was_asked_for_holds_without_the_run():
    branches = DeclaredBranches(None)
    for name, spec in (("any", PICKER), ("wrong", {"actoins": 1})):
        configuration = json.dumps({"arkml": {"spec": spec}})
        address = HiveAddress("localhost", 12356)
        branches.note(TrainingRequest(address, name, "", 4, 2, configuration=configuration))

    assert branches.of_rows(4, 2, None) == (3, 2)
    assert "'wrong': Object contains unknown field `actoins`" in branches.contradiction


def test_only_a_module_whose_behaviors_all_have_branches_is_discrete():
    assert declared({"behaviors": {"picker": PICKER, "driver": DRIVER}}).discrete == (3, 2)
    assert declared({"behaviors": {"picker": PICKER, "mover": MOVER}}).discrete == ()
    assert declared({}).discrete == ()


def test_a_run_that_a_guest_joins_has_the_branches_that_it_declares():
    picker = declared(PICKER)
    picker.require("any", 4, 2, (3, 2))
    declared({}).require("any", 4, 2, (3, 2))  # it declares nothing

    with pytest.raises(NotTrainable, match="branches of 3, 2 choices, and its run has branches of"):
        picker.require("any", 4, 2, (3,))


@pytest.mark.parametrize(
    ("actions", "bounds"),
    [
        ({}, ""),
        ({"continuous": 2, "low": [-1, -1], "high": 1}, ""),
        ({"low": 0}, "[0, 1] for 'car'"),
        ({"continuous": 3, "low": -1, "high": [1, 2, 3]}, "[-1, 2] for 'car'"),
        ({"continuous": 0, "low": -2, "discrete": [3]}, ""),
    ],
)
def test_bounds_that_no_run_has_are_named(actions, bounds):
    own = {"actions": actions}

    assert declared({"behaviors": {"car": own, "ship": {}}}).other_bounds() == bounds
    assert DeclaredBranches(None).other_bounds("car", own) == bounds


def test_parts_of_rows_are_those_of_the_behavior_that_they_fit():
    parts = [{"name": "b", "shape": [2]}, {"shape": [1, 3]}]
    one = declared({"observations": parts})
    other = declared(
        {
            "behaviors": {
                "left": {"observations": parts},
                "right": {"observations": parts[::-1]},
            }
        }
    )

    assert [(part.name, part.size) for part in one.parts_of(5, 2)] == [("b", 2), ("obs_1", 3)]
    assert one.parts_of(6, 2) == ()
    assert other.parts_of(5, None) == ()
    assert declared(PICKER).parts_of(5, 2) == ()


def test_masks_are_named_in_the_order_of_their_choices():
    names = mask_names((3, 2))
    places = [masked_choice(name, (3, 2)) for name in names]

    assert names == ["mask/0/0", "mask/0/1", "mask/0/2", "mask/1/0", "mask/1/1"]
    assert places == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]


@pytest.mark.parametrize(
    "name",
    ["mask/0/3", "mask/2/0", "mask/0", "mask//0", "mask/-1/0", "mask/a/b", "0/0", "masks/0/0",
     "mask/0/0/0", "mask/" + "9" * 5_000 + "/0"],
)  # fmt: skip
def test_other_names_mask_nothing(name):
    assert masked_choice(name, (3, 2)) is None
