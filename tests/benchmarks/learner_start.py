"""How soon a learner has its first policy and makes its first update, and what it then takes."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.rows import AtMost, Limit, Row, alone

TOPIC = "learner"
ROUNDS = 5

FIGURES: tuple[tuple[str, str, str, Limit | None], ...] = (
    ("first policy", "first policy, cold", "s", AtMost(3.9)),
    ("spare's policy", "first policy, with the spare", "s", AtMost(0.05)),
    ("cold", "first update, cold cache", "s", AtMost(4.0)),
    ("warm", "first update, warm cache", "s", AtMost(1.0)),
    ("memory", "memory of a learner, settled", "MiB", AtMost(400.0)),
    ("peak", "the most that it was", "MiB", None),
    ("cpu", "CPU over wall time, one thread", "", AtMost(1.05)),
)
"""The figures of a round, and the names, units and limits of their rows."""


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Pendulums by the defaults, each round in processes of its own. The first policy is there"
        " when the first rows are answered: cold from the load of the guest, which starts hive and"
        " learner; with the spare from the load of another guest, which starts a run of its own"
        " once the spare learner has nothing more to do. The first update is that of a learner"
        " alone, whose rows are there as soon as its first policy is: with an empty compilation"
        " cache, and with the one that this left. Memory and CPU are those of the learner's process"
        " while a guest plays as fast as its rows are admitted.",
    )
    found: dict[str, list[float]] = {}
    for number in range(1 if bench.quick else ROUNDS):
        bench.say(f"a learner starts, round {number + 1}")
        for name, figure in _round(2.0 if bench.quick else 15.0).items():
            found.setdefault(name, []).append(figure)
    for name, title, unit, limit in FIGURES:
        yield alone(TOPIC, title, unit, found[name], limit)


def _round(seconds: float) -> dict[str, float]:
    figures = _run("learner_life", str(seconds))
    with tempfile.TemporaryDirectory() as cache:
        for name in ("cold", "warm"):
            figures[name] = _run("first_update", cache=cache)["update"]
    return figures


def _run(module: str, *arguments: str, cache: str | None = None) -> dict[str, float]:
    environment = os.environ | ({} if cache is None else {"XDG_CACHE_HOME": cache})
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *arguments]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, cwd=ROOT, env=environment, check=True
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def process_seconds(process: int) -> float:
    """Return the seconds of CPU that a process has taken, with all its threads."""
    stat = Path(f"/proc/{process}/stat").read_text()
    user, system = stat.rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def wait_until_idle(process: int) -> None:
    """Wait until a process takes no CPU for a second."""
    before = -1.0
    while (now := process_seconds(process)) > before:
        before = now
        time.sleep(1.0)
