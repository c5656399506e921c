"""
Games of the arcade, learned by `arkml train` and nothing else; run as a module.

`python -m tests.benchmarks.arcade_learning --seeds 0-2 squared pong` trains each game for the rows
of its budget, rates the policy that was kept by plain onnxruntime, without noise, and prints a line
for each run. The games have to be built (`make arcade`).
"""

from __future__ import annotations

import argparse
import json
import math
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import numpy.typing as npt
from tests.benchmarks.defaults import seeds
from tools.arcade.__main__ import BUILT

from arkml.base.native_imports import import_onnxruntime
from arkml.envs.gymnasium_vector import GuestVectorEnv

_OTHERS = frozenset(("action_masks", "epsilon", "h_in"))  # inputs that are no observations

EPISODES = 256
"""Episodes of a rating, one of each agent."""

Numbers = npt.NDArray[Any]


@dataclass(frozen=True, slots=True)
class Goal:
    """
    What a game is learned for.

    `rows` is the budget, `score` the field of the game's own log by which it counts, `least` the
    mean that is asked for, and `settings` what is no default.
    """

    rows: int
    score: str
    least: float
    settings: Mapping[str, Any] = field(default_factory=dict)


GOALS = {
    "squared": Goal(20_000_000, "perf", 0.95),
    "pong": Goal(12_000_000, "score", 20.0),
    "cartpole": Goal(20_000_000, "episode_length", 0.95 * 200),
    "connect4": Goal(22_000_000, "perf", 0.9),
    "breakout": Goal(90_000_000, "score", 700.0),
    "lunar_lander": Goal(1_000_000, "score", 242.0),
    "lunar_lander_continuous": Goal(500_000, "score", 260.0),
    "bipedal_walker": Goal(500_000, "score", 298.0),
    "bipedal_walker:wider": Goal(
        500_000,
        "score",
        298.0,
        {
            "hidden": 128,
            "gamma": 0.98,
            "tau": 0.02,
            "learning_rate_init": 7.3e-4,
            "learning_rate_end": 7.3e-4,
        },
    ),
    "bipedal_walker:ppo": Goal(5_000_000, "score", 288.0, {"algorithm": "ppo"}),
    "acrobot": Goal(1_000_000, "score", -80.0),
    "mountain_car_continuous": Goal(50_000, "score", 94.7),
    "memory": Goal(640_000, "score", -2.0),
    "flag": Goal(4_000_000, "score", 1_350.0),
}
"""
What follows a colon tells trainings of one game apart.

Budgets of PufferLib's configurations, and scores of rl-zoo3 for the games with physics; in `memory`
one that counts without error has 0, and in `flag` one to whom the flags are always shown 1,430.
"""


def agents_of(path: Path) -> int:
    """Return the agents that a guest has by itself."""
    with GuestVectorEnv(path) as probe:
        return probe.num_envs


def learn(name: str, seed: int, directory: Path) -> tuple[Path, float, int]:
    """Train a game by the command; return the policy, the seconds and the rows."""
    path, goal = _module(name), GOALS[name]
    frames = -(-goal.rows // agents_of(path))
    words = ["train", str(path), "--frames", str(frames), "--seed", str(seed), "--json"]
    if goal.settings:
        config = directory.with_suffix(".json")
        config.write_text(json.dumps(goal.settings))
        words += ["--config", str(config)]
    began = time.perf_counter()
    ended = subprocess.run(
        [sys.executable, "-m", "arkml", *words, "--out", str(directory)],
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    told = json.loads(ended.stdout)
    return directory / f"{path.stem}.onnx", time.perf_counter() - began, told["rows"]


def rate(name: str, policy: Path, episodes: int = EPISODES) -> float:
    """Return the mean score of the first episode of each agent, by a policy without noise."""
    runtime = import_onnxruntime()
    session = runtime.InferenceSession(policy.read_bytes(), providers=["CPUExecutionProvider"])
    inputs = {one.name: tuple(one.shape[1:]) for one in session.get_inputs()}
    outputs = ["actions", "h_out"][: 1 + ("h_in" in inputs)]
    scores: dict[int, float] = {}
    path, logged = _module(name), GOALS[name].score
    with GuestVectorEnv(path, configure=(episodes, 99)) as envs:
        observations, _ = envs.reset()
        memories = np.zeros((episodes, *inputs.get("h_in", (0,))), np.float32)
        while len(scores) < episodes:
            given = {
                name: np.zeros((episodes, *shape), np.float32) for name, shape in inputs.items()
            }
            given |= _parts(inputs, _flat(observations, episodes))
            if "action_masks" in given:
                given["action_masks"][:] = envs.action_masks()
            if "h_in" in inputs:
                given["h_in"] = memories
            answers, *after = session.run(outputs, given)
            memories = after[0] if after else memories  # of first episodes, which alone count
            observations, _, ended, cut, infos = envs.step(_actions(envs, answers))
            for agent in np.flatnonzero(ended | cut).tolist():
                scores.setdefault(agent, float(infos[logged][agent]))
    return fmean(scores.values())


def _module(name: str) -> Path:
    return BUILT / f"{name.partition(':')[0]}.wasm"


def _flat(observations: Any, count: int) -> Numbers:
    parts = observations.values() if isinstance(observations, dict) else [observations]
    return np.concatenate([np.reshape(part, (count, -1)) for part in parts], 1).astype(np.float32)


def _parts(inputs: Mapping[str, tuple[int, ...]], rows: Numbers) -> dict[str, Numbers]:
    """Return what a policy sees of rows: `observations`, or the parts that it has as inputs."""
    shapes = {name: shape for name, shape in inputs.items() if name not in _OTHERS}
    ends = np.cumsum([math.prod(shape) for shape in shapes.values()])
    columns = np.split(rows, ends[:-1], axis=1)
    return {
        name: part.reshape(-1, *shape)
        for (name, shape), part in zip(shapes.items(), columns, strict=True)
    }


def _actions(envs: GuestVectorEnv, answers: Numbers) -> Numbers:
    space = envs.action_space
    return answers.astype(space.dtype).reshape(space.shape)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.arcade_learning")
    parser.add_argument(
        "games", nargs="*", choices=[[], *GOALS], metavar="GAME", help=", ".join(GOALS)
    )
    parser.add_argument("--seeds", type=seeds, default=range(1), metavar="0-4", help="default 0")
    options = parser.parse_args(arguments)
    missed = 0
    for name in options.games or GOALS:
        for seed in options.seeds:
            with tempfile.TemporaryDirectory() as directory:
                policy, seconds, rows = learn(name, seed, Path(directory, name))
                score = rate(name, policy)
            goal = GOALS[name]
            missed += score < goal.least
            print(
                f"{name}, seed {seed}: {goal.score} {score:.3f} (asked {goal.least:g}) after"
                f" {rows:,} rows in {seconds:.0f} s, {rows / seconds / 1e3:.0f} thousand/s",
                flush=True,
            )
    return int(missed > 0)


if __name__ == "__main__":
    sys.exit(main())
