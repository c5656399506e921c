"""One game of the suite, learned with the defaults in a process of its own; run as a module."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import fields
from tests.benchmarks.companion import ROOT
from tests.benchmarks.rating import AHEAD, EPISODES, Policies, statistic
from tests.benchmarks.suite import SUITE, SuiteGame

from arkml import HiveGrant, Host, evaluate
from arkml.guests.guest import calls_of
from arkml.hive.protocol.settings import Settings

GUESTS = Path(ROOT, "fixtures", "guests")

FIRST_SECONDS = 60.0
"""Seconds for the first policy; a guest that gets none plays on without one."""

DEFAULTS: dict[str, Any] = {
    item.name: item.default
    for item in fields(Settings)
    if item.default is not NODEFAULT and item.name not in ("branches", "seed")
}


def algorithm_of(game: SuiteGame) -> dict[str, Any]:
    """Return the setting that asks for the learner of a game, if it is not SAC."""
    return {"algorithm": game.learner} if game.learner != "sac" else {}


def play(game: SuiteGame, settings: dict[str, Any]) -> tuple[float, Policies[bytes]]:
    """Play and learn; return the seconds to the first policy, and the policies."""
    began = time.perf_counter()
    most = game.rows + AHEAD
    grant = HiveGrant(settings=settings, wait_for_learner=True)  # type: ignore[arg-type]
    with Host(seed=settings["seed"], hive=grant) as host:
        guest = host.load(GUESTS / game.guest)
        hives: Any = calls_of(guest).services.hives
        while hives.first is None or hives.first.latest is None:
            if time.perf_counter() - began > FIRST_SECONDS:
                raise TimeoutError(f"{game.guest} had no policy within {FIRST_SECONDS:g} s")
            guest.update()
            time.sleep(0.001)
        policies: Policies[bytes] = Policies()
        while guest.statistics.rows < most:
            guest.update()
            policies.note(guest.statistics.rows, lambda: hives.first.latest[1])
    return policies.start - began, policies


def main(name: str, seed: int, changes: dict[str, Any]) -> None:
    game = SUITE[name]
    defaults = DEFAULTS if game.has_settings else {}
    settings = {**defaults, **algorithm_of(game), **changes, "seed": seed}
    first, policies = play(game, settings)

    def rate(policy: bytes) -> float:
        returns = evaluate(GUESTS / game.guest, policy, episodes=EPISODES).returns
        return statistic(game, returns.tolist())

    result = {"game": name, "seed": seed, "first": round(first, 2)}
    print(json.dumps(result | policies.rated(game.goal, rate)))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]), json.loads(sys.argv[3]) if len(sys.argv) > 3 else {})
