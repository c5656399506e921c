"""Table of module `arkml-wasi`: the WASI calls that the host answers instead of wasmtime."""

from __future__ import annotations

from arkml.abi.schema import U32, U64, Api, Function, Outcome, Param

WASI = Api(
    module="arkml-wasi",
    prefix="",
    doc="Implementations of the WASI calls that would block the host's thread, and of those that "
    "an environment answers from its seed.",
    functions=(
        Function(
            "poll_oneoff",
            "Wait until one of the subscriptions has an event. `now` is the guest's monotonic "
            "clock in nanoseconds.",
            (
                Param("subscriptions", U32),
                Param("events", U32),
                Param("count", U32),
                Param("num_events", U32),
                Param("now", U64),
            ),
            returns=U32,
            outcome=Outcome.VALUE,
        ),
        Function(
            "sched_yield",
            "Let other guests run.",
            returns=U32,
            outcome=Outcome.VALUE,
        ),
        Function(
            "fd_read",
            "Read from standard input into a list of buffers.",
            (
                Param("fd", U32),
                Param("buffers", U32),
                Param("count", U32),
                Param("num_read", U32),
            ),
            returns=U32,
            outcome=Outcome.VALUE,
        ),
        Function(
            "fd_write",
            "Write a list of buffers to standard output or standard error.",
            (
                Param("fd", U32),
                Param("buffers", U32),
                Param("count", U32),
                Param("num_written", U32),
            ),
            returns=U32,
            outcome=Outcome.VALUE,
        ),
        Function(
            "clock_time_get",
            "Read a clock of an environment, in nanoseconds.",
            (Param("clock", U32), Param("precision", U64), Param("time", U32)),
            returns=U32,
            outcome=Outcome.VALUE,
        ),
        Function(
            "random_get",
            "Fill a buffer with random bytes that an environment draws from its seed.",
            (Param("buffer", U32), Param("size", U32)),
            returns=U32,
            outcome=Outcome.VALUE,
        ),
    ),
)
