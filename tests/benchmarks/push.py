"""What one push costs."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator

from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block
from tests.benchmarks.peer import Peer
from tests.benchmarks.rows import AtMost, Row, against
from tests.benchmarks.subjects import NullHost, bench_guest, check

from arkml import Guest, Host

TOPIC = "push"
AGENTS = 1024
LIMITS = {8: AtMost(1.1), 64: AtMost(1.1), 256: AtMost(1.4)}


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        f"A call that pushes {AGENTS} observations, without an empty call, by each push; a submit"
        " comes before it. With a null policy the columns are still in the caches, with"
        " onnxruntime it has used them since.",
    )
    for features, limit in LIMITS.items():
        for engine, kind in (("null", NullHost), ("ort", Host)):
            bench.say(f"pushes of {features} features, {engine}")
            with kind() as host:
                guest = bench_guest(host, AGENTS, features)
                blocks: dict[str, Block] = {"ours": _ours(guest, bench.block_seconds)}
                if bench.peer is not None:
                    blocks["peer"] = _peers(bench.peer, engine, features)
                figures = bench.interleave(blocks)
            name = f"{features} features, {_POLICIES[engine]}"
            yield against(TOPIC, name, "ns", figures["ours"], "peer", figures.get("peer"), limit)


_POLICIES = {"null": "null policy", "ort": "onnxruntime"}


def _ours(guest: Guest, seconds: float) -> Block:
    def block() -> float:
        clock, call = time.perf_counter, guest.call
        pushes: list[float] = []
        empty: list[float] = []
        start = clock()
        while clock() < start + seconds or len(pushes) < 10:
            call("update_only")
            before = clock()
            pushed = call("push_only")
            after = clock()
            check(pushed, call("submit_only"))
            call("read_only")
            pushes.append(after - before)
            before = clock()
            call("noop")
            empty.append(clock() - before)
        late = len(pushes) // 5  # the first ones meet cold caches
        net = statistics.median(pushes[late:]) - statistics.median(empty[late:])
        return net / AGENTS * 1e9

    return block


def _peers(peer: Peer, engine: str, features: int) -> Block:
    def block() -> float:
        found = peer.figures(engine, AGENTS, features)
        net: float = found["push_us"] - found["noop_call_us"]
        return net / AGENTS * 1e3

    return block
