"""Handlers of inference sessions, and of training sessions that are open."""

from __future__ import annotations

import logging
from typing import TypeVar

from arkml.abi.codes import SnapshotFormat
from arkml.base.loggers import SafeLogger, notice
from arkml.errors import AbiError
from arkml.policies.demands import SessionDemand
from arkml.policies.onnx import session_bytes
from arkml.sessions import responses
from arkml.sessions.session import (
    InferenceSession,
    Origin,
    Session,
    TrainingSession,
    Widths,
)
from arkml.sessions.snapshots import log_refusals, note_container
from arkml.sessions.state import Family, GuestState

log = SafeLogger(__name__)

S = TypeVar("S", bound=Session)


def open_inference(
    guest: GuestState,
    snapshot: bytes,
    snapshot_format: SnapshotFormat,
    widths: Widths,
    handle: int,
) -> InferenceSession:
    """
    Return a new inference session for a handle that the caller has yet to insert into the table.

    `widths` are the numbers of features and actions, None for the model's own. Raises AbiError.
    """
    with log_refusals(guest):
        names = guest.declared.names_of(*widths)
        library = guest.library.of_session(names, *widths, guest.declared.behaviors)
    library.prepare()
    note_container(guest, library, snapshot, snapshot_format)
    with log_refusals(guest), guest.snapshots.take(snapshot) as lease:
        declared = guest.declared
        if unread := declared.unread(*widths):  # first: a policy may be refused for what is missing
            text = f"{unread}: it declares no parts and no branches for inference"
            notice(log, logging.WARNING, text)
        is_of_guest = library.takes_snapshots
        with guest.account.vetting(is_of_guest=is_of_guest):
            policy = library.load(
                snapshot, snapshot_format, *widths, declared.of_rows, declared.parts_of
            )
        lease.count(session_bytes(policy))
        guest.account.require_bytes(0)  # the model is among the leases
        num_features, num_actions = widths
        features = policy.num_features if num_features is None else num_features
        actions = policy.num_actions if num_actions is None else num_actions
        if num_actions is None:
            responses.require_countable(0, actions)
        kept = guest.library.keep(snapshot, lease.digest)
        demand = SessionDemand(
            kept,
            snapshot_format,
            features,
            actions,
            declared.of_rows,
            declared.parts_of,
            origin=declared.origin,
        )
        session = guest.sessions.make_inference(
            handle,
            policy,
            features,
            actions,
            is_of_guest=is_of_guest,
            lease=lease,
            # A policy of `Host(policies=...)` stays when the host's is replaced.
            demand=library.demands.open_session(demand) if library is guest.library else None,
        )
        session.widths, session.opened_with = widths, (kept, snapshot_format)
        return session


class _SnapshotSessions(Family):
    """Sessions that are opened from snapshots."""

    __slots__ = ()

    def _start(
        self,
        snapshot: bytes,
        snapshot_format: SnapshotFormat,
        num_features: int | None,
        num_actions: int | None,
    ) -> int:
        """Open a session with a snapshot and return its handle; None is the model's own width."""
        guest = self._guest
        handle = guest.handles.upcoming()
        widths = num_features, num_actions
        session = open_inference(guest, snapshot, snapshot_format, widths, handle)
        guest.handles.insert(session)
        return handle


class InferenceV1(_SnapshotSessions):
    """Handlers of the inference sessions of `ark-ml-v1`; the shim handles their submits."""

    __slots__ = ()

    def start_inference(
        self,
        num_features: int,
        num_actions: int,
        snapshot_data: bytes,
        snapshot_format: SnapshotFormat,
    ) -> int:
        return self._start(snapshot_data, snapshot_format, num_features, num_actions)

    def stop_inference(self, context: int) -> None:
        self._guest.sessions.close(context, InferenceSession)


class TrainingV1(Family):
    """Handlers of the training sessions of `ark-ml-v1`."""

    __slots__ = ()

    def experiment_action_count(self, context: int) -> int:
        return self._guest.sessions.get(context, TrainingSession).num_actions

    def experiment_feature_count(self, context: int) -> int:
        return self._guest.sessions.get(context, TrainingSession).num_features

    def submit_training_augmented_observations(self, context: int) -> None:
        self._guest.sessions.get(context, TrainingSession).hand_over(Origin.AUGMENTED)

    def submit_training_demonstration_observations(self, context: int) -> None:
        self._guest.sessions.get(context, TrainingSession).hand_over(Origin.DEMONSTRATION)

    def stop_training(self, context: int) -> None:
        self._guest.sessions.close(context, TrainingSession)


class TrainingV2(Family):
    """Handlers of the training sessions of `ark-ml-v2`."""

    __slots__ = ()

    def stop_experiment(self, context: int) -> None:
        self._guest.sessions.stop(context)


class SubmitV5(_SnapshotSessions):
    """
    Handlers of the sessions of `ark-ml-v5`, whose shape comes from the model; answers are bytes.
    """

    __slots__ = ()

    def start_inference(self, snapshot_data: bytes, snapshot_format: SnapshotFormat) -> int:
        return self._start(snapshot_data, snapshot_format, None, None)

    def submit_training_observations(self, context: int) -> bytes:
        return self._submit(context, TrainingSession)

    def submit_inference_observations(self, context: int) -> bytes:
        return self._submit(context, InferenceSession)

    def _submit(self, context: int, kind: type[S]) -> bytes:
        """Return the answer to a batch, whose actions the policy has already filled."""
        session = self._guest.sessions.get(context, kind)
        try:
            batch = session.queue.batch()
            responses.require_countable(len(batch), session.num_actions)
            answer, non_finite = responses.encode(batch)
        except AbiError as error:
            self._guest.log.say(logging.WARNING, f"a submit was refused: {error}")
            raise
        finally:
            session.queue.end_submit()
        if non_finite and not session.non_finite_actions:
            self._guest.log.say(logging.WARNING, "non-finite actions are sent as zeros")
        session.non_finite_actions += non_finite
        self._guest.non_finite_actions += non_finite
        return answer
