"""Options of `arkml hive serve` that limit the resources that clients can make a hive use."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Annotated

import typer

from arkml.cli.values import rate, read_count, whole_number
from arkml.errors import UsageError
from arkml.limits import MIB

if TYPE_CHECKING:
    from arkml.server.serve_options import ServerLimits

_MOST = 1_000_000
_LEAST_SIZE = 256 * MIB
"""Less than one run needs: a segment of rows, or a learner."""

MaxLearners = Annotated[
    int | None,
    typer.Option(
        metavar="N",
        parser=whole_number("--max-learners", 1, _MOST),
        help="Learners at one time; the runs of others are pending, in order.",
        show_default="half the cores",
    ),
]
MaxMemory = Annotated[
    str | None,
    typer.Option(
        metavar="SIZE", help="Memory of all learners, as 8GiB; the largest beyond it is ended."
    ),
]
MaxRuns = Annotated[
    int,
    typer.Option(
        metavar="N", parser=whole_number("--max-runs", 1, _MOST), help="Runs that are kept."
    ),
]
MaxDisk = Annotated[
    str | None,
    typer.Option(metavar="SIZE", help="Space on disk of all runs; rows beyond it are refused."),
]
MaxSessions = Annotated[
    int,
    typer.Option(
        metavar="N", parser=whole_number("--max-sessions", 1, _MOST), help="Sessions at one time."
    ),
]
MaxSessionsARun = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole_number("--max-sessions-a-run", 1, _MOST),
        help="Sessions of one run at one time.",
    ),
]
SessionHours = Annotated[
    float,
    typer.Option(
        metavar="H",
        parser=rate("--session-hours", 0.1, 10_000),
        help="Forget a session that was silent for that long.",
    ),
]
Watches = Annotated[
    int,
    typer.Option(
        metavar="N",
        parser=whole_number("--watches", 0, 1_024),
        help="Versions that people watch or record at one time, each in a process; 0: none.",
    ),
]
HeaderTimeout = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        parser=rate("--header-timeout", 0.1, 3_600),
        help="Time for the header of a request.",
    ),
]
BodyTimeout = Annotated[
    float,
    typer.Option(
        metavar="SECONDS",
        parser=rate("--body-timeout", 0.1, 3_600),
        help="Longest pause of the body of a request.",
    ),
]


def server_limits(
    learners: int | None,
    memory: str | None,
    runs: int,
    disk: str | None,
    sessions: tuple[int, int, float],
    timeouts: tuple[float, float],
) -> ServerLimits:
    """
    Return the limits of a hive, for `arkml hive serve`.

    Args:
        learners: Learners that run at one time, None for the default.
        memory: Memory of all learners, for example "8GiB", None for no limit.
        runs: Runs in the data directory.
        disk: Bytes of all runs, for example "100GiB", None for no limit.
        sessions: The most sessions of the hive, the most sessions of one run, and the hours for
            which a session that has left is remembered.
        timeouts: Seconds that a header may take, and seconds that a body may pause.

    Raises:
        UsageError: A limit is out of range.

    """
    from arkml.cli.training_process import default_jobs
    from arkml.server.serve_options import ServerLimits

    if memory is not None and sys.platform != "linux":
        raise UsageError("--max-memory: the memory of processes is measured on Linux only")
    return ServerLimits(
        learners=learners or default_jobs(),
        memory_bytes=_size("--max-memory", memory),
        runs=runs,
        disk_bytes=_size("--max-disk", disk),
        sessions=sessions[0],
        sessions_per_run=sessions[1],
        session_hours=sessions[2],
        header_seconds=timeouts[0],
        body_seconds=timeouts[1],
    )


def _size(option: str, text: str | None) -> int:
    """Return a number of bytes, 0 for None. Raises UsageError for less than one run needs."""
    if text is None:
        return 0
    count = read_count(option, text)
    if count < _LEAST_SIZE:
        raise UsageError(f"{option} {text}: it takes 256MiB at least")
    return count
