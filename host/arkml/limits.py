"""Limits on the resources of one guest, all on by default and each with its own error."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from enum import Enum
from typing import Final, Literal, TypeAlias

from arkml.errors import UsageError

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30


@dataclass(frozen=True, slots=True)
class Limits:
    """
    Limits of one guest.

    Sizes are in bytes, times in seconds. `run_seconds` is the time budget of one call: the time
    during which wasm runs, without policies and suspension; None means no budget. Raises
    UsageError for a value of a wrong type or range.
    """

    module_bytes: int = 64 * MIB
    function_bytes: int = 1 * MIB
    memory_bytes: int = 1 * GIB
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

    def __post_init__(self) -> None:
        """Check every limit."""
        for field in fields(self):
            value = getattr(self, field.name)
            if field.name == "run_seconds":
                is_valid = value is None or (isinstance(value, int | float) and value > 0)
                expected = "a number of seconds above 0, or None"
            else:
                is_valid = isinstance(value, int) and 0 <= value < 1 << 63
                expected = "a whole number from 0"
            if not is_valid:
                raise UsageError(f"Limits.{field.name} is {value!r}: it takes {expected}")


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
    raise UsageError(f"budget is {budget!r}: it takes a number of seconds from 0, or None")
