"""
Plays with a player and prints what is seen, a JSON text a line: the same by any package.

    python drive.py mlagents_envs|arkml.envs.llapi EXECUTABLE PORT STEPS

It needs nothing of this repository: the original runs it in an environment of its own.
"""

import importlib
import json
import sys
import uuid

import numpy as np

PACKAGE, EXECUTABLE, PORT, STEPS = sys.argv[1:]


def load(module, name):
    return getattr(importlib.import_module(f"{PACKAGE}.{module}"), name)


def channels():
    engine = load("side_channel.engine_configuration_channel", "EngineConfigurationChannel")()
    parameters = load(
        "side_channel.environment_parameters_channel", "EnvironmentParametersChannel"
    )()
    raw = load("side_channel.raw_bytes_channel", "RawBytesChannel")(uuid.UUID(int=7))
    stats = load("side_channel.stats_side_channel", "StatsSideChannel")()
    engine.set_configuration_parameters(80, 80, time_scale=20.0, capture_frame_rate=60)
    parameters.set_float_parameter("gravity", 9.5)
    parameters.set_uniform_sampler_parameters("mass", 0.0, 1.0, 3)
    raw.send_raw_data(b"hello")
    return [engine, parameters, raw, stats], stats


def say(what):
    sys.stdout.write(json.dumps(what) + "\n")


def told(spec):
    seen = [
        [list(each.shape), [int(flag) for flag in each.dimension_property],
         each.observation_type.name, each.name]
        for each in spec.observation_specs
    ]  # fmt: skip
    actions = spec.action_spec
    return seen, actions.continuous_size, list(actions.discrete_branches)


def rewards(steps):
    """Without negative zeros, which protobuf 3, that of the original, reads as zeros."""
    return (steps.reward + 0.0).tolist()


def shown(steps):
    decisions, terminals = steps
    masks = decisions.action_mask
    return {
        "deciding": [
            [obs.tolist() for obs in decisions.obs], rewards(decisions),
            [int(agent) for agent in decisions.agent_id],
            masks if masks is None else [mask.tolist() for mask in masks],
            [int(group) for group in decisions.group_id],
        ],
        "ended": [
            [obs.tolist() for obs in terminals.obs], rewards(terminals),
            [int(agent) for agent in terminals.agent_id], terminals.interrupted.tolist(),
        ],
    }  # fmt: skip


def show(env):
    for name in sorted(env.behavior_specs):
        say([name, shown(env.get_steps(name))])


def act(env, random):
    action_tuple = load("base_env", "ActionTuple")
    for name in sorted(env.behavior_specs):
        spec = env.behavior_specs[name].action_spec
        decisions, _ = env.get_steps(name)
        floats = random.uniform(-1, 1, (len(decisions), spec.continuous_size))
        choices = [
            [int(np.flatnonzero(~allowed[row])[0]) for allowed in decisions.action_mask or []]
            for row in range(len(decisions))
        ]
        discrete = np.array(choices, np.int32).reshape(len(decisions), spec.discrete_size)
        env.set_actions(name, action_tuple(floats.astype(np.float32), discrete))


def main():
    some, stats = channels()
    random = np.random.RandomState(1)
    env = load("environment", "UnityEnvironment")(
        EXECUTABLE, base_port=int(PORT), seed=5, timeout_wait=60, side_channels=some, num_areas=2
    )
    say([env.academy_capabilities.multiAgentGroups, dict(env.behavior_specs)])
    for _ in range(2):
        env.reset()
        show(env)
        for _ in range(int(STEPS)):
            act(env, random)
            env.step()
            show(env)
    say({name: told(spec) for name, spec in sorted(env.behavior_specs.items())})
    say({
        name: [[value, method.name] for value, method in values]
        for name, values in stats.get_and_reset_stats().items()
    })  # fmt: skip
    env.close()


if __name__ == "__main__":
    main()
