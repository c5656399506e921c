"""
Demands: what sessions and brains need of their policies, so that another policy can replace these.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from contextlib import AbstractContextManager
from typing import Protocol, TypeAlias
from weakref import WeakSet, WeakValueDictionary

from arkml.abi.codes import SnapshotFormat
from arkml.errors import InvalidArguments
from arkml.policies.network import Network
from arkml.policies.onnx import PolicyMoves
from arkml.policies.policy import Policy
from arkml.policies.ports import Parts, Port, listed

BranchesOf = Callable[[int, int | None, int | None], tuple[int, ...]]
"""
The branches of a session by its numbers of features and actions, and the width of the masks that
its policy takes; None for a number that the model decides, and for a policy without masks.
"""

PartsOf = Callable[[int, int | None], Parts]
"""The parts of a session's observations, by its numbers of features and actions."""


class Loader(Protocol):
    """A maker of policies and networks, as `PolicyLibrary` is."""

    def load(
        self,
        snapshot: bytes,
        snapshot_format: SnapshotFormat,
        num_features: int | None,
        num_actions: int | None,
        branches_of: BranchesOf,
        parts_of: PartsOf,
    ) -> Policy: ...

    def load_network(
        self, snapshot: bytes, snapshot_format: SnapshotFormat, *, key: int
    ) -> Network: ...


class Snapshot:
    """The bytes of a model that guests brought; one object for all guests with the same bytes."""

    __slots__ = ("__weakref__", "data", "digest")

    def __init__(self, data: bytes, digest: bytes) -> None:
        self.data = data
        self.digest = digest


class SessionDemand:
    """
    What equal inference sessions need of a policy: model file, features, actions, kind of rows.

    Equal declarations have an equal `origin`.
    """

    __slots__ = (
        "__weakref__", "_branches_of", "_num_actions", "_num_features", "_parts_of", "format",
        "key", "snapshot",
    )  # fmt: skip

    def __init__(
        self,
        snapshot: Snapshot,
        snapshot_format: SnapshotFormat,
        num_features: int,
        num_actions: int,
        branches_of: BranchesOf,
        parts_of: PartsOf,
        *,
        origin: Hashable,
    ) -> None:
        self.key = snapshot.digest, snapshot_format, num_features, num_actions, origin
        self.snapshot: Snapshot = snapshot
        self.format: SnapshotFormat = snapshot_format
        self._num_features = num_features
        self._num_actions = num_actions
        self._branches_of = branches_of
        self._parts_of = parts_of

    def met_by(self, loader: Loader) -> Policy:
        """
        Return a policy that meets the demand, made by `loader`. Raises as `PolicyLibrary.load`.
        """
        return loader.load(
            self.snapshot.data,
            self.format,
            self._num_features,
            self._num_actions,
            self._branches_of,
            self._parts_of,
        )


class BrainDemand:
    """What one brain of `ark-ml-inference-v0` needs of its model: ports that its guest knows."""

    __slots__ = ("__weakref__", "_inputs", "_outputs", "format", "key", "snapshot")

    def __init__(
        self, snapshot: Snapshot, snapshot_format: SnapshotFormat, key: int, network: Network
    ) -> None:
        self.snapshot: Snapshot = snapshot
        self.format: SnapshotFormat = snapshot_format
        self.key: int = key
        self._inputs = network.inputs
        self._outputs = network.outputs

    def met_by(self, loader: Loader) -> Network:
        """
        Return a network that meets the demand, made by `loader`.

        Raises as `PolicyLibrary.load_network`, and InvalidArguments for a model with other ports.
        """
        network = loader.load_network(self.snapshot.data, self.format, key=self.key)
        for kind, known, found in (
            ("inputs", self._inputs, network.inputs),
            ("outputs", self._outputs, network.outputs),
        ):
            if _named(known) != _named(found):
                raise InvalidArguments(
                    f"a guest has a brain with the {kind} {listed(known)}, and the model has"
                    f" {listed(found)}"
                )
        return network


Demand: TypeAlias = SessionDemand | BrainDemand


class PolicyOffer:
    """
    A policy that is to answer guests from their next call on, in each form that they need.

    `loader` makes a form for a demand; `policies` and `networks` hold the forms made. `renewed` is
    called once the offer is taken, if agents then begin with recurrent states of zeros. `moves`
    notes which agents move from old to new policies.
    """

    def __init__(self, loader: Loader, renewed: Callable[[], object]) -> None:
        self.loader = loader
        self.renewed = renewed
        self.moves = PolicyMoves()
        self.policies: dict[SessionDemand, Policy] = {}
        self.networks: dict[BrainDemand, Network] = {}

    def meets(self, demand: Demand) -> bool:
        """Return whether the form for a demand is made."""
        return demand in self.policies or demand in self.networks

    def meet(self, demand: Demand) -> None:
        """Make the form for a demand. Raises as `met_by`."""
        if isinstance(demand, BrainDemand):
            self.networks[demand] = demand.met_by(self.loader)
        else:
            self.policies[demand] = demand.met_by(self.loader)

    def forget(self) -> None:
        """Drop the references to all forms, once the sessions and brains of guests have them."""
        self.policies, self.networks = {}, {}


class Demands:
    """
    The demands of all open sessions and brains of guests that share a policy library.

    `lock` guards the demands, and may be shared with other objects: no model is loaded while it is
    held. One thread makes offers, the thread of the guests takes them.
    """

    def __init__(self, lock: AbstractContextManager[object]) -> None:
        self._lock = lock
        self._sessions: WeakValueDictionary[Hashable, SessionDemand] = WeakValueDictionary()
        self._brains: WeakSet[BrainDemand] = WeakSet()
        self._offered: PolicyOffer | None = None
        self._taken: PolicyOffer | None = None

    def open_session(self, demand: SessionDemand) -> SessionDemand:
        """
        Register a session that opens, and return its demand, the same object for equal ones.

        If an offer is waiting, the form for the demand is made. Raises as `SessionDemand.met_by`.
        """
        with self._lock:
            known = self._sessions.setdefault(demand.key, demand)
        self._meet(known)
        return known

    def open_brain(self, demand: BrainDemand) -> BrainDemand:
        """Register a brain that opens, as `open_session` does a session, and return its demand."""
        with self._lock:
            self._brains.add(demand)
        self._meet(demand)
        return demand

    def unmet(self, offer: PolicyOffer) -> list[Demand]:
        """Return the demands for which an offer has no form yet. Call it with the lock held."""
        every: list[Demand] = [*self._sessions.values(), *self._brains]
        return [demand for demand in every if not offer.meets(demand)]

    def offer(self, offer: PolicyOffer) -> None:
        """Publish an offer that meets all demands. Call it with the lock held."""
        self._offered = offer

    def waiting(self) -> PolicyOffer | None:
        """Return the last offer if it is not taken yet, without waiting; for the guests' thread."""
        return None if self._offered is self._taken else self._offered

    def take(self, offer: PolicyOffer) -> None:
        """Note that guests have taken an offer, and let it drop its forms."""
        self._taken = offer
        offer.forget()

    def _meet(self, demand: Demand) -> None:
        offer = self._offered  # after the demand is known: an offer from now on meets it
        if offer is not None and offer is not self._taken and not offer.meets(demand):
            offer.meet(demand)


def _named(ports: tuple[Port, ...]) -> list[tuple[str, tuple[int, ...]]]:
    return [(port.label, port.shape) for port in ports]
