"""Scratch arrays that the policies of one guest or fleet share, and bounds on their sizes."""

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
    """Keeps state for the agents of guests."""

    def held(self, guest: int) -> int:
        """Return the bytes kept for one guest."""


class ArrayUser(Protocol):
    """A policy that refers to arrays of a workspace, and lets go of them when they are replaced."""

    def release(self) -> None:
        """Let go of all arrays."""


class PolicyWorkspace:
    """
    Arrays that live for one batch, and counts of the bytes that guests have of them and for agents.

    A policy fills the arrays anew for each batch, so one workspace serves all policies that one
    thread uses. The guests whose batch makes arrays larger pay for the growth, by the rows of each,
    if the model is their own; the arrays stay as large for the next batch. Once a guest that paid
    has left, arrays are made anew, and the guests of each batch pay for them. The users that were
    added with `add_user` let go of arrays before others replace them.

    Attributes:
        run_seconds: Seconds of wall time that the next run of a policy may take, if that is less
            than its model allows.
        is_interrupted: Returns True if the run in progress should be given up.
        stopped: Reasons for which snapshots of guests are not run again, by their digests.
        refused: Number of the guest that had no room for its share of the latest refused run.
        helpers: The threads that may help with a run.
        salt: A secret by which agents are found, common to all tables, so that they can move.

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
        """Raise Unavailable if a run of the snapshot with this digest was stopped."""
        reason = self.stopped.get(snapshot)
        if reason is not None:
            raise Unavailable(f"{reason} before: it is not run again")

    def arrays(
        self, shapes: Sequence[tuple[int, ...]], payers: Mapping[int, int] = _NOBODY
    ) -> list[Floats]:
        """
        Return arrays for one batch, float32, of the given shapes: [*shape] each.

        Their content is undefined, and the next call returns arrays in the same place. payers: rows
        of the batch by the guests that pay for it. Raises GuestMemoryFull.
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
        """Have `user` let go of its arrays before larger ones replace them."""
        self._users.add(user)

    def work_bytes(self, guest: int) -> int:
        """Return the bytes of arrays that one guest pays for."""
        return self._work_bytes.get(guest, 0)

    def leave(self, guest: int) -> None:
        """
        Forget the payments of a guest. A finalizer may call it.

        The arrays stay until the next batch: a run may use them at that moment.
        """
        self.require_bytes.pop(guest, None)
        if self._work_bytes.pop(guest, 0):
            self._is_surplus = True

    def renew(self) -> None:
        """Have arrays made anew for the next batch, for which the guests pay if it is theirs."""
        self._is_surplus = True

    def require_batch(self, rows: int, size: int) -> None:
        """Raise Unavailable if `size` bytes are over the limit for a batch of `rows` rows."""
        if size > self._batch_bytes:
            raise Unavailable(
                f"noise, masks and states of {rows} rows take {size} bytes,"
                f" {self._batch_bytes} are allowed"
            )

    def require_agents(self, table: AgentStore, guest: int, coming: int) -> None:
        """Raise Unavailable if `coming` bytes more in `table` are over the limit of a guest."""
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
        """Count the agents in `table` as well."""
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
