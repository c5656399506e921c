"""A game that learns while it is played, at 60 frames a second; also the run of one seed."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.default_runs import GUESTS
from tests.benchmarks.playing import FRAME, TOLERATED, Played, play
from tests.benchmarks.rating import EPISODES, statistic
from tests.benchmarks.rows import AtLeast, AtMost, NotWithin, Reached, Row, alone, by_seed
from tests.benchmarks.suite import SUITE

from arkml import HiveGrant, Host, evaluate
from arkml.guests.guest import calls_of
from arkml.host import hives_of
from arkml.training.evaluations import make_evaluating
from arkml.training.tasks import find_task

TOPIC = "live"
GAME = SUITE["pendulum"]
SEEDS, MOST_SEEDS = 5, AtLeast(4)
SECONDS = 10.0
"""Seconds of play within which the pendulum is to stand."""

PLAYED = 12.0
NOTED = 30
"""Frames from one policy that is rated to the next."""


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"A pendulum of {GAME.agents} agents learns by the defaults while it is played for"
        f" {PLAYED:g} s at 60 frames a second, from nothing: an embedded hive on the same cores,"
        " rows are dropped rather than waited for, each seed in a process of its own. Seconds count"
        f" from the first frame that has a policy; every {NOTED / 60:g} s its newest version is"
        f" rated when all is over, by {EPISODES} episodes without noise, goal {GAME.goal:g}. A"
        " frame takes from when it is due. Inference plays before with a first policy, without a"
        " hive.",
    )
    found = []
    for seed in range(1 if bench.quick else SEEDS):
        bench.say(f"a pendulum learns at 60 frames a second, seed {seed}")
        found.append(_played(seed))
    stood: list[Reached] = [
        NotWithin(PLAYED) if one["stands"] is None else one["stands"] for one in found
    ]
    yield by_seed(TOPIC, "seconds of play until it stands", "s", stood)
    in_time = [seconds for seconds in stood if isinstance(seconds, float) and seconds <= SECONDS]
    yield Row(
        TOPIC, f"seeds that stand within {SECONDS:g} s", f"of {len(found)}",
        alone(TOPIC, "", "", [len(in_time)]).ours, MOST_SEEDS,
        why_not="cut short" if bench.quick else "",
    )  # fmt: skip
    yield alone(TOPIC, "late frames", "frames", [sum(one["late"] for one in found)], AtMost(0))
    slower = [one["p99"] - one["inference"] for one in found]
    yield alone(TOPIC, "99th percentile beyond inference's", "ms", slower, AtMost(TOLERATED))
    yield alone(TOPIC, "99th percentile", "ms", [one["p99"] for one in found])
    yield alone(TOPIC, "longest frame", "ms", [one["longest"] for one in found])
    yield alone(TOPIC, "updates for each row", "", [one["updates_per_row"] for one in found])


def _played(seed: int) -> dict[str, Any]:
    command = [sys.executable, "-m", "tests.benchmarks.live", str(seed)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, cwd=ROOT, check=True)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def main(seed: int) -> None:
    """Play, learn and rate; print the figures of one seed as JSON."""
    frames = round(PLAYED / FRAME)
    policies: list[bytes] = []
    with Host(seed=seed, hive=HiveGrant(settings={"seed": seed}, wait_for_learner=False)) as host:
        guest = host.load(GUESTS / GAME.guest)
        hives: Any = calls_of(guest).services.hives
        while hives.first is None or hives.first.latest is None:
            guest.update()
            time.sleep(0.001)
        inference = _inferring(hives.first.latest[1], frames // 4)
        played = 0

        def frame() -> None:
            nonlocal played
            guest.update()
            played += 1
            if played % NOTED == 0:
                policies.append(hives.first.latest[1])

        learned = play(frame, frames)
        rows = guest.statistics.rows
        access = hives_of(host)
        assert access is not None
        updates = access.client().run(hives.first._session.run_id).result().n_opts
    stands = next((n for n, policy in enumerate(policies, 1) if _stands(policy)), None)
    result = {
        "stands": None if stands is None else stands * NOTED * FRAME,
        "late": learned.late,
        "p99": learned.slowest(),
        "inference": inference.slowest(),
        "longest": max(learned.milliseconds),
        "updates_per_row": updates / rows,
    }
    print(json.dumps(result))


def _stands(policy: bytes) -> bool:
    returns = evaluate(GUESTS / GAME.guest, policy, episodes=EPISODES).returns.tolist()
    return statistic(GAME, returns) >= GAME.goal


def _inferring(policy: bytes, frames: int) -> Played:
    """Play the game with a policy and without a hive."""
    with Host(policy=policy) as host:
        module = host.compile(GUESTS / GAME.guest)
        task = find_task(module)
        runner, _ = make_evaluating(host, module, task, task.budget())
        runner.initialize()
        play(runner.step, 30)
        return play(runner.step, frames)


if __name__ == "__main__":
    main(int(sys.argv[1]))
