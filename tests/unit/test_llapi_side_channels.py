"""Side channels, byte for byte as ML-Agents has them."""

from __future__ import annotations

import json
import logging
import struct
import uuid
from importlib import import_module
from pathlib import Path

import pytest
from google.protobuf.any_pb2 import Any

from arkml.envs.llapi.exception import (
    UnityCommunicationException,
    UnityEnvironmentException,
    UnitySideChannelException,
)
from arkml.envs.llapi.side_channel import (
    DefaultTrainingAnalyticsSideChannel,
    IncomingMessage,
    OutgoingMessage,
    SideChannel,
    float_properties_channel,
    raw_bytes_channel,
    stats_side_channel,
)
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
from arkml.errors import UsageError

GOLDEN = json.loads((Path(__file__).parent / "golden_mlagents.json").read_text())
ERRORS = GOLDEN["errs"]


def sent(channel):
    return bytes(SideChannelManager([channel]).generate_side_channel_messages()).hex()


def frame(channel_id, payload):
    return channel_id.bytes_le + struct.pack("<i", len(payload)) + payload


def message():
    msg = OutgoingMessage()
    msg.write_bool(True)
    msg.write_int32(-7)
    msg.write_float32(1.5)
    msg.write_float32_list([1.0, -2.0])
    msg.write_string("abc")
    return msg


def test_scalars_lists_and_strings_have_the_bytes_of_the_original():
    written = message()

    assert written.buffer.hex() == GOLDEN["out"]["outgoing bool,int32,float32,list,string"]


def test_reading_past_the_end_gives_the_default():
    read = IncomingMessage(bytes(message().buffer))
    values = [read.read_bool(), read.read_int32(), read.read_float32(), read.read_float32_list()]
    values += [read.read_string(), read.read_int32(), read.read_string("d")]

    assert str(values) == GOLDEN["out"]["read back"]
    assert read.read_bool(True) is True
    assert read.read_float32(2.5) == 2.5
    assert read.read_float32_list() == []
    assert read.read_float32_list([3.0]) == [3.0]
    assert read.get_raw_bytes() == message().buffer


@pytest.mark.parametrize(
    ("buffer", "method"),
    [
        (b"\x01", "read_int32"),
        (b"\x01\x02", "read_float32"),
        (struct.pack("<if", 2, 1.0), "read_float32_list"),
        (struct.pack("<i", 2**31 - 1), "read_float32_list"),
        (struct.pack("<if", -1, 1.0), "read_float32_list"),
        (struct.pack("<i", 5) + b"abc", "read_string"),
        (struct.pack("<i", -1) + b"abc", "read_string"),
    ],
)
def test_values_that_are_cut_off_raise(buffer, method):
    with pytest.raises(struct.error):
        getattr(IncomingMessage(buffer), method)()


@pytest.mark.parametrize("offset", [-8, -1, None, "1", 0.5])
def test_a_message_is_read_from_a_byte_of_it(offset):
    with pytest.raises(UsageError, match=r"offset is .*: it takes a number of bytes, from 0"):
        IncomingMessage(struct.pack("<i", 4) + b"abcd", offset)


def test_strings_are_ascii():
    with pytest.raises(UnicodeEncodeError):
        OutgoingMessage().write_string("ä")
    with pytest.raises(UnicodeDecodeError):
        IncomingMessage(struct.pack("<i", 2) + "ä".encode()).read_string()


def test_set_raw_bytes_replaces_with_a_warning(caplog):
    msg = message()
    msg.set_raw_bytes(b"xy")

    assert msg.buffer == b"xy"
    assert caplog.messages == [
        "Called set_raw_bytes but the message already has been written to. "
        "This will overwrite data."
    ]


def test_engine_settings_have_the_bytes_of_the_original():
    scaled, configured = EngineConfigurationChannel(), EngineConfigurationChannel()
    scaled.set_configuration_parameters(time_scale=2)
    configured.set_configuration(EngineConfig.default_config())

    assert EngineConfig.default_config() == (80, 80, 1, 20.0, -1, 60)
    assert sent(scaled) == GOLDEN["out"]["engine time_scale=2"]
    assert sent(configured) == GOLDEN["out"]["engine default_config"]
    assert list(EngineConfigurationChannel.ConfigurationType) == [0, 1, 2, 3, 4]


def test_a_width_needs_a_height():
    channel = EngineConfigurationChannel()

    with pytest.raises(UnitySideChannelException) as caught:
        channel.set_configuration_parameters(width=3, quality_level=1)
    assert ERRORS["width only"].endswith(str(caught.value))
    assert channel.message_queue == []


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("float g=9.5", lambda c: c.set_float_parameter("g", 9.5)),
        ("uniform(0,1) seed 3", lambda c: c.set_uniform_sampler_parameters("g", 0, 1, 3)),
        ("gaussian(0,1) seed 3", lambda c: c.set_gaussian_sampler_parameters("g", 0, 1, 3)),
        (
            "multirange [(0,1),(2,3)] seed 3",
            lambda c: c.set_multirangeuniform_sampler_parameters("g", [(0, 1), (2, 3)], 3),
        ),
    ],
)
def test_parameters_have_the_bytes_of_the_original(name, call):
    channel = EnvironmentParametersChannel()
    call(channel)

    assert sent(channel) == GOLDEN["out"][f"envparam {name}"]


def test_float_properties_are_set_by_both_sides():
    channel = FloatPropertiesChannel()
    channel.set_property("x", 4.0)
    manager = SideChannelManager([channel])
    bytes_sent = manager.generate_side_channel_messages().hex()
    payload = struct.pack("<i", 1) + b"y" + struct.pack("<f", 0.5)
    manager.process_side_channel_message(frame(channel.channel_id, payload))

    assert bytes_sent == GOLDEN["out"]["floatprops x=4"]
    assert manager.generate_side_channel_messages() == b""
    assert channel.list_properties() == ["x", "y"]
    assert channel.get_property("y") == 0.5
    assert channel.get_property("z") is None
    assert channel.get_property_dict_copy() == {"x": 4.0, "y": 0.5}


def test_stats_are_collected_until_they_are_taken():
    channel = StatsSideChannel()
    for value, method in ((1.0, 0), (2.0, 3)):
        msg = OutgoingMessage()
        msg.write_string("k")
        msg.write_float32(value)
        msg.write_int32(method)
        channel.on_message_received(IncomingMessage(bytes(msg.buffer)))
    stats = channel.get_and_reset_stats()

    assert stats == {
        "k": [(1.0, StatsAggregationMethod.AVERAGE), (2.0, StatsAggregationMethod.HISTOGRAM)]
    }
    assert channel.get_and_reset_stats() == {}
    assert [method.value for method in StatsAggregationMethod] == [0, 1, 2, 3]


def test_raw_bytes_go_both_ways():
    channel = RawBytesChannel(uuid.UUID(int=7))
    manager = SideChannelManager([channel])
    channel.send_raw_data(b"out")
    bytes_sent = manager.generate_side_channel_messages()
    incoming = frame(channel.channel_id, b"in") + frame(channel.channel_id, b"")
    manager.process_side_channel_message(incoming)

    assert bytes_sent == frame(channel.channel_id, b"out")
    assert channel.get_and_clear_received_messages() == [b"in", b""]
    assert channel.get_and_clear_received_messages() == []


def test_channels_of_ones_own_are_a_subclass():
    class Echo(SideChannel):
        def on_message_received(self, msg):
            answer = OutgoingMessage()
            answer.write_int32(msg.read_int32() + 1)
            self.queue_message_to_send(answer)

    channel = Echo(uuid.UUID(int=8))
    manager = SideChannelManager([channel])
    manager.process_side_channel_message(frame(channel.channel_id, struct.pack("<i", 1)))

    assert manager.generate_side_channel_messages() == frame(
        channel.channel_id, struct.pack("<i", 2)
    )


def test_one_id_has_one_channel():
    with pytest.raises(UnityEnvironmentException) as caught:
        SideChannelManager([StatsSideChannel(), StatsSideChannel()])

    assert ERRORS["channel dup"].endswith(str(caught.value))


@pytest.mark.parametrize(
    ("case", "block"),
    [
        ("short1", StatsSideChannel().channel_id.bytes_le + b"\x01"),
        ("short1", b"\x01"),
        ("short2", StatsSideChannel().channel_id.bytes_le + struct.pack("<i", 4) + b"\x01"),
        ("short2", StatsSideChannel().channel_id.bytes_le + struct.pack("<i", -4) + bytes(9)),
    ],
)
def test_blocks_that_are_cut_off_are_refused_and_reach_nobody(case, block):
    raw = RawBytesChannel(uuid.UUID(int=7))
    manager = SideChannelManager([StatsSideChannel(), raw])

    with pytest.raises(UnityEnvironmentException) as caught:
        manager.process_side_channel_message(frame(raw.channel_id, b"first") + block)
    assert ERRORS[case].endswith(str(caught.value))
    assert raw.get_and_clear_received_messages() == []


def test_a_value_that_is_cut_off_is_an_error_of_struct():
    manager = SideChannelManager([StatsSideChannel()])

    with pytest.raises(struct.error) as caught:
        manager.process_side_channel_message(frame(StatsSideChannel().channel_id, b"\x01"))
    assert f"struct.error: {caught.value}" == ERRORS["negative size"]


def test_an_unknown_channel_is_warned_about(caplog):
    unknown = uuid.UUID(int=9)
    with caplog.at_level(logging.WARNING):
        SideChannelManager([]).process_side_channel_message(frame(unknown, b"?"))

    assert caplog.messages == [f"Unknown side channel data received. Channel type: {unknown}."]


def test_a_player_cannot_fill_the_log_or_what_nobody_reads(caplog, monkeypatch):
    raw, stats, floats = (
        RawBytesChannel(uuid.UUID(int=1)), StatsSideChannel(), FloatPropertiesChannel()
    )  # fmt: skip
    monkeypatch.setattr(raw_bytes_channel, "_MOST_BYTES", 3 * (64 + 6))
    monkeypatch.setattr(stats_side_channel, "_MOST_VALUES", 5)
    monkeypatch.setattr(float_properties_channel, "_MOST_FLOATS", 5)
    manager = SideChannelManager([raw, stats, floats])
    for number in range(9):
        name = struct.pack("<i", 1) + b"%d" % number
        for channel in (raw.channel_id, floats.channel_id, uuid.UUID(int=9)):
            manager.process_side_channel_message(frame(channel, name + bytes(4)))
        manager.process_side_channel_message(
            frame(stats.channel_id, name + struct.pack("<fi", 1, 0))
        )

    assert len(caplog.messages) == 1
    assert [bytes(each[4:5]) for each in raw.get_and_clear_received_messages()] == [b"7", b"8"]
    assert list(stats.get_and_reset_stats()) == floats.list_properties() == list("01234")
    with pytest.raises(UnityEnvironmentException, match="more than 65,536 messages at once"):
        manager.process_side_channel_message(frame(uuid.UUID(int=9), b"") * 65_537)


@pytest.mark.parametrize(
    ("kind", "channel_id"),
    [
        (EngineConfigurationChannel, "e951342c-4f7e-11ea-b238-784f4387d1f7"),
        (EnvironmentParametersChannel, "534c891e-810f-11ea-a9d0-822485860400"),
        (FloatPropertiesChannel, "60ccf7d0-4f7e-11ea-b238-784f4387d1f7"),
        (StatsSideChannel, "a1d8f7b7-cec8-50f9-b78b-d3e165a78520"),
        (DefaultTrainingAnalyticsSideChannel, "b664a4a9-d86f-5a5f-95cb-e8353a7e8356"),
    ],
)
def test_channels_have_the_ids_of_the_original(kind, channel_id):
    assert str(kind().channel_id) == channel_id


@pytest.mark.parametrize(
    "kind",
    [
        EngineConfigurationChannel,
        EnvironmentParametersChannel,
        DefaultTrainingAnalyticsSideChannel,
    ],
)
def test_channels_that_only_send_refuse_messages(kind):
    text = f"The {kind.__name__} received a message from Unity, this should not have happened."

    with pytest.raises(UnityCommunicationException) as caught:
        kind().on_message_received(IncomingMessage(b""))
    assert str(caught.value) == text


def test_the_analytics_channel_tells_versions_once_asked():
    analytics = import_module("arkml.envs.llapi.communicator_objects.training_analytics_pb2")
    channel = DefaultTrainingAnalyticsSideChannel()
    channel.environment_initialized()
    packed = Any.FromString(bytes(channel.message_queue[0]))
    told = analytics.TrainingEnvironmentInitialized()

    assert packed.Unpack(told)
    assert packed.type_url == (
        "type.googleapis.com/communicator_objects.TrainingEnvironmentInitialized"
    )
    assert (told.mlagents_version, told.mlagents_envs_version) == ("Custom", "1.1.0")
