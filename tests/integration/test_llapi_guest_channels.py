"""What trainers say through side channels to a guest in this process."""

import logging
import uuid

import pytest
from tests.integration.test_environment import INITIAL, RUNNING, scripted

from arkml.envs.core.world import Pace
from arkml.envs.llapi.exception import (
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
)
from arkml.envs.llapi.guest_channels import (
    ANALYTICS,
    ENGINE,
    PARAMETERS,
    GuestChannels,
    stats_block,
)
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from arkml.envs.llapi.side_channel.environment_parameters_channel import (
    EnvironmentParametersChannel,
)
from arkml.envs.llapi.side_channel.raw_bytes_channel import RawBytesChannel
from arkml.envs.llapi.side_channel.side_channel_manager import SideChannelManager, frame
from arkml.envs.llapi.side_channel.stats_side_channel import (
    StatsAggregationMethod,
    StatsSideChannel,
)
from arkml.errors import EntryPointMissing

SEVEN = uuid.UUID(int=7)
ALLOCATOR = """
  (func (export "ark_alloc") (param i32 i32) (result i32) (i32.const 4096))
  (func (export "ark_free") (param i32 i32 i32))
"""
LISTENING = f"""{ALLOCATOR}
  (global $heard (mut i32) (i32.const 0))
  (func (export "arkml_side_channel") (param $at i32) (param $size i32) (result i32)
    (memory.copy (i32.add (i32.const 8192) (global.get $heard)) (local.get $at) (local.get $size))
    (global.set $heard (i32.add (global.get $heard) (local.get $size)))
    (i32.store (i32.const 8188) (global.get $heard))
    (i32.const 0))
"""
FOREVER = [[(1, RUNNING if turn else INITIAL, 0)] for turn in range(9)]


@pytest.fixture
def make():
    made = []

    def env(exports, *channels):
        made.append(GuestUnityEnv(scripted(*FOREVER, exports=exports), side_channels=channels))
        return made[-1]

    yield env
    for found in made:
        found.close()


def heard(env):
    """All that the instance was told, end to end."""
    guest = env.guest_env.guest
    return guest.read_memory(8192, int.from_bytes(guest.read_memory(8188, 4), "little"))


def told(channel_id, channel, place=0):
    """A message that a channel has queued, as the guest gets it."""
    return channel_id.bytes_le + bytes(channel.message_queue[place])


def test_a_guest_hears_each_message_once_before_its_next_frame(make):
    raw = RawBytesChannel(SEVEN)
    env = make(LISTENING, raw)
    raw.send_raw_data(b"first")
    env.reset()
    at_once = heard(env)
    raw.send_raw_data(b"second")
    raw.send_raw_data(b"")
    env.step()
    env.step()

    assert at_once == SEVEN.bytes_le + b"first"
    assert heard(env) == at_once + SEVEN.bytes_le + b"second" + SEVEN.bytes_le


def test_a_new_instance_is_told_the_parameters_again_as_they_are_now(make):
    raw, parameters = RawBytesChannel(SEVEN), EnvironmentParametersChannel()
    env = make(LISTENING, raw, parameters)
    raw.send_raw_data(b"once")
    parameters.set_float_parameter("gravity", 1.0)
    parameters.set_float_parameter("mass", 5.0)
    env.reset()
    parameters.set_float_parameter("gravity", 2.0)
    now = told(PARAMETERS, parameters)
    env.step()
    parameters.set_float_parameter("mass", 6.0)
    mass = told(PARAMETERS, parameters)
    env.reset()
    old = heard(env)
    env.reset()

    assert old.startswith(now)
    assert old.endswith(mass)
    assert heard(env) == now + mass


def test_settings_of_the_engine_are_kept_and_the_guest_does_not_hear_of_them(make):
    engine = EngineConfigurationChannel()
    env = make(LISTENING, engine)
    before = env.engine
    engine.set_configuration_parameters(time_scale=20.0, capture_frame_rate=60)
    env.reset()
    some = env.engine
    engine.set_configuration_parameters(80, 60, 1, 2.5, -1)
    env.step()

    assert before == EngineConfig(None, None, None, None, None, None)
    assert some == before._replace(time_scale=20.0, capture_frame_rate=60)
    assert env.engine == EngineConfig(80, 60, 1, 2.5, -1, 60)
    assert heard(env) == b""


def test_time_goes_as_fast_as_the_trainer_wants(make):
    engine = EngineConfigurationChannel()
    env = make(LISTENING, engine)
    pace = env.guest_env.pace
    before = pace.nanoseconds
    engine.set_configuration_parameters(time_scale=20.0, capture_frame_rate=50)
    env.reset()

    assert before == round(1e9 / 60)
    assert pace.nanoseconds == 20 * 20_000_000


def test_a_guest_without_the_export_is_told_of_once_for_each_channel(make, caplog):
    raw = RawBytesChannel(SEVEN)
    env = make("", raw, EnvironmentParametersChannel())
    env.reset()
    with caplog.at_level(logging.INFO, "arkml.envs.llapi"):
        for _ in range(3):
            raw.send_raw_data(b"anyone?")
            env.step()

    assert [record.getMessage() for record in caplog.records] == [
        f"The guest exports no arkml_side_channel: what comes by channel {SEVEN} is ignored"
    ]


@pytest.mark.parametrize(
    ("block", "text"),
    [
        (b"cut off", "There was a problem reading a message in a SideChannel"),
        (frame(SEVEN, b"fine") + frame(SEVEN, b"cut")[:-1], "was unexpectedly short"),
        (SEVEN.bytes_le + b"\xff\xff\xff\xff", "was unexpectedly short"),
    ],
)
def test_of_a_broken_block_nothing_is_heard_and_the_guest_plays_on(make, block, text):
    env = make(LISTENING)
    env.reset()
    with pytest.raises(UnityEnvironmentException, match=text):
        env.hear(block)
    env.step()

    assert heard(env) == b""
    assert len(env.get_steps("script?team=0")[0]) == 1


@pytest.mark.parametrize(
    "payload",
    [
        pytest.param("0200000000", id="cut off"),
        pytest.param("00000000500000005000", id="half a resolution"),
        pytest.param("020000", id="half a kind"),
        pytest.param("02000000000080bf", id="time backwards"),
        pytest.param("020000000000c07f", id="time is NaN"),
        pytest.param("04000000ffffffff", id="minus one frame a second"),
    ],
)
def test_a_setting_that_makes_no_sense_is_ignored_with_an_error(caplog, payload):
    pace = Pace()
    channels = GuestChannels(lambda message: pytest.fail(str(message)), pace)
    channels.hear(frame(ENGINE, bytes.fromhex(payload)))
    channels.attend(anew=False)

    assert channels.engine == EngineConfig(None, None, None, None, None, None)
    assert pace.nanoseconds == Pace().nanoseconds
    assert [record.levelname for record in caplog.records] == ["ERROR"]


def test_what_makes_no_sense_as_a_parameter_is_passed_on_and_not_kept():
    got = []
    channels = GuestChannels(lambda message: got.append(message) or True, Pace())
    broken = [b"\xff\xff\xff\x7fabc", b"\x01\x00\x00\x00\xe4"]
    channels.hear(b"".join(frame(PARAMETERS, message) for message in broken))
    channels.hear(frame(ANALYTICS, b"about the trainer"))
    channels.attend(anew=False)
    channels.attend(anew=True)

    assert got == [PARAMETERS.bytes_le + message for message in broken]


def test_numbers_are_sent_as_averages_whose_names_are_ascii():
    told, heard_ = StatsSideChannel(), StatsSideChannel()
    told.stats["größe"].append((1.5, StatsAggregationMethod.AVERAGE))
    told.stats["größe"].append((2.5, StatsAggregationMethod.AVERAGE))
    SideChannelManager([heard_]).process_side_channel_message(stats_block(told))

    assert heard_.get_and_reset_stats() == {
        "gr??e": [(1.5, StatsAggregationMethod.AVERAGE), (2.5, StatsAggregationMethod.AVERAGE)]
    }
    assert stats_block(told) == b""


def test_a_guest_that_fails_while_it_listens_has_failed(make):
    raw = RawBytesChannel(SEVEN)
    trapping = '(func (export "arkml_side_channel") (param i32 i32) unreachable)'
    env = make(ALLOCATOR + trapping, raw)
    env.reset()
    raw.send_raw_data(b"now")
    env.step()

    assert "unreachable" in str(env.failure)
    assert env.get_steps("script?team=0")[1].interrupted.tolist() == [True]
    with pytest.raises(UnityCommunicatorStoppedException):
        env.step()


@pytest.mark.parametrize(
    ("exports", "text"),
    [
        ('(func (export "arkml_side_channel") (param i64))', "it takes the bytes of a message"),
        ('(func (export "arkml_side_channel") (param i32 i32))', "no ark_alloc and ark_free"),
    ],
)
def test_an_export_that_cannot_take_bytes_is_refused(make, exports, text):
    with pytest.raises(EntryPointMissing, match=text):
        make(exports)
