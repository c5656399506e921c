"""The data and the side channels of the low-level API, against what the original gives."""

import json
import logging
import struct
import uuid
from pathlib import Path

import numpy as np
import pytest

from arkml.envs.llapi.base_env import (
    ActionSpec,
    ActionTuple,
    BaseEnv,
    BehaviorMapping,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
    TerminalSteps,
)
from arkml.envs.llapi.exception import (
    UnityActionException,
    UnityCommunicationException,
    UnityEnvironmentException,
    UnitySideChannelException,
    UnityWorkerInUseException,
)
from arkml.envs.llapi.side_channel import IncomingMessage, OutgoingMessage
from arkml.envs.llapi.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from arkml.envs.llapi.side_channel.environment_parameters_channel import (
    EnvironmentParametersChannel,
)
from arkml.envs.llapi.side_channel.float_properties_channel import FloatPropertiesChannel
from arkml.envs.llapi.side_channel.raw_bytes_channel import RawBytesChannel
from arkml.envs.llapi.side_channel.side_channel_manager import SideChannelManager
from arkml.envs.llapi.side_channel.stats_side_channel import (
    StatsAggregationMethod,
    StatsSideChannel,
)

GOLDEN = json.loads(
    (Path(__file__).parents[2] / "fixtures" / "mlagents" / "golden.json").read_text()
)
OUT, ERRORS = GOLDEN["out"], GOLDEN["errs"]
STATS = uuid.UUID("a1d8f7b7-cec8-50f9-b78b-d3e165a78520")


def text_of(name):
    """The text of an error of the original, without its type."""
    return ERRORS[name].split(": ", 1)[1]


def observation(*shape):
    properties = (DimensionProperty.NONE,) * len(shape)
    return ObservationSpec(shape, properties, ObservationType.DEFAULT, "obs")


@pytest.fixture
def spec():
    return BehaviorSpec([observation(3), observation(2, 2)], ActionSpec(2, (3, 2)))


@pytest.fixture
def steps():
    return DecisionSteps(
        [np.arange(6, dtype="f4").reshape(2, 3)],
        np.array([0.5, 1.5], "f4"),
        np.array([7, 9], "i4"),
        [np.array([[True, False], [False, True]])],
        np.zeros(2, "i4"),
        np.zeros(2, "f4"),
    )


def test_steps_are_found_by_the_ids_of_agents(steps):  # ML-1, ML-2
    one = steps[9]

    assert (len(steps), list(steps), steps.agent_id_to_index) == (2, [7, 9], {7: 0, 9: 1})
    assert one.obs[0].tolist() == [3.0, 4.0, 5.0]
    assert (one.reward, one.agent_id, one.group_id, one.group_reward) == (1.5, 9, 0, 0.0)
    assert one.action_mask[0].tolist() == [False, True]
    with pytest.raises(KeyError) as missing:
        steps[5]
    assert repr(missing.value.args[0]) == text_of("DecisionSteps[5]")


def test_an_ended_step_says_whether_it_was_cut():  # ML-1, ML-2
    over = TerminalSteps(
        [np.ones((1, 3), "f4")], np.ones(1, "f4"), np.array([True]), np.array([4], "i4"),
        np.zeros(1, "i4"), np.zeros(1, "f4"),
    )  # fmt: skip

    assert over[4]._fields == (
        "obs", "reward", "interrupted", "agent_id", "group_id", "group_reward"
    )  # fmt: skip
    assert over[4].interrupted
    with pytest.raises(KeyError, match="agent_id 5 is not present in the TerminalSteps"):
        over[5]


def test_steps_of_nobody_have_their_shapes(spec):  # ML-3
    deciding, over = DecisionSteps.empty(spec), TerminalSteps.empty(spec)

    assert [seen.shape for seen in deciding.obs] == [(0, 3), (0, 2, 2)]
    assert deciding.action_mask is None
    assert (deciding.reward.dtype, deciding.agent_id.dtype) == (np.float32, np.int32)
    assert (over.interrupted.dtype, over.group_reward.dtype) == (bool, np.float32)


def test_actions_become_their_types_and_the_other_half_is_empty():  # ML-5
    floats = ActionTuple(continuous=np.ones((2, 3)))
    choices = ActionTuple()
    choices.add_discrete(np.ones((2, 1), np.int64))

    assert floats.continuous.dtype == np.float32
    assert floats.discrete.shape == (2, 0)
    assert choices.discrete.dtype == choices.discrete_dtype == np.int32
    assert choices.continuous.shape == (2, 0)


def test_an_action_specification_says_what_it_is():  # ML-6
    hybrid = ActionSpec.create_hybrid(2, (3, 2))
    drawn = [hybrid.random_action(200) for _ in range(3)]

    assert str(hybrid) == OUT["ActionSpec str"]
    assert (hybrid.num_continuous_actions, hybrid.discrete_branch_sizes) == (2, (3, 2))
    assert not hybrid.is_continuous()
    assert not hybrid.is_discrete()
    assert ActionSpec.create_continuous(2).is_continuous()
    assert ActionSpec.create_discrete((2,)).is_discrete()
    assert hybrid == ActionSpec(2, (3, 2))
    assert hybrid != ActionSpec(2, (3,))
    assert len({hybrid, ActionSpec(2, (3, 2))}) == 1
    assert not hybrid.empty_action(4).continuous.any()
    for action in drawn:
        assert (np.abs(action.continuous) <= 1).all()
        assert set(action.discrete[:, 0]) == {0, 1, 2}
        assert set(action.discrete[:, 1]) == {0, 1}


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("continuous wrong", ((1, 3), (1, 2))),
        ("discrete wrong", ((1, 2), (1, 1))),
        ("n_agents wrong", ((2, 2), (2, 2))),
    ],
)
def test_wrong_shapes_have_the_text_of_the_original(name, shapes):  # ML-7
    action = ActionTuple(np.zeros(shapes[0], "f4"), np.zeros(shapes[1], "i4"))
    with pytest.raises(UnityActionException) as refused:
        ActionSpec(2, (3, 2))._validate_action(action, 1, "B")

    assert str(refused.value) == text_of(name)


@pytest.mark.parametrize(
    ("continuous", "discrete", "named"),
    [
        ([[np.nan, 0]], [[0, 0]], "not finite"),
        ([[np.inf, 0]], [[0, 0]], "not finite"),
        ([[0, 0]], [[3, 0]], "choice 3 in branch 0, which has 3"),
        ([[0, 0]], [[0, -1]], "choice -1 in branch 1"),
    ],
)
def test_values_that_make_no_sense_are_refused(continuous, discrete, named):
    action = ActionTuple(np.array(continuous, "f4"), np.array(discrete))
    with pytest.raises(UnityActionException, match=named):
        ActionSpec(2, (3, 2))._validate_action(action, 1, "B")


def test_behaviours_are_only_read(spec):  # ML-9
    mapping = BehaviorMapping({"B?team=0": spec})

    assert dict(mapping) == {"B?team=0": spec}
    with pytest.raises(TypeError):
        mapping["C"] = spec


def test_the_constants_are_those_of_the_original():  # ML-8
    assert [p.value for p in (*DimensionProperty, DimensionProperty.UNSPECIFIED)] == [1, 2, 4, 0]
    assert (ObservationType.DEFAULT.value, ObservationType.GOAL_SIGNAL.value) == (0, 1)
    assert "worker number 3 is still in use" in str(UnityWorkerInUseException(3))
    with pytest.raises(TypeError):
        BaseEnv()


def packed(*channels):
    return SideChannelManager(channels).generate_side_channel_messages().hex()


def test_messages_are_written_as_the_original_writes_them():  # ML-31, ML-32
    message = OutgoingMessage()
    message.write_bool(True)
    message.write_int32(-7)
    message.write_float32(1.5)
    message.write_float32_list([1.0, -2.0])
    message.write_string("abc")
    read = IncomingMessage(bytes(message.buffer))

    assert message.buffer.hex() == OUT["outgoing bool,int32,float32,list,string"]
    assert [read.read_bool(), read.read_int32(), read.read_float32()] == [True, -7, 1.5]
    assert [read.read_float32_list(), read.read_string()] == [[1.0, -2.0], "abc"]
    assert [read.read_int32(), read.read_string("d"), read.read_bool(True)] == [0, "d", True]
    assert read.read_float32_list() == []
    with pytest.raises(UnicodeEncodeError):
        message.write_string("é")


def test_raw_bytes_take_the_place_of_what_was_written(caplog):
    message = OutgoingMessage()
    message.set_raw_bytes(b"ab")
    message.set_raw_bytes(b"cd")

    assert message.buffer == b"cd"
    assert len(caplog.records) == 1


def test_the_engine_is_configured_as_the_original_does():  # ML-35
    speed, default = EngineConfigurationChannel(), EngineConfigurationChannel()
    speed.set_configuration_parameters(time_scale=2)
    default.set_configuration(EngineConfig.default_config())

    assert packed(speed) == OUT["engine time_scale=2"]
    assert packed(default) == OUT["engine default_config"]
    with pytest.raises(UnitySideChannelException) as refused:
        speed.set_configuration_parameters(width=4)
    assert str(refused.value) == text_of("width only")
    with pytest.raises(UnityCommunicationException):
        speed.on_message_received(IncomingMessage(b""))


@pytest.mark.parametrize(
    ("name", "method", "arguments"),
    [
        ("envparam float g=9.5", "set_float_parameter", ("g", 9.5)),
        ("envparam uniform(0,1) seed 3", "set_uniform_sampler_parameters", ("g", 0, 1, 3)),
        ("envparam gaussian(0,1) seed 3", "set_gaussian_sampler_parameters", ("g", 0, 1, 3)),
        (
            "envparam multirange [(0,1),(2,3)] seed 3",
            "set_multirangeuniform_sampler_parameters",
            ("g", [(0, 1), (2, 3)], 3),
        ),
    ],
)
def test_parameters_are_sent_as_the_original_sends_them(name, method, arguments):  # ML-36
    channel = EnvironmentParametersChannel()
    getattr(channel, method)(*arguments)

    assert packed(channel) == OUT[name]
    with pytest.raises(UnityCommunicationException):
        channel.on_message_received(IncomingMessage(b""))


def test_named_numbers_go_both_ways():  # ML-39
    here, there = FloatPropertiesChannel(), FloatPropertiesChannel()
    here.set_property("x", 4)
    data = SideChannelManager([here]).generate_side_channel_messages()
    SideChannelManager([there]).process_side_channel_message(data)

    assert data.hex() == OUT["floatprops x=4"]
    assert there.get_property_dict_copy() == {"x": 4.0}
    assert (there.list_properties(), there.get_property("y")) == (["x"], None)


def test_statistics_are_kept_until_they_are_asked_for():  # ML-37
    channel, message = StatsSideChannel(), OutgoingMessage()
    message.write_string("speed")
    message.write_float32(2.5)
    message.write_int32(StatsAggregationMethod.HISTOGRAM.value)
    channel.on_message_received(IncomingMessage(message.buffer))

    assert channel.channel_id == STATS
    assert dict(channel.get_and_reset_stats()) == {
        "speed": [(2.5, StatsAggregationMethod.HISTOGRAM)]
    }
    assert not channel.get_and_reset_stats()


def test_bytes_of_ones_own_go_both_ways_and_queues_are_emptied():  # ML-30, ML-38
    number = uuid.uuid4()
    here, there = RawBytesChannel(number), RawBytesChannel(number)
    here.send_raw_data(b"one")
    here.send_raw_data(bytearray(b"two"))
    manager = SideChannelManager([here])
    data = manager.generate_side_channel_messages()
    SideChannelManager([there]).process_side_channel_message(bytes(data))

    assert data[:16] == number.bytes_le
    assert there.get_and_clear_received_messages() == [b"one", b"two"]
    assert there.get_and_clear_received_messages() == []
    assert manager.generate_side_channel_messages() == b""


def test_two_channels_with_one_id_are_refused():
    with pytest.raises(UnityEnvironmentException) as refused:
        SideChannelManager([StatsSideChannel(), StatsSideChannel()])

    assert str(refused.value) == text_of("channel dup")


@pytest.mark.parametrize(
    ("data", "name"),
    [(b"short", "short1"), (STATS.bytes_le + struct.pack("<i", 9) + b"abc", "short2")],
)
def test_broken_frames_have_the_text_of_the_original(data, name):  # ML-33
    with pytest.raises(UnityEnvironmentException) as refused:
        SideChannelManager([StatsSideChannel()]).process_side_channel_message(data)

    assert str(refused.value) == text_of(name)


def test_a_frame_with_a_negative_length_is_refused_as_short():
    data = STATS.bytes_le + struct.pack("<i", -5) + b"abc"
    with pytest.raises(UnityEnvironmentException, match="unexpectedly short"):
        SideChannelManager([StatsSideChannel()]).process_side_channel_message(data)


def test_a_message_that_promises_more_than_it_has_takes_no_memory():
    promise = struct.pack("<i", (1 << 31) - 1)
    with pytest.raises(struct.error, match="promises"):
        IncomingMessage(promise).read_float32_list()
    with pytest.raises(struct.error, match="promises"):
        IncomingMessage(promise).read_string()


def test_a_message_for_nobody_is_logged(caplog):
    data = uuid.uuid4().bytes_le + struct.pack("<i", 1) + b"x"
    with caplog.at_level(logging.WARNING):
        SideChannelManager([]).process_side_channel_message(data)

    assert "Unknown side channel data received" in caplog.text
