"""
The trainer of `mlagents` over our classes, in the place of `mlagents_envs`.

Usage: python trainer.py PACKAGES MODULE SETTINGS. PACKAGES is a folder with the packages that ours
need, MODULE a guest, SETTINGS a file as `mlagents-learn` takes it. It prints a line of JSON: the
module of the environments that the trainer takes, and the means that it reports.
"""

import importlib
import json
import pkgutil
import sys
import tempfile
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


def train(guest, settings):
    """Train by the settings; returns what the trainer reports."""
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

    register_trainer_plugins()
    options = RunOptions.from_dict(yaml.safe_load(Path(settings).read_text()))
    kept = Kept()
    StatsReporter.add_writer(kept)
    channel = EnvironmentParametersChannel()
    env = GuestUnityEnv(guest, seed=1, side_channels=[channel])
    lessons = EnvironmentParameterManager(options.environment_parameters, 1, restore=False)
    with tempfile.TemporaryDirectory() as folder:
        factory = TrainerFactory(
            trainer_config=options.behaviors, output_path=folder, train_model=True,
            load_model=False, seed=1, param_manager=lessons,
        )  # fmt: skip
        controller = TrainerController(factory, folder, "over-ours", lessons, True, 1)
        controller.start_learning(SimpleEnvManager(env, channel))
    return kept.found


def main(packages, guest, settings):
    sys.path.insert(0, packages)
    import numpy as np

    np.float = float  # mlagents 1.1.0 names it in a signature
    take_the_place()
    means = train(guest, settings)
    from mlagents.trainers.simple_env_manager import BaseEnv

    print(json.dumps({"base": BaseEnv.__module__, "means": means}))


main(*sys.argv[1:])
