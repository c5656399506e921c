"""
What a trained network of ML-Agents chooses for observations, by torch.

Usage: python acting.py PACKAGES MODULE SETTINGS FOLDER FILE. The first four are those of
trainer.py, which was run with them. FILE, .npz, has the observations by their number, `obs_0` and
so on, each [n, *shape], and gets the choices in their place: `actions`, int32, [n, branches].
"""

import sys
from pathlib import Path

from trainer import prepare


def actor_of(guest, settings, folder):
    """The network of the only behavior of a guest, as the trainer has saved it."""
    import yaml
    from mlagents.plugins.trainer_type import register_trainer_plugins
    from mlagents.trainers.model_saver.torch_model_saver import TorchModelSaver
    from mlagents.trainers.policy.torch_policy import TorchPolicy
    from mlagents.trainers.settings import RunOptions
    from mlagents.trainers.torch_entities.networks import SimpleActor

    from arkml.envs.llapi.guest_unity_env import GuestUnityEnv

    register_trainer_plugins()
    options = RunOptions.from_dict(yaml.safe_load(Path(settings).read_text()))
    with GuestUnityEnv(guest) as env:
        env.reset()
        ((name, spec),) = env.behavior_specs.items()
    name = name.partition("?")[0]
    chosen = options.behaviors[name]
    given = {"conditional_sigma": False, "tanh_squash": False}
    policy = TorchPolicy(1, spec, chosen.network_settings, SimpleActor, given)
    saver = TorchModelSaver(chosen, str(Path(folder) / name), load=True)
    saver.register(policy)
    saver.initialize_or_load(policy)
    return policy.actor


def main(packages, guest, settings, folder, file):
    prepare(packages)
    import numpy as np
    import torch

    actor = actor_of(guest, settings, folder)
    actor.action_model._deterministic = True  # as `mlagents-learn --deterministic` has it
    with np.load(file) as rows:
        seen = [torch.from_numpy(rows[f"obs_{i}"]) for i in range(len(rows.files))]
    masks = torch.ones(len(seen[0]), sum(actor.action_spec.discrete_branches))
    with torch.no_grad():
        action, _, _ = actor.get_action_and_stats(seen, masks=masks)
    np.savez(file, actions=action.to_action_tuple().discrete)


if __name__ == "__main__":
    main(*sys.argv[1:])
