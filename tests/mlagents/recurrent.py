"""
Exports a new policy with an LSTM by the trainer's own serializer.

Usage: python recurrent.py FILE FEATURES CONTINUOUS BRANCHES. BRANCHES are choices, as 3,2 or none.
"""

import sys
from functools import partial

import torch
from mlagents.trainers.policy.torch_policy import TorchPolicy
from mlagents.trainers.settings import NetworkSettings
from mlagents.trainers.torch_entities.model_serialization import ModelSerializer
from mlagents.trainers.torch_entities.networks import SimpleActor
from mlagents_envs.base_env import (
    ActionSpec,
    BehaviorSpec,
    DimensionProperty,
    ObservationSpec,
    ObservationType,
)

MEMORY = 16


def main(file, features, continuous, branches):
    observations = ObservationSpec(
        shape=(int(features),), dimension_property=(DimensionProperty.NONE,),
        observation_type=ObservationType.DEFAULT, name="row",
    )  # fmt: skip
    sizes = tuple(int(size) for size in branches.split(",") if size != "none")
    spec = BehaviorSpec([observations], ActionSpec(int(continuous), sizes))
    settings = NetworkSettings(
        hidden_units=16, num_layers=1, memory=NetworkSettings.MemorySettings(4, MEMORY)
    )
    given = {"conditional_sigma": False, "tanh_squash": False}
    policy = TorchPolicy(1, spec, settings, SimpleActor, given)
    # The exporter of torch that was the default for this release, and takes its LSTM.
    torch.onnx.export = partial(torch.onnx.export, dynamo=False)
    ModelSerializer(policy).export_policy_model(file)


main(*sys.argv[1:])
