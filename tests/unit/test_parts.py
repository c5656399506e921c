"""Parts of rows: what they take of a row, and what is refused."""

import pytest

from arkml.errors import InvalidSettings
from arkml.hive.protocol.parts import Part, fields_of, parts_fault
from arkml.hive.protocol.settings import Settings

ME, TILES = Part("me", (4,)), Part("tiles", (20, 6), "entities")


def test_fields_are_in_the_order_of_the_row_and_a_number_precedes_its_entities():
    fields = fields_of((ME, TILES, Part("view", (2, 3, 1), "image")))

    assert [(one.name, one.shape, one.start) for one in fields] == [
        ("me", (4,), 0), ("tiles_count", (1,), 4), ("tiles", (20, 6), 5), ("view", (2, 3, 1), 125),
    ]  # fmt: skip
    assert [one.is_count for one in fields] == [False, True, False, False]


def test_a_part_is_shown_with_its_kind():
    assert str(ME) == "me [4]"
    assert str(TILES) == "tiles entities [20, 6]"
    assert str(Part("b", (7, 7), "grid", 3)) == "b grid [7, 7] of 3 categories"


def test_parts_make_the_learner_ppo_and_come_back_from_json():
    of = Settings(125, 2, parts=(ME, TILES))

    assert of.learner == "ppo"
    assert Settings.from_json(of.as_json()) == of
    assert of.changed({"gamma": 0.5}).parts == of.parts


REFUSED = {
    "a width": ((ME, TILES), 126, "they have 125 features, and the guest has 126"),
    "vectors": ((ME,), 4, "all of them are vectors"),
    "a shape": ((Part("it", (4,), "grid"),), 4, r"shape \[height, width, channels\], not \[4\]"),
    "a name": ((Part("values", (1, 3), "entities"),), 4, "has for something else"),
    "an inner name": ((Part("/x", (1, 3), "entities"),), 4, "has for something else"),
    "a name in capitals": ((Part("Epsilon", (1, 3), "entities"),), 4, "has for something else"),
    "a numbered name": ((Part("h_in_0", (1, 3), "entities"),), 4, "has for something else"),
    "masks": ((Part("action_mask", (1, 3), "entities"),), 4, "has for something else"),
    "an output": ((Part("x:0", (1, 3), "entities"),), 4, "a colon and a number"),
    "two names": ((Part("it_count", (1,)), Part("it", (1, 2), "entities")), 4, "one name"),
    "one category": ((Part("it", (2, 2), "grid", 1),), 4, "it takes 2 or more"),
}


@pytest.mark.parametrize(("parts", "features", "sentence"), REFUSED.values(), ids=REFUSED)
def test_parts_that_make_no_row_are_refused(parts, features, sentence):
    with pytest.raises(InvalidSettings, match=sentence):
        Settings(features, 2, parts=parts)


def test_vectors_have_any_names_since_a_policy_takes_them_as_one():
    assert parts_fault((Part("epsilon", (2,)), Part("x:0", (1,)))) == ""


@pytest.mark.parametrize("algorithm", ["ppo", "sac"])
def test_each_algorithm_takes_parts(algorithm):
    assert Settings(125, 2, parts=(ME, TILES), algorithm=algorithm).learner == algorithm


def test_parts_are_learned_by_ppo_unless_told_otherwise():
    assert Settings(125, 2, parts=(ME, TILES)).learner == "ppo"


def test_parts_are_the_guests_to_decide():
    with pytest.raises(InvalidSettings, match="the guest says"):
        Settings(125, 2, parts=(ME, TILES)).changed({"parts": []})
