"""The table of one guest's live sessions, by handle."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, TypeVar

from arkml.base.handler_errors import is_of_handler
from arkml.errors import NotFound
from arkml.policies.demands import SessionDemand
from arkml.policies.policy import Policy
from arkml.sessions.guest_run import GuestRun
from arkml.sessions.handles import HandleTable
from arkml.sessions.leases import Lease
from arkml.sessions.session import (
    InferenceSession,
    Keys,
    Noting,
    Queue,
    QueueOpener,
    Session,
    TrainingSession,
    TransitionSink,
)

S = TypeVar("S", bound=Session)


class TrainingStart(NamedTuple):
    """
    The arguments of a new training session: policy, numbers of features and actions, run.

    `opened` is called on the guest's thread once the session is open.
    """

    policy: Policy
    num_features: int
    num_actions: int
    sink: TransitionSink | None = None
    run: GuestRun | None = None
    opened: Callable[[], object] = lambda: None

    def give_up(self) -> None:
        """Leave the run, because the session was not opened after all."""
        if self.sink is not None:
            self.sink.leave(stop=False)


class SessionTable:
    """
    The sessions of one guest, in its handle table.

    `queues` makes the sessions' queues, and `account` is charged for work on their metadata.
    """

    __slots__ = ("_account", "_handles", "_keys", "_queues")

    def __init__(
        self,
        keys: Keys,
        handles: HandleTable[Any],
        queues: QueueOpener,
        account: Noting | None = None,
    ) -> None:
        self._keys = keys
        self._account = account
        self._handles = handles
        self._queues = queues

    def require_room(self) -> None:
        """Raise TooManyHandles if no handle is left for another session."""
        self._handles.upcoming()

    def open_inference(self, policy: Policy, num_features: int, num_actions: int) -> int:
        """Open an inference session whose policy never changes, and return its handle."""
        handle = self._handles.upcoming()
        return self._handles.insert(self.make_inference(handle, policy, num_features, num_actions))

    def make_inference(
        self,
        handle: int,
        policy: Policy,
        num_features: int,
        num_actions: int,
        *,
        is_of_guest: bool = False,
        lease: Lease | None = None,
        demand: SessionDemand | None = None,
    ) -> InferenceSession:
        """
        Return a new inference session for a handle that is inserted later; see `InferenceSession`.
        """
        queue, key = self._queue(handle, num_features, num_actions, training=False)
        return InferenceSession(
            queue,
            policy,
            key=key,
            num_features=num_features,
            num_actions=num_actions,
            is_of_guest=is_of_guest,
            account=self._account,
            demand=demand,
            lease=lease,
        )

    def open_training(self, start: TrainingStart) -> int:
        """Open a training session and return its handle; leave the run if that fails."""
        try:
            session = self.make_training(self._handles.upcoming(), start)
        except BaseException:
            start.give_up()
            raise
        made = self._handles.insert(session)
        start.opened()
        return made

    def make_training(self, handle: int, start: TrainingStart) -> TrainingSession:
        """Return a new training session for a handle that is inserted later."""
        queue, key = self._queue(handle, start.num_features, start.num_actions, training=True)
        return TrainingSession(
            queue,
            start.policy,
            key=key,
            num_features=start.num_features,
            num_actions=start.num_actions,
            sink=start.sink,
            run=start.run,
            account=self._account,
        )

    def get(self, handle: int, kind: type[S]) -> S:
        return self._handles.get(handle, kind)

    def at(self, index: int) -> Session:
        """Return the session in slot `index` of the handle table."""
        item = self._handles.at(index)
        if isinstance(item, Session):
            return item
        raise NotFound(f"slot {index} holds a {type(item).__name__}, not a session")

    def close(self, handle: int, kind: type[S]) -> None:
        """Remove the handle and close its session."""
        self._handles.remove(handle, kind).close()

    def stop(self, handle: int) -> None:
        """Remove a training session's handle, and end its run for all guests."""
        self._handles.remove(handle, TrainingSession).stop()

    def close_all(self) -> None:
        """
        Close every session, even if closing one fails, and raise the first failure.

        An exception of a signal handler takes precedence over faults of sessions.
        """
        failures: list[Exception] = []
        for handle, item in self._handles:
            if isinstance(item, Session):
                try:
                    self.close(handle, Session)
                except Exception as failure:  # noqa: BLE001  the others must be closed too
                    failures.insert(0 if is_of_handler(failure) else len(failures), failure)
        if failures:
            raise failures[0]

    def _queue(
        self, handle: int, num_features: int, num_actions: int, *, training: bool
    ) -> tuple[Queue, int]:
        key = self._keys.next()
        queue = self._queues.open_queue(
            handle, training=training, num_features=num_features, num_actions=num_actions, key=key
        )
        return queue, key
