"""The updates of a learner's SAC on a filled replay buffer; run as a module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import numpy as np
from tests.benchmarks.companion import serve
from tests.benchmarks.turns import rate, warm_up

from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.jax_engine import limit_threads
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac import Sac

AGENTS = 64
BODY = 64  # rows of each agent in a body


def main(hidden: int, batch: int, features: int, actions: int, rows: int, seconds: float) -> None:
    limit_threads(1)
    settings = Settings(
        features, actions, hidden=hidden, batch_size=batch, memory_max_size=2 * rows
    )
    normalizer = Normalizer(features, active=True)
    learner = Sac(settings, normalizer)
    for body in bodies(rows, features, actions):
        added = learner.buffer.add(0, RowKind.TRAINING, body)
        normalizer.observe(body.features, added.returns)
    normalizer.adopt()
    warm_up(learner)
    serve(partial(rate, learner, seconds))


def bodies(rows: int, features: int, actions: int) -> Iterator[RowColumns]:
    """Yield rows of agents that never end, `rows` of them in all."""
    random = np.random.default_rng(0)
    for first in range(0, rows // AGENTS, BODY):
        body = RowColumns.empty(AGENTS * BODY, features, actions)
        body.agent[:] = np.tile(np.arange(AGENTS), BODY)
        body.step[:] = first + np.repeat(np.arange(BODY), AGENTS)
        body.features[:] = random.standard_normal(body.features.shape)
        body.action[:] = random.uniform(-1.0, 1.0, body.action.shape)
        body.reward[:] = random.standard_normal(len(body))
        yield body


if __name__ == "__main__":
    hidden, batch, features, actions, rows = map(int, sys.argv[1:6])
    main(hidden, batch, features, actions, rows, float(sys.argv[6]))
