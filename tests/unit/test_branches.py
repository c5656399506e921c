"""Branches of actions, as guests declare and mask them."""

import json

import pytest

from arkml.errors import NotTrainable
from arkml.hive.protocol.masks import mask_names, masked_choice
from arkml.sessions.branches import DeclaredBranches

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
        ({"behaviors": {"picker": PICKER}}, "other", 3, ()),
        ({"behaviors": {"*": PICKER}}, "other", 2, (3, 2)),
        (PICKER, "other", 5, (3, 2)),
        (MOVER, "other", 2, ()),
        ({"observations": []}, "other", 2, ()),
        ({}, "other", 2, ()),
        ({"behaviors": 3}, "other", 2, ()),
        ([1], "other", 2, ()),
    ],
)
def test_the_branches_of_a_behavior_are_those_that_are_declared_for_it(
    document, name, actions, branches
):
    assert declared(document).of(name, actions) == branches


@pytest.mark.parametrize("section", [None, b"", b"{", b"[" * 100_000, b"\xff"])
def test_a_section_that_cannot_be_read_declares_nothing(section):
    branches = DeclaredBranches(section)

    assert branches.of("any", 3) == ()
    assert branches.of("any", 2, PICKER) == (3, 2)


def test_the_module_precedes_the_configuration():
    assert declared(MOVER).of("any", 2, PICKER) == ()


def test_only_a_module_whose_behaviors_all_have_branches_is_discrete():
    assert declared({"behaviors": {"picker": PICKER, "driver": DRIVER}}).discrete == (3, 2)
    assert declared({"behaviors": {"picker": PICKER, "mover": MOVER}}).discrete == ()
    assert declared({}).discrete == ()


def test_a_run_that_a_guest_joins_has_the_branches_that_it_declares():
    picker = declared(PICKER)
    picker.require("any", 2, (3, 2))
    declared({}).require("any", 2, (3, 2))  # it declares nothing

    with pytest.raises(NotTrainable, match="branches of 3, 2 choices, and its run has branches of"):
        picker.require("any", 2, (3,))


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
