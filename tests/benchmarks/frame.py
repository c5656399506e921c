"""What a frame costs that the host starts with one call: push, submit, policy, answer."""

from __future__ import annotations

from collections.abc import Iterator

from tests.benchmarks.bench import Bench
from tests.benchmarks.measuring import Block, microseconds
from tests.benchmarks.peer import Peer
from tests.benchmarks.rows import AtMost, Row, against
from tests.benchmarks.subjects import bench_guest, check

from arkml import Guest, Host

TOPIC = "frame"
FEATURES = 64
LIMITS = {1024: AtMost(1.10), 64: AtMost(1.25), 1: AtMost(1.75)}
AGENTS_AGAINST_TRACT = 1024


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(TOPIC, f"One call a frame, onnxruntime on our side, {FEATURES} features.")
    for agents, limit in LIMITS.items():
        name = f"{agents} agents" if agents > 1 else "1 agent"
        bench.say(f"frames of {name}")
        with Host() as host:
            guest = bench_guest(host, agents, FEATURES)
            blocks = {"ours": ours(guest, bench.block_seconds)}
            if bench.peer is not None:
                blocks["ort"] = peers(bench.peer, "ort", agents, FEATURES)
                if agents == AGENTS_AGAINST_TRACT:
                    blocks["tract"] = peers(bench.peer, "tract", agents, FEATURES)
            if agents == 1:
                with Host(backend="wasm") as other:
                    blocks["wasm"] = ours(bench_guest(other, agents, FEATURES), bench.block_seconds)
                    figures = bench.interleave(blocks)
                yield against(
                    TOPIC, "1 agent, as WebAssembly", "µs", figures["wasm"], "onnxruntime",
                    figures["ours"], AtMost(0.9),
                )  # fmt: skip
            else:
                figures = bench.interleave(blocks)
        yield against(TOPIC, name, "µs", figures["ours"], "peer", figures.get("ort"), limit)
        if agents == AGENTS_AGAINST_TRACT:
            theirs = figures.get("tract")
            yield against(
                TOPIC, name, "µs", figures["ours"], "peer with tract", theirs, AtMost(1.0)
            )


def ours(guest: Guest, seconds: float) -> Block:
    """Frames by one call each."""
    codes: set[object] = set()

    def block() -> float:
        figure = microseconds(lambda: codes.add(guest.call("frame")), seconds)
        check(*codes)
        return figure

    return block


def peers(peer: Peer, engine: str, agents: int, features: int, part: str = "frame_us") -> Block:
    """The same by the peer."""

    def block() -> float:
        return float(peer.figures(engine, agents, features)[part])

    return block
