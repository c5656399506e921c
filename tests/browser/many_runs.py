"""Runs with curves of known values, in a folder that a hive serves: no learner has made them."""

import math
import random
import time
from contextlib import closing

from tests.integration.hive_service import Service, request, start_hive

from arkml.server.metrics_store import MetricsStore

GAMMAS = (0.8, 0.85, 0.9, 0.93, 0.95, 0.97, 0.98, 0.985, 0.99, 0.995)
SECOND = 1_000_000_000
LINES = (
    "rollout/ep_len_mean", "train/actor_loss", "train/critic_loss", "train/q_mean", "train/q_min",
    "train/q_max", "train/td_error", "train/ent_coef", "train/entropy", "train/gradient_norm",
    "train/learning_rate", "pace/updates_per_second", "system/cpu_share", "system/memory_bytes",
)  # fmt: skip


def make_runs(data, wishes, *, points=400):
    """
    Make runs in the folder of a hive, and return their ids in the order of `wishes`.

    Each wish is {name, game, settings, other, height}: `other` are keys of its configuration that
    are not settings, `height` is the return that its curve ends at.
    """
    hive = start_hive(data)
    try:
        service = Service(hive)
        ids = []
        for wish in wishes:
            body = request(wish["name"], settings=wish.get("settings"), **wish.get("other", {}))
            answer = service.post("/runs", body | {"game": wish["game"]})
            assert answer.status_code in (200, 201), answer.text
            ids.append(answer.json()["run"]["id"])
            service.post(f"/runs/{ids[-1]}/stop").raise_for_status()
        service.wait_for_status(ids[-1], "stopped", "aborted")
        service.close()
    finally:
        hive.close()
    now = time.time_ns()
    for place, (run, wish) in enumerate(zip(ids, wishes, strict=True)):
        _write(data / "runs" / run, wish.get("height", 100.0), now, points, place)
    return ids


def ten_gammas(count=33):
    """Wishes of runs of one game, of ten gammas with three or four seeds each."""
    return [
        {
            "name": "corridor", "game": "corridor", "height": 100.0 * (1 + place % 10),
            "settings": {"gamma": GAMMAS[place % 10], "seed": place // 10},
        }
        for place in range(count)
    ]  # fmt: skip


def _write(run, height, now, points, place):
    """Write curves that rise to a height, with a little noise that differs by `place`."""
    noise = random.Random(place)
    with closing(MetricsStore(run)) as store:
        store.add(
            (now - (points - at) * SECOND, _report(at, points, height, noise))
            for at in range(1, points + 1)
        )


def _report(at, points, height, noise):
    rows = 250 * at
    rise = height * (1 - math.exp(-5 * at / points)) / (1 - math.exp(-5))
    mean = rise + (noise.uniform(-1, 1) * height / 20 if at < points else 0.0)
    report = [("train/n_updates", rows, float(rows // 2)), ("rollout/ep_rew_mean", rows, mean)]
    report += [("rollout/ep_rew_p10", rows, mean - 5.0), ("rollout/ep_rew_p90", rows, mean + 5.0)]
    report += [(name, rows, noise.random()) for name in LINES]
    if at % 10 == 0:
        report += [("eval/mean_reward", rows, rise), ("eval/std_reward", rows, 2.0)]
        report += [("eval/mean_ep_length", rows, 50.0)]
    return report
