"""Actors of the asynchronous trainer: what a sample costs, and what a second process adds."""

from __future__ import annotations

import importlib.util
import os
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.benchmarks.actor_parts import PROCESSOR, FixedAgent, IdleConfig, spinning
from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import Companion
from tests.benchmarks.measuring import Block, Spread
from tests.benchmarks.rows import AtLeast, AtMost, Row, alone
from tests.benchmarks.threads import FREE, two_over_one

from arkml.async_trainer import ActorManager, ActorManagerConfig
from arkml.async_trainer.actor_manager import ActorParts
from arkml.async_trainer.core import Sampler
from arkml.async_trainer.runners.choice import RunnerChoice

TOPIC = "actors"
WORK = 100e-6
"""Seconds that the guest computes in a step."""

BESIDE = AtLeast(1.7)
OVERHEADS: Mapping[RunnerChoice, AtMost] = {"threads": AtMost(10.0), "processes": AtMost(20.0)}
STARTS: Mapping[RunnerChoice, AtMost] = {"processes": AtMost(3.0), "ray": AtMost(15.0)}
STARTED = 4
"""Actors that are started together."""

_HURRY = 0.2
_TICKS = os.sysconf("SC_CLK_TCK")


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"A guest that computes {WORK * 1e6:.0f} µs a step, a fixed action and a consumer that"
        " counts and drops: samples a second of two actors beside one; rounds count in which two"
        f" plain processes reached {FREE}x one. The overhead is processor time a sample, of actors"
        " and consumer, beyond that of the same sampling loop without proxy, transport and drain,"
        " with an environment that does nothing and the default messages of 100 items. Starts count"
        f" from the call until each of {STARTED} actors has sent a sample of a guest, in"
        " messages of one.",
    )
    yield from _two_beside_one(bench)
    yield from _overheads(bench)
    yield from _starts(bench)


class Actors:
    """Actors that run while it is entered, all of which have sent something."""

    def __init__(self, runner: RunnerChoice, count: int, env: Any, n_buffer: int = 100) -> None:
        config = ActorManagerConfig(n_buffer=n_buffer, runner=runner)
        parts = ActorParts(FixedAgent, [None] * count, env.builds, env, *PROCESSOR)
        self._manager = ActorManager(config, parts)

    def __enter__(self) -> Actors:
        try:
            self._manager.run()
            self._manager.publish(0, None)
            waiting = set(range(len(self._manager)))
            while waiting:
                waiting -= {message.id for message in self._manager.receive(1.0)}
        except BaseException:
            self._manager.stop_and_join()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._manager.stop_and_join()

    def samples(self, seconds: float) -> tuple[int, float]:
        """Count and drop samples; return their number and the seconds that it took."""
        start = now = time.perf_counter()
        count = 0
        while now < start + seconds:
            messages = self._manager.receive(start + seconds - now)
            count += sum(len(message.pushed_items) for message in messages)
            now = time.perf_counter()
        return count, now - start


def _two_beside_one(bench: Bench) -> Iterator[Row]:
    bench.say("two actors beside one")
    env = spinning(_turns())
    rounds, seconds = (4, 0.5) if bench.quick else (12, 1.5)
    spun = 0.05 if bench.quick else 0.1

    def block(runner: RunnerChoice, count: int) -> Block:
        def measure() -> float:
            with Actors(runner, count, env) as actors:
                actors.samples(_HURRY)
                found, took = actors.samples(seconds)
            return found / took

        return measure

    kinds: tuple[RunnerChoice, ...] = ("processes", "threads")
    with Companion("spinner", spun) as left, Companion("spinner", spun) as right:
        blocks: dict[str, Block] = {"control": lambda: two_over_one(left, right)}
        for kind in kinds:
            blocks |= {f"{kind} {count}": block(kind, count) for count in (1, 2)}
        figures = bench.interleave(blocks, rounds=rounds)
    for kind in kinds:
        yield _beside(kind, figures, BESIDE if kind == "processes" else None)


def _beside(kind: str, figures: Mapping[str, Sequence[float]], limit: AtLeast | None) -> Row:
    one, two = figures[f"{kind} 1"], figures[f"{kind} 2"]
    gains = [b / a for a, b in zip(one, two, strict=True)]
    free = [gain for gain, share in zip(gains, figures["control"], strict=True) if share >= FREE]
    counted = len(free) >= max(2, len(gains) // 4)
    return Row(
        TOPIC, f"two {kind}", "samples/s", Spread.of(two), limit, f"one of the {kind}",
        Spread.of(one), Spread.of(free if counted else gains),
        why_not="" if counted or limit is None else "two cores were not free",
    )  # fmt: skip


def _turns() -> int:
    """How often the guest's loop turns in WORK seconds, when nothing is in its way."""
    tried = 100_000
    best = {}
    for turns in (1, tried):
        config = spinning(turns)
        env, agent = config.builds.build(config, 0), FixedAgent()
        obs = env.reset()
        times = []
        for _ in range(30):
            start = time.perf_counter()
            env.step_with_reset(agent.sample(obs))
            times.append(time.perf_counter() - start)
        env.close()
        best[turns] = min(times)
    return max(1, int(tried * WORK / (best[tried] - best[1])))


def _overheads(bench: Bench) -> Iterator[Row]:
    bench.say("an actor's overhead a sample")
    seconds = 1.0 if bench.quick else 2.0
    rounds = 3 if bench.quick else 9

    def block(runner: RunnerChoice) -> Block:
        def measure() -> float:
            with Actors(runner, 1, IdleConfig()) as actors:
                actors.samples(_HURRY)
                before = _processor_seconds()
                found, _ = actors.samples(seconds)
                return (_processor_seconds() - before) / found * 1e6

        return measure

    blocks: dict[str, Block] = {"bare": lambda: _bare(seconds / 4)}
    blocks |= {runner: block(runner) for runner in OVERHEADS}
    figures = bench.interleave(blocks, rounds=rounds)
    for runner, limit in OVERHEADS.items():
        more = [a - b for a, b in zip(figures[runner], figures["bare"], strict=True)]
        yield alone(TOPIC, f"{runner}, overhead a sample", "µs", more, limit)
    yield alone(TOPIC, "the sampling loop without them, a sample", "µs", figures["bare"])


class _Dropping:
    def push(self, item: object) -> None: ...


def _bare(seconds: float) -> float:
    """The processor time of a step of the sampling loop, in µs."""
    kind, config = PROCESSOR
    env = IdleConfig.builds.build(IdleConfig(), 0)
    sampler, agent, buffer = Sampler(env, kind.build(config)), FixedAgent(), _Dropping()
    before, start = time.process_time(), time.perf_counter()
    count = 0
    while time.perf_counter() < start + seconds:
        for _ in range(100):
            sampler.sample_and_push(agent, buffer)  # type: ignore[arg-type]
        count += 100
    return (time.process_time() - before) / count * 1e6


def _processor_seconds() -> float:
    """Processor time of this process and of its children that live, which counts in 10 ms."""
    total = time.process_time()
    for task in Path("/proc/self/task").iterdir():
        for child in (task / "children").read_text().split():
            fields = Path(f"/proc/{child}/stat").read_text().rpartition(")")[2].split()
            total += (int(fields[11]) + int(fields[12])) / _TICKS
    return total


def _starts(bench: Bench) -> Iterator[Row]:
    for runner, limit in STARTS.items():
        name = f"{runner}, {STARTED} actors until each has sent a sample"
        if runner == "ray" and importlib.util.find_spec("ray") is None:
            bench.note(TOPIC, "Ray was not installed.")
            continue
        bench.say(f"{STARTED} actors start, {runner}")
        figures = []
        for _ in range(2 if bench.quick else 5):
            start = time.perf_counter()
            with Actors(runner, STARTED, spinning(1), n_buffer=1):
                figures.append(time.perf_counter() - start)
        yield alone(TOPIC, name, "s", [statistics.median(figures)], limit)
