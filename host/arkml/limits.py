"""Limits on the resources of one guest, all on by default and each with its own error."""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final, Literal, SupportsIndex, TypeAlias

from arkml.errors import UsageError
from arkml.short_reprs import cut_repr

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30

PLAYER_AREAS: Final = 1_024
"""Number of instances of a guest that one player of ML-Agents may have."""


TIMES = frozenset({"run_seconds", "call_seconds"})
"""The limits that are times in seconds, None for no limit; the others are whole numbers."""


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Limits of one guest.

    Sizes are in bytes, times in seconds. `run_seconds` is the time budget of one call: the time of
    its wasm and of what the host does for it, without policies of the embedder and waits; None
    means no budget. `call_seconds` is the time of one call with the waits that the guest asks for,
    None for no limit; it does not hold for cmdlets. `compile_seconds` is the wall time that
    compiling one module may take. Raises UsageError for a value of a wrong type or range.
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
    """Seconds of one call with the waits that the guest asks for; None: no limit."""
    guest_bytes: int = 1536 * MIB
    """Bytes of one guest: wasm memory, columns, models in use and their work space, brains, states
    of agents, requests to hives with their results, and vectors that calls leave, together."""
    host_bytes: int | None = None
    """Bytes of all guests of a host: what their memories may have and what else they have."""
    frames_over_share: int = 5
    """Frames of the last 20 in which a guest of a fleet may be over its share of the time."""
    compile_seconds: float = 30.0
    nnef_processes: int = 4
    """Processes of a host in which models of NNEF run, each for one model that is in use."""
    requests: int = 32
    """Requests of one guest to hives that are not done, also those whose future it dropped."""

    def __post_init__(self) -> None:
        """Check every limit."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "compile_seconds":
                is_valid = isinstance(value, int | float) and 0 < value < math.inf
                expected = "a number of seconds above 0"
            elif field.name in TIMES:
                is_valid = value is None or (isinstance(value, int | float) and value > 0)
                expected = "a number of seconds above 0, or None"
            elif value is None and field.name == "host_bytes":
                continue
            else:
                is_valid = isinstance(value, int) and 0 <= value < 1 << 63
                expected = "a whole number from 0"
            if not is_valid:
                raise UsageError(f"Limits.{field.name} is {cut_repr(value)}: it takes {expected}")


class DefaultBudget(Enum):
    """Type of `RUN_SECONDS`."""

    RUN_SECONDS = "Limits.run_seconds"

    def __repr__(self) -> str:
        return "RUN_SECONDS"


RUN_SECONDS: Final = DefaultBudget.RUN_SECONDS
"""The default time budget of a call: `Limits.run_seconds` of the host."""

Budget: TypeAlias = float | Literal[DefaultBudget.RUN_SECONDS] | None
"""Seconds that a guest may run in one call; None: no limit."""


def budget_seconds(budget: Budget) -> float | None:
    """Return a budget that was given for one call. Raises UsageError for a negative one."""
    if budget is None or (
        isinstance(budget, int | float) and not math.isnan(budget) and budget >= 0
    ):
        return budget
    raise UsageError(f"budget is {cut_repr(budget)}: it takes a number of seconds from 0, or None")


def number_of_guests(value: SupportsIndex, sentence: str) -> int:
    """
    Return a number of guests as an int, which no sum or product wraps around.

    Raises UsageError for what is not a whole number from 1; `sentence` says it by {}.
    """
    try:
        count = 0 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        count = 0
    if count < 1:
        raise UsageError(f"{sentence.format(cut_repr(value))}: it takes a whole number, 1 at least")
    return count


def require_whole(name: str, value: int, most: int | None = None) -> None:
    """Raise UsageError for a value that is not a whole number from 1, to `most` if given."""
    is_number = isinstance(value, int) and not isinstance(value, bool)
    if not (is_number and value >= 1 and (most is None or value <= most)):
        end = "" if most is None else f" to {most}"
        raise UsageError(f"{name} is {cut_repr(value)}: it takes a whole number from 1{end}")


def call_limits(limits: Limits, budget: Budget) -> tuple[float | None, float | None]:
    """
    Return the seconds that a call may run, and those that it may take with its waits.

    A budget that was given for the call raises the second number to itself, and None lifts both.
    Raises UsageError as `budget_seconds`.
    """
    if budget is RUN_SECONDS:
        return limits.run_seconds, limits.call_seconds
    seconds = budget_seconds(budget)
    if seconds is None or limits.call_seconds is None:
        return seconds, None
    return seconds, max(seconds, limits.call_seconds)
