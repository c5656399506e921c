"""Rows that a hive takes while it is watched: scraped, with log lines in JSON, and traced."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from statistics import median

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.light_workers import Connection, Target, columns_of, poll
from tests.benchmarks.measuring import enough, undisturbed
from tests.benchmarks.rows import AtLeast, Row, against
from tests.otlp_receiver import OtlpReceiver

from arkml.hive import tracing as hive_tracing
from arkml.hive.protocol.rows import CONTENT_TYPE, encode
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings

TOPIC = "operations"
SCRAPE_EVERY = 15.0
"""Seconds, as in the example of Prometheus's manual; its default is a minute."""

_SAMPLED = f"00-{'1' * 32}-{'2' * 16}-01"
LIMIT = AtLeast(0.97)
BODIES: Mapping[str, tuple[int, int]] = {
    "bodies of 4,096 rows, 64 features": (4_096, 64),
    "bodies of 24 rows, 3 features": (24, 3),
}


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Two hives take bodies in turn, one each, from a sender that sends as fast as they answer;"
        " a round has hundreds of them."
        f" One is watched: scraped every {SCRAPE_EVERY:g} s, with log lines in JSON, and traced as"
        " by default, with a receiver of OTLP; the senders are traced hosts then. The other one has"
        " neither metrics, counts of requests, log lines nor traces. Their learners learn nothing."
        " Times of a row are by the clock, from the columns to the answer of the median body of a"
        " round, and of the server's processor, all that it used in a round.",
    )
    seconds = 0.5 if bench.quick else 1.0
    with ExitStack() as opened:
        receiver = OtlpReceiver()
        opened.callback(receiver.close)
        seen = opened.enter_context(_hive("seen", receiver.endpoint))
        unseen = opened.enter_context(_hive("unseen", ""))
        opened.enter_context(_scraped(seen))
        traces = opened.enter_context(_traces(receiver.endpoint))
        for what, (size, features) in BODIES.items():
            bench.say(what)
            watched = _Uploads(seen, size, features, traces)
            plain = _Uploads(unseen, size, features, None)
            asyncio.run(_alternate(watched, plain, bench.rounds, seconds))
            yield _judged(f"a row, {what}", watched.clock, plain.clock)
            yield against(
                TOPIC, f"a row, {what}, the server's processor", "µs",
                watched.processor, "unwatched", plain.processor,
            )  # fmt: skip
        assert receiver.spans, "nothing was traced"


def _judged(name: str, ours: Sequence[float], theirs: Sequence[float]) -> Row:
    """The rounds in which no other work was in the way of both; else nothing is asserted."""
    speeds = [1 / (a + b) for a, b in zip(ours, theirs, strict=True)]
    quiet, plain = undisturbed(ours, speeds), undisturbed(theirs, speeds)
    row = against(TOPIC, name, "µs", quiet, "unwatched", plain, LIMIT)
    return row if enough(ours, speeds) else replace(row, why_not="other work kept the cores busy")


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
    """
    One sender of bodies for one hive, which a traced host is with `traces`.

    `clock` and `processor` are the microseconds of a row, by rounds: of the sender, from the
    columns to the answer, and of the server.
    """

    def __init__(
        self, hive: _Hive, size: int, features: int, traces: hive_tracing.Tracing | None
    ) -> None:
        self.clock: list[float] = []
        self.processor: list[float] = []
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
        self.clock.append(median(self._took) / self._target.rows * 1e6)
        self.processor.append((self._hive.processor_seconds - self._busy) / rows * 1e6)

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


async def _alternate(seen: _Uploads, unseen: _Uploads, rounds: int, seconds: float) -> None:
    """Send bodies to both in turn, so that other work on the machine slows both alike."""
    for one in (seen, unseen):
        await one.join()
        for _ in range(10):
            await one.send()
    for _ in range(rounds):
        seen.begin()
        unseen.begin()
        end = time.perf_counter() + seconds
        while time.perf_counter() < end:
            await seen.send()
            await unseen.send()
            await unseen.send()
            await seen.send()
        seen.end()
        unseen.end()
    await seen.leave()
    await unseen.leave()
