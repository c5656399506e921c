"""Scratch arrays that the policies of one guest or fleet share, and bounds on what they keep."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Protocol
from weakref import WeakSet

import numpy as np

from arkml.batches import Floats
from arkml.errors import Unavailable

BATCH_BYTES = 256 << 20
"""Bytes that a host may add to one batch: noise, masks and recurrent states."""

AGENT_BYTES = 256 << 20
"""Bytes that may be kept for the agents of one guest, in all its policies together."""

_ALIGNMENT = 16  # floats: one line of the processor's cache


def _never() -> bool:
    return False


class AgentStore(Protocol):
    """Keeps state for the agents of guests."""

    def held(self, guest: int) -> int:
        """Return the bytes kept for one guest."""


class PolicyWorkspace:
    """
    Arrays that live for one batch, and a count of the bytes kept for agents.

    A policy fills the arrays anew for each batch, so one workspace serves all policies that one
    thread uses.

    run_seconds: the seconds of wall time that the next run of a policy may take, where that is less
    than its model allows. is_interrupted: returns True if the run in progress is to be given up.
    stopped: the reasons for which snapshots of guests are not run again, by their digests.
    """

    def __init__(self, *, batch_bytes: int = BATCH_BYTES, agent_bytes: int = AGENT_BYTES) -> None:
        self._batch_bytes = batch_bytes
        self._agent_bytes = agent_bytes
        self._work: Floats = np.empty(0, np.float32)
        self._constants: dict[float, Floats] = {}
        self._tables: WeakSet[AgentStore] = WeakSet()
        self.run_seconds = math.inf
        self.is_interrupted: Callable[[], bool] = _never
        self.stopped: dict[bytes, str] = {}
        self.require_bytes: dict[int, Callable[[int], None]] = {}

    def require_runnable(self, snapshot: bytes) -> None:
        """Raise Unavailable if a run of the snapshot with this digest was stopped."""
        reason = self.stopped.get(snapshot)
        if reason is not None:
            raise Unavailable(f"{reason} before: it is not run again")

    def arrays(self, shapes: Sequence[tuple[int, ...]]) -> list[Floats]:
        """
        Return arrays for one batch, float32, of the given shapes: [*shape] each.

        Their content is undefined, and the next call returns arrays in the same place.
        """
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
        """Return a read-only array filled with `value`: float32, [*shape]."""
        size = math.prod(shape)
        flat = self._constants.get(value, self._work[:0])
        if len(flat) < size:
            flat = np.full(self._grown(len(flat), size), value, np.float32)
            self._constants[value] = flat
        return flat[:size].reshape(shape)

    def require_batch(self, rows: int, size: int) -> None:
        """Raise Unavailable if `size` bytes are over the limit for a batch of `rows` rows."""
        if size > self._batch_bytes:
            raise Unavailable(
                f"noise, masks and states of {rows} rows take {size} bytes,"
                f" {self._batch_bytes} are allowed"
            )

    def require_agents(self, table: AgentStore, guest: int, coming: int) -> None:
        """Raise Unavailable if `coming` bytes more in `table` are over the limit of a guest."""
        self._tables.add(table)
        size = coming + self.held(guest)
        if coming > 0 and guest in self.require_bytes:
            self.require_bytes[guest](coming)
        if size > self._agent_bytes:
            raise Unavailable(
                f"the agents of guest {guest} take {size} bytes, {self._agent_bytes} are allowed"
            )

    def held(self, guest: int) -> int:
        """Return the bytes kept for the agents of one guest."""
        return sum(each.held(guest) for each in self._tables)

    def _grown(self, before: int, needed: int) -> int:
        # Older arrays that are still in use have no more bytes together than the new one.
        return max(needed, min(2 * before, self._batch_bytes // 4))
