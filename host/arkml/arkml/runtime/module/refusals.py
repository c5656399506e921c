"""Checks that refuse well-formed modules with features or sizes that this host does not accept."""

from __future__ import annotations

import math
from collections.abc import Sequence

from arkml.errors import (
    FunctionTooLarge,
    MemoryLimitExceeded,
    ModuleRejected,
    ModuleTooLarge,
    TableLimitExceeded,
)
from arkml.limits import Limits
from arkml.runtime.module.binary import Binary
from arkml.runtime.module.wasm_types import PAGE, MemoryType, TableType


def check_size(data: bytes, limits: Limits) -> None:
    """Raise ModuleTooLarge for more bytes than allowed, before any of them is parsed."""
    if len(data) > limits.module_bytes:
        raise ModuleTooLarge(
            f"the module has {len(data):,} bytes, more than the {limits.module_bytes:,} allowed"
        )


def check(binary: Binary, limits: Limits) -> None:
    """Raise an error for the first part of a module that this host does not accept."""
    bodies = binary.bodies
    if bodies.largest_size > limits.function_bytes:
        raise FunctionTooLarge(
            f"function {bodies.largest} has {bodies.largest_size:,} bytes, "
            f"more than the {limits.function_bytes:,} allowed"
        )
    for memory in binary.memories:
        _check_memory(memory)
    if len(binary.memories) > 1:
        raise ModuleRejected(
            f"the module has {len(binary.memories)} memories; this host gives it one"
        )
    _check_tables(binary, limits)
    if binary.memories and (size := binary.first_pages * PAGE) > limits.memory_bytes:
        raise MemoryLimitExceeded(
            f"the module needs {size:,} bytes of memory at start, more than the"
            f" {limits.memory_bytes:,} allowed"
        )


def checked_limits(limits: Limits) -> tuple[int, ...]:
    """Return the limits on which the results of `check_size` and `check` depend."""
    return (
        limits.module_bytes,
        limits.function_bytes,
        limits.memory_bytes,
        limits.tables,
        limits.table_elements,
    )


def table_share(tables: Sequence[TableType], limit: int) -> int:
    """
    Return the number of elements to which each table may grow, for `limit` elements in all.

    wasmtime has one limit for every table. With a limit of 1,000, for example, two tables may have
    500 each, or 900 if the other one has a maximum of 100.
    """
    share, above = 0, limit + 1
    while above - share > 1:
        middle = (share + above) // 2
        grown = (max(t.minimum, min(middle, _most(t))) for t in tables)
        if sum(grown) <= limit:
            share = middle
        else:
            above = middle
    return share


def _most(table: TableType) -> float:
    return math.inf if table.maximum is None else table.maximum


def _check_memory(memory: MemoryType) -> None:
    # An atomic wait on a shared memory ignores deadlines and signals.
    if memory.is_shared:
        raise ModuleRejected(
            "the module has a shared memory; this host runs one thread for each guest"
        )
    if memory.is_64:
        raise ModuleRejected("the module has a 64-bit memory; its pointers must have 32 bits")
    if memory.page_size != PAGE:
        raise ModuleRejected(
            f"the memory has pages of {memory.page_size} bytes; this host supports {PAGE}"
        )


def _check_tables(binary: Binary, limits: Limits) -> None:
    if len(binary.tables) > limits.tables:
        raise TableLimitExceeded(
            f"the module has {len(binary.tables):,} tables, more than the {limits.tables:,} allowed"
        )
    elements = sum(table.minimum for table in binary.tables)
    if elements > limits.table_elements:
        raise TableLimitExceeded(
            f"the module needs {elements:,} table elements at start, "
            f"more than the {limits.table_elements:,} allowed"
        )
