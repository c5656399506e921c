"""Sessions: what a training or inference handle names."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from typing import Protocol

from arkml.batches import MASK, Batch, MetadataLog
from arkml.policies.policy import Policy
from arkml.sessions.run import Run


class Queue(Protocol):
    """The rows a guest pushed into one session since its last submit."""

    def batch(self) -> Batch: ...
    def metadata(self) -> MetadataLog: ...
    def clear(self) -> None: ...
    def close(self) -> None: ...


class QueueOpener(Protocol):
    """Makes the queue that the pushes of one session fill."""

    def __call__(
        self, handle: int, *, training: bool, num_features: int, num_actions: int, key: int
    ) -> Queue: ...


class Origin(Enum):
    """Where the actions of rows came from that no policy of ours answered."""

    AUGMENTED = "augmented"
    DEMONSTRATION = "demonstration"


Ready = Callable[[float], bool]
"""Whether to go on; blocks for at most the seconds it is given."""


class TransitionSink(Protocol):
    """A run, as one of its training sessions sees it."""

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        """Take rows that no policy answered. The views live until the call returns."""
        ...

    def note(self, batch: Batch, metadata: MetadataLog) -> None:
        """Take metrics that came with rows of the session's batch, after a policy has answered."""
        ...

    def held(self) -> Ready | None:
        """What the guest has to wait for before it goes on, or None."""
        ...

    def leave(self, *, stop: bool) -> None:
        """The session is over; `stop` ends the run for everybody."""
        ...


class Session:
    """
    Acts for the agents of one handle. Whoever answers a submit is its policy.

    `key` is unique in the host and names the session to its policy. `non_finite_actions` counts
    what was answered with zeros where the shim does not see it (`ark-ml-v5`). `released` is called
    when the session does not use its policy any more.
    """

    __slots__ = (
        "_act",
        "_batch",
        "_released",
        "key",
        "non_finite_actions",
        "num_actions",
        "num_features",
        "policy",
        "queue",
    )

    def __init__(
        self,
        queue: Queue,
        policy: Policy,
        *,
        key: int,
        num_features: int,
        num_actions: int,
        released: Callable[[], object] = lambda: None,
    ) -> None:
        self.queue: Queue = queue
        self.policy: Policy = policy
        self.key: int = key
        self.num_features: int = num_features
        self.num_actions: int = num_actions
        self.non_finite_actions: int = 0
        self._batch = queue.batch
        self._act = policy.act
        self._released = released

    def answer(self) -> Batch:
        """Fill the actions and values of the rows pushed since the last submit."""
        batch = self._batch()
        self._act(batch)
        return batch

    def note(self) -> None:
        """Metadata came with the rows of the batch that is being answered."""

    def held(self) -> Ready | None:
        """What the guest has to wait for after a submit was answered, or None."""
        return None

    def close(self) -> None:
        """Give up the queue and what the policy remembers of the agents."""
        try:
            self.queue.close()
        finally:
            try:
                self.policy.forget(self.key)
            finally:
                self._released()


class InferenceSession(Session):
    """Acts with a snapshot that the guest brought."""

    __slots__ = ()


class TrainingSession(Session):
    """Acts with the policy of a run, and hands the rows of others to the run's sink."""

    __slots__ = ("_run", "_sink")

    def __init__(
        self,
        queue: Queue,
        policy: Policy,
        *,
        key: int,
        num_features: int,
        num_actions: int,
        sink: TransitionSink | None = None,
        run: Run | None = None,
    ) -> None:
        super().__init__(queue, policy, key=key, num_features=num_features, num_actions=num_actions)
        self._sink = sink
        self._run = run

    def answer(self) -> Batch:
        batch = super().answer()
        if batch.rows["metadata"].any():
            self.note()
        return batch

    def note(self) -> None:
        if self._sink is not None:
            self._sink.note(self.queue.batch(), self._metrics())

    def held(self) -> Ready | None:
        return None if self._sink is None else self._sink.held()

    def _metrics(self) -> MetadataLog:
        return [item for item in self.queue.metadata() if not item.name.startswith(MASK)]

    def hand_over(self, origin: Origin) -> None:
        """Give the pushed rows to the sink, if there is one. The queue is empty afterwards."""
        try:
            if self._sink is not None:
                self._sink.accept(self.queue.batch(), self._metrics(), origin)
        finally:
            self.queue.clear()

    def close(self) -> None:
        """Leave the run, which goes on for others."""
        self._leave(stop=False)

    @property
    def run(self) -> Run | None:
        """What can be asked of the run that the session takes part in."""
        return self._run

    def stop(self) -> None:
        """End the run for everybody."""
        self._leave(stop=True)

    def _leave(self, *, stop: bool) -> None:
        try:
            super().close()
        finally:
            if self._sink is not None:
                self._sink.leave(stop=stop)


class Keys:
    """
    Numbers that name the sessions and brains of one guest to policies, unique in the host.

    The upper half is the guest's number, the lower half counts.
    """

    def __init__(self, guest: int) -> None:
        self._next = guest << 32

    def next(self) -> int:
        key = self._next
        self._next += 1
        return key
