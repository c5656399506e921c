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
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.benchmarks.bench import Bench
from tests.benchmarks.companion import ROOT
from tests.benchmarks.light_workers import Connection, Target, columns_of
from tests.benchmarks.rows import AtLeast, Row, against
from tests.otlp_receiver import OtlpReceiver

from arkml.hive import tracing as hive_tracing
from arkml.hive.protocol.rows import CONTENT_TYPE, encode
from arkml.hive.protocol.runs import RunRequest
from arkml.hive.protocol.settings import Settings

TOPIC = "operations"
SCRAPE_EVERY = 5.0
"""Seconds; Prometheus asks every 15 to 60 by its usual settings."""

LIMIT = AtLeast(0.97)
BODIES: Mapping[str, tuple[int, int]] = {
    "bodies of 4,096 rows, 64 features": (4_096, 64),
    "bodies of 24 rows, 3 features": (24, 3),
}
_SENDERS = 4
_BLOCK = 0.5  # seconds


def rows(bench: Bench) -> Iterator[Row]:
    bench.note(
        TOPIC,
        "Two hives take bodies in turn, from connections that send as fast as the hive answers."
        f" One is watched: scraped every {SCRAPE_EVERY:g} s, with log lines in JSON, and traced as"
        " by default, with a receiver of OTLP; the senders are traced hosts then. The other one has"
        " neither metrics, counts of requests, log lines nor traces. Their learners learn nothing."
        " Times are by the clock and of the server's processor, for a row; the ratio of the former"
        " is that of rows/s. The limit holds for large bodies, as a host sends them flat out.",
    )
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
            figures = bench.interleave({"seen": watched.block, "unseen": plain.block})
            limit = LIMIT if size > 1_000 else None
            yield against(
                TOPIC, f"a row, {what}", "µs", figures["seen"], "unwatched", figures["unseen"],
                limit or AtLeast(0.0),
            )  # fmt: skip
            yield against(
                TOPIC, f"a row of the server's processor, {what}", "µs",
                watched.processor, "unwatched", plain.processor,
            )  # fmt: skip
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
    """Bodies for one hive; `processor` are the microseconds of its server for a row, by block."""

    def __init__(
        self, hive: _Hive, size: int, features: int, traces: hive_tracing.Tracing | None
    ) -> None:
        self.processor: list[float] = []
        self._hive = hive
        self._size = size
        self._traces = traces
        settings = Settings(features, 1, memory_max_size=20_000, other={"period": 1.0})
        body = RunRequest(f"{size}", "game", settings).as_bytes()
        asked = urllib.request.Request(
            f"{hive.url}/v1/runs", body, {"content-type": "application/json"}
        )
        with urllib.request.urlopen(asked) as answer:
            run_id = json.load(answer)["run"]["id"]
        self._target = Target(hive.host, hive.port, "", run_id, features, 1, size)

    def block(self) -> float:
        """Return the microseconds of a row, by the clock."""
        busy = self._hive.processor_seconds
        start, count = time.perf_counter(), asyncio.run(self._send(_BLOCK))
        took = time.perf_counter() - start
        rows = count * self._size
        self.processor.append((self._hive.processor_seconds - busy) / rows * 1e6)
        return took / rows * 1e6

    async def _send(self, seconds: float) -> int:
        end = time.perf_counter() + seconds
        return sum(await asyncio.gather(*(self._sender(number, end) for number in range(_SENDERS))))

    async def _sender(self, number: int, end: float) -> int:
        target = self._target
        async with Connection(target) as connection:
            wish = {"features": target.features, "actions": target.actions}
            wish_of = {"join_key": f"sender {number}", **wish}
            path = f"/v1/runs/{target.run_id}/sessions"
            _, _, answer = await connection.ask("POST", path, json.dumps(wish_of).encode())
            joined = json.loads(answer)
            path = f"/v1/sessions/{joined['sid']}/rows"
            columns, before = columns_of(target), joined["acked"]
            columns.step += before
            seq = before
            while time.perf_counter() < end:
                seq += 1
                body = encode(columns, seq=seq, sent_ns=time.monotonic_ns())
                if self._traces is None:
                    await connection.ask("POST", path, body, CONTENT_TYPE)
                else:
                    with self._traces.span("send rows", kind="client") as span:
                        header = f"{hive_tracing.HEADER}: {self._traces.header(span)}\r\n"
                        await connection.ask("POST", path, body, CONTENT_TYPE, header)
                columns.step += 1
                columns.state[:] = 0
            return seq - before
