"""The program of one rollout worker: `python -m arkml.training.rollout_worker`."""

from __future__ import annotations

import logging
import os
import signal
import sys
import time
from typing import TYPE_CHECKING

from arkml.errors import ArkmlError, GuestError, HiveRefused, HiveUnreachable
from arkml.hive.address import Address
from arkml.hive.client import HiveClient
from arkml.hive.protocol.runs import OVER, RunDetails
from arkml.hive.protocol.worker_jobs import WorkerJob
from arkml.hive.transport import GONE, RETRIED
from arkml.host import Host, hives_of
from arkml.limits import Limits
from arkml.policies.step_limit import StepLimit
from arkml.runs.hive_access import HiveGrant
from arkml.runtime.interrupts import GUARD
from arkml.runtime.wasi.linking import QUIET_GRANT
from arkml.training.pacer import Pacer
from arkml.training.task_runner import Renewal, TaskRunner, make_runner
from arkml.training.tasks import find_task
from arkml.training.worker_module import compile_for, module_bytes
from arkml.training.worker_reloads import WorkerReloads
from arkml.training.worker_watch import Ending, WorkerWatch
from arkml.workers.program import REFUSED, Program, run_program

if TYPE_CHECKING:
    from arkml.runs.hive_access import HiveAccess
    from arkml.runs.learner_settings import LearnerSettings

_FAILED = 1
_IDLE = 0.005  # seconds between two frames before the guest takes part in the run
_FIXED = ("features", "actions", "branches", "max_episode_steps", "other")
"""The settings that are the guest's own, or come from the job."""


def main(program: Program) -> int:
    """
    Do the `WorkerJob` that the program gets, and return the exit status.

    The status is 0 after the end of the run or of the worker's time, or if the worker was asked to
    end by closing its input. It is REFUSED for a job that cannot be done, for example with another
    module, and 1 for any other failure. The last event says why the worker ended.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(name)s: %(message)s")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, GUARD.interrupt)
    values = {name: value for name, value in program.job.items() if name != "version"}
    try:
        ending = _work(WorkerJob.from_json(values), program) or _interrupted(program)
    except KeyboardInterrupt:
        ending = _interrupted(program)
    except ArkmlError as error:
        ending = Ending(_status_of(error), str(error))
    _ignore_signals()
    program.report({"event": "ended", "reason": ending.reason})
    return ending.status


def _status_of(error: ArkmlError) -> int:
    """Return the exit status for an error; for 1 another worker is started, which may succeed."""
    match error:
        case HiveRefused(status=status) if status in GONE:
            return 0
        case HiveRefused(status=status) if status in RETRIED:
            return _FAILED
        case HiveUnreachable() | GuestError():
            return _FAILED
        case _:
            return REFUSED


def _interrupted(program: Program) -> Ending:
    """Return the end of a worker that a signal has interrupted. Its parent sends no signals."""
    is_wanted = program.is_stopping.is_set()
    return Ending(0, "it was asked to end") if is_wanted else Ending(_FAILED, "it was interrupted")


def _work(job: WorkerJob, program: Program) -> Ending | None:
    """Play until the run is over; return None if a signal interrupts. Raises ArkmlError."""
    report = program.report
    address = Address.parse(job.hive, job.token)
    with HiveClient(lambda: address) as client:
        details = client.details(job.run_id).result()
        if details.run.status in OVER:
            return Ending(0, f"run {job.name!r} is over: it is {details.run.status}")
        data = module_bytes(job, client)
    limits, grant = Limits(**job.limits), _grant(job, details)  # type: ignore[arg-type]
    wasi = QUIET_GRANT if job.wasi else None
    with Host(
        seed=job.seed, limits=limits, hive=grant, threads=1, imports=job.imports, wasi=wasi
    ) as made:
        module = compile_for(job, made, data)
        task = find_task(module, job.arguments, job.seed)
        budget = task.budget(is_set=job.budgets_every_call)
        hives = hives_of(made)
        assert hives is not None
        renewal = None
        if job.max_episode_steps is not None:
            hives.limit = StepLimit(job.max_episode_steps)
            renewal = Renewal(hives.limit, job.seed)
        runner = make_runner(
            made, module, task, instances=job.instances, budget=budget, renewal=renewal
        )
        report({"event": "ready", "pid": os.getpid()})
        with WorkerWatch(job, hives, runner.subject, report) as watch:
            reloads = WorkerReloads(job, made, runner, program.messages, report)
            ending = _play(job, runner, reloads, hives, watch, is_repeatable=task.is_repeatable)
            _ignore_signals()
    watch.report()  # the counts after the last rows were delivered
    return ending


def _play(
    job: WorkerJob,
    runner: TaskRunner,
    reloads: WorkerReloads,
    hives: HiveAccess,
    watch: WorkerWatch,
    *,
    is_repeatable: bool,
) -> Ending | None:
    """Step the guest until the watch ends it, or a signal. Raises the errors of the guest."""
    try:
        runner.initialize(job.seed)
        pacer = None if job.fps is None else Pacer(job.fps)
        while watch.ending is None:
            reloads.step()
            if not is_repeatable:
                return Ending(0, f"{job.module_name} ran to its end")
            if hives.is_training:
                watch.frames += 1
            elif pacer is None:
                time.sleep(_IDLE)
            if pacer is not None:
                pacer.wait()
    except KeyboardInterrupt:
        return watch.ending
    except GuestError:
        if (refusal := watch.refusal()) is not None:  # by which a guest may have trapped
            return refusal
        raise
    return watch.ending


def _grant(job: WorkerJob, details: RunDetails) -> HiveGrant:
    """Return the permission to take part in the run of a job, with the settings of the run."""
    values = details.settings.as_json()
    settings: LearnerSettings = {n: v for n, v in values.items() if n not in _FIXED}  # type: ignore[assignment]
    return HiveGrant(
        hive=job.hive,
        token=job.token,
        settings=settings,
        wait_for_learner=job.fps is None,
        shared=True,
        join_run=job.run_id,
    )


def _leave() -> None:
    """End this process as SIGTERM does."""
    os.kill(os.getpid(), signal.SIGTERM)


def _ignore_signals() -> None:
    """Let no signal interrupt the end, which takes seconds at most."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)


if __name__ == "__main__":
    sys.exit(run_program(main, _leave))
