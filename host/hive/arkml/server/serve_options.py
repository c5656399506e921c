"""Options of a hive that is served."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from arkml.hive.notifier import NotifyOptions
from arkml.hive.protocol.runs import DEFAULT_PORT
from arkml.hive.protocol.watch_messages import PLAYER
from arkml.workers.placement import RunnerName

LEARNER = ("-m", "arkml.learning.worker")
"""The learner, as arguments of the Python that serves."""

ROLLOUT_WORKER = "arkml.training.rollout_worker"
"""The program of a rollout worker, a module of Python."""


@dataclass(frozen=True, slots=True)
class Timeouts:
    """
    Times that a hive waits, in seconds.

    Attributes:
        lease: A session without a request has left after this time.
        pause: A run without sessions is paused after this time.
        back: Hosts come back to a hive that was started again within this time; a run without any
            gives its learner to one that waits.
        idle_stop: A run without sessions is stopped after this time.
        start: A learner sends its first message within this time.
        hang: A learner that reports no progress for this time is ended.
        restart: A learner that has ended is started again after this time, the next ones after
            twice and four times as long.
        stop: A learner that is stopped has this time for its last checkpoint.
        opening: A data directory that another hive uses has to become free within this time.
        spare: The spare learner that a run has taken is replaced this long after the run has begun
            to learn.

    """

    lease: float = 30.0
    pause: float = 60.0
    back: float = 10.0
    idle_stop: float = 600.0
    start: float = 90.0
    hang: float = 30.0
    restart: float = 1.0
    stop: float = 5.0
    opening: float = 10.0
    spare: float = 20.0


@dataclass(frozen=True, slots=True)
class WorkerOptions:
    """
    The rollout workers that a hive starts for runs, and the modules that it stores for them.

    Attributes:
        total: The largest number of workers.
        per_run: The largest number of workers of one run; 0 for `total`.
        runner: Where workers run: as local processes, or on a Ray cluster.
        ray_address: The address of the Ray cluster; None to start one on this machine.
        minutes: Minutes for which workers continue without any other session in their run.
        module_bytes: The largest size of a module in bytes.
        modules: The number of modules that are kept.
        start: Seconds within which the first worker of a run is ready.
        program: The Python module of a worker.

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
class WatchOptions:
    """
    The players that a hive starts for people who watch a policy, each a process with a guest.

    Attributes:
        total: Largest number of players at one time. With 0 the hive starts none, and keeps no
            modules for them.
        linger: Seconds for which a player continues after its last watcher has left.
        start: Seconds within which a player must send its first line.
        hang: Seconds without a further line after which a player is ended.
        record: Seconds that a recording may take.
        program: The Python module of a player.

    """

    total: int = 4
    linger: float = 2.0
    start: float = 60.0
    hang: float = 20.0
    record: float = 300.0
    program: str = PLAYER


@dataclass(frozen=True, slots=True)
class ServerLimits:
    """
    The limits of resources that clients can make a hive use. A limit of 0 is off.

    Attributes:
        learners: Learners that run at one time; the runs of further ones are Pending.
        memory_bytes: Memory that all learners take together.
        runs: Runs in the data directory, whether they have ended or not.
        disk_bytes: Bytes that the directories of all runs take together.
        sessions: Sessions at one time, without rollout workers' sessions.
        sessions_per_run: Sessions of one run, without rollout workers' sessions. As many sessions
            that have left are remembered.
        session_hours: Hours for which a session that has left is remembered.
        connections: Connections at one time.
        header_seconds: Seconds that the header of a request may take.
        header_bytes: Bytes that the header of a request may have.
        body_seconds: Seconds that a body may pause, and after which `body_rate` applies.
        body_rate: Bytes a second at which a body has to arrive on average.
        body_bytes: Bytes of all bodies that are being received.

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

    Attributes:
        data: The data directory.
        host: The address to listen at.
        port: The port to listen at; 0 takes a free one.
        token: The operator's token. Without it, and without tokens in the directory, every request
            of this machine is answered.
        allow_hosts: Host names that requests may use in addition. A hive at a loopback address
            accepts loopback's names and these; at another address it accepts any name if there are
            none here.
        tls_cert: The certificate for TLS, a PEM file. Empty for HTTP.
        tls_key: The key of the certificate, a PEM file.
        public_url: The URL by which clients know the hive, for example the URL of a proxy, or the
            name in its own certificate. Empty for none.
        trusted_proxies: Addresses and networks whose headers X-Forwarded-For, -Host and -Proto are
            believed.
        spare: Keep one more learner ready, which has imported everything.
        device: The device of runs that do not name one.
        memory_max_size: The largest number of rows that any run keeps, 0 for no limit.
        segment_bytes: The size of a segment of a log, which is allocated at once.
        timeouts: The seconds after which a hive pauses or stops runs, and gives up waiting.
        learner: The arguments for Python that start a learner.
        workers: The rollout workers that runs may have.
        watches: The players for people who watch.
        limits: The limits of all that clients ask for.
        notify: The receivers of notices about runs.

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
    watches: WatchOptions = WatchOptions()
    limits: ServerLimits = ServerLimits()
    notify: NotifyOptions = field(default_factory=NotifyOptions)
