"""stable-baselines3's own `learn()` with the same game, stepped as arrays."""

from __future__ import annotations

import copy
from functools import partial
from typing import Any

import numpy as np
import torch
from gymnasium import spaces
from stable_baselines3 import SAC
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecEnv
from tests.benchmarks.configurations import Configuration
from tests.benchmarks.games import Game, Numbers
from tests.benchmarks.learner_runs import Act, Journal


def learn(configuration: Configuration, game: Game, seed: int, seconds: float) -> Journal:
    """Call `learn()` for the learner's steps, or its time."""
    torch.set_num_threads(1)
    settings = configuration.settings(game)
    assert configuration.agents is not None
    model = SAC(
        "MlpPolicy",
        Arrays(game, configuration.agents, seed),
        learning_rate=settings["learning_rate_init"],
        buffer_size=settings["memory_max_size"],
        learning_starts=settings["memory_min_size"],
        batch_size=settings["batch_size"],
        tau=settings["tau"],
        gamma=settings["gamma"],
        n_steps=settings["rollout_length"],
        train_freq=1,
        gradient_steps=round(configuration.agents * settings["updates_per_row"]),
        ent_coef=settings["alpha"],
        policy_kwargs={"net_arch": [settings["hidden"]] * settings["layers"]},
        seed=seed,
        device="cpu",
    )
    journal = Journal(game.steps, seconds)
    model.learn(game.steps, callback=_Notes(journal))
    return journal


class _Notes(BaseCallback):
    def __init__(self, journal: Journal) -> None:
        super().__init__()
        self._journal = journal

    def _on_step(self) -> bool:
        if self._journal.is_due(self.num_timesteps):
            actor: Any = copy.deepcopy(self.model.policy.actor)
            self._journal.note(self.num_timesteps, partial(_acting, actor))
        return not self._journal.is_full


def _acting(actor: Any) -> Act:
    def act(features: Numbers) -> Numbers:
        with torch.no_grad():
            found: Numbers = actor(torch.from_numpy(features), deterministic=True).numpy()[:, 0]
        return found

    return act


class Arrays(VecEnv):
    """Many agents of one game, moved by a few array operations."""

    def __init__(self, game: Game, agents: int, seed: int) -> None:
        observed = spaces.Box(-np.inf, np.inf, (game.features,), np.float32)
        super().__init__(agents, observed, spaces.Box(-1.0, 1.0, (1,), np.float32))
        self._game = game
        self._random = np.random.default_rng(seed)
        self._bodies = game.place(self._random, agents)
        self._steps = np.zeros(agents, int)
        self._actions = np.zeros(agents)

    def reset(self) -> Numbers:
        self._bodies = self._game.place(self._random, self.num_envs)
        self._steps[:] = 0
        return self._game.observe(self._bodies)

    def step_async(self, actions: Numbers) -> None:
        self._actions = actions[:, 0]

    def step_wait(self) -> tuple[Numbers, Numbers, Numbers, list[dict[str, Any]]]:
        rewards, ended = self._game.move(self._bodies, self._actions)
        self._steps += 1
        cut = (self._steps >= self._game.episode) & ~ended
        done = ended | cut
        observations = self._game.observe(self._bodies)
        infos: list[dict[str, Any]] = [{} for _ in range(self.num_envs)]
        if done.any():
            for number in np.flatnonzero(done):
                infos[number]["terminal_observation"] = observations[number].copy()
                infos[number]["TimeLimit.truncated"] = bool(cut[number])
            self._bodies[done] = self._game.place(self._random, int(done.sum()))
            self._steps[done] = 0
            observations = self._game.observe(self._bodies)
        return observations, rewards.astype(np.float32), done, infos

    def close(self) -> None:
        """There is nothing to close."""

    def get_attr(self, attr_name: str, indices: Any = None) -> list[Any]:
        del indices
        return [None if attr_name == "render_mode" else getattr(self, attr_name)] * self.num_envs

    def set_attr(self, attr_name: str, value: Any, indices: Any = None) -> None:
        raise NotImplementedError(attr_name)

    def env_method(self, method_name: str, *args: Any, **kwargs: Any) -> list[Any]:
        raise NotImplementedError(method_name)

    def env_is_wrapped(self, wrapper_class: Any, indices: Any = None) -> list[bool]:
        del wrapper_class, indices
        return [False] * self.num_envs
