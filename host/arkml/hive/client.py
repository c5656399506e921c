"""A client of a hive: one thread with an event loop, and futures for everybody else."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, TypeVar
from urllib.parse import quote

from arkml.closing import Closing
from arkml.errors import HiveUnreachable, ProtocolError
from arkml.hive.answers import understood
from arkml.hive.presence import Presence
from arkml.hive.priority import give_way
from arkml.hive.protocol.runs import Role, RunDetails, RunInfo, RunRequest
from arkml.hive.session import RunSession
from arkml.hive.transport import HiveTransport, Locate

T = TypeVar("T")

_ENDING = 5.0  # seconds that the thread gets to end


class HiveClient(Closing):
    """
    Asks one hive. Every method returns at once; its future raises HiveUnreachable, HiveRefused, or
    ProtocolError for an answer that makes no sense.

    `locate` says where the hive is, before the first request and after each one that failed.
    """

    def __init__(self, locate: Locate) -> None:
        self._loop = asyncio.new_event_loop()
        self._is_closed = False
        self._sessions: set[RunSession] = set()
        ready: Future[HiveTransport] = Future()
        self._thread = threading.Thread(
            target=self._run, args=(locate, ready), name="arkml-hive-client", daemon=True
        )
        self._thread.start()
        self._link = ready.result()
        self._presence = Presence(self._link)
        self._watching: asyncio.Task[None] | None = None

    @property
    def is_gone(self) -> bool:
        """Whether the hive was there for a session and is not any more."""
        return self._presence.is_gone

    def health(self) -> Future[dict[str, Any]]:
        """What the hive says of itself."""
        return self._start(self._link.fetch("GET", "/health"))

    def runs(self) -> Future[list[RunInfo]]:
        """All runs, the newest first."""

        async def runs() -> list[RunInfo]:
            found = await self._link.fetch("GET", "/runs")
            return understood(lambda: [RunInfo.from_json(run) for run in found["runs"]])

        return self._start(runs())

    def create(self, request: RunRequest) -> Future[RunInfo]:
        """A run as asked for, new or joined."""
        return self._start(self._run_of("POST", "/runs", request.as_json()))

    def run(self, run_id: str) -> Future[RunInfo]:
        return self._start(self._run_of("GET", _path(run_id)))

    def details(self, run_id: str) -> Future[RunDetails]:
        """A run, how it learns, and its best policy."""

        async def details() -> RunDetails:
            return RunDetails.from_json(await self._link.fetch("GET", _path(run_id)))

        return self._start(details())

    def config(self, run_id: str) -> Future[str]:
        """The configuration that a run was started with, byte for byte."""

        async def config() -> str:
            answer = await self._link.ask("GET", _path(run_id, "config"))
            return understood(answer.content.decode)

        return self._start(config())

    def snapshot(self, run_id: str, which: str) -> Future[bytes]:
        """A policy as an ONNX file: `which` is "now", "best" or "latest"."""

        async def snapshot() -> bytes:
            answer = await self._link.ask("GET", _path(run_id, f"snapshot?which={which}"))
            return answer.content

        return self._start(snapshot())

    def metrics(self, run_id: str) -> Future[list[tuple[str, float, int]]]:
        """The newest value of every metric, with the step it belongs to."""

        async def metrics() -> list[tuple[str, float, int]]:
            found = await self._link.fetch("GET", _path(run_id, "metrics"))
            return understood(lambda: [(str(n), float(v), int(s)) for n, v, s in found["metrics"]])

        return self._start(metrics())

    def series(self, run_id: str, name: str, since: int = 0) -> Future[list[tuple[int, float]]]:
        """The values of one metric from a step on, each with its step."""

        async def series() -> list[tuple[int, float]]:
            path = _path(run_id, f"series?name={quote(name, safe='')}&since={since}")
            found = await self._link.fetch("GET", path)
            return understood(
                lambda: [(int(step), float(value)) for step, value, _ in found["series"]]
            )

        return self._start(series())

    def evaluate(
        self, run_id: str, version: int, returns: Sequence[float], lengths: Sequence[int]
    ) -> Future[bool]:
        """Report episodes that a version of the policy played; whether it is the best so far."""
        body = {"version": version, "returns": list(returns), "lengths": list(lengths)}

        async def evaluate() -> bool:
            found = await self._link.fetch("POST", _path(run_id, "evaluations"), body=body)
            return understood(lambda: bool(found["best"]))

        return self._start(evaluate())

    def stop(self, run_id: str) -> Future[dict[str, Any]]:
        """Stop a run for everybody."""
        return self._start(self._link.fetch("POST", _path(run_id, "stop"), body={}))

    def delete(self, run_id: str, *, force: bool = False) -> Future[dict[str, Any]]:
        """Delete a run and all that is kept of it."""
        path = _path(run_id) + ("?force=1" if force else "")
        return self._start(self._link.fetch("DELETE", path))

    def checkpoint(self, run_id: str) -> Future[str]:
        """Save a checkpoint now; its name."""

        async def checkpoint() -> str:
            found = await self._link.fetch("POST", _path(run_id, "checkpoints"), body={})
            return understood(lambda: str(found["checkpoint"]))

        return self._start(checkpoint())

    def checkpoints(self, run_id: str) -> Future[list[dict[str, Any]]]:
        """The checkpoints of a run."""

        async def checkpoints() -> list[dict[str, Any]]:
            found = await self._link.fetch("GET", _path(run_id, "checkpoints"))
            return understood(lambda: list(found["checkpoints"]))

        return self._start(checkpoints())

    def memory(self, run_id: str) -> Future[dict[str, Any]]:
        """What the learner of a run holds: the audit of its memory."""
        return self._start(self._link.fetch("GET", _path(run_id, "memory")))

    def join(
        self,
        run_id: str,
        features: int,
        actions: int,
        *,
        on_policy: Callable[[int, bytes], object],
        role: Role = Role.ACT,
        block: bool = False,
        sync: bool = False,
    ) -> Future[RunSession]:
        """
        A session of a run. `on_policy` is called on the client's thread with each newer policy.

        With `block` the session has credit, with `sync` it is in lockstep with the learner.
        """

        async def join() -> RunSession:
            session = RunSession(
                self._link, run_id, features, actions,
                role=role, block=block, sync=sync, on_policy=on_policy,
            )  # fmt: skip
            await session.begin()
            self._sessions.add(session)
            if self._watching is None or self._watching.done():
                watch = self._presence.watch(lambda: bool(self._sessions))
                self._watching = asyncio.ensure_future(watch)
            session.ended.add_done_callback(lambda _: self._sessions.discard(session))
            return session

        return self._start(join())

    def close(self) -> None:
        """End the thread; what is asked for is cancelled. Safe to call again."""
        if self._is_closed:
            return
        self._is_closed = True
        self._loop.call_soon_threadsafe(self._loop.stop)
        if self._thread is not threading.current_thread():  # the collector runs anywhere
            self._thread.join(_ENDING)

    async def _run_of(self, method: str, path: str, body: Any = None) -> RunInfo:
        found = await self._link.fetch(method, path, body=body)
        if "run" not in found:
            raise ProtocolError(f"the hive answered with {sorted(found)} and no run")
        return RunInfo.from_json(found["run"])

    def _start(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        if self._is_closed:
            work.close()
            failed: Future[T] = Future()
            failed.set_exception(HiveUnreachable("the client of the hive is closed"))
            return failed
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def _run(self, locate: Locate, ready: Future[HiveTransport]) -> None:
        asyncio.set_event_loop(self._loop)
        give_way()

        async def begin() -> None:
            ready.set_result(HiveTransport(locate))

        self._loop.run_until_complete(begin())
        try:
            self._loop.run_forever()
        finally:
            tasks = asyncio.all_tasks(self._loop)
            for task in tasks:
                task.cancel()
            self._loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
            self._loop.run_until_complete(self._link.close())
            self._loop.run_until_complete(self._loop.shutdown_default_executor())
            self._loop.close()


def _path(run_id: str, rest: str = "") -> str:
    return f"/runs/{quote(run_id, safe='')}" + (f"/{rest}" if rest else "")
