"""The pendulum and the cart-pole of fixtures/guests, for a library that learns from Python."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[Any]

AGENTS = 64
ROWS_PER_UPDATE = 8
LEARNING_STARTS = 1_000
MEMORY = 200_000


@dataclass(frozen=True, slots=True)
class Game:
    """
    place: draws bodies, [n, B]. observe: features, float32, [n, F]. move: of bodies and actions,
    [n], changes the bodies and returns rewards and what has ended, each [n]. episode: steps after
    which it is cut. goal: a mean return without noise. steps: those that a learner gets.
    """

    guest: str
    features: int
    episode: int
    goal: float
    steps: int
    settings: Mapping[str, Any]
    place: Callable[[np.random.Generator, int], Numbers]
    observe: Callable[[Numbers], Numbers]
    move: Callable[[Numbers, Numbers], tuple[Numbers, Numbers]]


def rate(game: Game, act: Callable[[Numbers], Numbers], episodes: int = 100) -> float:
    """The mean return of so many episodes from places that are the same for everybody."""
    bodies = game.place(np.random.default_rng(7), episodes)
    returns, live = np.zeros(episodes), np.ones(episodes, bool)
    for _ in range(game.episode):
        rewards, ended = game.move(bodies, act(game.observe(bodies)))
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


def _settings(gamma: float, rollout_length: int) -> dict[str, Any]:
    return {
        "hidden": 64,
        "layers": 2,
        "batch_size": 256,
        "tau": 0.005,
        "alpha": "auto",
        "learning_rate_init": 1e-3,
        "learning_rate_end": 1e-3,
        "learning_rate_steps": 0,
        "memory_min_size": LEARNING_STARTS,
        "memory_max_size": MEMORY,
        "normalize": False,
        "gamma": gamma,
        "rollout_length": rollout_length,
    }


GAMES: Mapping[str, Game] = {
    "pendulum": Game(
        "c_pendulum.wasm", 3, 200, -200.0, 48_000, _settings(0.98, 1),
        _place_pendulum, _observe_pendulum, _move_pendulum,
    ),
    "cart-pole": Game(
        "c_cartpole.wasm", 4, 500, 450.0, 96_000, _settings(0.995, 10),
        _place_cartpole, _observe_cartpole, _move_cartpole,
    ),
}  # fmt: skip
