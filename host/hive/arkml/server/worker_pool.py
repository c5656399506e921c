"""
The rollout workers of all runs of a hive: their number is bounded, and their starts are shared.
"""

from __future__ import annotations

import asyncio

from arkml.errors import AbiError, HiveError, HiveRefused, UsageError
from arkml.hive.protocol.worker_jobs import WorkerJob
from arkml.server.access.callers import WorkerTokens
from arkml.server.learner_log import relay_line
from arkml.server.serve_options import WorkerOptions
from arkml.workers.placement import Placement, Worker
from arkml.workers.placement_choice import make_placement

_OF_RUN = " of run "
"""Stands between the number of a worker and its run, in the name of its program."""


class WorkerPool:
    """
    The rollout workers of all runs of a hive, at most `options.total`.

    They reach the hive at `address`, "HOST:PORT", with one of the `tokens`.
    """

    def __init__(self, options: WorkerOptions, address: str) -> None:
        self.options = options
        self.address = address
        self.tokens = WorkerTokens()
        self._placement: Placement | None = None
        self._taken = 0

    async def open(self) -> None:
        """
        Prepare the processes or the Ray cluster where workers run, if the hive may have any.

        Raises HiveError. It blocks the event loop, before anything is served: Ray takes over
        SIGTERM when it is joined, and only the main thread can take it back.
        """
        if self.options.total:
            self._placement = _open_placement(self.options)

    def take(self, count: int, *, running: int) -> None:
        """
        Reserve `count` workers for a run that has `running` already.

        Raises HiveRefused if the run or the hive may not have that many.
        """
        self.require(count, running=running)
        self._taken += count

    def require(self, count: int, *, running: int = 0) -> None:
        """Raise HiveRefused if a run that has `running` workers may not have `count` more."""
        options, wanted = self.options, count + running
        asked = f"{wanted} remote workers were asked for"
        if not options.total:
            raise HiveRefused(
                f"{asked}, and this hive starts none: arkml hive serve --workers N allows them", 503
            )
        if wanted > options.most_per_run:
            most = options.most_per_run
            raise HiveRefused(f"{asked}, and a run of this hive may have {most} at most", 503)
        if self._taken + count > options.total:
            free = options.total - self._taken
            raise HiveRefused(
                f"{asked}, and {free} of the {options.total} of this hive are free", 503
            )

    def give_back(self) -> None:
        """End the reservation of one worker."""
        self._taken -= 1

    async def start(self, job: WorkerJob) -> Worker:
        """
        Start a worker's program with its job. Raises HiveRefused, with the reason, on failure.
        """
        assert self._placement is not None
        name = f"worker {job.worker}{_OF_RUN}{job.run_id}"
        start, program = self._placement.start, self.options.program
        try:
            return await asyncio.to_thread(start, program, job.as_json(), name)
        except (AbiError, UsageError) as error:
            raise HiveRefused(str(error), 503) from error

    async def close(self) -> None:
        """End all programs, and release the processes or the Ray cluster where they ran."""
        placement, self._placement = self._placement, None
        if placement is not None:
            await asyncio.to_thread(placement.close)


def _relay(name: str, line: str) -> None:
    """Log a line that a worker has written."""
    worker, _, run = name.rpartition(_OF_RUN)
    relay_line(line, run=run, worker=worker)


def _open_placement(options: WorkerOptions) -> Placement:
    try:
        return make_placement(
            options.runner, options.ray_address, cpus=options.total, on_line=_relay
        )
    except (AbiError, UsageError) as error:
        raise HiveError(f"no rollout workers can be started: {error}") from error
