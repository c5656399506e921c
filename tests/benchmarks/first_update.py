"""The first policy and the first update of a learner alone; run as a module."""

from __future__ import annotations

import json
import time

from tests.benchmarks.suite import SUITE
from tests.benchmarks.updates_ours import bodies

from arkml.hive.protocol.rows import RowKind
from arkml.hive.protocol.settings import Settings
from arkml.learning.jax_engine import limit_threads
from arkml.learning.normalizer import Normalizer
from arkml.learning.sac import Sac

GAME = SUITE["pendulum"]


def main() -> None:
    limit_threads(1)
    settings = Settings(GAME.features, GAME.actions)
    normalizer = Normalizer(settings.features, active=True)
    learner = Sac(settings, normalizer)
    (body,) = bodies(4_096, settings.features, settings.actions)
    learner.policy()
    learner.prepare()
    began = time.perf_counter()
    added = learner.buffer.add(0, RowKind.TRAINING, body)
    normalizer.observe(body.features, added.returns)
    normalizer.adopt()
    learner.train(1)
    print(json.dumps({"update": time.perf_counter() - began}))


if __name__ == "__main__":
    main()
