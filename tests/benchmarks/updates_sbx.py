"""The updates of SBX's SAC on its own replay buffer, in an environment of its own; a module."""

from __future__ import annotations

import os
import sys
import time
from typing import Any

import numpy as np
from tests.benchmarks.companion import serve
from tests.benchmarks.unplayed import Unplayed, fill

UPDATES = 64
"""Updates of a call of `train`, which compiles anew for another number."""


def main(hidden: int, batch: int, features: int, actions: int, rows: int, seconds: float) -> None:
    os.environ["PJRT_NPROC"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_cpu_multi_thread_eigen=false"
    import torch
    from sbx import SAC
    from stable_baselines3.common.logger import configure

    torch.set_num_threads(1)
    model = SAC(
        "MlpPolicy",
        Unplayed(features, actions),
        learning_rate=1e-3,
        buffer_size=rows,
        batch_size=batch,
        policy_kwargs={"net_arch": [hidden, hidden]},
    )
    model.set_logger(configure(None, []))
    fill(model.replay_buffer, rows, np.random.default_rng(0))
    for _ in range(2):
        model.train(UPDATES, batch)
    serve(lambda: rate(model, batch, seconds))


def rate(model: Any, batch: int, seconds: float) -> float:
    """Return updates a second; each call waits for its losses."""
    made, start = 0, time.perf_counter()
    while (now := time.perf_counter()) < start + seconds:
        model.train(UPDATES, batch)
        made += UPDATES
    return made / (now - start)


if __name__ == "__main__":
    hidden, batch, features, actions, rows = map(int, sys.argv[1:6])
    main(hidden, batch, features, actions, rows, float(sys.argv[6]))
