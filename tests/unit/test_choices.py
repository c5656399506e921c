"""Choices that policies give to sessions whose branches are known."""

import numpy as np
import pytest
from onnx import TensorProto, helper
from tests.unit import policy_models as build
from tests.unit.policy_models import RUNNING, TERMINAL

from arkml.abi.codes import SnapshotFormat
from arkml.batches import Metadata, MetadataLog
from arkml.policies.given import checked_policy
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.training import masks_of

SENTENCE = "for a choice, and the branches are of 3, 2 choices"


class Copying:
    """A policy object whose choices are its observations."""

    num_features = num_actions = 2

    def act(self, batch):
        batch.actions[:] = batch.features

    def forget(self, key):
        pass


def model(*nodes, kind=TensorProto.FLOAT, width=2):
    """Actions of some type that are what `nodes` make of the observations."""
    return build.model(
        [build.node(*node, **given) for *node, given in nodes],
        [build.port("obs", "N", width)],
        [helper.make_tensor_value_info("actions", kind, ["N", width])],
    )


POLICIES = {
    "floats": model(("Identity", "obs", "actions", {})),
    "object": Copying(),
    "function": lambda features: features,
}
WHOLE = model(("Cast", "obs", "actions", {"to": TensorProto.INT64}), kind=TensorProto.INT64)
SCORES = model(("Identity", "obs", "actions", {}), width=5)


def chosen(policy, given, *masked, states=RUNNING):
    """The choices of branches of 3 and 2 that a policy gives for these observations."""
    is_model = isinstance(policy, bytes)
    library = PolicyLibrary(ModelCache(), override=None if is_model else checked_policy(policy))
    data = policy if is_model else b""
    loaded = library.load(data, SnapshotFormat.ONNX, len(given[0]), 2, lambda *_: (3, 2))
    asked = build.batch(given, 2, states=states)
    masks = masks_of(loaded)
    masks.begin(len(asked))
    masks.mask(MetadataLog.of(Metadata(row, name, 1.0) for row, name in masked))
    for _ in range(2):
        loaded.act(asked)
    return asked.actions.tolist()


@pytest.mark.parametrize("kind", POLICIES)
def test_choices_are_rounded_and_replaced_where_they_do_not_exist(kind, caplog):
    given = [[0, 0], [2, 1], [1.5, 0.5], [-0.25, 1.25], [3, 2], [-2, 7e9], [2.75, 1]]
    expected = [[0, 0], [2, 1], [2, 0], [0, 1], [0, 0], [0, 0], [0, 1]]

    assert chosen(POLICIES[kind], given) == expected
    assert caplog.text.count(f"gave 1.5 {SENTENCE}") == caplog.text.count(SENTENCE) == 1


@pytest.mark.parametrize("kind", POLICIES)
def test_choices_that_exist_are_left_as_they_are(kind, caplog):
    given = [[0, 0], [1, 1], [2, 0]]

    assert chosen(POLICIES[kind], given) == given
    assert SENTENCE not in caplog.text


def test_whole_numbers_that_are_no_choices_are_replaced(caplog):
    assert chosen(WHOLE, [[3, 1], [1, -1]]) == [[0, 1], [1, 0]]
    assert SENTENCE in caplog.text


def test_the_highest_of_scores_is_a_choice(caplog):
    assert chosen(SCORES, [[-7, 2.5, 9, 0.5, 0.25]]) == [[2, 0]]
    assert SENTENCE not in caplog.text


@pytest.mark.parametrize("kind", POLICIES)
def test_the_lowest_choice_that_is_allowed_takes_the_place_of_one_that_does_not_exist(kind):
    masked = [(0, "mask/0/0"), (1, "mask/0/1"), (1, "mask/1/0")]

    assert chosen(POLICIES[kind], [[7, 0], [1.25, 5]], *masked) == [[1, 0], [0, 1]]


def test_what_is_not_finite_is_left_to_be_counted():
    ((first, second),) = chosen(POLICIES["floats"], [[np.nan, np.inf]])

    assert np.isnan(first)
    assert second == np.inf


def test_what_is_not_finite_is_no_masked_zero(caplog):
    masked = [(0, "mask/0/0"), (1, "mask/1/0"), (2, "mask/0/0")]
    given = [[np.nan, 0], [0, -np.inf], [2, 0]]

    assert chosen(POLICIES["floats"], given, *masked) == [[1, 0], [0, 1], [2, 0]]
    assert caplog.text.count("gave nan for a choice: the lowest choice that is allowed") == 1
    assert "has no input action_masks" not in caplog.text


@pytest.mark.parametrize("kind", POLICIES)
def test_the_choices_of_agents_that_ended_are_not_told_of(kind, caplog):
    chosen(POLICIES[kind], [[0.5, 9], [1, 1]], states=[TERMINAL, RUNNING])

    assert SENTENCE not in caplog.text
