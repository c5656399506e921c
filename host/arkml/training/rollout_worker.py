"""The program of one rollout worker: `python -m arkml.training.rollout_worker`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from importlib.metadata import version
from threading import Timer
from typing import TYPE_CHECKING

from msgspec.structs import asdict

from arkml.errors import ArkmlError, GuestError, HiveError, HiveRefused, UsageError
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import OVER, RunDetails
from arkml.hive.protocol.workers import WorkerJob
from arkml.host import Host, hives_of
from arkml.limits import Limits
from arkml.parent_watch import watch_parent
from arkml.runs.access import HiveGrant, read_address
from arkml.runtime.interrupts import GUARD
from arkml.training.pacer import Pacer
from arkml.training.task_runner import TaskRunner, make_runner
from arkml.training.tasks import find_task
from arkml.training.worker_module import compile_for, module_bytes
from arkml.training.worker_watch import GONE, Ending, EventWriter, WorkerWatch

if TYPE_CHECKING:
    from arkml.runs.access import HiveAccess
    from arkml.runs.settings import LearnerSettings

REFUSED, FAILED = 2, 1
"""Exit codes of a worker that cannot do its job, and of one that failed while it did."""

_IDLE = 0.005  # seconds between two frames before the guest takes part in the run
_ENDING = 8.0  # seconds in which a worker ends whose parent has exited
_FIXED = ("features", "actions", "branches", "other")  # of the settings: the guest's own


def main() -> int:
    """
    Do the job that is a line of JSON on stdin; return the exit code.

    That is 0 at the end of the run or of the worker's time, or if the worker was asked to end: by
    SIGTERM, or by the end of stdin. 2 is for a job that cannot be done, 1 for anything else. Events
    are JSON on stdout, one a line; the last one has the reason of the end.
    """
    logging.basicConfig(level=logging.WARNING, format="%(name)s: %(message)s")
    events = EventWriter(os.fdopen(os.dup(1), "w"))
    os.dup2(2, 1)  # nothing else writes between the events
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, GUARD.interrupt)
    parent = os.getppid()
    try:
        job = WorkerJob.from_bytes(sys.stdin.buffer.readline())
        watch_parent(0, parent, _leave)
        ending = _work(job, events)
    except KeyboardInterrupt:
        ending = Ending(0, "it was asked to end")
    except HiveRefused as error:
        ending = Ending(0 if error.status in GONE else REFUSED, str(error))
    except (HiveError, GuestError) as error:
        ending = Ending(FAILED, str(error))
    except ArkmlError as error:
        ending = Ending(REFUSED, str(error))
    _ignore_signals()
    events.write("ended", reason=ending.reason)
    if ending.status:
        sys.stderr.write(f"{ending.reason}\n")
    return ending.status


def _work(job: WorkerJob, events: EventWriter) -> Ending:
    """Play until the run is over or the worker has to end. Raises ArkmlError."""
    own = version("arkml")
    if job.version != own:
        raise UsageError(f"arkml {own} is installed here, and the job is of arkml {job.version}")
    host, port = read_address(job.hive)
    with HiveClient(lambda: (host, port, job.token)) as client:
        details = client.details(job.run_id).result()
        if details.run.status in OVER:
            return Ending(0, f"run {job.name!r} is over: it is {details.run.status}")
        data = module_bytes(job, client)
    with Host(seed=job.seed, limits=Limits(**job.limits), hive=_grant(job, details)) as made:  # type: ignore[arg-type]
        module = compile_for(job, made, data)
        task = find_task(module, job.arguments, job.seed)
        budget = task.budget(is_set=job.budgets_every_call)
        runner = make_runner(made, module, task, instances=job.instances, budget=budget)
        hives = hives_of(made)
        assert hives is not None
        events.write("ready")
        with WorkerWatch(job, hives, runner.subject, events) as watch:
            ending = _play(job, runner, hives, watch, is_repeatable=task.is_repeatable)
            _ignore_signals()
    watch.report()  # the counts after the last rows were delivered
    return ending


def _play(
    job: WorkerJob,
    runner: TaskRunner,
    hives: HiveAccess,
    watch: WorkerWatch,
    *,
    is_repeatable: bool,
) -> Ending:
    """Step the guest until the watch ends it, or a signal. Raises what the guest fails with."""
    try:
        runner.initialize(job.seed)
        pacer = None if job.fps is None else Pacer(job.fps)
        while watch.ending is None:
            runner.step()
            if not is_repeatable:
                return Ending(0, f"{job.module_name} ran to its end")
            if hives.is_training:
                watch.frames += 1
            elif pacer is None:
                time.sleep(_IDLE)
            if pacer is not None:
                pacer.wait()
    except KeyboardInterrupt:
        return watch.ending or Ending(0, "it was asked to end")
    return watch.ending


def _grant(job: WorkerJob, details: RunDetails) -> HiveGrant:
    """Return the permission to take part in the run of a job, with the settings of the run."""
    values = asdict(details.settings)
    settings: LearnerSettings = {n: v for n, v in values.items() if n not in _FIXED}  # type: ignore[assignment]
    return HiveGrant(
        hive=job.hive,
        token=job.token,
        settings=settings,
        block=job.fps is None,
        shared=True,
        join=job.run_id,
    )


def _leave() -> None:
    """End this process as SIGTERM does, after some seconds by force."""
    timer = Timer(_ENDING, os._exit, (FAILED,))
    timer.daemon = True
    timer.start()
    os.kill(os.getpid(), signal.SIGTERM)


def _ignore_signals() -> None:
    """Let no signal interrupt the end, which takes seconds at most."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(main())
