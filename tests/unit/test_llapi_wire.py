"""The way from messages of players to arrays: masks, versions, observations, rewards."""

from __future__ import annotations

import io
import tracemalloc

import numpy as np
import pytest
from PIL import Image

from arkml.envs.llapi.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from arkml.envs.llapi.communicator_objects.agent_info_pb2 import AgentInfoProto
from arkml.envs.llapi.communicator_objects.brain_parameters_pb2 import (
    ActionSpecProto,
    BrainParametersProto,
)
from arkml.envs.llapi.communicator_objects.observation_pb2 import (
    GOAL_SIGNAL,
    PNG,
    ObservationProto,
)
from arkml.envs.llapi.exception import (
    UnityCommunicationException,
    UnityEnvironmentException,
    UnityObservationException,
)
from arkml.envs.llapi.handshake import check, greeting, is_compatible
from arkml.envs.llapi.images import process_pixels
from arkml.envs.llapi.rpc_utils import (
    actions_to_proto,
    behavior_spec_from_proto,
    steps_from_proto,
)


def observation(values, shape=None, **fields):
    data = ObservationProto.FloatData(data=np.ravel(values))
    return ObservationProto(shape=shape or np.shape(values), float_data=data, **fields)


def spec(*shapes, actions=ActionSpec(1, ())):  # noqa: B008 - it cannot be changed
    plain = [
        ObservationSpec(shape, (DimensionProperty.UNSPECIFIED,), ObservationType.DEFAULT, "")
        for shape in shapes
    ]
    return BehaviorSpec(plain, actions)


def agent(number, *observations, **fields):
    return AgentInfoProto(id=number, observations=observations, **fields)


def png(*channels):
    """A file with these channels, [height, width] each, 0 to 255."""
    pixels = np.stack(channels, axis=-1).astype(np.uint8)
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return file.getvalue()


def flat(value, shape=(2, 3)):
    return np.full(shape, value)


def test_a_behavior_is_specified_by_its_brain_and_one_agent():
    info = agent(
        1,
        observation([1, 2], dimension_properties=[1], name="vector"),
        observation(np.zeros((2, 3)), observation_type=GOAL_SIGNAL, dimension_properties=[4, 1]),
        observation(np.zeros((1, 2, 2))),
    )
    hybrid = ActionSpecProto(
        num_continuous_actions=2, num_discrete_actions=2, discrete_branch_sizes=[3, 2]
    )
    got = behavior_spec_from_proto(BrainParametersProto(action_spec=hybrid), info)

    none, variable = DimensionProperty.NONE, DimensionProperty.VARIABLE_SIZE
    assert got.action_spec == ActionSpec(2, (3, 2))
    assert got.observation_specs == [
        ObservationSpec((2,), (none,), ObservationType.DEFAULT, "vector"),
        ObservationSpec((2, 3), (variable, none), ObservationType.GOAL_SIGNAL, ""),
        ObservationSpec(
            (1, 2, 2), (DimensionProperty.UNSPECIFIED,) * 3, ObservationType.DEFAULT, ""
        ),
    ]


@pytest.mark.parametrize(
    ("sizes", "kind", "expected"),
    [([2], 1, ActionSpec(2, ())), ([3, 2], 0, ActionSpec(0, (3, 2))), ([], 1, ActionSpec(0, ()))],
)
def test_old_players_specify_actions_in_fields_of_their_own(sizes, kind, expected):
    brain = BrainParametersProto(
        vector_action_size_deprecated=sizes, vector_action_space_type_deprecated=kind
    )

    assert behavior_spec_from_proto(brain, agent(1)).action_spec == expected


def test_rows_are_split_by_done_in_the_order_of_the_message():
    infos = [
        agent(4, observation([1.0]), reward=0.5, group_id=3, group_reward=2.0),
        agent(9, observation([2.0]), done=True, reward=1.5),
        agent(8, observation([3.0]), done=True, max_step_reached=True),
        agent(9, observation([4.0])),
    ]
    decisions, terminals = steps_from_proto(infos, spec((1,)))

    assert list(decisions) == [4, 9]
    assert list(terminals) == [9, 8]
    assert decisions.obs[0].tolist() == [[1], [4]]
    assert terminals.interrupted.tolist() == [False, True]
    assert terminals.reward.tolist() == [1.5, 0]
    assert (decisions[4].group_id, decisions[4].group_reward) == (3, 2)
    assert decisions.action_mask is None


def test_nobody_gives_empty_steps():
    decisions, terminals = steps_from_proto([], spec((2,), (1, 2, 2), actions=ActionSpec(0, (2,))))

    assert [each.shape for each in decisions.obs] == [(0, 2), (0, 1, 2, 2)]
    assert [each.shape for each in terminals.obs] == [(0, 2), (0, 1, 2, 2)]
    assert decisions.action_mask is None


def test_masks_are_there_for_every_branch_and_agent():
    infos = [
        agent(1, action_mask=[True, False, False, False, True]),
        agent(2),
        agent(3, action_mask=[True]),
    ]
    decisions, _ = steps_from_proto(infos, spec(actions=ActionSpec(0, (3, 2))))
    unsent, _ = steps_from_proto([agent(1)], spec(actions=ActionSpec(1, (2,))))

    assert [mask.tolist() for mask in decisions.action_mask] == [
        [[True, False, False], [False] * 3, [False] * 3],
        [[False, True], [False, False], [False, False]],
    ]
    assert [mask.tolist() for mask in unsent.action_mask] == [[[False, False]]]


@pytest.mark.parametrize(
    ("values", "text"),
    [
        ([np.nan, 0], r"The observations provided had NaN values\."),
        ([np.inf, 0], r"The observations provided had Infinite values\."),
        ([-np.inf, 0], r"The observations provided had Infinite values\."),
        ([np.inf, -np.inf], r"The observations provided had NaN values\."),
    ],
)
def test_observations_are_finite(values, text):
    with pytest.raises(RuntimeError, match=text):
        steps_from_proto([agent(1, observation(values))], spec((2,)))


@pytest.mark.parametrize("done", [False, True])
@pytest.mark.parametrize(("field", "name"), [("reward", "rewards"), ("group_reward", "group_rew")])
def test_rewards_are_finite(field, name, done):
    with pytest.raises(RuntimeError, match=f"The {name}.* provided had NaN values"):
        steps_from_proto([agent(1, done=done, **{field: float("nan")})], spec())


def test_pictures_are_not_checked_for_nan():
    info = agent(1, observation(np.full((1, 1, 2), np.nan)))
    decisions, _ = steps_from_proto([info], spec((1, 1, 2)))

    assert decisions.obs[0].shape == (1, 1, 1, 2)


@pytest.mark.parametrize(
    ("info", "text"),
    [
        (
            agent(7, observation([1, 2, 3])),
            r"Observation at index=0 for agent with id=7 didn't match the ObservationSpec\. "
            r"Expected shape \(2,\) but got \(3,\)\.",
        ),
        (agent(7, observation([1, 2, 3], shape=[2])), "id=7 has 3 numbers"),
        (agent(7), "id=7 has 0 observations"),
    ],
)
def test_observations_have_the_shape_of_their_specification(info, text):
    with pytest.raises(UnityObservationException, match=text):
        steps_from_proto([agent(1, observation([1, 2])), info], spec((2,)))


@pytest.mark.parametrize("bad", [observation([[[1]]]), observation([1], shape=[1, 2, 3])])
def test_pictures_have_the_shape_of_their_specification(bad):
    with pytest.raises(UnityObservationException):
        steps_from_proto([agent(7, bad)], spec((1, 2, 3)))


def test_pictures_come_as_one_file_or_several():
    first, second = png(flat(0), flat(51), flat(102)), png(flat(153), flat(204), flat(255))
    several = process_pixels(first + second, 5)

    assert several.dtype == np.float32
    assert several.shape == (5, 2, 3)
    assert several[:, 0, 0].tolist() == pytest.approx([0, 0.2, 0.4, 0.6, 0.8])
    assert process_pixels(first, 1)[0, 0].tolist() == pytest.approx([0.2] * 3)
    assert process_pixels(first, 3).shape == (3, 2, 3)


def test_pictures_keep_their_orientation():
    rows = np.array([[0, 255, 0], [0, 0, 255]])

    assert (process_pixels(png(rows, rows, rows), 3)[0] == rows / 255).all()


def test_mappings_average_and_drop_channels():
    data = png(flat(0), flat(102), flat(255)) + png(flat(51), flat(51), flat(51))
    mapped = process_pixels(data, 2, [0, 0, -1, 1, -1, -1])

    assert mapped.dtype == np.float32
    assert mapped[:, 0, 0].tolist() == pytest.approx([0.2, 0.2])


@pytest.mark.parametrize(
    ("mapping", "text"),
    [
        (
            [0, 1],
            "Compressed observation and its mapping had different number of channels - "
            "observation had 3 channels but its mapping had 2 channels",
        ),
        (
            [0, 2, 2],
            r"Invalid Compressed Channel Mapping: the mapping \[0, 2, 2\] does not have the corr",
        ),
        ([0, 1, 9], r"the mapping \[0, 1, 9\] does not have the correct format\."),
        ([-1, -1, -1], r"the mapping \[-1, -1, -1\] does not have the correct format\."),
    ],
)
def test_mappings_that_do_not_fit_are_refused(mapping, text):
    with pytest.raises(UnityObservationException, match=text):
        process_pixels(png(flat(0), flat(0), flat(0)), 3, mapping)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"no picture",
        png(flat(0), flat(0), flat(0))[:-3],
        png(flat(0), flat(0), flat(0)) + b"rest",
        png(flat(0), flat(0), flat(0))[:40] + b"\0" * 30,
        b"\x89PNG\r\n\x1a\n" + b"\0\0\0\0IEND\xaeB`\x82",
    ],
)
def test_bytes_that_are_no_picture_are_refused(data):
    with pytest.raises(UnityObservationException):
        process_pixels(data, 3)


def large(side):
    """A picture of `side` by `side` points, in a thousandth of the bytes that it unpacks to."""
    file = io.BytesIO()
    Image.new("1", (side, side)).save(file, "PNG")
    return file.getvalue()


@pytest.mark.parametrize(
    ("shape", "data", "text"),
    [
        ([3, 2, 3], large(4_000), r"4000 rows of 4000 and expected \[2, 3\]"),
        ([1, 1, 1], large(1) * 2, "more files than its 1 channels"),
        ([-5, 1, 1], large(1), "more files than its -5 channels"),
        ([3, 1 << 14, 1 << 14], large(1), "of 1 agents have 805306368 numbers: 268435456 at most"),
    ],
)
def test_a_picture_that_is_larger_than_its_specification_is_not_unpacked(shape, data, text):
    bomb = ObservationProto(shape=shape, compression_type=PNG, compressed_data=data)
    tracemalloc.start()
    try:
        with pytest.raises(UnityObservationException, match=text):
            steps_from_proto([agent(7, bomb)], spec(tuple(shape)))
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    assert most < 1 << 20


@pytest.mark.parametrize(
    ("floats", "branches"),
    [(-1, []), (0, [0]), (2, [3, -1]), (65_537, []), (1, [2**31 - 1]), (1, [65_535, 1])],
)
def test_actions_that_cannot_be_are_refused(floats, branches):
    wanted = ActionSpecProto(
        num_continuous_actions=floats,
        num_discrete_actions=len(branches),
        discrete_branch_sizes=branches,
    )
    with pytest.raises(UnityCommunicationException, match="declares actions that cannot be"):
        behavior_spec_from_proto(BrainParametersProto(action_spec=wanted), agent(1))


@pytest.mark.parametrize(
    "odd",
    [{"observation_type": 99}, {"shape": [1] * 65}],
)
def test_observations_that_cannot_be_are_refused(odd):
    with pytest.raises(UnityCommunicationException, match="The player declares an observation"):
        behavior_spec_from_proto(BrainParametersProto(), agent(1, ObservationProto(**odd)))


def test_masks_of_more_agents_than_fit_are_refused():
    agents = [agent(1)] * 4_097
    with pytest.raises(UnityObservationException, match="The masks of 4097 agents have 268500992"):
        steps_from_proto(agents, spec(actions=ActionSpec(0, (65_536,))))


def test_compressed_observations_have_the_size_that_they_declare():
    fits = ObservationProto(
        shape=[3, 2, 3], compression_type=PNG, compressed_data=png(flat(0), flat(51), flat(255))
    )
    wrong = ObservationProto(
        shape=[3, 2, 3], compression_type=PNG, compressed_data=png(*[flat(0, (4, 4))] * 3)
    )
    decisions, _ = steps_from_proto([agent(1, fits)], spec((3, 2, 3)))

    assert decisions.obs[0][0, :, 0, 0].tolist() == pytest.approx([0, 0.2, 1])
    with pytest.raises(UnityObservationException, match="Decompressed observation did not have"):
        steps_from_proto([agent(1, wrong)], spec((3, 2, 3)))


def test_actions_are_sent_in_both_spellings():
    actions = ActionTuple(np.array([[0.5, 1], [0, 0]]), np.array([[2, 1], [0, 1]]))
    first, second = actions_to_proto(actions)

    assert list(first.continuous_actions) == [0.5, 1]
    assert list(first.discrete_actions) == [2, 1]
    assert list(first.vector_actions_deprecated) == [0.5, 1, 2, 1]
    assert list(second.discrete_actions) == [0, 1]


@pytest.mark.parametrize(
    ("unity", "python", "fits"),
    [
        ("1.5.0", "1.5.0", True),
        ("1.0.0", "1.5.0", True),
        ("1.9.3", "1.5.0", True),
        ("2.0.0", "1.5.0", False),
        ("0.15.0", "0.15.2", True),
        ("0.15.0", "0.16.0", False),
        ("0.15.0", "1.15.0", False),
        ("", "1.5.0", False),
        ("1.x", "1.5.0", False),
    ],
)
def test_versions_fit_by_their_major_part(unity, python, fits):
    assert is_compatible(unity, python) is fits


def test_a_player_without_base_capabilities_is_warned_about(caplog):
    from arkml.envs.llapi.communicator_objects.unity_rl_initialization_output_pb2 import (
        UnityRLInitializationOutputProto,
    )

    old = UnityRLInitializationOutputProto(communication_version="1.0.0", package_version="1.0.2")
    check(old)

    assert "is not running with the expected base Reinforcement Learning" in caplog.text
    assert greeting(3, 2).seed == 3
    with pytest.raises(UnityEnvironmentException, match="Unity API: 2"):
        check(UnityRLInitializationOutputProto(communication_version="2.0.0"))
