"""
The trainer of `mlagents` over our classes, in the place of `mlagents_envs`.

Usage: python trainer.py PACKAGES MODULE SETTINGS FOLDER. PACKAGES is a folder with the packages
that ours need, MODULE a guest, SETTINGS a file as `mlagents-learn` takes it, FOLDER gets what is
trained. It prints a line of JSON: the module of the environments that the trainer takes, the means
that it reports, and by behavior the kinds of the modules of its network, and its observations.
"""

import importlib
import json
import pkgutil
import sys
from pathlib import Path


class Kept:
    """A writer of statistics that keeps their means, step by step."""

    def __init__(self):
        self.found = {}

    def write_stats(self, _category, values, _step):
        for name, value in values.items():
            self.found.setdefault(name, []).append(float(value.mean))

    def on_add_stat(self, *_):
        pass

    def add_property(self, *_):
        pass


def take_the_place():
    """Import each of our modules, under the name that the original has, too."""
    import arkml.envs.llapi as ours

    for module in pkgutil.walk_packages(ours.__path__, f"{ours.__name__}."):
        importlib.import_module(module.name)
    for name, module in list(sys.modules.items()):
        if name == ours.__name__ or name.startswith(f"{ours.__name__}."):
            sys.modules["mlagents_envs" + name.removeprefix(ours.__name__)] = module


def train(guest, settings, folder):
    """Train by the settings; returns what the trainer reports, and its policies."""
    import yaml
    from mlagents.plugins.trainer_type import register_trainer_plugins
    from mlagents.trainers.environment_parameter_manager import EnvironmentParameterManager
    from mlagents.trainers.settings import RunOptions
    from mlagents.trainers.simple_env_manager import SimpleEnvManager
    from mlagents.trainers.stats import StatsReporter
    from mlagents.trainers.trainer import TrainerFactory
    from mlagents.trainers.trainer_controller import TrainerController
    from mlagents_envs.side_channel.environment_parameters_channel import (
        EnvironmentParametersChannel,
    )

    from arkml.envs.llapi.guest_unity_env import GuestUnityEnv

    class Env(GuestUnityEnv):
        """Leaves out the list that this manager, not that of `mlagents-learn`, has for nobody."""

        def set_actions(self, behavior_name, action):
            if action != []:
                super().set_actions(behavior_name, action)

    register_trainer_plugins()
    options = RunOptions.from_dict(yaml.safe_load(Path(settings).read_text()))
    kept = Kept()
    StatsReporter.add_writer(kept)
    channel = EnvironmentParametersChannel()
    env = Env(guest, seed=1, side_channels=[channel])
    lessons = EnvironmentParameterManager(options.environment_parameters, 1, restore=False)
    factory = TrainerFactory(
        trainer_config=options.behaviors, output_path=folder, train_model=True, load_model=False,
        seed=1, param_manager=lessons,
    )  # fmt: skip
    controller = TrainerController(factory, folder, "over-ours", lessons, True, 1)
    controller.start_learning(SimpleEnvManager(env, channel))
    policies = {
        name.partition("?")[0]: policy
        for trainer in controller.trainers.values()
        for name, policy in trainer.policies.items()
    }
    return kept.found, policies


def told(policy):
    """The modules and the observations of a policy."""
    seen = [
        [list(each.shape), [flag.name for flag in each.dimension_property],
         each.observation_type.name, each.name]
        for each in policy.behavior_spec.observation_specs
    ]  # fmt: skip
    modules = [type(module).__name__ for module in policy.actor.modules()]
    return {"modules": modules, "observations": seen}


def prepare(packages):
    """Have the packages found, and ours in the place of theirs."""
    sys.path.insert(0, packages)
    import numpy as np

    np.float = float  # mlagents 1.1.0 names it in a signature
    take_the_place()


def main(packages, guest, settings, folder):
    prepare(packages)
    means, policies = train(guest, settings, folder)
    from mlagents.trainers.simple_env_manager import BaseEnv

    found = {name: told(policy) for name, policy in policies.items()}
    print(json.dumps({"base": BaseEnv.__module__, "means": means, "policies": found}))


if __name__ == "__main__":
    main(*sys.argv[1:])
