"""The rollout workers of one run: started, watched, replaced and ended."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import RunRequest, WorkerInfo
from arkml.hive.protocol.worker_jobs import WorkerJob, environment_seed
from arkml.server.access.callers import WorkerGrant
from arkml.server.request_context import begin_run
from arkml.server.worker_pool import WorkerPool
from arkml.workers.deaths import MAX_REPLACEMENTS, WITHIN_SECONDS, Deaths
from arkml.workers.placement import Worker

_log = SafeLogger(__name__)

_REFUSED = 2  # the exit status of a worker that refuses its job
_COMPILED_BADLY = {
    -signal.SIGXCPU: "its module takes too long to compile",
    -signal.SIGABRT: "its module takes too much memory to compile",
}
"""The exit statuses of a worker that exceeds the limits of compilation, and what they mean."""

_CHECK_EVERY, _LOOK_EVERY = 0.25, 0.02
_KILLED_WITHIN = 2.0


@dataclass(slots=True)
class _Place:
    """One worker of a run: the program that runs in its place, and the programs that ran before."""

    number: int
    request: RunRequest
    worker: Worker | None = None
    incarnation: int = 0
    is_ready: bool = False
    is_over: bool = False
    is_counted: bool = True
    reason: str = ""
    progress: Mapping[str, Any] = field(default_factory=dict)
    deaths: Deaths = field(default_factory=Deaths)

    @property
    def is_alive(self) -> bool:
        return self.worker is not None and self.worker.is_alive

    def info(self) -> WorkerInfo:
        """Return the last report of the worker."""
        progress = self.progress
        return WorkerInfo(
            number=self.number,
            incarnation=self.incarnation,
            is_alive=self.is_alive,
            rows=int(progress.get("rows", 0)),
            rows_per_second=float(progress.get("rows_per_second", 0.0)),
            policy_version=int(progress.get("version", 0)),
            reason=self.reason,
        )

    def look(self) -> bool:
        """Apply the events of the program; return False if it has ended."""
        assert self.worker is not None
        is_alive = self.worker.is_alive  # before its last events are read
        for event in self.worker.events():
            match event.get("event"):
                case "ready" | "joined":
                    self.is_ready = True
                case "progress":
                    self.progress = event
                case "ended":
                    self.reason = str(event.get("reason") or "")
                case _:
                    pass
        return is_alive

    def note_end(self) -> None:
        """Note that the program has ended, which decides whether it is replaced."""
        assert self.worker is not None
        status = self.worker.status
        self.reason = self.worker.reason or self.reason
        if status in _COMPILED_BADLY and not self.is_ready:
            self.reason = f"{_COMPILED_BADLY[status]} ({self.reason})"
            self.is_over = True
        elif status in (0, _REFUSED):
            self.is_over = True
        else:
            self.note_death(self.reason)

    def note_death(self, reason: str) -> None:
        """Note a death, or a start that failed; the sixth within a minute is the last."""
        self.reason = reason
        if self.deaths.note(time.monotonic()) > 0:
            self.is_over = True
            self.reason = (
                f"it died {MAX_REPLACEMENTS + 1} times within {WITHIN_SECONDS:g} s, the last time"
                f" because: {reason}"
            )


class RunWorkers:
    """
    The rollout workers of one run. Its methods belong to one event loop.

    A worker that dies is replaced, at most five times within a minute. A worker that exits
    normally, or refuses its job, is not replaced.

    Args:
        run_id: The id of the run.
        owner: The id of the token that started the run, empty for none.
        run_seed: The seed of the run, from which each worker's seed is derived.
        pool: The workers of all runs of the hive.

    """

    def __init__(self, run_id: str, owner: str, run_seed: int, pool: WorkerPool) -> None:
        self._run_id = run_id
        self._owner = owner
        self._run_seed = run_seed
        self._pool = pool
        self._places: list[_Place] = []
        self._token = ""
        self._starts = 0  # so that no number, and no seed, is given twice
        self._is_stopped = False
        self._starting = asyncio.Lock()
        self._watching: asyncio.Task[None] | None = None

    @property
    def minutes(self) -> float:
        """Minutes that workers continue without another session."""
        return self._pool.options.minutes

    @property
    def living(self) -> int:
        """The number of workers whose program runs now."""
        return sum(place.is_alive for place in self._places)

    @property
    def are_kept(self) -> bool:
        """True while a worker runs, or is to be replaced."""
        return any(not place.is_over for place in self._places)

    @property
    def have_ended(self) -> bool:
        """True if there were workers, and all of them have ended without `stop`."""
        return bool(self._places) and not self._is_stopped and not self.are_kept

    def infos(self) -> list[WorkerInfo]:
        """Return descriptions of the workers, including workers that have ended."""
        return [place.info() for place in self._places]

    async def start(self, request: RunRequest) -> None:
        """
        Start workers until there are as many as a request asks for; wait until one is ready.

        Raises HiveRefused if the run may not have that many, if a worker refuses its job (with its
        reason), or if no worker is ready in time. The new workers are removed then.
        """
        async with self._starting:
            kept = [place for place in self._places if not place.is_over]
            count, running = request.workers - len(kept), len(kept)
            if count <= 0:
                return
            self._pool.take(count, running=running)
            first, self._starts = self._starts, self._starts + count
            new = [_Place(number, request) for number in range(first, self._starts)]
            self._places, self._is_stopped = kept, False
            if not self._token:
                grant = WorkerGrant(self._run_id, request.module, self._owner)
                self._token = self._pool.tokens.issue(grant)
            try:
                await self._start_all(new)
            except BaseException:
                await asyncio.shield(self._end(new, 0.0))
                self._places = [place for place in self._places if place not in new]
                raise

    async def stop(self, seconds: float) -> None:
        """End all workers, by force after `seconds`. Safe to call more than once."""
        self._is_stopped = True
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
            await asyncio.wait([watching])
        await self._end(self._places, seconds)
        if self._token:
            self._pool.tokens.revoke(self._token)
            self._token = ""

    async def _start_all(self, new: Sequence[_Place]) -> None:
        """Start new workers, and wait until one of them is ready. Raises HiveRefused."""
        starts = (self._start(place) for place in new)
        for failure in await asyncio.gather(*starts, return_exceptions=True):
            if failure is not None:
                raise failure
        self._places += new
        if self._watching is None or self._watching.done():
            self._watching = asyncio.create_task(self._watch())
        deadline = time.monotonic() + self._pool.options.start
        while not any(place.is_ready for place in new):
            over = next((place for place in new if place.is_over and place.reason), None)
            if over is not None:  # the run may have been stopped because of it
                raise HiveRefused(
                    f"the remote workers of run {self._run_id} do not start: {over.reason}", 503
                )
            if self._is_stopped:
                raise HiveRefused(f"run {self._run_id} was stopped while its workers started", 410)
            if time.monotonic() > deadline:
                seconds = self._pool.options.start
                raise HiveRefused(
                    f"no remote worker of run {self._run_id} was ready within {seconds:g} s", 503
                )
            await asyncio.sleep(_LOOK_EVERY)

    async def _start(self, place: _Place) -> None:
        """Start the program of a place. Raises HiveRefused."""
        place.is_ready, place.progress, place.worker = False, {}, None
        worker = await self._pool.start(self._job(place))
        if place.is_over:  # meanwhile
            worker.kill()
        place.worker = worker

    def _job(self, place: _Place) -> WorkerJob:
        request, number = place.request, place.number
        return WorkerJob(
            run_id=self._run_id,
            name=request.name,
            game=request.game,
            hive=self._pool.address,
            token=self._token,
            module_hash=request.module,
            module_name=request.module_name or request.module[:12],
            arguments=request.arguments,
            worker=number,
            incarnation=place.incarnation,
            seed=environment_seed(self._run_seed, number, place.incarnation),
            wasi=True,
        )

    async def _watch(self) -> None:
        begin_run(self._run_id)
        while not self._is_stopped:
            await asyncio.sleep(_CHECK_EVERY)
            for place in list(self._places):
                if not place.is_over:
                    await self._check(place)

    async def _check(self, place: _Place) -> None:
        """Read the events of a worker, and replace it if it has died."""
        if place.worker is not None:
            if place.look():
                return
            place.note_end()
        if not place.is_over:
            _log.warning(
                "worker %d of run %s is started again: %s",
                place.number, self._run_id, place.reason,
            )  # fmt: skip
            place.incarnation += 1
            try:
                await self._start(place)
            except HiveRefused as error:
                place.note_death(str(error))
        if place.is_over:
            self._give_back(place)
            _log.info("worker %d of run %s has ended: %s", place.number, self._run_id, place.reason)

    async def _end(self, places: Sequence[_Place], seconds: float) -> None:
        """End the programs of some places, by force after `seconds`, and release the places."""
        for place in places:
            place.is_over = True
            self._give_back(place)
        workers = [place.worker for place in places if place.worker is not None]
        for worker in workers:
            worker.stop(seconds)
        await _wait_for_ends(workers, seconds)
        for worker in workers:
            if worker.is_alive:
                worker.kill()
        await _wait_for_ends(workers, _KILLED_WITHIN)

    def _give_back(self, place: _Place) -> None:
        if place.is_counted:
            place.is_counted = False
            self._pool.give_back()


async def _wait_for_ends(workers: Sequence[Worker], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while any(worker.is_alive for worker in workers) and time.monotonic() < deadline:
        await asyncio.sleep(_LOOK_EVERY)
