"""The records of the ML-Agents API."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import numpy as np
import pytest

from arkml.envs.llapi import base_env
from arkml.envs.llapi.base_env import (
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorMapping,
    BehaviorSpec,
    DecisionStep,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalStep,
    TerminalSteps,
)
from arkml.envs.llapi.exception import UnityActionException

SPEC = BehaviorSpec(
    [ObservationSpec((3,), (DimensionProperty.NONE,), ObservationType.DEFAULT, "vector")],
    ActionSpec.create_hybrid(2, (3, 2)),
)


def decisions(mask=True):
    masks = [np.eye(2, 3, dtype=bool), np.zeros((2, 2), dtype=bool)]
    return DecisionSteps(
        [np.arange(6, dtype=np.float32).reshape(2, 3)],
        np.array([1, 2], dtype=np.float32),
        np.array([7, 4], dtype=np.int32),
        masks if mask else None,
        np.array([0, 9], dtype=np.int32),
        np.array([0, 0.5], dtype=np.float32),
    )


def terminals():
    return TerminalSteps(
        [np.ones((1, 3), dtype=np.float32)],
        np.array([5], dtype=np.float32),
        np.array([True]),
        np.array([7], dtype=np.int32),
        np.array([0], dtype=np.int32),
        np.array([0], dtype=np.float32),
    )


def test_single_steps_have_the_fields_of_the_original_in_its_order():
    fields = ("obs", "reward", "agent_id", "action_mask", "group_id", "group_reward")

    assert DecisionStep._fields == fields
    assert TerminalStep._fields == (
        "obs", "reward", "interrupted", "agent_id", "group_id", "group_reward",
    )  # fmt: skip


def test_steps_are_mappings_by_agent_id():
    steps = decisions()
    step = steps[4]

    assert list(steps) == [7, 4]
    assert len(steps) == 2
    assert steps.agent_id_to_index == {7: 0, 4: 1}
    assert step.obs[0].tolist() == [3, 4, 5]
    assert (step.reward, step.agent_id, step.group_id, step.group_reward) == (2, 4, 9, 0.5)
    assert [mask.tolist() for mask in step.action_mask] == [[False, True, False], [False, False]]
    assert decisions(mask=False)[7].action_mask is None
    assert terminals()[7].interrupted
    assert steps[np.int32(4)].reward == 2


def test_steps_are_the_same_if_all_their_arrays_are():
    other = decisions()
    other.action_mask[1][0, 0] = True

    assert decisions() == decisions()
    assert decisions() != other
    assert decisions() != decisions(mask=False)
    assert decisions() != terminals()


def test_an_unknown_agent_is_a_key_error_that_names_the_batch():
    with pytest.raises(KeyError, match="agent_id 5 is not present in the DecisionSteps"):
        decisions()[5]
    with pytest.raises(KeyError, match="agent_id 5 is not present in the TerminalSteps"):
        terminals()[5]


@pytest.mark.parametrize("kind", [DecisionSteps, TerminalSteps])
def test_empty_steps_have_the_types_of_full_ones(kind):
    steps = kind.empty(SPEC)

    assert steps.obs[0].shape == (0, 3)
    assert steps.obs[0].dtype == np.float32
    assert steps.reward.dtype == steps.group_reward.dtype == np.float32
    assert steps.agent_id.dtype == steps.group_id.dtype == np.int32
    assert len(steps) == 0
    assert kind is TerminalSteps or steps.action_mask is None
    assert kind is DecisionSteps or steps.interrupted.dtype == bool


def test_action_tuples_cast_and_fill_the_absent_half():
    only_continuous = ActionTuple(np.zeros((2, 3)))
    only_discrete = ActionTuple(discrete=np.ones((2, 1), dtype=np.int64))
    nothing = ActionTuple()

    assert only_continuous.continuous.dtype == np.float32
    assert only_continuous.discrete.shape == (2, 0)
    assert only_continuous.discrete.dtype == np.int32
    assert only_discrete.continuous.shape == (2, 0)
    assert only_discrete.discrete.dtype == only_discrete.discrete_dtype == np.int32
    assert nothing.continuous is None


def test_action_specs_answer_as_the_original():
    hybrid = ActionSpec(2, (3, 2))

    assert str(hybrid) == "Continuous: 2, Discrete: (3, 2)"
    assert str(ActionSpec.create_discrete((1,))) == "Continuous: 0, Discrete: (1,)"
    assert not hybrid.is_discrete()
    assert not hybrid.is_continuous()
    assert ActionSpec.create_continuous(1).is_continuous()
    assert ActionSpec.create_discrete((2,)).is_discrete()
    assert hybrid == ActionSpec.create_hybrid(2, (3, 2))
    assert hybrid != ActionSpec.create_hybrid(2, (2, 3))
    assert (hybrid.num_continuous_actions, hybrid.discrete_branch_sizes) == (2, (3, 2))
    with pytest.raises(AttributeError):
        hybrid.num_continuous_actions = 3


def test_empty_and_random_actions_fit_their_specification():
    spec = ActionSpec(2, (3, 2))
    random = spec.random_action(500)

    assert not spec.empty_action(2).continuous.any()
    assert not spec.empty_action(2).discrete.any()
    assert (random.continuous.dtype, random.discrete.dtype) == (np.float32, np.int32)
    assert np.abs(random.continuous).max() <= 1
    assert random.discrete.max(axis=0).tolist() == [2, 1]
    assert spec._validate_action(random, 500, "B") is random


@pytest.mark.parametrize(
    ("case", "continuous", "discrete"),
    [
        ("continuous wrong", np.zeros((1, 3)), np.zeros((1, 2))),
        ("discrete wrong", np.zeros((1, 2)), np.zeros((1, 1))),
        ("n_agents wrong", np.zeros((2, 2)), np.zeros((2, 2))),
        ("continuous wrong", np.zeros((1, 3)), np.zeros((1, 9))),
    ],
)
def test_wrong_shapes_have_the_text_of_the_original(golden, case, continuous, discrete):
    with pytest.raises(UnityActionException) as caught:
        SPEC.action_spec._validate_action(ActionTuple(continuous, discrete), 1, "B")

    assert f"mlagents_envs.exception.UnityActionException: {caught.value}" == golden["errs"][case]


@pytest.mark.parametrize(
    ("continuous", "discrete", "text"),
    [
        ([[0, 0], [0, np.nan]], [[0, 0], [0, 0]], "is NaN, in row 1"),
        ([[0, 0], [0, 0]], [[0, 0], [3, 0]], "action 3 in row 1 for branch 0, which has 3"),
        ([[0, 0], [0, 0]], [[0, -1], [0, 0]], "action -1 in row 0 for branch 1, which has 2"),
    ],
)
def test_nan_and_choices_out_of_range_are_refused(continuous, discrete, text):
    actions = ActionTuple(np.array(continuous), np.array(discrete))

    with pytest.raises(UnityActionException, match=text):
        SPEC.action_spec._validate_action(actions, 2, "B")


@pytest.mark.parametrize(
    ("choice", "kind"),
    [
        *[(choice, "f8") for choice in (1.5, -0.5, np.nan, np.inf, -np.inf, 3e9, 1e300)],
        *[(choice, kind) for choice in (1.5, np.nan, np.inf) for kind in ("f2", "f4")],
    ],
)
def test_discrete_actions_that_are_not_whole_numbers_are_refused(choice, kind):
    actions = ActionTuple()

    with pytest.raises(
        UnityActionException, match=rf"whole numbers .* not {choice}".replace("+", ".")
    ):
        actions.add_discrete(np.array([[2], [choice]], kind))
    assert actions.discrete is None


@pytest.mark.parametrize("kind", ["f2", "f4", "f8", "i1", "u8", "?"])
def test_discrete_actions_may_be_whole_numbers_of_any_kind(kind):
    actions = ActionTuple(discrete=np.array([[1], [0]], kind))

    assert actions.discrete.tolist() == [[1], [0]]
    assert actions.discrete.dtype == np.int32


def test_an_action_tuple_without_actions_is_refused():
    with pytest.raises(UnityActionException, match="received input of dimension None"):
        SPEC.action_spec._validate_action(ActionTuple(), 1, "B")


def test_enumerations_have_the_numbers_of_the_wire():
    assert [int(each) for each in (
        DimensionProperty.UNSPECIFIED,
        DimensionProperty.NONE,
        DimensionProperty.TRANSLATIONAL_EQUIVARIANCE,
        DimensionProperty.VARIABLE_SIZE,
    )] == [0, 1, 2, 4]  # fmt: skip
    assert [each.value for each in ObservationType] == [0, 1]
    assert ObservationSpec._fields == ("shape", "dimension_property", "observation_type", "name")


def test_behavior_mappings_show_behaviors_that_appear_later():
    specs: dict[str, BehaviorSpec] = {}
    mapping = BehaviorMapping(specs)
    before = len(mapping)
    specs["Ball?team=0"] = SPEC

    assert before == 0
    assert list(mapping) == ["Ball?team=0"]
    assert mapping["Ball?team=0"] is SPEC
    with pytest.raises(TypeError):
        mapping["other"] = SPEC


def test_base_env_is_abstract_and_has_the_methods_of_the_original():
    assert BaseEnv.__abstractmethods__ == {
        "step", "reset", "close", "behavior_specs", "set_actions", "set_action_for_agent",
        "get_steps",
    }  # fmt: skip
    assert list(inspect.signature(BaseEnv.set_action_for_agent).parameters) == [
        "self", "behavior_name", "agent_id", "action",
    ]  # fmt: skip
    assert {base_env.AgentId, base_env.BehaviorName} == {int, str}


@pytest.fixture(scope="module")
def golden():
    return json.loads((Path(__file__).parent / "golden_mlagents.json").read_text())
