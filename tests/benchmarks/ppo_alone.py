"""PPO on rollouts that are in memory, with nothing around it; run as a module with settings."""

from __future__ import annotations

import sys
import time

import numpy as np
from tests.benchmarks.companion import serve
from tests.benchmarks.ppo_throughput import AGENTS, FEATURES, settings_of
from tests.benchmarks.subjects import ACTIONS

from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.learning.jax_engine import limit_threads
from arkml.learning.normalizer import Normalizer
from arkml.learning.ppo import Ppo

STEPS = 4  # of each agent in a body


class Learning:
    """
    A learner that adds a rollout, learns from it, and exports the policy, by each call.

    settings: the name of those by which it learns.
    """

    def __init__(self, settings: str) -> None:
        self._normalizer = Normalizer(FEATURES, active=True)
        self._learner = Ppo(settings_of(settings), self._normalizer)
        self._body = RowColumns.empty(AGENTS * STEPS, FEATURES, ACTIONS)
        random = np.random.default_rng(0)
        self._body.agent[:] = np.tile(np.arange(AGENTS), STEPS)
        self._body.step[:] = np.repeat(np.arange(STEPS), AGENTS)
        self._body.features[:] = random.standard_normal(self._body.features.shape)
        self._body.action[:] = random.standard_normal(self._body.action.shape)
        self._body.reward[:] = random.standard_normal(len(self._body))
        self._version = 0
        self._publish()

    def __call__(self) -> float:
        """Return thousands of rows that were learned from in a second."""
        began = time.perf_counter()
        while not self._learner.is_ready:
            self._body.version[:] = self._version
            added = self._learner.buffer.add(0, RowKind.TRAINING, self._body)
            self._normalizer.observe(self._body.features, added.returns)
            self._body.step[:] += STEPS
        rows = self._learner.buffer.transitions
        self._normalizer.adopt()
        self._learner.train(self._learner.pace.due(0, 0))
        self._publish()
        return rows / (time.perf_counter() - began) / 1e3

    def _publish(self) -> None:
        self._learner.policy()
        self._version += 1
        self._learner.published(self._version)


if __name__ == "__main__":
    limit_threads(1)
    learning = Learning(sys.argv[1])
    learning()  # compiles
    serve(learning)
