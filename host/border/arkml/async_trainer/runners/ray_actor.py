"""An actor's side of the connection in a process of a Ray cluster."""

from __future__ import annotations

import pickle
import time
from threading import Condition, Thread
from typing import Any, NamedTuple

from arkml.async_trainer.actor import run_actor
from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.message_codec import encode_message
from arkml.async_trainer.runners.runner import ActorEnded, ActorJob, Waits, channel_full


class Wishes(NamedTuple):
    """The state that the runner wants an actor to have; `admitted` is None for no limit."""

    admitted: int | None
    is_full: bool
    is_stopped: bool


class Counts(NamedTuple):
    """Number of items that an actor has made, and its waits at a full channel."""

    made: int
    waits: Waits


class Taken(NamedTuple):
    """An encoded message, or the end of the actor."""

    message: bytes | None
    ended: ActorEnded | None
    counts: Counts


class RayActor:
    """
    Runs an actor's loop in a thread, while Ray calls the methods from other threads.

    Each message is returned by a call that waits for it, so if a node is lost, at most one message
    and the items after it are lost.
    """

    def __init__(self, data: bytes) -> None:
        """Begin an encoded job. Raises pickle's errors."""
        self._job: ActorJob = pickle.loads(data)
        self._changes = Condition()
        self._wishes = Wishes(admitted=None, is_full=False, is_stopped=False)
        self._model: tuple[int, bytes] | None = None
        self._is_wanted = False
        self._message: bytes | None = None
        self._ended: ActorEnded | None = None
        self._made = 0
        self._waits = Waits()
        self._thread: Thread | None = None

    def update(self, wishes: Wishes, n_opts: int, model: bytes | None) -> Counts:
        """
        Apply the runner's wishes, and a model unless it is None. The first call starts the actor.

        Args:
            wishes: The wanted state.
            n_opts: Optimization steps of the model.
            model: The encoded model, or None.

        """
        with self._changes:
            self._wishes = wishes
            if model is not None:
                self._model = n_opts, model
            if self._thread is None:
                self._thread = Thread(target=self._run, name="arkml-actor", daemon=True)
                self._thread.start()
            self._changes.notify_all()
            return self._counts()

    def take(self) -> Taken:
        """Wait for the next message or, after the last one, for the end of the actor."""
        with self._changes:
            self._is_wanted = True
            self._changes.notify_all()
            self._changes.wait_for(lambda: self._message is not None or self._ended is not None)
            self._is_wanted = False
            message, self._message = self._message, None
            ended = self._ended if message is None else None
            return Taken(message, ended, self._counts())

    def _counts(self) -> Counts:
        return Counts(self._made, Waits(self._waits.count, self._waits.seconds))

    def _run(self) -> None:
        ended = run_actor(self._job, self)
        with self._changes:
            self._ended = ended
            self._changes.notify_all()

    @property
    def is_stopped(self) -> bool:
        """True once the actor should stop."""
        return self._wishes.is_stopped

    def first_model(self) -> tuple[int, Any] | None:
        """Wait for the first model; return it with its optimization steps, or None if stopped."""
        with self._changes:
            self._changes.wait_for(lambda: self._model is not None or self.is_stopped)
            model = self._model
        if model is None or self.is_stopped:
            return None
        return model[0], pickle.loads(model[1])

    def newest_model(self, newer_than: int) -> tuple[int, Any] | None:
        """Return the newest model if it has more optimization steps, else None. Never waits."""
        model = self._model
        if model is None or model[0] <= newer_than:
            return None
        return model[0], pickle.loads(model[1])

    def may_step(self, made: int) -> bool:
        """Wait until more than `made` items are admitted; return False if stopped."""
        self._made = made
        if self._is_held(made):
            with self._changes:
                self._changes.wait_for(lambda: self.is_stopped or not self._is_held(made))
        return not self.is_stopped

    def send(self, message: PushedItemMessage) -> None:
        """Hand over a message; at a full channel, wait or raise as the job says."""
        data = encode_message(message)
        with self._changes:
            self._changes.wait_for(lambda: self._has_room() or self._wishes.is_full)
            if not self._has_room():
                if self._job.on_full == "raise":
                    raise channel_full(message)
                self._waits.count += 1
                began = time.perf_counter()
                self._changes.wait_for(self._has_room)
                self._waits.seconds += time.perf_counter() - began
            self._message = data
            self._changes.notify_all()

    def _has_room(self) -> bool:
        return self._is_wanted and self._message is None

    def _is_held(self, made: int) -> bool:
        admitted = self._wishes.admitted
        return admitted is not None and made >= admitted
