"""Sessions: the objects behind training and inference handles."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from enum import Enum
from typing import Protocol, Required, TypeAlias, TypedDict, Unpack
from weakref import WeakSet

from arkml.abi.codes import SnapshotFormat
from arkml.base.loggers import SafeLogger
from arkml.batches import Batch, MetadataLog
from arkml.errors import InvalidArguments
from arkml.hive.protocol.masks import PREFIX
from arkml.policies.choice_masks import ChoiceMasks
from arkml.policies.demands import SessionDemand, Snapshot
from arkml.policies.model import Call
from arkml.policies.onnx import only_call, takes_masks
from arkml.policies.policy import Policy
from arkml.policies.training import masks_of
from arkml.sessions.guest_run import GuestRun
from arkml.sessions.leases import Lease
from arkml.sessions.revision import Revision

log = SafeLogger(__name__)

_MASK = PREFIX.encode()
_told: WeakSet[Policy] = WeakSet()  # policies whose sessions have masks without an effect


class Queue(Protocol):
    """The rows that a guest pushed into one session since its last submit."""

    def batch(self) -> Batch: ...
    def metadata(self) -> MetadataLog: ...
    def mentions(self, text: bytes) -> bool: ...
    def forget_scratch(self) -> None: ...
    def end_submit(self) -> None: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...


class QueueOpener(Protocol):
    """A maker of queues, which the pushes of sessions fill."""

    def open_queue(
        self, handle: int, *, training: bool, num_features: int, num_actions: int, key: int
    ) -> Queue: ...


class Noting(Protocol):
    """An account that is charged for work on a guest's metadata."""

    def noting(self) -> AbstractContextManager[object]:
        """Charge the guest for the time of a `with` block."""


class Origin(Enum):
    """Kinds of rows with actions that the guest itself chose: augmented rows, or demonstrations."""

    AUGMENTED = "augmented"
    DEMONSTRATION = "demonstration"


Widths: TypeAlias = tuple[int | None, int | None]

Ready = Callable[[float], bool]
"""Waits for at most the given seconds; returns True once the wait is over for good."""


class TransitionSink(Protocol):
    """A training session's interface to its run."""

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        """Store rows whose actions the guest pushed. The views are valid during the call."""
        ...

    def note(self, batch: Batch, metadata: MetadataLog) -> None:
        """Record the metrics of a batch that the policy has answered."""
        ...

    def held(self) -> Ready | None:
        """Return an event that must occur before the guest is resumed, or None."""
        ...

    def leave(self, *, stop: bool) -> None:
        """Leave the run at the end of the session; `stop` ends it for all its guests."""
        ...


class _Opening(TypedDict, total=False):
    """The arguments with which every session is opened; see `Session`."""

    key: Required[int]
    num_features: Required[int]
    num_actions: Required[int]
    is_of_guest: bool
    account: Noting | None


class Session:
    """
    One queue of rows behind a handle of the guest, and the policy that answers its submits.

    Attributes:
        key: Number that identifies the session to its policy, unique in the host.
        non_finite_actions: Actions of `ark-ml-v5` answers that were sent as zeros.
        is_of_guest: True if the guest brought the policy, and is charged for its runs.
        masks: Masks of the policy's batch, None for a policy without branches.
        account: The account that is charged for work on metadata, or None.
        opened_with: The model file, with its format, that the session was opened with, or None.
        widths: The numbers of features and actions that the guest asked for, None for the model's
            own.

    """

    __slots__ = (
        "_account",
        "_metadata",
        "is_of_guest",
        "key",
        "masks",
        "non_finite_actions",
        "num_actions",
        "num_features",
        "opened_with",
        "policy",
        "queue",
        "widths",
    )

    def __init__(
        self,
        queue: Queue,
        policy: Policy,
        *,
        key: int,
        num_features: int,
        num_actions: int,
        is_of_guest: bool = False,
        account: Noting | None = None,
    ) -> None:
        self.is_of_guest: bool = is_of_guest
        self.queue: Queue = queue
        self.policy: Policy = policy
        self.key: int = key
        self.num_features: int = num_features
        self.num_actions: int = num_actions
        self.non_finite_actions: int = 0
        self.masks: ChoiceMasks | None = masks_of(policy)
        self._metadata: MetadataLog | None = None  # of the present batch, if it was read already
        self._account = account
        self.opened_with: tuple[Snapshot, SnapshotFormat] | None = None
        self.widths: Widths = num_features, num_actions

    def answer(self) -> Batch:
        """Let the policy fill the actions and values of the rows since the last submit."""
        batch = self.queue.batch()
        if self.masks is not None:
            self.masks.begin(len(batch))
            self.mask(0)
        else:
            self.require_no_masks()
        self.policy.act(batch)
        return batch

    def mask(self, first: int) -> None:
        """
        Apply the choice masks of the pushed rows, which begin at row `first` of the policy's batch.
        """
        self._metadata = None
        if self.queue.batch().rows["metadata"].any():
            with self._noting():
                self._metadata = self.queue.metadata()
                if self.masks is not None:
                    self.masks.mask(self._metadata, first)

    def _noting(self) -> AbstractContextManager[object]:
        return nullcontext() if self._account is None else self._account.noting()

    def require_no_masks(self) -> None:
        """
        Warn once if the guest masks choices, such as "mask/0/2", but declares no branches.

        Raises InvalidArguments if the policy needs the masks.
        """
        if not self.queue.mentions(_MASK):
            return
        if takes_masks(self.policy):
            raise InvalidArguments(
                "the guest masks choices that the policy cannot be told: it declares no branches of"
                f" an action of {self.num_actions} floats for {self.num_features} features in its"
                " custom section arkml.spec"
            )
        if self.policy not in _told:
            _told.add(self.policy)
            log.warning(
                "masks of choices have no effect: the guest declares no branches of an action of %d"
                " floats for %d features in its custom section arkml.spec",
                self.num_actions, self.num_features,
            )  # fmt: skip

    def use(self, policy: Policy, *, is_of_guest: bool) -> None:
        """
        Use another policy for the same numbers of features and actions from the next submit on.
        """
        self.policy, self.is_of_guest = policy, is_of_guest
        self.masks = masks_of(policy)
        self.queue.forget_scratch()

    def note(self, metadata: MetadataLog | None = None) -> None:
        """
        Pass the answered batch's metrics to the run, in a training session.

        `metadata` is that of the queue, if the caller has read it; the caller then counts the time.
        """

    def held(self) -> Ready | None:
        """Return an event that must occur before the guest is resumed after a submit, or None."""
        return None

    def only_call(self) -> Call | None:
        """Return the one function that answers the present rows completely, or None."""
        return None if self.masks is not None else only_call(self.policy, self.queue.batch())

    def close(self) -> None:
        """Free the queue, and let the policy forget the agents."""
        try:
            self.queue.close()
        finally:
            self.policy.forget(self.key)


class InferenceSession(Session):
    """
    A session whose policy is a model file from the guest, or the host's policy in its place.

    `demand` says what the session needs of a policy; None if its policy never changes. `lease` is
    the use of the model file, until the session closes; None without a file.
    """

    __slots__ = ("_lease", "demand")

    def __init__(
        self,
        queue: Queue,
        policy: Policy,
        *,
        demand: SessionDemand | None = None,
        lease: Lease | None = None,
        **opening: Unpack[_Opening],
    ) -> None:
        super().__init__(queue, policy, **opening)
        self.demand: SessionDemand | None = demand
        self._lease = lease

    def recount(self, held: int) -> None:
        """Count the `held` bytes of another model that the guest is charged for."""
        if self._lease is not None:
            self._lease.recount(held)

    def close(self) -> None:
        try:
            super().close()
        finally:
            if self._lease is not None:
                self._lease.release()


class TrainingSession(Session):
    """A session of a training run; its sink gets rows with actions that the guest chose."""

    __slots__ = ("_run", "_sink")

    def __init__(
        self,
        queue: Queue,
        policy: Policy,
        *,
        sink: TransitionSink | None = None,
        run: GuestRun | None = None,
        **opening: Unpack[_Opening],
    ) -> None:
        super().__init__(queue, policy, **opening)
        self._sink = sink
        self._run = run

    def answer(self) -> Batch:
        batch = super().answer()
        if batch.rows["metadata"].any():
            self.note()
        return batch

    def note(self, metadata: MetadataLog | None = None) -> None:
        read, self._metadata = self._metadata, None
        if self._sink is None:
            return
        if metadata is not None:
            self._pass_on(metadata, self._sink)
            return
        with self._noting():
            self._pass_on(self.queue.metadata() if read is None else read, self._sink)

    def _pass_on(self, metadata: MetadataLog, sink: TransitionSink) -> None:
        if metrics := _metrics(metadata):
            sink.note(self.queue.batch(), metrics)

    def held(self) -> Ready | None:
        return None if self._sink is None else self._sink.held()

    def only_call(self) -> Call | None:
        return None if self._sink is not None else super().only_call()

    def hand_over(self, origin: Origin) -> None:
        """Pass the queued rows, with the guest's own actions, to the sink, and clear the queue."""
        try:
            if self._sink is not None:
                self._sink.accept(self.queue.batch(), _metrics(self.queue.metadata()), origin)
        finally:
            self.queue.clear()

    def close(self) -> None:
        """Leave the run, which continues for other guests."""
        self._leave(stop=False)

    @property
    def run(self) -> GuestRun | None:
        """The run of the session, for requests to it, or None."""
        return self._run

    def stop(self) -> None:
        """End the run for all its guests."""
        self._leave(stop=True)

    def _leave(self, *, stop: bool) -> None:
        try:
            super().close()
        finally:
            if self._sink is not None:
                self._sink.leave(stop=stop)


def _metrics(metadata: MetadataLog) -> MetadataLog:
    _, metrics = metadata.split(PREFIX)
    return metrics


class Keys:
    """
    A generator of the keys that identify a guest's sessions and brains to policies.

    The upper 32 bits are the guest's number, which makes a key unique in the host: the second key
    of guest 3, for example, is 0x3_0000_0001.
    """

    __slots__ = ("_guest", "_revision", "place")

    def __init__(self, guest: int, revision: Revision | None = None) -> None:
        self._revision = Revision() if revision is None else revision
        self._guest = guest
        self.place = 0
        """The number of keys before the next one."""

    @property
    def first(self) -> int:
        """The first key."""
        return self._guest << 32

    def next(self) -> int:
        key = self.first + self.place
        self.place += 1
        self._revision.number += 1
        return key
