"""What a change of the policy costs the frames of a fleet."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future

from tests.benchmarks.bench import Bench
from tests.benchmarks.rows import Row, alone
from tests.benchmarks.subjects import bench_fleet, check_frame, policy_path

from arkml import Fleet, Host

TOPIC = "policy changes"
GUESTS = (64, 1_000)
FEATURES = 64
FRAMES = 600
EVERY = 30  # frames at 60 a second between two changes
PERIOD = 1 / 60


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"Frames of a fleet at 60 a second, of guests with one agent and a network"
        f" {FEATURES}-64-64-3. The policy of its host is another one every {EVERY} frames: a file"
        " whose model is vetted and loaded anew each time, beside the frames, in the same process."
        " The frame of a change is the first after its policy is loaded.",
    )
    for guests in GUESTS:
        bench.say(f"{guests} guests whose policy changes")
        with Host() as host, bench_fleet(host, guests, FEATURES) as fleet:
            yield from _beside(host, fleet, FRAMES // 3 if bench.quick else FRAMES)


def _beside(host: Host, fleet: Fleet, frames: int) -> Iterator[Row]:
    model, number = policy_path(FEATURES).read_bytes(), 0

    def change() -> Future[None]:
        """Give the host a file that it has not seen, which differs in its producer's name."""
        nonlocal number
        number += 1
        return host.use(model + b"\x12\x06" + f"{number:06}".encode())

    quiet, _ = _paced(fleet, frames, None)
    busy, first = _paced(fleet, frames, change)
    for name, times in (
        ("frame, policy stays", quiet),
        ("frame, policy changes twice a second", busy),
    ):
        yield alone(TOPIC, f"{len(fleet)} guests: {name}, p99", "ms", [_ms(_p99(times))])
    yield alone(TOPIC, f"{len(fleet)} guests: frame of a change", "ms", [_ms(one) for one in first])


def _paced(
    fleet: Fleet, frames: int, change: Callable[[], Future[None]] | None
) -> tuple[list[float], list[float]]:
    """Return the seconds of frames, and of those that took another policy."""
    times: list[float] = []
    first: list[float] = []
    loading: Future[None] | None = None
    for frame in range(frames):
        if change is not None and frame % EVERY == 0:
            loading = change()
        is_first = loading is not None and loading.done()
        before = time.perf_counter()
        check_frame(fleet)
        took = time.perf_counter() - before
        times.append(took)
        if is_first and loading is not None:
            loading.result()
            loading = None
            first.append(took)
        time.sleep(max(0.0, PERIOD - took))
    return times, first


def _p99(times: list[float]) -> float:
    return sorted(times)[len(times) * 99 // 100]


def _ms(seconds: float) -> float:
    return 1e3 * seconds
