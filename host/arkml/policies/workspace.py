"""The memory that the policies of one guest or fleet share beside their models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Protocol
from weakref import WeakSet

import numpy as np

from arkml.batches import Floats
from arkml.errors import Unavailable

BATCH_BYTES = 256 << 20
"""What a host adds to one batch may have so many bytes: noise, masks and recurrent state."""

AGENT_BYTES = 256 << 20
"""What is remembered of the agents of one guest may have so many bytes, in all its policies."""

_ALIGNMENT = 16  # floats: one line of the processor's cache


class Remembering(Protocol):
    """What keeps something of the agents of guests."""

    def held(self, guest: int) -> int:
        """How many bytes are kept of one guest."""


class PolicyWorkspace:
    """
    Arrays that live for one batch, lent to whoever answers it, and a count of what stays.

    A policy fills the arrays anew for each batch, so one memory serves all policies that are used
    by one thread.
    """

    def __init__(self, *, batch_bytes: int = BATCH_BYTES, agent_bytes: int = AGENT_BYTES) -> None:
        self._batch_bytes = batch_bytes
        self._agent_bytes = agent_bytes
        self._work: Floats = np.empty(0, np.float32)
        self._constants: dict[float, Floats] = {}
        self._tables: WeakSet[Remembering] = WeakSet()

    def arrays(self, shapes: Sequence[tuple[int, ...]]) -> list[Floats]:
        """Arrays for one batch. They hold anything, and the next ones lie in the same place."""
        starts = [0]
        for shape in shapes:
            starts.append(starts[-1] + -(-math.prod(shape) // _ALIGNMENT) * _ALIGNMENT)
        if starts[-1] > len(self._work):
            self._work = np.empty(self._grown(len(self._work), starts[-1]), np.float32)
        return [
            self._work[start : start + math.prod(shape)].reshape(shape)
            for start, shape in zip(starts, shapes, strict=False)
        ]

    def constant(self, value: float, shape: tuple[int, ...]) -> Floats:
        """An array of that value, to be read only."""
        size = math.prod(shape)
        flat = self._constants.get(value, self._work[:0])
        if len(flat) < size:
            flat = np.full(self._grown(len(flat), size), value, np.float32)
            self._constants[value] = flat
        return flat[:size].reshape(shape)

    def require_batch(self, rows: int, size: int) -> None:
        """Raise Unavailable if `size` bytes are too many to add to one batch."""
        if size > self._batch_bytes:
            raise Unavailable(
                f"noise, masks and states of {rows} rows take {size} bytes,"
                f" {self._batch_bytes} are allowed"
            )

    def require_agents(self, table: Remembering, guest: int, coming: int) -> None:
        """Raise Unavailable if a guest may not keep `coming` bytes more, in `table`."""
        self._tables.add(table)
        size = coming + sum(each.held(guest) for each in self._tables)
        if size > self._agent_bytes:
            raise Unavailable(
                f"the agents of guest {guest} take {size} bytes, {self._agent_bytes} are allowed"
            )

    def _grown(self, before: int, needed: int) -> int:
        # Those who hold the arrays from before hold no more together than the new one has.
        return max(needed, min(2 * before, self._batch_bytes // 4))
