"""Scratch arrays that the policies of one guest or fleet share, with limits on their sizes."""

from __future__ import annotations

import math
import secrets
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol
from weakref import WeakSet

import numpy as np

from arkml.batches import Floats
from arkml.errors import GuestMemoryFull, Unavailable
from arkml.policies.pages import zeros
from arkml.policies.shared_run import Helpers

BATCH_BYTES = 256 << 20
"""Bytes that a host may add to one batch: noise, masks and recurrent states."""

AGENT_BYTES = 256 << 20
"""Bytes that may be kept for the agents of one guest, in all its policies together."""

_NOBODY: Mapping[int, int] = {}

_ALIGNMENT = 16  # floats: one line of the processor's cache


def _never() -> bool:
    return False


class AgentStore(Protocol):
    """An object that keeps recurrent states for the agents of guests."""

    def held(self, guest: int) -> int:
        """Return the bytes kept for the agents of one guest."""


class ArrayUser(Protocol):
    """A policy's batch that uses arrays of a workspace, and drops them when they are replaced."""

    def release(self) -> None:
        """Drop all arrays."""


class PolicyWorkspace:
    """
    Arrays for one batch at a time, and the bytes charged to guests for these and for agents.

    A policy fills the arrays anew for each batch, so one workspace serves all policies that one
    thread uses. The guests whose batch makes arrays larger are charged for the growth, in
    proportion to their rows, if they brought the model; the arrays keep their size for the next
    batch. Once a guest that was charged has left, arrays are made anew, and charged to the guests
    of each batch. Users added with `add_user` drop their arrays before these are replaced.

    Attributes:
        run_seconds: Seconds of wall time that the next run of a policy may take, if that is less
            than its model allows.
        is_interrupted: Returns True if the run in progress should be given up.
        stopped: Reasons why models of guests must not be run again, by their digests.
        refused: Number of the guest that lacked the memory for its part of the latest refused run.
        helpers: The threads that may help with a run.
        salt: A secret salt of the hashes by which agents are found; all tables share it, so that
            agents can move.

    """

    def __init__(
        self,
        *,
        batch_bytes: int = BATCH_BYTES,
        agent_bytes: int = AGENT_BYTES,
        helpers: Helpers | None = None,
    ) -> None:
        self.helpers = helpers or Helpers()
        self.salt = secrets.randbits(64)
        self._batch_bytes = batch_bytes
        self._agent_bytes = agent_bytes
        self._work: Floats = np.empty(0, np.float32)
        self._constants: dict[float, Floats] = {}
        self._tables: WeakSet[AgentStore] = WeakSet()
        self._users: WeakSet[ArrayUser] = WeakSet()
        self._work_bytes: dict[int, int] = {}
        self._is_surplus = False  # True after a guest that paid for arrays has left
        self.run_seconds = math.inf
        self.is_interrupted: Callable[[], bool] = _never
        self.stopped: dict[bytes, str] = {}
        self.require_bytes: dict[int, Callable[[int], None]] = {}
        self.refused: int | None = None

    def require_runnable(self, snapshot: bytes) -> None:
        """Raise Unavailable if a run of the model with this digest was stopped before."""
        reason = self.stopped.get(snapshot)
        if reason is not None:
            raise Unavailable(f"{reason} before: it is not run again")

    def arrays(
        self, shapes: Sequence[tuple[int, ...]], payers: Mapping[int, int] = _NOBODY
    ) -> list[Floats]:
        """
        Return arrays for one batch, float32, of the given shapes: [*shape] each.

        Their content is undefined, and the next call returns arrays in the same memory. payers: the
        number of rows of each guest that is charged. Raises GuestMemoryFull.
        """
        starts = [0]
        for shape in shapes:
            starts.append(starts[-1] + -(-math.prod(shape) // _ALIGNMENT) * _ALIGNMENT)
        self._drop_surplus()
        if starts[-1] > len(self._work):
            self._work = self._larger(self._work, starts[-1], payers)
        return [
            self._work[start : start + math.prod(shape)].reshape(shape)
            for start, shape in zip(starts, shapes, strict=False)
        ]

    def constant(
        self, value: float, shape: tuple[int, ...], payers: Mapping[int, int] = _NOBODY
    ) -> Floats:
        """Return a read-only array filled with `value`: float32, [*shape]. Raises as `arrays`."""
        self._drop_surplus()
        size = math.prod(shape)
        flat = self._constants.get(value, self._work[:0])
        if len(flat) < size:
            flat = self._larger(flat, size, payers)
            flat.fill(value)
            self._constants[value] = flat
        return flat[:size].reshape(shape)

    def add_user(self, user: ArrayUser) -> None:
        """Register a user, which must drop its arrays before larger ones replace them."""
        self._users.add(user)

    def work_bytes(self, guest: int) -> int:
        """Return the bytes of arrays that a guest is charged for."""
        return self._work_bytes.get(guest, 0)

    def leave(self, guest: int) -> None:
        """
        Forget what a guest was charged for. A finalizer may call it.

        The arrays stay until the next batch, since a run may be using them.
        """
        self.require_bytes.pop(guest, None)
        if self._work_bytes.pop(guest, 0):
            self._is_surplus = True

    def renew(self) -> None:
        """Make all arrays anew for the next batch, and charge its guests for them."""
        self._is_surplus = True

    def require_batch(self, rows: int, size: int) -> None:
        """Raise Unavailable if `size` bytes exceed the limit for a batch of `rows` rows."""
        if size > self._batch_bytes:
            raise Unavailable(
                f"noise, masks and states of {rows} rows take {size} bytes,"
                f" {self._batch_bytes} are allowed"
            )

    def require_agents(self, table: AgentStore, guest: int, coming: int) -> None:
        """Raise Unavailable if `coming` more bytes in `table` would exceed a guest's limit."""
        self.add_table(table)
        size = coming + self.held(guest)
        if coming > 0:
            self._require(guest, coming)
        if size > self._agent_bytes:
            self.refused = guest
            raise Unavailable(
                f"the agents of guest {guest} take {size} bytes, {self._agent_bytes} are allowed"
            )

    def add_table(self, table: AgentStore) -> None:
        """Include the agents in `table` in the counts."""
        self._tables.add(table)

    def held(self, guest: int) -> int:
        """Return the bytes kept for the agents of one guest."""
        tables = self._tables  # none in most hosts of environments; to iterate takes a guard
        return sum(each.held(guest) for each in tables) if len(tables) else 0

    def _drop_surplus(self) -> None:
        """Let go of all arrays if some of them were paid for by guests that have left."""
        if self._is_surplus:
            self._is_surplus = False
            self._release()
            self._work = np.empty(0, np.float32)
            self._constants.clear()
            self._work_bytes.clear()

    def _larger(self, before: Floats, needed: int, payers: Mapping[int, int]) -> Floats:
        """Return an array of `needed` floats or more, and have `payers` pay for the difference."""
        size = max(needed, min(2 * len(before), self._batch_bytes // 4))
        self._charge(before.itemsize * (size - len(before)), payers)
        self._release()
        return zeros((size,))

    def _charge(self, size: int, payers: Mapping[int, int]) -> None:
        total = sum(payers.values())
        shares = {guest: -(-size * rows // total) for guest, rows in payers.items() if rows}
        for guest, share in shares.items():
            self._require(guest, share)
        for guest, share in shares.items():
            if guest in self.require_bytes:
                self._work_bytes[guest] = self.work_bytes(guest) + share

    def _require(self, guest: int, size: int) -> None:
        """Raise GuestMemoryFull if a guest may not have as many bytes more."""
        if guest in self.require_bytes:
            try:
                self.require_bytes[guest](size)
            except GuestMemoryFull:
                self.refused = guest
                raise

    def _release(self) -> None:
        users = list(self._users)
        self._users.clear()
        for user in users:
            user.release()
