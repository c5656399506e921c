"""Prints what the original has of all that `golden_mlagents.json` holds: JSON, the last line."""

import json
import struct
import sys

import numpy as np
from mlagents_envs.base_env import (
    ActionSpec,
    ActionTuple,
    BehaviorSpec,
    DecisionSteps,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)
from mlagents_envs.side_channel import IncomingMessage, OutgoingMessage
from mlagents_envs.side_channel.engine_configuration_channel import (
    EngineConfig,
    EngineConfigurationChannel,
)
from mlagents_envs.side_channel.environment_parameters_channel import EnvironmentParametersChannel
from mlagents_envs.side_channel.float_properties_channel import FloatPropertiesChannel
from mlagents_envs.side_channel.side_channel_manager import SideChannelManager
from mlagents_envs.side_channel.stats_side_channel import StatsSideChannel


def sent(channel, method, *arguments):
    getattr(channel, method)(*arguments)
    return bytes(SideChannelManager([channel]).generate_side_channel_messages()).hex()


def message():
    found = OutgoingMessage()
    found.write_bool(True)
    found.write_int32(-7)
    found.write_float32(1.5)
    found.write_float32_list([1.0, -2.0])
    found.write_string("abc")
    return found


def read_back():
    found = IncomingMessage(bytes(message().buffer))
    values = [found.read_bool(), found.read_int32(), found.read_float32()]
    values += [found.read_float32_list(), found.read_string()]
    return str([*values, found.read_int32(), found.read_string("d")])


def empty():
    spec = BehaviorSpec(
        [ObservationSpec((3,), (DimensionProperty.NONE,), ObservationType.DEFAULT, "a")],
        ActionSpec.create_hybrid(2, (3, 2)),
    )
    steps = DecisionSteps.empty(spec)
    return (
        f"{steps.obs[0].shape} {steps.obs[0].dtype} rew {steps.reward.dtype} id"
        f" {steps.agent_id.dtype} mask {steps.action_mask} gid {steps.group_id.dtype} grew"
        f" {steps.group_reward.dtype}"
    )


def random():
    action = ActionSpec.create_hybrid(2, (3, 2)).random_action(4)
    return f"{action.continuous.dtype} {action.discrete.dtype}"


def out():
    environment = EnvironmentParametersChannel
    ranges = [(0.0, 1.0), (2.0, 3.0)]
    return {
        "outgoing bool,int32,float32,list,string": message().buffer.hex(),
        "engine time_scale=2": sent(
            EngineConfigurationChannel(), "set_configuration_parameters", None, None, None, 2.0
        ),
        "engine default_config": sent(
            EngineConfigurationChannel(), "set_configuration", EngineConfig.default_config()
        ),
        "envparam float g=9.5": sent(environment(), "set_float_parameter", "g", 9.5),
        "envparam uniform(0,1) seed 3": sent(
            environment(), "set_uniform_sampler_parameters", "g", 0.0, 1.0, 3
        ),
        "envparam gaussian(0,1) seed 3": sent(
            environment(), "set_gaussian_sampler_parameters", "g", 0.0, 1.0, 3
        ),
        "envparam multirange [(0,1),(2,3)] seed 3": sent(
            environment(), "set_multirangeuniform_sampler_parameters", "g", ranges, 3
        ),
        "floatprops x=4": sent(FloatPropertiesChannel(), "set_property", "x", 4.0),
        "ActionSpec str": str(ActionSpec.create_hybrid(2, (3, 2))),
        "empty obs shape/dtype": empty(),
        "random": random(),
        "read back": read_back(),
    }


def told(call):
    try:
        call()
    except Exception as error:  # noqa: BLE001  whichever it is
        kind = type(error)
        module = "" if kind is struct.error else f"{kind.__module__}."
        name = "struct.error" if kind is struct.error else kind.__name__
        return f"{module}{name}: {error}"
    return "no error"


def errors():
    spec = ActionSpec.create_hybrid(2, (3, 2))

    def validate(continuous, discrete):
        action = ActionTuple(np.zeros(continuous), np.zeros(discrete, np.int32))
        return lambda: spec._validate_action(action, 1, "B")

    stats = StatsSideChannel()
    manager = SideChannelManager([stats])
    name = stats.channel_id.bytes_le
    behavior = BehaviorSpec([], spec)
    return {
        "continuous wrong": told(validate((1, 3), (1, 2))),
        "discrete wrong": told(validate((1, 2), (1, 1))),
        "n_agents wrong": told(validate((2, 2), (2, 2))),
        "DecisionSteps[5]": told(lambda: DecisionSteps.empty(behavior)[5]),
        "channel dup": told(lambda: SideChannelManager([stats, StatsSideChannel()])),
        "short1": told(lambda: manager.process_side_channel_message(name[:5])),
        "short2": told(
            lambda: manager.process_side_channel_message(name + struct.pack("<i", 9) + b"a")
        ),
        "unknown id": told(
            lambda: manager.process_side_channel_message(bytes(16) + struct.pack("<i", 1) + b"a")
        ),
        "width only": told(
            lambda: EngineConfigurationChannel().set_configuration_parameters(width=3)
        ),
        "negative size": told(lambda: IncomingMessage(b"a").read_int32()),
    }


if __name__ == "__main__":
    found = {"out": out(), "errs": errors()}
    sys.stdout.write("\n" + json.dumps(found))  # the original logs there too
