"""A learner from its start until it has learned for a while; run as a module."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from tests.benchmarks.default_runs import GUESTS
from tests.benchmarks.learner_start import process_seconds, wait_until_idle
from tests.benchmarks.suite import SUITE
from tests.children import children_of

from arkml import Guest, HiveGrant, Host
from arkml.host import hives_of

GAME = SUITE["pendulum"]
SETTLED = 3_000
"""Rows after which everything is compiled and has been used."""

LEARNERS = 2
"""That of the run, and the spare one, which is started once that has learned for a while."""


def main(seconds: float) -> None:
    with Host(hive=HiveGrant(wait_for_learner=True)) as host:
        first, first_policy = started(host)
        while first.statistics.rows < SETTLED:
            first.update()
        server = server_of(host)
        learner = max(children_of(server), key=process_seconds)
        began, cpu = time.perf_counter(), process_seconds(learner)
        while (now := time.perf_counter()) < began + seconds:
            first.update()
        cpu = (process_seconds(learner) - cpu) / (now - began)
        figures = {"first policy": first_policy, "cpu": cpu}
        figures["memory"], figures["peak"] = memory(learner, "VmRSS"), memory(learner, "VmHWM")
        while len(processes := children_of(server)) < LEARNERS:
            first.update()
        for process in processes:
            wait_until_idle(process)
        _, figures["spare's policy"] = started(host)
    print(json.dumps(figures))


def started(host: Host) -> tuple[Guest, float]:
    """Load a guest and play until its first rows are answered; return it with the seconds."""
    began = time.perf_counter()
    guest = host.load(GUESTS / GAME.guest)
    while not guest.statistics.rows:
        guest.update()
        time.sleep(0.001)
    return guest, time.perf_counter() - began


def server_of(host: Host) -> int:
    """Return the process of the embedded hive."""
    hives = hives_of(host)
    assert hives is not None
    embedded = hives._embedded
    assert embedded is not None
    assert embedded.pid is not None
    return embedded.pid


def memory(process: int, field: str) -> float:
    """Return a field of /proc/PID/status in MiB."""
    for line in Path(f"/proc/{process}/status").read_text().splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) / 1024
    raise LookupError(field)


if __name__ == "__main__":
    main(float(sys.argv[1]))
