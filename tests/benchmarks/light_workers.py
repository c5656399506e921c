"""Clients of a hive that ask for what rollout workers ask for, and play nothing."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np

from arkml.hive.protocol.rows import CONTENT_TYPE, RowColumns, encode
from arkml.hive.protocol.runs import BATCH_SECONDS, POLL_SECONDS

SPACING = 1.0
"""Seconds between two policy versions that a paced worker takes."""


class Target(NamedTuple):
    """A run of a hive, and the rows that a light worker sends at a time."""

    host: str
    port: int
    token: str
    run_id: str
    features: int
    actions: int
    rows: int


class LightWorkers:
    """Light workers of one run, each with two connections; `bodies` of rows were acknowledged."""

    def __init__(self, target: Target) -> None:
        self.bodies = 0
        self._target = target
        self._tasks: list[asyncio.Task[None]] = []

    def __len__(self) -> int:
        return len(self._tasks) // 2

    async def add(self, count: int) -> None:
        """Let `count` more begin, spread over the time between two bodies."""
        for _ in range(count):
            self._tasks.append(asyncio.create_task(self._send()))
            self._tasks.append(asyncio.create_task(poll(self._target)))
            await asyncio.sleep(BATCH_SECONDS / 10)

    async def serve(self, seconds: float) -> float:
        """Return the bodies a second that are acknowledged. Raises what a worker failed with."""
        before, start = self.bodies, time.perf_counter()
        await asyncio.sleep(seconds)
        rate = (self.bodies - before) / (time.perf_counter() - start)
        for task in self._tasks:
            if task.done():
                task.result()
        return rate

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _send(self) -> None:
        target = self._target
        async with Connection(target) as connection:
            widths = {"features": target.features, "actions": target.actions}
            wish = {"join_key": f"light worker {id(connection):x}", **widths}
            path = f"/v1/runs/{target.run_id}/sessions"
            _, _, answer = await connection.ask("POST", path, json.dumps(wish).encode())
            path = f"/v1/sessions/{json.loads(answer)['sid']}/rows"
            columns = columns_of(target)
            seq, due = 0, time.perf_counter()
            while True:
                seq += 1
                body = encode(columns, seq=seq, sent_ns=time.monotonic_ns())
                await connection.ask("POST", path, body, CONTENT_TYPE)
                self.bodies += 1
                columns.step += 1
                columns.state[:] = 0
                due = max(due + BATCH_SECONDS, time.perf_counter())
                await asyncio.sleep(due - time.perf_counter())


async def poll(target: Target) -> None:
    """Wait for newer policy versions for ever, as a paced worker does."""
    version = 0
    async with Connection(target) as connection:
        while True:
            path = f"/v1/runs/{target.run_id}/policy?after={version}&wait={POLL_SECONDS}"
            status, headers, _ = await connection.ask("GET", path)
            if status == 200:
                version = int(headers["x-arkml-version"])
                await asyncio.sleep(SPACING)


async def fetch(target: Target, connections: int, seconds: float) -> float:
    """Return how many times a second `connections` can fetch the newest policy version."""
    count = 0

    async def repeat() -> None:
        nonlocal count
        async with Connection(target) as connection:
            while True:
                await connection.ask("GET", f"/v1/runs/{target.run_id}/policy?after=0&wait=1")
                count += 1

    tasks = [asyncio.create_task(repeat()) for _ in range(connections)]
    start = time.perf_counter()
    await asyncio.sleep(seconds)
    rate = count / (time.perf_counter() - start)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return rate


class Connection:
    """One connection that is kept, and plain HTTP over it: a client that costs little."""

    def __init__(self, target: Target) -> None:
        self._target = target

    async def __aenter__(self) -> Connection:
        where = self._target.host, self._target.port
        self._reader, self._writer = await asyncio.open_connection(*where)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()

    async def ask(
        self,
        method: str,
        path: str,
        body: bytes = b"",
        kind: str = "application/json",
        headers: str = "",
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Return status, headers and content of an answer; `headers` are further lines."""
        target = self._target
        self._writer.write(
            f"{method} {path} HTTP/1.1\r\nhost: {target.host}:{target.port}\r\n"
            f"authorization: Bearer {target.token}\r\ncontent-type: {kind}\r\n"
            f"content-length: {len(body)}\r\n{headers}\r\n".encode()
            + body
        )
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        headers: dict[str, Any] = {}
        for line in head[1:-2]:
            name, _, value = line.partition(":")
            headers[name.lower()] = value.strip()
        status = int(head[0].split()[1])
        content = await self._reader.readexactly(int(headers.get("content-length", 0)))
        if status >= 400:
            raise RuntimeError(f"{method} {path}: {status} {content.decode()[:200]}")
        return status, headers, content


def columns_of(target: Target) -> RowColumns:
    columns = RowColumns.empty(target.rows, target.features, target.actions)
    columns.agent[:] = np.arange(target.rows) + 1
    columns.state[:] = 3  # initial
    return columns
