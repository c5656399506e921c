"""One game, learned by stable-baselines3 in a process of its own; run as a module."""

from __future__ import annotations

import copy
import json
import sys
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import numpy as np
import torch
from stable_baselines3 import PPO, SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize
from tests.benchmarks.games import GAMES, Arrays
from tests.benchmarks.games import rate as rate_arrays
from tests.benchmarks.guest_places import Act, GuestPlaces, rate
from tests.benchmarks.rating import AHEAD, Policies
from tests.benchmarks.suite import SUITE, SuiteGame
from tests.benchmarks.vector_environment import Numbers

from arkml.hive.protocol.settings import Settings

Result = dict[str, Any]

NETWORK = {"net_arch": [64, 64]}
AGENTS = 64
"""Environments of a tuned SAC."""

ROLLOUT = 2_048
"""Rows of a rollout of stable-baselines3's PPO with one environment."""


def tuned(updates_per_step: float, name: str, seed: int) -> Result:
    """Learn a game that is stepped as numpy arrays, by a SAC that is tuned to it."""
    game = GAMES[name]
    model = SAC(
        "MlpPolicy", Arrays(game, AGENTS, seed), train_freq=1,
        gradient_steps=round(AGENTS * updates_per_step), policy_kwargs=NETWORK, seed=seed,
        device="cpu", **game.settings,
    )  # fmt: skip
    policies: Policies[Act] = Policies()
    model.learn(round(game.steps / (8 * updates_per_step) ** 0.5), _Notes(policies))
    return policies.rated(game.goal, partial(rate_arrays, game))


def default(name: str, seed: int) -> Result:
    """
    Learn a game of the suite by the defaults of stable-baselines3.

    Only what is there counted by environments is as with one of them: SAC makes an update for each
    row, and a rollout of PPO has 2,048 rows.
    """
    game = SUITE[name]
    settings: dict[str, Any] = {"gradient_steps": -1}
    if game.learner == "ppo":
        settings = {"n_steps": ROLLOUT // game.agents}
    return _learned(game, seed, {"policy_kwargs": NETWORK, **settings})


def same(name: str, seed: int) -> Result:
    """Learn a game of the suite by PPO with the settings that are the defaults of arkml."""
    game = SUITE[name]
    ours = Settings(game.features, game.actions)
    network = {"net_arch": [ours.hidden] * ours.layers, "activation_fn": torch.nn.ReLU}
    settings = {
        "n_steps": ours.rollout_rows // game.agents,
        "batch_size": ours.batch_size,
        "n_epochs": ours.epochs,
        "learning_rate": ours.learning_rate_init,
        "gamma": ours.gamma,
        "gae_lambda": ours.gae_lambda,
        "clip_range": ours.clip_range,
        "ent_coef": ours.entropy_coefficient,
        "vf_coef": ours.value_coefficient,
        "max_grad_norm": ours.max_gradient_norm,
        "policy_kwargs": network,
    }
    return _learned(game, seed, settings)


RUNS: Mapping[str, Callable[[str, int], Result]] = {
    "1/8": partial(tuned, 1 / 8),
    "1": partial(tuned, 1.0),
    "default": default,
    "same": same,
}


def _learned(game: SuiteGame, seed: int, settings: Mapping[str, Any]) -> Result:
    places = GuestPlaces(game, seed)
    scaled = VecNormalize(places, gamma=Settings(1, 1).gamma)
    kind = PPO if game.learner == "ppo" else SAC
    model = kind("MlpPolicy", scaled, seed=seed, device="cpu", **settings)
    policies: Policies[Act] = Policies()
    try:
        model.learn(game.rows + AHEAD, _Notes(policies, places))
    except ValueError as error:  # torch's distributions refuse numbers that are not finite
        print(f"learn() ended after {model.num_timesteps} rows: {error}", file=sys.stderr)
    return policies.rated(game.goal, partial(rate, game))


class _Notes(BaseCallback):
    """Keeps policies; the seconds that guests take do not count."""

    def __init__(self, policies: Policies[Act], places: GuestPlaces | None = None) -> None:
        super().__init__()
        self._policies = policies
        self._places = places

    def _on_step(self) -> bool:
        if self._places is not None:
            self._policies.start += self._places.busy
            self._places.busy = 0.0
        self._policies.note(self.num_timesteps, self._policy)
        return True

    def _policy(self) -> Act:
        policy: Any = copy.deepcopy(self.model.policy)
        scaling = copy.deepcopy(self.model.get_vec_normalize_env())
        if scaling is not None:
            scaling.training = False

        def act(observations: Numbers) -> Numbers:
            seen = observations if scaling is None else scaling.normalize_obs(observations)
            actions: Numbers = policy.predict(seen, deterministic=True)[0]
            return actions

        return act


def main(kind: str, name: str, seed: int) -> None:
    torch.set_num_threads(1)
    np.seterr(all="ignore")  # some guests give numbers that are not finite
    print(json.dumps({"game": name, "seed": seed, **RUNS[kind](name, seed)}))


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], int(sys.argv[3]))
