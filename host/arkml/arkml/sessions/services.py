"""All handlers of one guest, and the state that they share."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from arkml.policies.demands import PolicyOffer
from arkml.policies.onnx import session_bytes
from arkml.sessions import core, future_handlers, hive_calls
from arkml.sessions.brain_calls import MlInferenceV0
from arkml.sessions.brains import Brain
from arkml.sessions.runtimes import Load, destroy_all
from arkml.sessions.saved_sessions import (
    SavedServices,
    load_services,
    rejoin_runs,
    require_loadable,
    save_services,
)
from arkml.sessions.session import InferenceSession
from arkml.sessions.session_handlers import InferenceV1, SubmitV5, TrainingV1, TrainingV2
from arkml.sessions.session_table import TrainingStart
from arkml.sessions.snapshots import Packing
from arkml.sessions.state import Family, GuestState
from arkml.sessions.time_handlers import TimeV1


class MlV1(hive_calls.HiveV1, InferenceV1, TrainingV1, future_handlers.FuturesV1, Packing):
    """Handlers of the import module `ark-ml-v1`."""

    __slots__ = ()


class MlV2(hive_calls.HiveV2, TrainingV2, future_handlers.FuturesV2):
    """Handlers of the import module `ark-ml-v2`."""

    __slots__ = ()


class MlV3(hive_calls.HiveV3, future_handlers.FuturesV3):
    """Handlers of the import module `ark-ml-v3`."""

    __slots__ = ()


class MlV4(hive_calls.HiveV4, future_handlers.FuturesV4):
    """Handlers of the import module `ark-ml-v4`."""

    __slots__ = ()


class MlV5(hive_calls.HiveV5, SubmitV5):
    """Handlers of the import module `ark-ml-v5`."""

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


class Services(GuestState):
    """
    One guest's handlers and their state, for use by the guest's instance.

    `number` is unique among the guests of the host and is part of the keys of the sessions.
    """

    __slots__ = ()

    def handler(self, module: str) -> object:
        """Return a new object with the handlers of an import module, such as "ark-ml-v1"."""
        return HANDLERS[module](self)

    def begin_call(self, data: bytes = b"") -> None:
        """
        Begin a call of an export with the input `data`, and clear the results of the last call.
        """
        self.input = data
        self.panic = None
        if self._vectors is not None:
            self._vectors.clear()
        self.pending_polls = 0

    @property
    def returned(self) -> bytes | None:
        """The bytes that the current call passed to `return_slice`, or None."""
        return None if self._vectors is None else self._vectors.returned

    def register_panic(self, message: str, file: str, line: int, column: int) -> None:
        """Record a panic that was not reported by `core__register_panic`."""
        core.record_panic(self, message, file, line, column)

    def use(self, offer: PolicyOffer, *, is_of_guest: bool) -> None:
        """
        Switch inference sessions and brains to the policies of an offer, from now on.

        The offer meets the demands of all of them. Its `moves` collect the agents that must then be
        moved.
        """
        for item in self.handles.items():
            if isinstance(item, InferenceSession) and item.demand is not None:
                policy = offer.policies[item.demand]
                offer.moves.note(item.policy, policy, item.key)
                if is_of_guest or item.is_of_guest:
                    item.recount(session_bytes(policy))
                item.use(policy, is_of_guest=is_of_guest)
        if not len(self.brains):  # as for most guests
            return
        for item in self.brains.items():
            if isinstance(item, Brain):
                offer.moves.are_whole &= item.use(offer.networks[item.demand])
            elif isinstance(item, Load) and item.demand is not None:
                item.network = offer.networks[item.demand]
                item.lease.recount(item.network.session_bytes)

    @property
    def session_bytes(self) -> int:
        """
        Estimated bytes that sessions and brains hold.

        These are the guest's own model files and loaded models in use, and the observations and
        results of brains.
        """
        snapshots = self.snapshots
        return snapshots.used + snapshots.held + self.brain_bytes

    @property
    def vector_bytes(self) -> int:
        """Bytes charged for the return slice and the pending vector."""
        return 0 if self._vectors is None else self._vectors.granted

    @property
    def live_handles(self) -> int:
        """Number of live sessions, runtimes, brains and loads, without futures."""
        return len(self.handles) - self.live_futures + len(self.brains)

    def save(self) -> SavedServices:
        """Return a copy of the handles and their sessions. Raises StateRefused."""
        return save_services(self)

    def require_loadable(self, saved: SavedServices) -> None:
        """Raise StateRefused for saved handles and sessions that cannot be loaded."""
        require_loadable(self, saved)

    def load(self, saved: SavedServices) -> bool:
        """
        Replace handles and sessions by saved ones. Raises StateRefused.

        Returns False if the guest is in this state already.
        """
        return load_services(self, saved)

    def rejoin(self, saved: SavedServices, start: Callable[[str], TrainingStart]) -> None:
        """Open the saved training sessions in a new guest; see `rejoin_runs`. Raises AbiError."""
        rejoin_runs(self, saved, start)

    def close(self) -> None:
        """Free every handle. Safe to call twice."""
        if self.live_futures:
            self.futures.clear()
        destroy_all(self.brains)
        if self._vectors is not None:
            self._vectors.drop_pending()
        try:
            self.sessions.close_all()
        finally:
            self.log.flush()
            self.log.is_muted = True  # of requests that fail as the host closes its client
