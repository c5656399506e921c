"""Rows that a hive takes while it is watched: scraped, with log lines in JSON, and traced."""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from statistics import median
from typing import NamedTuple

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.light_workers import Connection, Target, columns_of, poll
from tests.benchmarks.rows import AtLeast, Row, against
from tests.otlp_receiver import OtlpReceiver

from arkml.hive import tracing as hive_tracing
from arkml.hive.protocol.rows import CONTENT_TYPE, encode
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings

TOPIC = "operations"
SCRAPE_EVERY = 5.0
"""Seconds: three times as often as in the example of Prometheus's manual."""

_SAMPLED = f"00-{'1' * 32}-{'2' * 16}-01"
LIMIT = AtLeast(0.97)
SEEN, UNSEEN = "seen", "unseen"
PAIRS = 20
_ROUNDS = 3
BODIES: Mapping[str, tuple[int, int]] = {
    "bodies of 4,096 rows, 64 features": (4_096, 64),
    "bodies of 24 rows, 3 features": (24, 3),
}


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Two hives take bodies in an order of chance from a sender that sends as fast as they"
        " answer; a round has hundreds of them. Equal hives differ by some percent, by where things"
        f" lie in their memory, so {PAIRS} pairs are started one after the other."
        f" One is watched: scraped every {SCRAPE_EVERY:g} s, with log lines in JSON, and traced as"
        " by default, with a receiver of OTLP; the senders are traced hosts then. The other one has"
        " neither metrics, counts of requests, log lines nor traces. Their learners learn nothing."
        " Times of a row are by the clock, from the columns to the answer of the median body of a"
        " round, and of the server's processor, all that it used in a round.",
    )
    watched = {what: _Figures([], []) for what in BODIES}
    plain = {what: _Figures([], []) for what in BODIES}
    pairs = 2 if bench.quick else PAIRS
    for pair in range(pairs):
        bench.say(f"pair {pair + 1} of {pairs}")
        _measure(bench, watched, plain, is_first=pair % 2 == 0)
    for what in BODIES:
        yield against(
            TOPIC, f"a row, {what}", "µs",
            watched[what].clock, "unwatched", plain[what].clock, LIMIT,
        )  # fmt: skip
        yield against(
            TOPIC, f"a row, {what}, the server's processor", "µs",
            watched[what].processor, "unwatched", plain[what].processor,
        )  # fmt: skip


class _Figures(NamedTuple):
    """
    The microseconds of a row, by rounds.

    `clock` are those of the sender, from the columns to the answer, `processor` the server's.
    """

    clock: list[float]
    processor: list[float]


def _measure(
    bench: Bench,
    watched: Mapping[str, _Figures],
    plain: Mapping[str, _Figures],
    *,
    is_first: bool,
) -> None:
    """
    Add the figures of a pair of hives that are started for this, the watched one first or not.

    The first of two equal ones is slower by a percent.
    """
    seconds = 0.5 if bench.quick else 1.0
    with ExitStack() as opened:
        receiver = OtlpReceiver()
        opened.callback(receiver.close)
        started = {
            kind: opened.enter_context(_hive(kind, receiver.endpoint if kind == SEEN else ""))
            for kind in ((SEEN, UNSEEN) if is_first else (UNSEEN, SEEN))
        }
        opened.enter_context(_scraped(started[SEEN]))
        traces = opened.enter_context(_traces(receiver.endpoint))
        for what, (size, features) in BODIES.items():
            senders = [
                _Uploads(hive, size, features, traces, watched[what])
                if kind == SEEN
                else _Uploads(hive, size, features, None, plain[what])
                for kind, hive in started.items()
            ]
            asyncio.run(_alternate(senders, seconds))
        assert receiver.spans, "nothing was traced"


class _Hive:
    def __init__(self, process: subprocess.Popen[str], host: str, port: int) -> None:
        self.process = process
        self.host = host
        self.port = port

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @property
    def processor_seconds(self) -> float:
        """Of the threads that run now, to the nanosecond."""
        threads = Path(f"/proc/{self.process.pid}/task").glob("*/schedstat")
        return sum(int(thread.read_text().split()[0]) for thread in threads) / 1e9


@contextmanager
def _hive(kind: str, endpoint: str) -> Iterator[_Hive]:
    environment = {**os.environ, "OTEL_EXPORTER_OTLP_ENDPOINT": endpoint}
    with tempfile.TemporaryDirectory() as data:
        process = subprocess.Popen(
            [sys.executable, "-m", "tests.benchmarks.operated_hive", data, kind],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
            text=True, cwd=ROOT, env=environment,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        with process:
            try:
                said = json.loads(process.stdout.readline())
                yield _Hive(process, said["host"], said["port"])
            finally:
                process.terminate()
                process.wait(30)


@contextmanager
def _scraped(hive: _Hive) -> Iterator[None]:
    """Scrape a hive at intervals."""
    ended = threading.Event()

    def scrape() -> None:
        while not ended.wait(SCRAPE_EVERY):
            with urllib.request.urlopen(f"{hive.url}/metrics") as answer:
                assert b"arkml_run_rows_total" in answer.read()

    thread = threading.Thread(target=scrape)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@contextmanager
def _traces(endpoint: str) -> Iterator[hive_tracing.Tracing]:
    before = os.environ.get("OTEL_EXPORTER_OTLP_ENDPOINT")
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = endpoint
    traces = hive_tracing.Tracing("arkml-host")
    try:
        yield traces
    finally:
        traces.close()
        del os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"]
        if before is not None:
            os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = before


class _Uploads:
    """One sender of bodies for one hive, which a traced host is with `traces`."""

    def __init__(
        self,
        hive: _Hive,
        size: int,
        features: int,
        traces: hive_tracing.Tracing | None,
        figures: _Figures,
    ) -> None:
        self._figures = figures
        self._hive = hive
        self._traces = traces
        settings = Settings(features, 1, memory_max_size=20_000, other={"period": 1.0})
        body = RunRequest(f"{size}", "game", settings).as_bytes()
        asked = urllib.request.Request(
            f"{hive.url}/v1/runs", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answer:
            run_id = json.load(answer)["run"]["id"]
        self._target = Target(hive.host, hive.port, "", run_id, features, 1, size)
        self._columns = columns_of(self._target)
        self._connection = Connection(self._target)
        self._took: list[float] = []
        self._seq, self._busy, self._first = 0, 0.0, 0

    async def join(self) -> None:
        """Connect, and join the run."""
        await self._connection.__aenter__()
        target = self._target
        wish = {"features": target.features, "actions": target.actions, "join_key": "a sender"}
        path = f"/v1/runs/{target.run_id}/sessions"
        _, _, answer = await self._connection.ask("POST", path, json.dumps(wish).encode())
        self._polling = asyncio.create_task(poll(target))
        self._path = f"/v1/sessions/{json.loads(answer)['sid']}/rows"

    def begin(self) -> None:
        """Begin a round."""
        self._took.clear()
        self._busy, self._first = self._hive.processor_seconds, self._seq

    def end(self) -> None:
        """End a round."""
        rows = (self._seq - self._first) * self._target.rows
        self._figures.clock.append(median(self._took) / self._target.rows * 1e6)
        self._figures.processor.append((self._hive.processor_seconds - self._busy) / rows * 1e6)

    async def send(self) -> None:
        """Send a body."""
        start = time.perf_counter()
        self._seq += 1
        body = encode(self._columns, seq=self._seq, sent_ns=time.monotonic_ns())
        if self._traces is None:
            await self._connection.ask("POST", self._path, body, CONTENT_TYPE)
        else:
            parent = _SAMPLED if self._seq == 1 else ""  # so that there is a trace
            with self._traces.span("send rows", kind="client", parent=parent) as span:
                header = f"{hive_tracing.HEADER}: {self._traces.header(span)}\r\n"
                await self._connection.ask("POST", self._path, body, CONTENT_TYPE, header)
        self._took.append(time.perf_counter() - start)
        self._columns.step += 1
        self._columns.state[:] = 0

    async def leave(self) -> None:
        """End the connections."""
        self._polling.cancel()
        await asyncio.wait([self._polling])
        await self._connection.__aexit__()


async def _alternate(senders: Sequence[_Uploads], seconds: float) -> None:
    """Send bodies in an order of chance, so that other work slows all alike."""
    for one in senders:
        await one.join()
        for _ in range(10):
            await one.send()
    for _ in range(_ROUNDS):
        for one in senders:
            one.begin()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            for one in random.sample(senders, len(senders)):
                await one.send()
        for one in senders:
            one.end()
    for one in senders:
        await one.leave()
