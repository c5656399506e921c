"""The updates of stable-baselines3's SAC on its own replay buffer; run as a module."""

from __future__ import annotations

import sys
import time

import numpy as np
import torch
from stable_baselines3 import SAC
from stable_baselines3.common.logger import configure
from tests.benchmarks.companion import serve
from tests.benchmarks.unplayed import Unplayed, fill


def main(hidden: int, batch: int, features: int, actions: int, rows: int, seconds: float) -> None:
    torch.set_num_threads(1)
    model = SAC(
        "MlpPolicy",
        Unplayed(features, actions),
        learning_rate=1e-3,
        buffer_size=rows,
        batch_size=batch,
        policy_kwargs={"net_arch": [hidden, hidden]},
        device="cpu",
    )
    model.set_logger(configure(None, []))
    fill(model.replay_buffer, rows, np.random.default_rng(0))
    calls = 1 if batch > 1_000 else 64
    model.train(calls, batch)
    serve(lambda: rate(model, calls, batch, seconds))


def rate(model: SAC, updates: int, batch: int, seconds: float) -> float:
    """Return updates a second, `updates` by each call of `train`."""
    made, start = 0, time.perf_counter()
    while (now := time.perf_counter()) < start + seconds:
        model.train(updates, batch)
        made += updates
    return made / (now - start)


if __name__ == "__main__":
    hidden, batch, features, actions, rows = map(int, sys.argv[1:6])
    main(hidden, batch, features, actions, rows, float(sys.argv[6]))
