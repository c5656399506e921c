"""A guest whose episodes follow the environment parameters of a trainer."""

import numpy as np
import pytest
from tests.integration.command_line import GUESTS

from arkml import GuestEnv
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.guest_channels import PARAMETERS
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.side_channel.environment_parameters_channel import (
    EnvironmentParametersChannel,
)
from arkml.envs.llapi.side_channel.outgoing_message import OutgoingMessage

CURRICULUM = GUESTS / "c_curriculum.wasm"


@pytest.fixture
def lessons():
    """An environment whose agents always walk on, and the channel of its parameters."""
    channel = EnvironmentParametersChannel()
    env = GuestUnityEnv(CURRICULUM, side_channels=[channel])
    env.reset()
    yield env, channel
    env.close()


def lengths(env, episodes):
    """Steps to the ends of the next episodes of the first agent."""
    (name,) = env.behavior_specs
    found, steps = [], 0
    while len(found) < episodes:
        decisions, _ = env.get_steps(name)
        env.set_actions(name, ActionTuple(np.ones((len(decisions), 1), np.float32)))
        env.step()
        _, ended = env.get_steps(name)
        steps += 1
        if len(ended):
            found.append(steps)
            steps = 0
    return found


def test_a_lesson_changes_the_episodes_that_begin_after_it(lessons):
    env, channel = lessons
    first = lengths(env, 2)
    channel.set_float_parameter("distance", 7.0)
    second = lengths(env, 3)

    # The step after an end begins the next episode, with the distance that was set by then.
    assert first == [2, 3]
    assert second[1:] == [8, 8]


def test_a_lesson_holds_after_a_reset(lessons):
    env, channel = lessons
    channel.set_float_parameter("distance", 5.0)
    env.reset()

    assert lengths(env, 1) == [5]


def test_other_parameters_and_channels_change_nothing(lessons):
    env, channel = lessons
    channel.set_float_parameter("height", 5.0)
    channel.set_uniform_sampler_parameters("distance", 5.0, 6.0, 1)
    env.reset()

    assert lengths(env, 1) == [2]


def test_a_message_reaches_the_guest_without_a_trainer():
    message = OutgoingMessage()
    message.write_string("distance")
    message.write_int32(0)
    message.write_float32(3.0)
    with GuestEnv(CURRICULUM) as env:
        env.send_message(PARAMETERS.bytes_le + bytes(message.buffer))
        decision = env.reset().decisions[0]

    assert decision.observations.tolist() == [[0.0, 3.0]] * 4
