"""The updates of a learner's SAC on a filled replay buffer; run as a module."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import partial

import numpy as np
from tests.benchmarks.companion import serve
from tests.benchmarks.turns import rate, warm_up
from tests.benchmarks.updates import ACTIONS, FEATURES, ROWS

from arkml.hive.protocol.rows import RowColumns, RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.engine import limit_threads
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac import Sac

AGENTS = 64
BODY = 64  # rows of each agent in a body


def main(hidden: int, batch: int, seconds: float) -> None:
    limit_threads(1)
    settings = Settings(FEATURES, ACTIONS, hidden=hidden, batch_size=batch, memory_max_size=100_000)
    normalizer = Normalizer(FEATURES, active=True)
    learner = Sac(settings, normalizer)
    for body in bodies():
        added = learner.buffer.add(0, RowKind.TRAINING, body)
        normalizer.observe(body.features, added.returns)
    normalizer.adopt()
    warm_up(learner)
    serve(partial(rate, learner, seconds))


def bodies() -> Iterator[RowColumns]:
    """Yield rows of agents that never end, ROWS of them in all."""
    random = np.random.default_rng(0)
    for first in range(0, ROWS // AGENTS, BODY):
        body = RowColumns.empty(AGENTS * BODY, FEATURES, ACTIONS)
        body.agent[:] = np.tile(np.arange(AGENTS), BODY)
        body.step[:] = first + np.repeat(np.arange(BODY), AGENTS)
        body.features[:] = random.standard_normal(body.features.shape)
        body.action[:] = random.uniform(-1.0, 1.0, body.action.shape)
        body.reward[:] = random.standard_normal(len(body))
        yield body


if __name__ == "__main__":
    main(int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3]))
