"""The agents of a game of the suite as stable-baselines3 has environments."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from gymnasium import spaces
from tests.benchmarks.default_runs import GUESTS
from tests.benchmarks.rating import EPISODES, statistic
from tests.benchmarks.suite import SuiteGame
from tests.benchmarks.vector_environment import Numbers, PlainVecEnv

from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.hive.protocol.episode_choice import EpisodeChoice

Act = Callable[[Numbers], Numbers]
"""From observations, float32, [n, F], to actions."""

_ONE_WORLD = ("c_chase.wasm",)
_RATED = 12_345  # seed of the episodes that rate


class GuestPlaces(PlainVecEnv):
    """
    Guests of one agent each; what ends begins again in the same step.

    Agents that meet in one world are the places of one guest instead, and begin again in the next
    step: a transition from each last observation to the first one is learned from, as without an
    ending. stable-baselines3 knows no masks of choices, so a masked one is replaced by the next
    that is allowed. `busy` is the number of seconds that the guests took.
    """

    def __init__(self, game: SuiteGame, seed: int) -> None:
        self._is_one = game.guest in _ONE_WORLD
        guest, count = GUESTS / game.guest, game.agents
        self._envs: Any = (
            GuestVectorEnv(guest, num_envs=count, configure=(count, "{seed}"))
            if self._is_one
            else GuestFleetVectorEnv(
                guest, num_envs=count, configure=(1, "{seed}"), autoreset_mode="SameStep"
            )
        )
        self._seed = seed
        self._space = self._envs.single_observation_space
        self._masks: Any = None
        self.busy = 0.0
        observed = spaces.Box(-np.inf, np.inf, (game.features,), np.float32)
        super().__init__(game.agents, observed, self._envs.single_action_space)

    def reset(self) -> Numbers:
        observations, info = self._envs.reset(seed=self._seed)
        self._masks = info.get("action_mask")
        return self._flat(observations)

    def step_wait(self) -> tuple[Numbers, Numbers, Numbers, list[dict[str, Any]]]:
        began = time.perf_counter()
        actions = self.actions if self._masks is None else allowed(self.actions, self._masks)
        observations, rewards, terminated, truncated, info = self._envs.step(actions)
        self._masks = info.get("action_mask")
        seen = self._flat(observations)
        ended = terminated | truncated
        final = seen
        if ended.any() and not self._is_one:
            final = seen.copy()
            for place in np.flatnonzero(ended):
                final[place] = spaces.flatten(self._space, info["final_obs"][place])
        self.busy += time.perf_counter() - began
        return seen, rewards.astype(np.float32), ended, self.infos(final, terminated, ended)

    def close(self) -> None:
        self._envs.close()

    def _flat(self, observations: Any) -> Numbers:
        if not isinstance(self._space, spaces.Dict):
            return np.asarray(observations, np.float32).copy()
        parts = [observations[name].reshape(self.num_envs, -1) for name in self._space.spaces]
        return np.concatenate(parts, axis=1, dtype=np.float32)


def allowed(choices: Numbers, masks: tuple[Numbers, ...]) -> Numbers:
    """
    Return choices of which each that is masked is replaced by the next that is allowed.

    choices: int, [n, branches]. masks: of each branch, [n, choices of it], 0 where masked.
    """
    taken = choices.copy()
    rows = np.arange(len(choices))
    for branch, mask in enumerate(masks):
        following = (choices[:, branch, None] + np.arange(mask.shape[1])) % mask.shape[1]
        first = mask[rows[:, None], following].astype(bool).argmax(axis=1)
        taken[:, branch] = following[rows, first]
    return taken


def rate(game: SuiteGame, act: Act) -> float:
    """Return the mean or the median return of 100 episodes, chosen before they are played."""
    places = GuestPlaces(game, _RATED)
    seen = places.reset()
    choice = EpisodeChoice(EPISODES)
    choice.begin(range(places.num_envs))
    totals, returns = np.zeros(places.num_envs), list[float]()
    while not choice.is_done:
        places.step_async(act(seen))
        seen, rewards, ended, _ = places.step_wait()
        totals += rewards
        over = np.flatnonzero(ended).tolist()
        returns += [float(totals[one]) for one in over if choice.end(one) is not None]
        totals[ended] = 0.0
        choice.begin(over)
    places.close()
    return statistic(game, returns)
