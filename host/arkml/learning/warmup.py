"""Does once what is slow the first time, so that a run begins at once."""

from __future__ import annotations

from importlib import import_module

import numpy as np

from arkml.hive.protocol.rows import Columns, Kind
from arkml.hive.protocol.settings import Settings
from arkml.learning.export import check, to_onnx
from arkml.learning.normalizer import Normalizer
from arkml.learning.replay_buffer import ReplayBuffer
from arkml.learning.sac import Sac


def warm_up() -> None:
    """Import everything, and make one update and one export of a tiny learner."""
    for name in ("building", "reporter", "trainer"):
        import_module(f"arkml.learning.{name}")
    settings = Settings(1, 1, hidden=8, layers=1, memory_max_size=1_000, batch_size=2)
    memory = ReplayBuffer(1_000, 1, 1, gamma=0.9)
    rows = Columns.empty(3, 1, 1)
    rows.step[:] = np.arange(3)
    memory.add(0, Kind.TRAINING, rows)
    algorithm = Sac(settings, memory, Normalizer(1, active=False))
    algorithm.train(1)
    weights = algorithm.weights()
    check(to_onnx(weights), weights, algorithm.answer)
