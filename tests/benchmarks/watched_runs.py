"""
Curves of real runs, good and bad ones, for the rules of the watchdog.

`python -m tests.benchmarks.watched_runs NAME...` trains runs anew, all by default, and replaces
their curves in tests/unit/watched_runs.json.gz. Each takes a minute or two, or five at most.
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
"""Guest, settings and minutes of each run; the seed is 1. Thresholds were chosen on these."""

HELD_OUT = {
    "asterix": ("c_minatar_asterix", {}, 5_000, 13),
    "cart-pole by PPO": ("c_cartpole", {"algorithm": "ppo"}, 6_000, 15),
    "cart-pole without velocity": ("c_cartpole_no_velocity", {"memory": 32}, 6_000, 34),
    "double pendulum, seed 19": ("c_double_pendulum", {}, 4_000, 19),
    "echo": ("c_echo", {"memory": 32}, 6_000, 33),
    "freeway": ("c_minatar_freeway", {}, 4_500, 12),
    "lander by PPO": ("c_lander", {"algorithm": "ppo"}, 8_000, 16),
    "mountain car, seed 32": ("c_mountain_car", {}, 5_000, 32),
    "pendulum, small rewards": ("c_pendulum_small_rewards", {}, 4_000, 18),
    "pick": ("c_pick", {}, 4_000, 11),
    "point mass": ("c_point_mass", {}, 8_000, 29),
    "reach by PPO": ("c_reach_seeded", {"algorithm": "ppo"}, 1_500, 17),
    "sorter": ("c_sorter", {}, 5_000, 35),
    "space invaders": ("c_minatar_space_invaders", {}, 5_000, 14),
    "sparse reach": ("c_sparse_reach", {}, 5_000, 31),
    "asterix, rate 1, no entropy": (
        "c_minatar_asterix", rate(1.0, target_kl=0.0, entropy_coefficient=0.0), 4_000, 23,
    ),
    "corridor, rate 0": ("c_corridor", rate(0.0), 5_000, 36),
    "echo of 16 steps, no memory": ("c_echo_16", {"memory": 0}, 5_000, 30),
    "lander, rate 1": ("c_lander", rate(1.0), 4_000, 22),
    "space invaders, rate 0.1, no entropy": (
        "c_minatar_space_invaders",
        rate(0.1, target_kl=0.0, clip_range=10.0, entropy_coefficient=0.0), 5_000, 37,
    ),
}  # fmt: skip
"""Guest, settings, frames and seed of runs that were trained after the thresholds were chosen."""


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


def curves_of(guest, settings, minutes=5.0, frames=None, seed=1):
    """Train, and return the settings of the run and its reports."""
    fps = 400.0 if "batch_size" in settings else None
    with tempfile.TemporaryDirectory() as directory:
        arkml.train(
            ROOT / "fixtures" / "guests" / f"{guest}.wasm", minutes=minutes, frames=frames,
            settings=settings, directory=directory, seed=seed, fps=fps,
        )  # fmt: skip
        [run] = Path(directory).glob("hive/runs/*")
        known = json.loads((run / "run.json").read_text())["request"]["settings"]
        shape = {name: known[name] for name in ("features", "actions", "branches")}
        return {"settings": {**shape, **settings}, "reports": reports_in(run / "metrics.sqlite")}


def main(names):
    kept = json.loads(gzip.decompress(KEPT.read_bytes())) if KEPT.exists() else {}
    for name in names or (*RUNS, *HELD_OUT):
        if name in RUNS:
            kept[name] = curves_of(*RUNS[name])
        else:
            guest, settings, frames, seed = HELD_OUT[name]
            kept[name] = curves_of(guest, settings, frames=frames, seed=seed)
        write(kept)


def write(kept):
    """Write the file, whose bytes depend on its content only."""
    KEPT.write_bytes(gzip.compress(json.dumps(kept, sort_keys=True).encode(), 9, mtime=0))


if __name__ == "__main__":
    main(sys.argv[1:])
