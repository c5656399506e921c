"""The handlers of one guest, and its state as the host sees it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING

from arkml.limits import Limits
from arkml.policies.demands import PolicyOffer
from arkml.policies.onnx import session_bytes
from arkml.sessions import core, future_handlers, hive_calls
from arkml.sessions.brain_calls import MlInferenceV0
from arkml.sessions.brains import Brain
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.futures import FutureChanges, FutureTable
from arkml.sessions.gateway import RunGateway
from arkml.sessions.pending_requests import PendingRequests
from arkml.sessions.revision import Revision
from arkml.sessions.runtimes import Load, destroy_all
from arkml.sessions.saved_sessions import (
    SavedServices,
    load_services,
    rejoin_runs,
    require_loadable,
    save_services,
)
from arkml.sessions.session import InferenceSession, QueueOpener, Session
from arkml.sessions.session_handlers import InferenceV1, SubmitV5, TrainingV1, TrainingV2
from arkml.sessions.session_table import SessionTable, TrainingStart
from arkml.sessions.snapshots import Packing
from arkml.sessions.state import Charging, Family, FreeWork, GuestState
from arkml.sessions.text import GuestLog
from arkml.sessions.time_handlers import TimeV1

if TYPE_CHECKING:
    from arkml.policies.library import PolicyLibrary


class MlV1(hive_calls.HiveV1, InferenceV1, TrainingV1, future_handlers.FuturesV1, Packing):
    """All of `ark-ml-v1`."""

    __slots__ = ()


class MlV2(hive_calls.HiveV2, TrainingV2, future_handlers.FuturesV2):
    """All of `ark-ml-v2`."""

    __slots__ = ()


class MlV3(hive_calls.HiveV3, future_handlers.FuturesV3):
    """All of `ark-ml-v3`."""

    __slots__ = ()


class MlV4(hive_calls.HiveV4, future_handlers.FuturesV4):
    """All of `ark-ml-v4`."""

    __slots__ = ()


class MlV5(hive_calls.HiveV5, SubmitV5):
    """All of `ark-ml-v5`."""

    __slots__ = ()


HANDLERS: Mapping[str, type[Family]] = {
    "ark-core-v0": core.CoreV0,
    "ark-core-v1": core.CoreV1,
    "ark-core-v2": core.CoreV2,
    "ark-core-v3": core.CoreV3,
    "ark-core-v4": core.CoreV4,
    "ark-time-v1": TimeV1,
    "ark-ml-v1": MlV1,
    "ark-ml-v2": MlV2,
    "ark-ml-v3": MlV3,
    "ark-ml-v4": MlV4,
    "ark-ml-v5": MlV5,
    "ark-ml-inference-v0": MlInferenceV0,
}
"""The handler class of each import module."""


def run_now(job: Callable[[], None]) -> None:
    """Run `job` on this thread."""
    job()


class Services:
    """
    One guest's handlers and their state.

    `number` is unique among the guests of the host and is part of the keys of the sessions.
    `clock` returns the time of day in nanoseconds, `stopwatch` a time in seconds, and `background`
    runs a job on this or another thread. `account` is charged for the work of the handlers. `spec`
    is the section `arkml.spec` of the guest's module.
    """

    __slots__ = ("_guest", "log", "revision", "sessions")

    def __init__(
        self,
        name: str,
        number: int,
        *,
        limits: Limits,
        library: PolicyLibrary,
        open_queue: QueueOpener,
        clock: Callable[[], int] = time.time_ns,
        stopwatch: Callable[[], float] = time.perf_counter,
        background: Callable[[Callable[[], None]], object] = run_now,
        hives: RunGateway | None = None,
        account: Charging | None = None,
        spec: bytes | None = None,
    ) -> None:
        self._guest = GuestState(
            name,
            number,
            limits=limits,
            library=library,
            open_queue=open_queue,
            clock=clock,
            stopwatch=stopwatch,
            background=background,
            hives=hives,
            account=FreeWork() if account is None else account,
            spec=spec,
        )
        self.log: GuestLog = self._guest.log
        self.revision: Revision = self._guest.revision
        self.sessions: SessionTable = self._guest.sessions

    def handler(self, module: str) -> object:
        """Return a new object with the handlers of an import module, such as "ark-ml-v1"."""
        return HANDLERS[module](self._guest)

    def begin_call(self, data: bytes = b"") -> None:
        """Begin a call of an export with the input `data`, and clear the state of the last call."""
        self._guest.input = data
        self._guest.panic = None
        if (vectors := self._guest.left_vectors) is not None:
            vectors.clear()
        self._guest.pending_polls = 0

    @property
    def changes(self) -> FutureChanges:
        """Counts the guest's futures that settle."""
        return self._guest.changes

    @property
    def futures(self) -> FutureTable:
        """The guest's live futures."""
        return self._guest.futures

    @property
    def hives(self) -> RunGateway | None:
        """Access to the hives that the guest may use, or None."""
        return self._guest.hives

    @property
    def declared(self) -> DeclaredBranches:
        """The branches that the guest declares."""
        return self._guest.declared

    @property
    def returned(self) -> bytes | None:
        """The bytes that the current call passed to `return_slice`, or None."""
        vectors = self._guest.left_vectors
        return None if vectors is None else vectors.returned

    @property
    def panic(self) -> str | None:
        """Message, location and debug contexts of the current call's panic, or None."""
        return self._guest.panic

    @property
    def pending_polls(self) -> int:
        """Number of polls of the current call that met a pending future."""
        return self._guest.pending_polls

    @pending_polls.setter
    def pending_polls(self, count: int) -> None:
        self._guest.pending_polls = count

    @property
    def non_finite_actions(self) -> int:
        """Number of non-finite actions in `ark-ml-v5` answers, sent as zeros."""
        return self._guest.non_finite_actions

    def register_panic(self, message: str, file: str, line: int, column: int) -> None:
        """Record a panic that was not reported by `core__register_panic`."""
        core.record_panic(self._guest, message, file, line, column)

    def offer(self, data: bytes) -> None:
        """
        Keep the bytes of a vector result for `core__take_host_return_vec`.

        Raises GuestMemoryFull.
        """
        self._guest.vectors.keep_pending(data)

    def session_at(self, index: int) -> Session:
        """Return the session in slot `index` of the handle table."""
        return self._guest.sessions.at(index)

    def use(self, offer: PolicyOffer, *, is_of_guest: bool) -> None:
        """
        Have the policies of an offer answer sessions of inference and brains from now on.

        It meets the demands of all of them. Its `moves` note what is then to be handed over.
        """
        for item in self._guest.handles.items():
            if isinstance(item, InferenceSession) and item.demand is not None:
                policy = offer.policies[item.demand]
                offer.moves.note(item.policy, policy, item.key)
                if is_of_guest or item.is_of_guest:
                    item.recount(session_bytes(policy))
                item.use(policy, is_of_guest=is_of_guest)
        if not len(self._guest.brains):  # as for most guests
            return
        for item in self._guest.brains.items():
            if isinstance(item, Brain):
                offer.moves.are_whole &= item.use(offer.networks[item.demand])
            elif isinstance(item, Load) and item.demand is not None:
                item.network = offer.networks[item.demand]
                item.lease.recount(item.network.session_bytes)

    @property
    def session_bytes(self) -> int:
        """
        Bytes that sessions and brains hold, by estimate.

        They are the guest's snapshots and its own models in use, and the observations and results
        of brains.
        """
        snapshots = self._guest.snapshots
        return snapshots.used + snapshots.held + self._guest.brain_bytes

    @property
    def vector_bytes(self) -> int:
        """Bytes that count for the return slice and the pending vector."""
        vectors = self._guest.left_vectors
        return 0 if vectors is None else vectors.granted

    @property
    def requests(self) -> PendingRequests:
        """The guest's requests to hives."""
        return self._guest.requests

    @property
    def request_bytes(self) -> int:
        """Bytes that count for requests to hives that are not done, and results not taken."""
        return self._guest.request_bytes

    @property
    def request_lock(self) -> AbstractContextManager[object]:
        """A lock that keeps `request_bytes` from growing. Only the guest's thread takes it."""
        return self._guest.request_lock

    @property
    def live_futures(self) -> int:
        return self._guest.live_futures

    @property
    def live_handles(self) -> int:
        """Number of live sessions, runtimes, brains and loads, without futures."""
        return len(self._guest.handles) - self.live_futures + len(self._guest.brains)

    def save(self) -> SavedServices:
        """Return a copy of the handles and their sessions. Raises StateRefused."""
        return save_services(self._guest)

    def require_loadable(self, saved: SavedServices) -> None:
        """Raise StateRefused for handles and sessions that the guest cannot have."""
        require_loadable(self._guest, saved)

    def load(self, saved: SavedServices) -> bool:
        """
        Have saved handles and sessions, and no others. Raises StateRefused.

        Returns False if the guest has them already.
        """
        return load_services(self._guest, saved)

    def rejoin(self, saved: SavedServices, start: Callable[[str], TrainingStart]) -> None:
        """Open the saved sessions of runs in a new guest; see `rejoin_runs`. Raises AbiError."""
        rejoin_runs(self._guest, saved, start)

    def close(self) -> None:
        """Free every handle. Safe to call twice."""
        if self._guest.live_futures:
            self._guest.futures.clear()
        destroy_all(self._guest.brains)
        if (vectors := self._guest.left_vectors) is not None:
            vectors.drop_pending()
        try:
            self._guest.sessions.close_all()
        finally:
            self._guest.log.flush()
            self._guest.log.is_muted = True  # of requests that fail as the host closes its client
