"""How a hive is served."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from arkml.hive.protocol.runs import DEFAULT_PORT

LEARNER = ("-m", "arkml.learning.worker")
"""The learner, as arguments of the Python that serves."""


@dataclass(frozen=True, slots=True)
class Patience:
    """
    How long a hive waits, in seconds.

    `lease`: a session without contact for so long has left. `pause`: a run without sessions for
    so long is paused. `idle_stop`: for so long, it is stopped. `start`: a learner says hello in
    this time. `hang`: a learner that tells no progress for so long is ended. `stop`: a learner
    has so long for its last checkpoint. `opening`: a directory in use is free within this time.
    """

    lease: float = 30.0
    pause: float = 60.0
    idle_stop: float = 600.0
    start: float = 90.0
    hang: float = 30.0
    stop: float = 5.0
    opening: float = 10.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """
    How a hive is served.

    `data` is its directory. `port` 0 takes any. Without a `token` it answers everybody who
    reaches it. `allow_hosts` are names that it answers to besides: at a loopback address those of
    loopback, elsewhere any unless there are some here. `spare` keeps a learner ready that has
    imported everything. `device` is where runs learn that leave it open. `memory_max_size` caps
    that of every run, 0 for no cap. `segment_bytes` is how much of a log is allocated at once.
    """

    data: Path
    host: str = "127.0.0.1"
    port: int = DEFAULT_PORT
    token: str = ""
    allow_hosts: tuple[str, ...] = ()
    spare: bool = True
    device: str = "auto"
    memory_max_size: int = 0
    segment_bytes: int = 64 << 20
    patience: Patience = Patience()
    learner: tuple[str, ...] = LEARNER
