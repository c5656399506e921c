"""Rollout workers of one run, by their number, and the number that fills a server."""

from __future__ import annotations

import asyncio
import hashlib
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.light_workers import LightWorkers, Target, fetch
from tests.benchmarks.rows import Row, alone
from tests.benchmarks.training_host import until

from arkml.base.closing import Closing
from arkml.hive.client import HiveClient
from arkml.hive.embedded import EmbeddedHive
from arkml.hive.protocol.runs import BATCH_SECONDS, RunInfo, RunRequest
from arkml.hive.protocol.settings import Settings
from arkml.hive.protocol.worker_jobs import WorkerJob, environment_seed
from arkml.workers.local import LocalPlacement, LocalWorker

TOPIC = "workers"
GUEST = ROOT / "fixtures/guests/c_pendulum.wasm"
FEATURES, ACTIONS, AGENTS = 3, 1, 16
FPS = 30.0
PERIOD = 1.0
"""Seconds between two policy versions."""

COUNTS, FEW = (1, 2, 4, 8, 16), (1, 4, 16)
SERVED = 0.95
"""A server keeps up while it acknowledges this share of the bodies that are due."""

_WHOLE = 80.0
"""The share of a core, in %, from which a server counts as full if it does not keep up."""

_FIRST, _GROWTH, _MOST, _FULL = 32, 1.25, 1_000, 256  # light workers
_TICKS = os.sysconf("SC_CLK_TCK")
_LEARNER = ["-m", "tests.benchmarks.publisher"]


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"Workers are processes of arkml.training.rollout_worker on this machine, each with a"
        f" pendulum of {AGENTS} agents at {FPS:g} frames a second, and join one run of an embedded"
        f" hive, whose learner is idle: it publishes a policy every {PERIOD:g} s, and counts."
        " Requests are bodies of rows; each worker also fetches policies, one a second at most. The"
        " policy lag is that of the rows when the learner has them, and the age counts from the"
        " publication of their policy. Memory is the proportional share (PSS). A server is"
        f" full when it acknowledges less than {SERVED:.0%} of the bodies that light workers have"
        f" due, one every {BATCH_SECONDS * 1e3:g} ms each: clients that send such bodies and fetch"
        " the versions, and play nothing. They share the machine with it; figures for a core are"
        " those of a server that has too many, divided by the part of a core that it got.",
    )
    with _Hive() as hive:
        yield from _by_count(bench, hive)
    with _Hive() as hive:
        yield from _until_full(bench, hive)
        yield from _versions(bench, hive)


class _Hive(Closing):
    """A hive with learners that learn nothing."""

    def __init__(self) -> None:
        self._hive = EmbeddedHive(settings={"learner": _LEARNER, "spare": False})
        self.client = HiveClient(self._hive.locate)

    @property
    def server(self) -> int:
        """The process of the server."""
        assert self._hive.pid is not None
        return self._hive.pid

    def begin(self, name: str, *, period: float = PERIOD) -> RunInfo:
        """Return a new run, which has a policy."""
        settings = Settings(FEATURES, ACTIONS, other={"period": period})
        run = self.client.create(RunRequest(name, "pendulum", settings)).result()
        until(lambda: self.client.run(run.id).result().policy_version > 0)
        return run

    def target(self, run: RunInfo, size: int) -> Target:
        """Return a run for light workers that send `size` rows at a time."""
        at = self._hive.locate()
        return Target(at.host, at.port, at.token or "", run.id, FEATURES, ACTIONS, size)

    def sums(self, run: RunInfo) -> Mapping[str, float]:
        """Return what the learner has counted, once it has counted again."""
        before = self.client.run(run.id).result().latest.get("clock", 0.0)
        until(lambda: self.client.run(run.id).result().latest.get("clock", 0.0) > before)
        return self.client.run(run.id).result().latest

    def close(self) -> None:
        self.client.close()
        self._hive.close()


class _Workers:
    """Real workers, which are added to a run."""

    def __init__(self, hive: _Hive, run: RunInfo, placement: LocalPlacement) -> None:
        self.hive = hive
        self.run = run
        self.pids: list[int] = []
        self._placement = placement
        self._all: list[LocalWorker] = []

    def grow(self, count: int) -> None:
        """Start workers until there are `count`, and wait for rows of each."""
        added = [self._start(number) for number in range(len(self._all), count)]
        self._all += added
        for worker in added:
            events: list[dict[str, Any]] = []

            def plays(worker: LocalWorker = worker, seen: list[dict[str, Any]] = events) -> bool:
                assert worker.is_alive, worker.reason
                seen += worker.events()
                return any(event.get("rows", 0) > 0 for event in seen)

            until(plays)
            self.pids.append(next(event["pid"] for event in events if event["event"] == "ready"))

    def _start(self, number: int) -> LocalWorker:
        data = GUEST.read_bytes()
        target = self.hive.target(self.run, 0)
        job = WorkerJob(
            run_id=self.run.id, name=self.run.name, game=self.run.game,
            hive=f"{target.host}:{target.port}", token=target.token, module_data=data,
            module_hash=hashlib.sha256(data).hexdigest(), module_name=GUEST.name, worker=number,
            seed=environment_seed(0, number, 0), fps=FPS,
        )  # fmt: skip
        program = "arkml.training.rollout_worker"
        return self._placement.start(program, job.as_json(), job.label)


def _by_count(bench: Bench, hive: _Hive) -> Iterator[Row]:
    seconds, blocks = (1.5, 2) if bench.quick else (3.0, 5)
    with LocalPlacement() as placement:
        workers = _Workers(hive, hive.begin("by count"), placement)
        for count in FEW if bench.quick else COUNTS:
            bench.say(f"{count} workers")
            workers.grow(count)
            figures = [_measured(workers, seconds) for _ in range(blocks)]
            name = "1 worker" if count == 1 else f"{count} workers"
            for what, unit in _UNITS.items():
                found = [figure[what] for figure in figures]
                yield alone(TOPIC, f"{name}, {what}", unit, found)


_UNITS = {
    "rows": "rows/s",
    "requests": "requests/s",
    "policy lag": "versions",
    "age of the policy": "ms",
    "server": "% of a core",
    "memory of the server": "MiB",
    "a worker": "% of a core",
    "memory of a worker": "MiB",
}


def _measured(workers: _Workers, seconds: float) -> Mapping[str, float]:
    hive, count = workers.hive, len(workers.pids)
    before, busy = hive.sums(workers.run), _Busy([hive.server, *workers.pids])
    time.sleep(seconds)
    shares, after = busy.shares(), hive.sums(workers.run)
    more = {name: after[name] - before[name] for name in after}
    took, found = more["clock"], more["rows"]
    memory = [_memory(pid) for pid in workers.pids]
    return {
        "rows": found / took,
        "requests": more["bodies"] / took,
        "policy lag": more["versions_behind"] / found,
        "age of the policy": more["seconds_behind"] / found * 1e3,
        "server": shares[0],
        "memory of the server": _memory(hive.server),
        "a worker": sum(shares[1:]) / count,
        "memory of a worker": statistics.median(memory),
    }


def _until_full(bench: Bench, hive: _Hive) -> Iterator[Row]:
    size = round(AGENTS * FPS * BATCH_SECONDS)
    run = hive.begin("until full")
    kept, full = asyncio.run(_ramp(bench, hive, hive.target(run, size)))
    if kept.share < _WHOLE:
        bench.note(
            TOPIC, "It got less than a core, because other work was on the machine: not full yet."
        )
    what = f"light workers, {size} rows a body"
    yield alone(TOPIC, f"{what}, that the server keeps up with", "workers", [kept.workers])
    yield alone(TOPIC, "server that keeps up", "% of a core", [kept.share])
    yield alone(TOPIC, f"{what}, that fill a core", "workers", [full.workers_a_core])
    yield alone(TOPIC, f"server of {full.workers}", "% of a core", [full.share])
    for name, rate in (("requests", full.rate), ("rows", full.rate * size)):
        yield alone(TOPIC, f"{name} that it takes", f"{name}/s", [rate])
        yield alone(TOPIC, f"{name} for a core", f"{name}/s", [rate / full.share * 100])
    yield alone(TOPIC, "memory of this server", "MiB", [full.memory])


@dataclass(frozen=True, slots=True)
class _Load:
    """Light workers, the bodies a second that the server acknowledged, and its share of a core."""

    workers: int
    rate: float
    share: float
    memory: float

    @property
    def is_kept(self) -> bool:
        return self.rate >= SERVED * self.workers / BATCH_SECONDS

    @property
    def workers_a_core(self) -> float:
        """The workers that a core can serve, by the processor time of a request."""
        return self.rate / self.share * 100 * BATCH_SECONDS


async def _ramp(bench: Bench, hive: _Hive, target: Target) -> tuple[_Load, _Load]:
    """Add light workers; return the last load that was kept up with, and one far above it."""
    seconds = 2.0 if bench.quick else 5.0
    workers = LightWorkers(target)
    count, kept = float(_FIRST), _Load(0, 0.0, 0.0, 0.0)
    try:
        while count < _MOST:
            bench.say(f"{int(count)} light workers")
            await workers.add(int(count) - len(workers))
            for _ in range(3):  # other work may be in the way
                load = await _served(hive, workers, seconds)
                if load.is_kept:
                    break
            else:
                break
            kept, count = load, count * _GROWTH
        await workers.add(max(int(count), _FULL) - len(workers))
        return kept, await _served(hive, workers, 2 * seconds)
    finally:
        await workers.close()


async def _served(hive: _Hive, workers: LightWorkers, seconds: float) -> _Load:
    await asyncio.sleep(0.5)  # those that have just begun
    busy = _Busy([hive.server])
    rate = await workers.serve(seconds)
    return _Load(len(workers), rate, busy.shares()[0], _memory(hive.server))


def _versions(bench: Bench, hive: _Hive) -> Iterator[Row]:
    bench.say("policy versions")
    seconds, blocks = (1.0, 3) if bench.quick else (2.0, 7)
    run = hive.begin("fetched")
    size = len(hive.client.snapshot(run.id, "latest").result()) / 1024
    found = [_fetched(hive, run, seconds) for _ in range(blocks)]
    yield from _flat_out(f"policy versions of {size:.0f} KiB fetched", found)
    hive.client.stop(run.id).result()
    run = hive.begin("published", period=0.0)
    found = [_published(hive, run, seconds) for _ in range(blocks)]
    yield from _flat_out(f"policy versions of {size:.0f} KiB published", found)


def _flat_out(name: str, found: Sequence[tuple[float, float]]) -> Iterator[Row]:
    rates, shares = zip(*found, strict=True)
    whole = [rate / share * 100 for rate, share in found]
    yield alone(TOPIC, name, "versions/s", rates)
    yield alone(TOPIC, f"{name}, server", "% of a core", shares)
    yield alone(TOPIC, f"{name}, for a core", "versions/s", whole)


def _fetched(hive: _Hive, run: RunInfo, seconds: float) -> tuple[float, float]:
    """Fetches a second of the newest version, and the share of a core of the server."""
    busy = _Busy([hive.server])
    rate = asyncio.run(fetch(hive.target(run, 0), connections=8, seconds=seconds))
    return rate, busy.shares()[0]


def _published(hive: _Hive, run: RunInfo, seconds: float) -> tuple[float, float]:
    """Versions a second that a learner publishes, and the share of a core of the server."""
    before, busy = hive.client.run(run.id).result().policy_version, _Busy([hive.server])
    start = time.perf_counter()
    time.sleep(seconds)
    more = hive.client.run(run.id).result().policy_version - before
    return more / (time.perf_counter() - start), busy.shares()[0]


class _Busy:
    """The processor time of processes from now on, which counts in 10 ms."""

    def __init__(self, pids: Sequence[int]) -> None:
        self._pids = pids
        self._before = [_processor_seconds(pid) for pid in pids]
        self._start = time.perf_counter()

    def shares(self) -> list[float]:
        """Return the part of a core that each has used, in %."""
        took = time.perf_counter() - self._start
        return [
            (_processor_seconds(pid) - before) / took * 100
            for pid, before in zip(self._pids, self._before, strict=True)
        ]


def _processor_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / _TICKS


def _memory(pid: int) -> float:
    """The proportional share of a process in MiB."""
    for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) / 1024
    raise LookupError(pid)
