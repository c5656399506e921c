"""The state that all handlers of one guest share."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Protocol

from arkml.limits import Limits
from arkml.sessions.brain_memory import BrainMemory
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.call_vectors import CallVectors
from arkml.sessions.futures import FutureChanges, FutureTable
from arkml.sessions.gateway import RunGateway
from arkml.sessions.handles import U32_LAYOUT, HandleRoom, HandleTable
from arkml.sessions.leases import SNAPSHOTS_IN_USE, SnapshotLeases
from arkml.sessions.pending_requests import PendingRequests
from arkml.sessions.revision import Revision
from arkml.sessions.run_request import TrainingRequest
from arkml.sessions.session import Keys, QueueOpener
from arkml.sessions.session_table import SessionTable
from arkml.sessions.text import GuestLog

if TYPE_CHECKING:
    from arkml.policies.library import PolicyLibrary


class Charging(Protocol):
    """An account that is charged for the time and memory of the host's work for a guest."""

    @property
    def seconds_left(self) -> float:
        """Seconds that may still be charged in the present call."""

    def require_bytes(self, size: int) -> None:
        """Raise GuestMemoryFull if `size` more bytes would exceed the guest's limit."""

    def admit(self, size: int) -> bool:
        """
        Return False if a result of `size` bytes exceeds the guest's limit. Any thread may call it.
        """

    def vetting(self, *, is_of_guest: bool) -> AbstractContextManager[object]:
        """Charge the time of a `with` block that loads a model, if the guest brought it."""

    def running(self, *, is_of_guest: bool) -> AbstractContextManager[object]:
        """Charge the time of a `with` block that runs models, if the guest brought them."""

    def noting(self) -> AbstractContextManager[object]:
        """Charge the time of a `with` block that reads the guest's metadata."""


class FreeWork:
    """An account that charges nothing and allows every size."""

    seconds_left = math.inf

    def require_bytes(self, size: int) -> None:
        """Allow every size."""
        del size

    def admit(self, size: int) -> bool:
        """Allow every result."""
        return size >= 0

    def vetting(self, *, is_of_guest: bool) -> AbstractContextManager[object]:
        """Return a context that charges nothing."""
        return nullcontext(is_of_guest)

    running = vetting

    def noting(self) -> AbstractContextManager[object]:
        """Return a context that charges nothing."""
        return nullcontext()


def run_now(job: Callable[[], None]) -> None:
    """Run `job` on this thread."""
    job()


_NO_REQUESTS = nullcontext()  # what has made no request has none that grows on another thread


_declared_in = lru_cache(64)(DeclaredBranches)  # one for all guests that asked for no run


class GuestState:
    """
    The state of one guest that its handlers share.

    Attributes:
        handles: Sessions and futures.
        snapshots: Limits the bytes of models in use.
        clock: Returns the time of day in nanoseconds.
        stopwatch: Returns a time in seconds.
        background: Runs a job on this or another thread.
        hives: The access to the hives that the guest may use, if there are any.
        account: The account of the guest for the host's work; by default nothing is charged.
        spec: The section `arkml.spec` of its module, or None.
        input: The input of the present call.
        panic: Message, location and debug contexts of the present call's panic, or None.
        pending_polls: Number of polls of the present call that met a pending future.
        non_finite_actions: Number of non-finite actions in `ark-ml-v5` answers, sent as zeros.
        worker_module: SHA-256 of the module that remote workers run, empty for the guest's own.
        revision: A number that changes with handles, keys of sessions and log contexts.
        as_saved: The state that was saved or loaded last; see `saved_sessions`.

    """

    __slots__ = (
        "_brain_memory", "_brains", "_changes", "_declared", "_futures", "_log", "_requests",
        "_room", "_spec", "_vectors", "account", "as_saved", "background", "clock", "handles",
        "hives", "input", "keys", "library", "limits", "name", "non_finite_actions", "panic",
        "pending_polls", "revision", "sessions", "snapshots", "stopwatch", "worker_module",
    )  # fmt: skip

    def __init__(
        self,
        name: str,
        number: int,
        *,
        limits: Limits,
        library: PolicyLibrary,
        queues: QueueOpener,
        clock: Callable[[], int] = time.time_ns,
        stopwatch: Callable[[], float] = time.perf_counter,
        background: Callable[[Callable[[], None]], object] = run_now,
        hives: RunGateway | None = None,
        account: Charging | None = None,
        spec: bytes | None = None,
    ) -> None:
        self.account = account = FreeWork() if account is None else account
        self.name = name
        self.limits = limits
        self.library = library
        self.clock = clock
        self.stopwatch = stopwatch
        self.background = background
        self.hives = hives
        self.revision = revision = Revision()
        self._room = room = HandleRoom(limits.handles)
        self.handles: HandleTable[Any] = HandleTable("handles", limit=room, revision=revision)
        # Until the guest's first use of each, which most guests never come to:
        self._log: GuestLog | None = None
        self._brains: HandleTable[Any] | None = None
        self._brain_memory: BrainMemory | None = None
        self._vectors: CallVectors | None = None
        self._changes: FutureChanges | None = None
        self._futures: FutureTable | None = None
        self._requests: PendingRequests | None = None
        self.snapshots = SnapshotLeases(SNAPSHOTS_IN_USE * limits.snapshot_bytes)
        self.keys = Keys(number, revision)
        self.sessions = SessionTable(self.keys, self.handles, queues, account)
        self._spec = spec
        self._declared: DeclaredBranches | None = None
        self.worker_module = ""
        self.non_finite_actions = 0
        self.pending_polls = 0
        self.input = b""
        self.panic: str | None = None
        self.as_saved: tuple[int, object] | None = None

    @property
    def log(self) -> GuestLog:
        """The guest's log."""
        if self._log is None:
            self._log = GuestLog(
                self.name,
                limit=self.limits.log_bytes,
                rate=self.limits.log_lines,
                stopwatch=self.stopwatch,
                revision=self.revision,
            )
        return self._log

    @property
    def brains(self) -> HandleTable[Any]:
        """
        The handle table of ml-inference-v0; its objects also count toward the limit of `handles`.
        """
        if self._brains is None:
            self._brains = HandleTable(
                "ml-inference handles",
                limit=self._room,
                layout=U32_LAYOUT,
                revision=self.revision,
            )
        return self._brains

    @property
    def brain_memory(self) -> BrainMemory:
        """The account of the bytes of brains' observations and results, which keeps their limit."""
        if self._brain_memory is None:
            self._brain_memory = BrainMemory(
                self.account.require_bytes, most_observations=self.limits.snapshot_bytes
            )
        return self._brain_memory

    @property
    def brain_bytes(self) -> int:
        """Bytes charged for observations and results of brains. Any thread may read it."""
        return 0 if self._brain_memory is None else self._brain_memory.granted

    @property
    def vectors(self) -> CallVectors:
        """The byte vectors that calls leave with the host."""
        if self._vectors is None:
            self._vectors = CallVectors(self.account.require_bytes)
        return self._vectors

    @property
    def changes(self) -> FutureChanges:
        """The counter of futures that have settled."""
        if self._changes is None:
            self._changes = FutureChanges()
        return self._changes

    @property
    def futures(self) -> FutureTable:
        """The guest's live futures."""
        if self._futures is None:
            self._futures = FutureTable(
                self.handles, limit=self.limits.futures, changes=self.changes
            )
        return self._futures

    @property
    def live_futures(self) -> int:
        """The number of live futures."""
        return 0 if self._futures is None else len(self._futures)

    @property
    def requests(self) -> PendingRequests:
        """The guest's requests to hives, made on its own thread and ended on others."""
        if self._requests is None:
            self._requests = PendingRequests(self.limits.requests, self.account.admit)
        return self._requests

    @property
    def request_bytes(self) -> int:
        """Bytes charged for requests to hives. Any thread may read it."""
        return 0 if self._requests is None else self._requests.held

    @property
    def request_lock(self) -> AbstractContextManager[object]:
        """A lock, for the guest's thread, that keeps `request_bytes` from growing."""
        return _NO_REQUESTS if self._requests is None else self._requests.lock

    @property
    def declared(self) -> DeclaredBranches:
        """The branches that the guest declares for its behaviors."""
        return self._declared or _declared_in(self._spec)

    def declare(self, request: TrainingRequest) -> None:
        """Store the declaration in a request for a run; see `DeclaredBranches.note`."""
        if self._declared is None:
            self._declared = DeclaredBranches(self._spec)
        self._declared.note(request)


class Family:
    """Base class of handlers; names of their methods and parameters match the tables of the ABI."""

    __slots__ = ("_guest",)

    def __init__(self, guest: GuestState) -> None:
        self._guest = guest
