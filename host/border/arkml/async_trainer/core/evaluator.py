"""Evaluators of agents."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.async_trainer.core.agent import Policy
from arkml.async_trainer.core.config_files import check_whole
from arkml.async_trainer.core.configurable import class_of
from arkml.async_trainer.core.env import Env
from arkml.async_trainer.core.record import Record
from arkml.base.sealed import Sealed
from arkml.errors import UsageError

Rows = npt.NDArray[np.intp]

EPISODE_RETURN = "Episode return"
"""Name of DefaultEvaluator's score in records."""


class Evaluator(Sealed, ABC):
    """An object that rates an agent by a score."""

    @abstractmethod
    def evaluate(self, agent: Policy) -> tuple[float, Record]:
        """
        Return the score of an agent, higher is better, and values to record.

        The caller has switched the agent to evaluation.
        """


class DefaultEvaluator(Evaluator):
    """
    Plays episodes in its own environment; the score is their mean return.

    Episode i begins with `reset_with_index(i)`; n parallel environments play n episodes for each i.
    If environments come and go, such as the agents of one guest, only the initial ones count.

    Args:
        config: Configuration of the environment.
        seed: Seed of the environment.
        n_episodes: Number of episodes in one evaluation.
        env: Class of the environment; by default the class that `config` names.

    """

    def __init__(
        self, config: Any, seed: int, n_episodes: int, *, env: type[Env[Any, Any]] | None = None
    ) -> None:
        check_whole("n_episodes", n_episodes, 1)
        self._env = class_of(config, env, "env").build(config, seed)
        self._n_episodes = n_episodes

    def evaluate(self, agent: Policy) -> tuple[float, Record]:
        """Return the mean return, and a record of it as EPISODE_RETURN."""
        score = sum(self._play(agent, ix) for ix in range(self._n_episodes)) / self._n_episodes
        return score, Record.from_scalar(EPISODE_RETURN, score)

    def close(self) -> None:
        """Close the environment. Idempotent."""
        self._env.close()

    def _play(self, agent: Policy, ix: int) -> float:
        """Return the return of one episode, the mean over parallel environments."""
        env = self._env
        obs = env.reset_with_index(ix)
        returns = np.zeros(len(obs))
        rows: Rows = np.arange(len(obs))  # rows of `obs` whose episodes count
        places = rows  # where their returns are in `returns`
        while True:
            step, _ = env.step(agent.sample(obs))
            returns[places] += step.reward[rows]
            ended = np.asarray(step.is_terminated) | np.asarray(step.is_truncated)
            playing = ended[rows] == 0
            if not playing.all():
                rows, places = rows[playing], places[playing]
                if not len(rows):
                    return float(returns.mean())
            env.begin_next(step)
            obs = step.obs if step.init_obs is None else step.init_obs
            if step.continues is not None:
                rows = _following(rows, step.continues)


def _following(rows: Rows, continues: Rows) -> Rows:
    """Return the new rows of the episodes in `rows`, intp, [n]. Raises UsageError."""
    following = {row: new for new, row in enumerate(continues.tolist())}
    lost = [row for row in rows.tolist() if row not in following]
    if lost:
        raise UsageError(
            f"the episode of row {lost[0]} of a step neither ended nor continues: `continues` has"
            f" {continues.tolist()}"
        )
    return np.array([following[row] for row in rows.tolist()], np.intp)
