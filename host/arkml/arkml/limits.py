"""Limits on the resources of one guest, all on by default and each with its own error."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from enum import Enum
from numbers import Real
from typing import Any, Final, Literal, Self, SupportsIndex, TypeAlias, get_args

import numpy as np

from arkml.base.short_reprs import cut_repr
from arkml.errors import ArkmlError, UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

PLAYER_AREAS: Final = 1_024
"""Number of instances of a guest that one player of ML-Agents may have."""


MOST_THREADS: Final = 256
"""Number of threads that a host may have."""

Backend: TypeAlias = Literal["onnxruntime", "wasm"]
Threads: TypeAlias = SupportsIndex | Literal["auto"]
"""A number of threads, or "auto" for the processors that the process may use."""

_OF_A_FRAME = 0.24
"""The part of a frame that one guest may run in a game: 4 ms at 60 frames a second."""

TIMES = frozenset({"run_seconds", "call_seconds", "start_seconds"})
"""The limits that are times in seconds and may be None; all others are whole numbers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Limits of one guest.

    Sizes are in bytes, times in seconds. Raises UsageError for a value of a wrong type or range.

    Attributes:
        module_bytes: Size of a module.
        function_bytes: Size of one function body.
        memory_bytes: Wasm memory of the guest.
        tables: Number of tables.
        table_elements: Elements of the tables.
        instances: Number of guests of a host.
        handles: Live handles of the guest.
        futures: Live futures of the guest.
        rows: Rows of one batch.
        metadata_bytes: Metadata of one batch.
        column_bytes: Column memory of the sessions of the guest.
        snapshot_bytes: Size of a snapshot, of all snapshots in use together, and of the bytes that
            the guest hands over in one call.
        wasm_stack: Stack of the guest.
        run_seconds: Time budget of one call: its wasm and the work of the host on its behalf,
            without policies of the embedder and waits. None sets no budget.
        text_bytes: Size of one text.
        log_bytes: Size of one log message; a longer one is cut, with a note.
        descriptors: Files and directories of WASI open at once, with the three streams.
        call_seconds: Time of one call including the waits that the guest asks for; it does not hold
            for cmdlets. None sets no limit.
        guest_bytes: Bytes of one guest together: wasm memory, columns, snapshots, models in use and
            their work space, brains, states of agents, requests to hives with their results, and
            vectors that calls leave.
        host_bytes: Bytes of all guests of a host: their largest possible memories and all their
            other memory. None sets no limit.
        frames_over_share: Frames of the last 20 in which a guest of a fleet may exceed its share of
            the time.
        compile_seconds: Wall time to compile one module.
        nnef_processes: Processes of a host that run NNEF models, each for one model in use.
        requests: Unfinished requests of one guest to hives, including requests whose future it
            dropped.
        start_seconds: Time budget of each initializer, such as `ark_initialize`, where it is more
            than `run_seconds`: a guest may load its model there. None takes `run_seconds`.
        log_lines: Lines that the guest may log in a second; further lines are dropped.

    Example:
        limits = arkml.Limits(memory_bytes=64 << 20, run_seconds=0.1)
        host = arkml.Host(limits=limits)

    """

    module_bytes: int = 64 * MIB
    function_bytes: int = 1 * MIB
    memory_bytes: int = 256 * MIB
    tables: int = 16
    table_elements: int = 1_000_000
    instances: int = 20_000
    handles: int = 4_096
    futures: int = 1_024
    rows: int = 65_536
    metadata_bytes: int = 1 * MIB
    column_bytes: int = 64 * MIB
    snapshot_bytes: int = 64 * MIB
    wasm_stack: int = 512 * KIB
    run_seconds: float | None = 1.0
    text_bytes: int = 1 * MIB
    log_bytes: int = 64 * KIB
    descriptors: int = 256
    call_seconds: float | None = 30.0
    guest_bytes: int = 1536 * MIB
    host_bytes: int | None = None
    frames_over_share: int = 5
    compile_seconds: float = 30.0
    nnef_processes: int = 4
    requests: int = 32
    start_seconds: float | None = None
    log_lines: int = 1_000

    @classmethod
    def game(cls, fps: float = 60) -> Self:
        """
        Return strict limits for mods: guests by strangers that run in the frames of a game.

        At 60 frames a second a guest may run for 4 ms a frame, a quarter of the frame, and may wait
        for two frames; other rates give the same fractions. It has 16 MiB of wasm memory, 32 MiB in
        all, and 10 lines of log a second. Its initializers have a second, so that it can load its
        model there and not in a frame. A guest that spins is ended at the end of its turn, within
        20 ms.

        `dataclasses.replace` changes some of them. Raises UsageError for a rate that is not above
        0.

        Example:
            host = arkml.Host(limits=arkml.Limits.game(fps=30))

        """
        rate = real_number(fps)
        if rate is None or not 0 < rate < math.inf:
            raise UsageError(
                f"fps is {cut_repr(fps)}: it takes a number of frames a second above 0"
            )
        return cls(
            module_bytes=16 * MIB,
            memory_bytes=16 * MIB,
            guest_bytes=32 * MIB,
            column_bytes=4 * MIB,
            snapshot_bytes=8 * MIB,
            table_elements=100_000,
            handles=256,
            futures=64,
            requests=4,
            rows=4_096,
            metadata_bytes=64 * KIB,
            text_bytes=16 * KIB,
            log_bytes=1 * KIB,
            log_lines=10,
            descriptors=16,
            nnef_processes=1,
            run_seconds=_OF_A_FRAME / rate,
            start_seconds=1.0,
            call_seconds=2 / rate,
        )

    def __post_init__(self) -> None:
        """Check every limit, and store it as an int or float (a numpy integer, for example)."""
        for field in fields(self):
            value = getattr(self, field.name)
            kept: float | None
            if field.name == "compile_seconds":
                kept = real_number(value)
                is_valid = kept is not None and 0 < kept < math.inf
                expected = "a number of seconds above 0"
            elif field.name in TIMES:
                kept = real_number(value)
                is_valid = value is None or (kept is not None and kept > 0)
                expected = "a number of seconds above 0, or None"
            elif value is None and field.name == "host_bytes":
                continue
            else:
                kept = whole_number(value)
                is_valid = kept is not None and 0 <= kept < 1 << 63
                expected = "a whole number from 0 to 2**63 - 1"
            if not is_valid:
                raise UsageError(f"Limits.{field.name} is {cut_repr(value)}: it takes {expected}")
            object.__setattr__(self, field.name, kept)


class DefaultBudget(Enum):
    """The type of the constant `RUN_SECONDS`, which stands for the default budget of a call."""

    RUN_SECONDS = "Limits.run_seconds"

    def __repr__(self) -> str:
        return "RUN_SECONDS"


RUN_SECONDS: Final = DefaultBudget.RUN_SECONDS
"""The default time budget of a call: `Limits.run_seconds` of the host."""

Budget: TypeAlias = float | Literal[DefaultBudget.RUN_SECONDS] | None
"""Seconds that a guest may run in one call; None: no limit."""


def budget_seconds(budget: Budget) -> float | None:
    """Return the budget of one call in seconds. Raises UsageError for a negative budget."""
    if budget is None:
        return None
    seconds = real_number(budget)
    if seconds is None or seconds < 0:
        raise UsageError(
            f"budget is {cut_repr(budget)}: it takes a number of seconds from 0, or None"
        )
    return seconds


def whole_number(value: object) -> int | None:
    """
    Return a whole number of Python or numpy as an int, None for anything else.

    A bool does not count: it usually stands in for another argument.
    """
    if isinstance(value, bool):
        return None
    try:
        return operator.index(value)  # type: ignore[arg-type]  # a TypeError is meant
    except TypeError:
        return None


def real_number(value: object) -> float | None:
    """Return a number of Python or numpy as an int or float; None for others, such as NaN."""
    # numpy counts spans of time among the integers.
    if isinstance(value, bool | np.timedelta64) or not isinstance(value, Real):
        return None
    try:
        number = float(value)
    except OverflowError:
        return None
    whole = whole_number(value)
    return None if math.isnan(number) else number if whole is None else whole


def number_of_guests(value: SupportsIndex, sentence: str) -> int:
    """
    Return a number of guests as a Python int, so that no sum or product of it overflows.

    Raises UsageError for anything but a whole number from 1; `sentence` is the message, with {}
    where the value goes, for example "a fleet of {} guests".
    """
    count = whole_number(value)
    if count is None or count < 1:
        raise UsageError(f"{sentence.format(cut_repr(value))}: it takes a whole number, 1 at least")
    return count


def require_whole(
    name: str,
    value: SupportsIndex,
    most: int | None = None,
    *,
    least: int = 1,
    error: type[ArkmlError] = UsageError,
) -> int:
    """
    Return a whole number that is at least `least` and at most `most`, if that is given.

    Raises `error` for anything else; `name` is the name of the value in the message.
    """
    number = whole_number(value)
    if number is None or number < least or (most is not None and number > most):
        end = "" if most is None else f" to {most}"
        raise error(f"{name} is {cut_repr(value)}: it takes a whole number from {least}{end}")
    return number


def keep_whole(record: Any, name: str, most: int | None = None) -> None:
    """Check a field of a frozen dataclass with `require_whole`, and store it as a Python int."""
    object.__setattr__(record, name, require_whole(name, getattr(record, name), most))


def require_seed(value: SupportsIndex) -> int:
    """Return a seed as an int: any whole number. Raises UsageError for anything else."""
    seed = whole_number(value)
    if seed is None:
        raise UsageError(f"seed is {cut_repr(value)}: it takes a whole number")
    return seed


def require_backend(value: Backend) -> Backend:
    """Return the name of a backend that runs models. Raises UsageError for anything else."""
    if value not in get_args(Backend):
        names = " or ".join(map(repr, get_args(Backend)))
        raise UsageError(f"backend is {cut_repr(value)}: it takes {names}")
    return value


def require_flag(name: str, value: bool) -> bool:  # it is what is looked at
    """Return `value` if it is True or False. Raises UsageError for anything else."""
    if not isinstance(value, bool):
        raise UsageError(f"{name} is {cut_repr(value)}: it takes True or False")
    return value


def require_threads(value: Threads) -> int | Literal["auto"]:
    """Return a number of threads, 1 to 256, or "auto". Raises UsageError for anything else."""
    if isinstance(value, str) and value == "auto":
        return "auto"
    number = whole_number(value)
    if number is None or not 1 <= number <= MOST_THREADS:
        raise UsageError(
            f"threads is {cut_repr(value)}: it takes 'auto' or a number from 1 to {MOST_THREADS}"
        )
    return number


def call_limits(limits: Limits, budget: Budget) -> tuple[float | None, float | None]:
    """
    Return the seconds that a call may run, and the seconds that it may take including waits.

    With the defaults these are 1 and 30 seconds, and with a budget of 60, for example, 60 and 60: a
    budget raises the second number if it is larger. A budget of None lifts both. Raises UsageError
    for a negative budget.
    """
    if budget is RUN_SECONDS:
        return limits.run_seconds, limits.call_seconds
    seconds = budget_seconds(budget)
    if seconds is None or limits.call_seconds is None:
        return seconds, None
    return seconds, max(seconds, limits.call_seconds)


def start_budget(limits: Limits, budget: Budget) -> Budget:
    """
    Return the time budget of an initializer.

    It is the budget of a call, or `Limits.start_seconds` if no budget is given and that is more.
    """
    run, start = limits.run_seconds, limits.start_seconds
    if budget is not RUN_SECONDS or run is None or start is None or start <= run:
        return budget
    return start
