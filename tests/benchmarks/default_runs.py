"""One game of the suite, learned with the defaults in a process of its own; run as a module."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from statistics import fmean, median
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import fields
from tests.benchmarks.companion import ROOT
from tests.benchmarks.suite import SUITE, SuiteGame

from arkml import HiveGrant, Host, evaluate
from arkml.guests.guest import calls_of
from arkml.hive.protocol.settings import Settings

GUESTS = Path(ROOT, "fixtures", "guests")
EVERY = 1_024
"""Rows from one rating to the next."""

RATINGS = 6
"""Ratings beyond the rows of a game: the one that reaches the goal, and those that hold it."""

EPISODES = 100

DEFAULTS: dict[str, Any] = {
    item.name: item.default
    for item in fields(Settings)
    if item.default is not NODEFAULT and item.name not in ("branches", "seed")
}


def play(game: SuiteGame, settings: dict[str, Any]) -> tuple[list[int], list[float], list[bytes]]:
    """Play and learn; return rows, seconds from the first policy, and the policy at each rating."""
    rows: list[int] = []
    seconds: list[float] = []
    policies: list[bytes] = []
    most = game.rows + RATINGS * EVERY
    with Host(seed=settings["seed"], hive=HiveGrant(settings=settings, block=True)) as host:  # type: ignore[arg-type]
        guest = host.load(GUESTS / game.guest)
        hives: Any = calls_of(guest).services.hives
        while hives.first is None or hives.first.latest is None:
            guest.update()
            time.sleep(0.001)
        began = time.perf_counter()
        while guest.statistics.rows < most:
            guest.update()
            if guest.statistics.rows >= EVERY * (len(rows) + 1):
                rows.append(guest.statistics.rows)
                seconds.append(time.perf_counter() - began)
                policies.append(hives.first.latest[1])
    return rows, seconds, policies


def rate(game: SuiteGame, policy: bytes) -> float:
    """Return the mean or the median return of 100 episodes without noise."""
    returns = evaluate(GUESTS / game.guest, policy, episodes=EPISODES).returns.tolist()
    return median(returns) if game.statistic == "median" else fmean(returns)


def main(name: str, seed: int, changes: dict[str, Any]) -> None:
    game = SUITE[name]
    settings = {**(DEFAULTS if game.has_settings else {}), **changes, "seed": seed}
    rows, seconds, policies = play(game, settings)
    ratings = [rate(game, policy) for policy in policies]
    reached = next((n for n, rating in enumerate(ratings) if rating >= game.goal), None)
    found: dict[str, Any] = {"game": name, "seed": seed, "rows": None, "held": None}
    if reached is not None:
        following = ratings[reached + 1 : reached + 6]
        found["rows"], found["seconds"] = rows[reached], round(seconds[reached], 2)
        found["held"] = sum(rating >= game.goal for rating in following)
        found["of"] = len(following)
    found["ratings"] = [round(rating, 3) for rating in ratings]
    found["rate"] = round(rows[-1] / seconds[-1])
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
