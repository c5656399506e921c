"""
Guests that ask for memory, learned by arkml and by RecurrentPPO of sb3-contrib from as many rows.

`python -m tests.benchmarks.remembering --seeds 0-2 c_echo c_maze` learns each guest by both, one
after the other, rates the last policy of each without noise, and prints a line for each run: its
score and the seconds that it took, which for arkml have its start, its play and its evaluations.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from gymnasium.vector import AutoresetMode
from sb3_contrib import RecurrentPPO
from tests.benchmarks.defaults import seeds

import arkml
from arkml.envs.sb3 import GuestSb3VecEnv

GUESTS = Path(__file__).parents[2] / "fixtures" / "guests"
ROWS = {"c_echo": 160_000, "c_maze": 128_000}
AGENTS = 16
EPISODES = 64
"""Episodes of a rating, as many of each agent."""

MEMORY = 64
THEIRS: dict[str, dict[str, Any]] = {
    "c_echo": {
        "n_steps": 64, "batch_size": 256, "n_epochs": 8, "learning_rate": 1e-3, "gamma": 0.95,
    },
    "c_maze": {
        "n_steps": 208, "batch_size": 832, "n_epochs": 10, "learning_rate": 2e-3, "gamma": 0.999,
        "gae_lambda": 0.98, "ent_coef": 0.02,
    },
}  # fmt: skip
"""Settings of RecurrentPPO by which it learns these guests soon."""

KEPT = {"c_maze": 100.0}
"""
Steps for which the forget gates of its LSTMs keep at most at first (arXiv:1804.11188).

Those of torch keep half a number from step to step, by which the maze stays at a half.
"""


@dataclass(frozen=True, slots=True)
class Learned:
    """What a run reached: the mean return of the last policy without noise."""

    score: float
    rows: int
    seconds: float


def ours(name: str, seed: int) -> Learned:
    """Learn a guest by arkml."""
    path = GUESTS / f"{name}.wasm"
    with tempfile.TemporaryDirectory() as directory:
        began = time.perf_counter()
        trained = arkml.train(
            path, frames=ROWS[name] // AGENTS, seed=seed, settings={"memory": MEMORY},
            directory=directory,
        )  # fmt: skip
        seconds = time.perf_counter() - began
    rated = arkml.evaluate(path, trained.last.onnx, episodes=EPISODES)
    return Learned(float(np.mean(rated.returns)), trained.rows, seconds)


def theirs(name: str, seed: int) -> Learned:
    """Learn a guest by RecurrentPPO."""
    with envs(name) as guests:
        model = recurrent_ppo(name, guests, seed)
        began = time.perf_counter()
        model.learn(ROWS[name])
        seconds = time.perf_counter() - began
    return Learned(rate(model, name), model.num_timesteps, seconds)


def envs(name: str) -> GuestSb3VecEnv:
    """Return the agents of a guest, which replaces those that end in its next submit."""
    path = GUESTS / f"{name}.wasm"
    return GuestSb3VecEnv(path, per="agent", autoreset_mode=AutoresetMode.NEXT_STEP)


def recurrent_ppo(name: str, guests: GuestSb3VecEnv, seed: int) -> RecurrentPPO:
    """Return a learner of a guest with an LSTM of as many units as our memory has numbers."""
    model = RecurrentPPO(
        "MultiInputLstmPolicy", guests, seed=seed, device="cpu",
        policy_kwargs={"lstm_hidden_size": MEMORY, "net_arch": [64]}, **THEIRS[name],
    )  # fmt: skip
    if name in KEPT:
        with torch.no_grad():
            steps = torch.empty(MEMORY).uniform_(1.0, KEPT[name])
            for lstm in (model.policy.lstm_actor, model.policy.lstm_critic):
                lstm.bias_hh_l0[MEMORY : 2 * MEMORY] = torch.log(steps)
    return model


def rate(model: RecurrentPPO, name: str) -> float:
    """Return the mean return of the first episodes of each agent, without noise."""
    each = EPISODES // AGENTS
    with envs(name) as guests:
        seen, state, begins = guests.reset(), None, np.ones(AGENTS, bool)
        totals, counts = np.zeros((AGENTS, each + 1)), np.zeros(AGENTS, int)
        while (counts < each).any():
            actions, state = model.predict(seen, state, begins, deterministic=True)
            seen, rewards, begins, _ = guests.step(actions)
            totals[np.arange(AGENTS), np.minimum(counts, each)] += rewards
            counts += begins
    return float(totals[:, :each].mean())


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.remembering")
    parser.add_argument("guests", nargs="*", choices=[[], *ROWS], metavar="GUEST")
    parser.add_argument("--seeds", type=seeds, default=range(1), metavar="0-2", help="default 0")
    options = parser.parse_args(arguments)
    torch.set_num_threads(1)
    for name in options.guests or ROWS:
        for seed in options.seeds:
            pair = {"arkml": ours(name, seed), "RecurrentPPO": theirs(name, seed)}
            for learner, found in pair.items():
                print(
                    f"{name}, seed {seed}, {learner}: {found.score:.3f} after {found.rows:,} rows"
                    f" in {found.seconds:.0f} s",
                    flush=True,
                )
            print(f"  ratio of seconds {pair['arkml'].seconds / pair['RecurrentPPO'].seconds:.2f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
