"""
Games of the arcade, learned by stable-baselines3 through the same guests; run as a module.

`python -m tests.benchmarks.arcade_sb3 --minutes 2 squared` trains its PPO with the settings that
`arkml train` takes for as many agents, and prints how fast it was and what it reached, beside the
line of `tests.benchmarks.arcade_learning`. The games have to be built (`make arcade`).
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import deque
from collections.abc import Sequence
from statistics import fmean

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.vec_env import VecNormalize
from tests.benchmarks.arcade_learning import GOALS
from tools.arcade.__main__ import BUILT

from arkml.envs.sb3 import GuestSb3VecEnv

GAMES = "squared", "pong", "cartpole", "connect4", "breakout"
STEPS, BATCH, EPOCHS, RATE, ENTROPY = 64, 4_096, 2, 0.003, 0.01
"""Those of `arkml train` for 1,024 agents with branches."""

_EPISODES = 1_000


class Watch(BaseCallback):
    """Ends a training after some seconds, and keeps the scores of its last episodes."""

    def __init__(self, score: str, seconds: float) -> None:
        super().__init__()
        self.scores: deque[float] = deque(maxlen=_EPISODES)
        self._score = score
        self._until = time.perf_counter() + seconds

    def _on_step(self) -> bool:
        for done, info in zip(self.locals["dones"], self.locals["infos"], strict=True):
            if done and self._score in info:
                self.scores.append(float(info[self._score]))
        return time.perf_counter() < self._until


def learn(name: str, minutes: float, seed: int) -> tuple[int, float, float]:
    """Return rows, seconds and the mean score of the last thousand episodes, with noise."""
    with GuestSb3VecEnv(BUILT / f"{name}.wasm", per="agent") as envs:
        model = PPO(
            "MlpPolicy", VecNormalize(envs), n_steps=STEPS, batch_size=BATCH, n_epochs=EPOCHS,
            learning_rate=RATE, ent_coef=ENTROPY, seed=seed, device="cpu",
        )  # fmt: skip
        watch, began = Watch(GOALS[name].score, 60 * minutes), time.perf_counter()
        model.learn(GOALS[name].rows, callback=watch)
        scores = fmean(watch.scores) if watch.scores else float("nan")
        return model.num_timesteps, time.perf_counter() - began, scores


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.arcade_sb3")
    parser.add_argument("games", nargs="*", choices=[[], *GAMES], metavar="GAME")
    parser.add_argument("--minutes", type=float, default=2.0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args(arguments)
    for name in options.games or GAMES:
        rows, seconds, score = learn(name, options.minutes, options.seed)
        goal = GOALS[name]
        print(
            f"{name}: {goal.score} {score:.3f} with noise after {rows:,} rows in {seconds:.0f} s,"
            f" {rows / seconds / 1e3:.1f} thousand/s",
            flush=True,
        )
    return 0


if __name__ == "__main__":
    sys.exit(main())
