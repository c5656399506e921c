"""
Curves of real runs, good and bad ones, for the rules of the watchdog.

`python -m tests.benchmarks.watched_runs NAME...` trains runs anew, all by default, and replaces
their curves in tests/unit/watched_runs.json.gz. Each takes a minute or two.
"""

import gzip
import json
import sqlite3
import sys
import tempfile
from pathlib import Path

import arkml

ROOT = Path(__file__).parents[2]
KEPT = ROOT / "tests" / "unit" / "watched_runs.json.gz"
METRICS = {
    "actions/saturated", "eval/mean_reward", "pace/samples_per_insert_reached",
    "pace/samples_per_insert_wanted", "replay/demonstration_share", "replay/rollout_rows",
    "rollout/ep_len_mean", "rollout/ep_rew_mean", "rollout/ep_rew_p10", "rollout/ep_rew_p90",
    "time/episodes", "time/time_elapsed", "train/approx_kl", "train/critic_loss", "train/entropy",
    "train/entropy_loss", "train/n_updates", "train/q_mean", "train/td_error", "train/value_loss",
}  # fmt: skip
"""The metrics that the rules look at."""


def rate(value, **others):
    return {"learning_rate_init": value, "learning_rate_end": value, **others}


RUNS = {
    "breakout": ("c_minatar_breakout", {}, 1.5),
    "cart-pole": ("c_cartpole", {}, 1.2),
    "chase": ("c_chase", {}, 0.8),
    "corridor": ("c_corridor", {}, 1.0),
    "double pendulum": ("c_double_pendulum", {}, 1.2),
    "lander": ("c_lander", {}, 1.2),
    "maze": ("c_maze", {}, 1.0),
    "mountain car": ("c_mountain_car", {}, 2.0),
    "pendulum": ("c_pendulum", {}, 1.5),
    "pendulum by PPO": ("c_pendulum", {"algorithm": "ppo"}, 1.5),
    "pendulum, rewards of 1e30": ("c_pendulum_huge_rewards", {}, 1.2),
    "pendulum, rewards of 1e30, not normalized": (
        "c_pendulum_huge_rewards", {"normalize": False}, 1.0,
    ),
    "point mass by PPO": ("c_point_mass", {"algorithm": "ppo"}, 0.8),
    "reach": ("c_reach", {}, 1.0),
    "cart-pole, rate 0.03": ("c_cartpole", rate(0.03), 1.0),
    "cart-pole, rate 0.1": ("c_cartpole", rate(0.1), 1.0),
    "cart-pole, rate 0.3": ("c_cartpole", rate(0.3), 1.0),
    "corridor, rate 0.03, no bounds": (
        "c_corridor", rate(0.03, target_kl=0.0, clip_range=10.0, max_gradient_norm=1e6), 0.8,
    ),
    "corridor, rate 0.3, no entropy": (
        "c_corridor", rate(0.3, target_kl=0.0, entropy_coefficient=0.0), 0.8,
    ),
    "mountain car by PPO": ("c_mountain_car", {"algorithm": "ppo"}, 1.2),
    "pendulum, rate 0": ("c_pendulum", rate(0.0), 3.0),
    "pendulum, rate 0.1": ("c_pendulum", rate(0.1), 1.0),
    "pendulum, rate 0.03, gamma 1, tau 1": (
        "c_pendulum", rate(0.03, gamma=1.0, tau=1.0, normalize=False), 1.0,
    ),
    "pendulum by PPO, rate 0.3": (
        "c_pendulum", rate(0.3, algorithm="ppo", target_kl=0.0), 0.8,
    ),
    "pendulum, 256 x 3 units, 400 frames a second": (
        "c_pendulum", {"hidden": 256, "layers": 3, "batch_size": 1_024}, 2.2,
    ),
    "point mass by PPO, rate 0.05": (
        "c_point_mass", rate(0.05, algorithm="ppo", target_kl=0.0, clip_range=10.0), 0.8,
    ),
    "reach, rate 1": ("c_reach", rate(1.0), 1.0),
}  # fmt: skip
"""Guest, settings and minutes of each run; the seed is 1."""


def reports_in(database):
    """The reports of a run: rows, and the values of metrics by their names."""
    found = {}
    query = "SELECT wall_ns, name, step, value FROM metrics JOIN series ON metric = id"
    for at, name, step, value in sqlite3.connect(database).execute(f"{query} ORDER BY wall_ns"):
        rows, values = found.get(at, (0, {}))
        if name in METRICS:
            values[name] = float(f"{value:.5g}")
        found[at] = max(rows, step), values
    return [report for report in found.values() if report[1]]


def curves_of(guest, settings, minutes):
    """Train, and return the settings of the run and its reports."""
    fps = 400.0 if "batch_size" in settings else None
    with tempfile.TemporaryDirectory() as directory:
        arkml.train(
            ROOT / "fixtures" / "guests" / f"{guest}.wasm", minutes=minutes, settings=settings,
            directory=directory, seed=1, fps=fps,
        )  # fmt: skip
        [run] = Path(directory).glob("hive/runs/*")
        known = json.loads((run / "run.json").read_text())["request"]["settings"]
        shape = {name: known[name] for name in ("features", "actions", "branches")}
        return {"settings": {**shape, **settings}, "reports": reports_in(run / "metrics.sqlite")}


def main(names):
    kept = json.loads(gzip.decompress(KEPT.read_bytes())) if KEPT.exists() else {}
    for name in names or RUNS:
        kept[name] = curves_of(*RUNS[name])
        write(kept)


def write(kept):
    """Write the file, whose bytes depend on its content only."""
    KEPT.write_bytes(gzip.compress(json.dumps(kept, sort_keys=True).encode(), 9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
