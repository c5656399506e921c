"""Options of a hive that is served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arkml.hive.protocol.runs import DEFAULT_PORT
from arkml.workers.placement import RunnerName

LEARNER = ("-m", "arkml.learning.worker")
"""The learner, as arguments of the Python that serves."""

ROLLOUT_WORKER = "arkml.training.rollout_worker"
"""The program of a rollout worker, a module of Python."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """
    Times that a hive waits, in seconds.

    After `lease` without a request a session has left. After `pause` without sessions a run is
    paused, after `idle_stop` it is stopped. A learner sends its first message within `start`; one
    that reports no progress for `hang` is ended, and one that is stopped has `stop` for its last
    checkpoint. A data directory that another hive uses is free within `opening`. The spare learner
    that a run has taken is replaced `spare` after that run has begun to learn.
    """

    lease: float = 30.0
    pause: float = 60.0
    idle_stop: float = 600.0
    start: float = 90.0
    hang: float = 30.0
    stop: float = 5.0
    opening: float = 10.0
    spare: float = 20.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """
    The rollout workers that a hive starts for runs, and the modules that it takes for them.

    There are `total` workers at most, and `per_run` for one run, 0 for no limit but the total. They
    run as local processes or on the Ray cluster at `ray_address`, a cluster of this machine if that
    is None. Workers continue for `minutes` without any other session in their run. A module has
    `module_bytes` at most, and `modules` of them are kept. The first worker of a run is ready
    within `start` seconds. `program` is the module of Python that is started.
    """

    total: int = 0
    per_run: int = 0
    runner: RunnerName = "processes"
    ray_address: str | None = None
    minutes: float = 60.0
    module_bytes: int = 64 << 20
    modules: int = 64
    start: float = 45.0
    program: str = ROLLOUT_WORKER

    @property
    def most_per_run(self) -> int:
        """The largest number of workers of one run."""
        return min(self.per_run or self.total, self.total)


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """
    The limits of what clients make a hive keep, start and wait for. A limit of 0 is off.

    `learners` run at one time, and take `memory_bytes` in all; the runs of other ones are Pending.
    There are `runs` runs at most, over or not, and their directories take `disk_bytes`. There are
    `sessions` at one time, and `sessions_per_run` in one run, besides those of rollout workers; as
    many that have left a run are remembered, for `session_hours` at most.

    A hive has `connections` at one time. A request has `header_seconds` for its header of at most
    `header_bytes`. Its body arrives without a pause of `body_seconds`, and after that time at
    `body_rate` bytes a second at least. All bodies that are being received take `body_bytes`.
    """

    learners: int = 0
    memory_bytes: int = 0
    runs: int = 1_024
    disk_bytes: int = 0
    sessions: int = 1_024
    sessions_per_run: int = 256
    session_hours: float = 24.0
    connections: int = 4_096
    header_seconds: float = 10.0
    header_bytes: int = 64 << 10
    body_seconds: float = 30.0
    body_rate: int = 16 << 10
    body_bytes: int = 256 << 20


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """
    The address of a hive, and its limits.

    `data` is its directory. `port` 0 takes any that is free. `token` is the operator's; without it,
    and without tokens in the directory, every request of this machine is answered. `allow_hosts`
    are names that requests may ask for besides: at a loopback address those of loopback, elsewhere
    any name unless there are some here. With `spare` one learner more is kept ready, which has
    imported everything. With `tls_cert` and `tls_key`, files in the format PEM, the hive speaks
    TLS. `public_url` is the URL by which clients know the hive, empty for none: that of a proxy, or
    of its own certificate. `trusted_proxies` are the addresses and networks from which the headers
    X-Forwarded-For, -Host and -Proto are believed. `device` is that of runs that leave it open.
    `memory_max_size` caps the rows that every run keeps, 0 for no cap. `segment_bytes` is the part
    of a log that is allocated at once. `learner` are the arguments for Python that start a learner.
    `workers` are the rollout workers that runs may have, `limits` bound all that clients ask for.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str = ""
    allow_hosts: tuple[str, ...] = ()
    tls_cert: Path | None = None
    tls_key: Path | None = None
    public_url: str = ""
    trusted_proxies: tuple[str, ...] = ()
    spare: bool = True
    device: str = "auto"
    memory_max_size: int = 0
    segment_bytes: int = 64 << 20
    timeouts: Timeouts = Timeouts()
    learner: tuple[str, ...] = LEARNER
    workers: WorkerOptions = WorkerOptions()
    limits: ServerLimits = ServerLimits()
