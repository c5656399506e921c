"""The pendulum and the cart-pole of fixtures/guests as numpy arrays, for a library in Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from gymnasium import spaces
from tests.benchmarks.vector_environment import Numbers, PlainVecEnv


@dataclass(frozen=True, slots=True)
class Game:
    """
    A game; `settings` are those by which stable-baselines3's SAC learns it.

    `place` draws bodies, [n, B]. `observe` returns features, float32, [n, F]. `move` changes the
    bodies by actions, [n], and returns rewards and which of them have ended, each [n]. An episode
    is cut after `episode` steps. `goal` is a mean return without noise. `steps` are those that it
    is learned for, at an update for 8 of them.
    """

    features: int
    episode: int
    goal: float
    steps: int
    settings: Mapping[str, Any]
    place: Callable[[np.random.Generator, int], Numbers]
    observe: Callable[[Numbers], Numbers]
    move: Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]


def rate(game: Game, act: Callable[[Numbers], Numbers], episodes: int = 100) -> float:
    """Return the mean return of episodes from places that are always the same."""
    bodies = game.place(np.random.default_rng(7), episodes)
    returns, live = np.zeros(episodes), np.ones(episodes, bool)
    for _ in range(game.episode):
        rewards, ended = game.move(bodies, act(game.observe(bodies))[:, 0])
        returns += np.where(live, rewards, 0.0)
        live &= ~ended
    return float(returns.mean())


def _from_upright(angle: Numbers) -> Numbers:
    return (angle + np.pi) % (2 * np.pi) - np.pi


def _place_pendulum(random: np.random.Generator, count: int) -> Numbers:
    return random.uniform(-1, 1, (count, 2)) * [np.pi, 1.0]


def _observe_pendulum(bodies: Numbers) -> Numbers:
    angle, speed = bodies.T
    return np.stack([np.cos(angle), np.sin(angle), speed / 8], axis=1).astype(np.float32)


def _move_pendulum(bodies: Numbers, actions: Numbers) -> tuple[Numbers, Numbers]:
    torque = 2.0 * np.clip(actions, -1, 1)
    angle, speed = _from_upright(bodies[:, 0]), bodies[:, 1]
    rewards = -(angle**2 + 0.1 * speed**2 + 0.001 * torque**2)
    speed = np.clip(speed + 0.05 * (15 * np.sin(angle) + 3 * torque), -8, 8)
    bodies[:, 0], bodies[:, 1] = angle + 0.05 * speed, speed
    return rewards, np.zeros(len(bodies), bool)


def _place_cartpole(random: np.random.Generator, count: int) -> Numbers:
    return random.uniform(-0.05, 0.05, (count, 4))


_WIDEST = np.deg2rad(12)


def _observe_cartpole(bodies: Numbers) -> Numbers:
    scaled: Numbers = (bodies / [2.4, 3.0, _WIDEST, 3.0]).astype(np.float32)
    return scaled


def _move_cartpole(bodies: Numbers, actions: Numbers) -> tuple[Numbers, Numbers]:
    _, velocity, angle, speed = bodies.T.copy()
    along, across = np.cos(angle), np.sin(angle)
    push = (10 * np.clip(actions, -1, 1) + 0.05 * speed**2 * across) / 1.1
    turn = (9.8 * across - along * push) / (0.5 * (4 / 3 - 0.1 * along**2 / 1.1))
    pull = push - 0.05 * turn * along / 1.1
    bodies += 0.02 * np.stack([velocity, pull, speed, turn], axis=1)
    ended = (np.abs(bodies[:, 0]) > 2.4) | (np.abs(bodies[:, 2]) > _WIDEST)
    return np.ones(len(bodies)), ended


def _settings(gamma: float, n_steps: int) -> dict[str, Any]:
    return {
        "batch_size": 256,
        "tau": 0.005,
        "ent_coef": "auto",
        "learning_rate": 1e-3,
        "learning_starts": 1_000,
        "buffer_size": 200_000,
        "gamma": gamma,
        "n_steps": n_steps,
    }


GAMES: Mapping[str, Game] = {
    "pendulum": Game(
        3, 200, -200.0, 48_000, _settings(0.98, 1),
        _place_pendulum, _observe_pendulum, _move_pendulum,
    ),
    "cart-pole": Game(
        4, 500, 450.0, 96_000, _settings(0.995, 10),
        _place_cartpole, _observe_cartpole, _move_cartpole,
    ),
}  # fmt: skip


class Arrays(PlainVecEnv):
    """Many agents of one game, moved by a few array operations."""

    def __init__(self, game: Game, agents: int, seed: int) -> None:
        observed = spaces.Box(-np.inf, np.inf, (game.features,), np.float32)
        super().__init__(agents, observed, spaces.Box(-1.0, 1.0, (1,), np.float32))
        self._game = game
        self._random = np.random.default_rng(seed)
        self._bodies = game.place(self._random, agents)
        self._steps = np.zeros(agents, int)

    def reset(self) -> Numbers:
        self._bodies = self._game.place(self._random, self.num_envs)
        self._steps[:] = 0
        return self._game.observe(self._bodies)

    def step_wait(self) -> tuple[Numbers, Numbers, Numbers, list[dict[str, Any]]]:
        rewards, terminated = self._game.move(self._bodies, self.actions[:, 0])
        self._steps += 1
        ended = terminated | (self._steps >= self._game.episode)
        observations = self._game.observe(self._bodies)
        infos = self.infos(observations, terminated, ended)
        if ended.any():
            self._bodies[ended] = self._game.place(self._random, int(ended.sum()))
            self._steps[ended] = 0
            observations = self._game.observe(self._bodies)
        return observations, rewards.astype(np.float32), ended, infos
