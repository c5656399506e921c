"""The runner of actors in threads of this process."""

from __future__ import annotations

import time
from threading import Condition, Thread
from typing import Any

from arkml.async_trainer.actor import run_actor
from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.runner import CHANNEL, ActorEnded, ActorJob, Waits, channel_full


class ThreadRunner:
    """
    Runs each actor in a thread.

    All actors share one model object. A thread cannot be ended by force: one that does not end by
    itself is left running until the process ends.
    """

    def __init__(self) -> None:
        self._channel = _Channel()
        self._threads: list[Thread] = []

    @property
    def waits(self) -> Waits:
        """Number and total seconds of actors' waits at a full channel."""
        return self._channel.waits

    def start(self, job: ActorJob) -> None:
        """Start an incarnation of an actor."""
        name = f"arkml-actor-{job.actor}.{job.incarnation}"
        thread = Thread(target=self._run, args=(job,), name=name, daemon=True)
        self._threads = [other for other in self._threads if other.is_alive()]
        self._threads.append(thread)
        thread.start()

    def publish(self, n_opts: int, model_info: Any) -> None:
        """Send a model to all actors, including later ones."""
        with self._channel.changes:
            self._channel.model = n_opts, model_info
            self._channel.changes.notify_all()

    def admit(self, actor: int, items: int) -> None:
        """Allow the present incarnation of an actor to make `items` items in total."""
        with self._channel.changes:
            self._channel.admitted[actor] = items
            self._channel.changes.notify_all()

    def receive(self, seconds: float) -> list[PushedItemMessage | ActorEnded]:
        """Return messages and ends of actors, waiting for at most `seconds` if there are none."""
        return self._channel.take(seconds)

    def stop(self) -> None:
        """Ask all actors to stop."""
        with self._channel.changes:
            self._channel.is_stopped = True
            self._channel.changes.notify_all()

    def close(self, seconds: float) -> None:
        """Wait at most `seconds` for all threads to end."""
        self.stop()
        until = time.monotonic() + seconds
        for thread in self._threads:
            thread.join(max(0.0, until - time.monotonic()))

    def _run(self, job: ActorJob) -> None:
        ended = run_actor(job, _Link(self._channel, job))
        with self._channel.changes:
            self._channel.arrived.append(ended)
            self._channel.changes.notify_all()


class _Channel:
    """Messages, models and counters that all threads share, under one lock."""

    def __init__(self) -> None:
        self.changes = Condition()
        self.arrived: list[PushedItemMessage | ActorEnded] = []
        self.model: tuple[int, Any] | None = None
        self.admitted: dict[int, int] = {}
        self.is_stopped = False
        self.waits = Waits()

    def take(self, seconds: float) -> list[PushedItemMessage | ActorEnded]:
        if not self.arrived and seconds <= 0:
            return []
        with self.changes:
            self.changes.wait_for(lambda: self.arrived, seconds)
            arrived, self.arrived = self.arrived, []
            if len(arrived) >= CHANNEL:
                self.changes.notify_all()
        return arrived


class _Link:
    """The channel, as one actor sees it."""

    def __init__(self, channel: _Channel, job: ActorJob) -> None:
        self._channel = channel
        self._job = job

    @property
    def is_stopped(self) -> bool:
        return self._channel.is_stopped

    def first_model(self) -> tuple[int, Any] | None:
        channel = self._channel
        with channel.changes:
            channel.changes.wait_for(lambda: channel.model is not None or channel.is_stopped)
            return None if channel.is_stopped else channel.model

    def newest_model(self, newer_than: int) -> tuple[int, Any] | None:
        model = self._channel.model
        return model if model is not None and model[0] > newer_than else None

    def may_step(self, made: int) -> bool:
        if not self._is_held(made):
            return True
        channel = self._channel
        with channel.changes:
            channel.changes.wait_for(lambda: channel.is_stopped or not self._is_held(made))
            return not channel.is_stopped

    def send(self, message: PushedItemMessage) -> None:
        channel = self._channel
        with channel.changes:
            if self._is_full():
                if self._job.on_full == "raise":
                    raise channel_full(message)
                channel.waits.count += 1
                began = time.perf_counter()
                channel.changes.wait_for(lambda: not self._is_full())
                channel.waits.seconds += time.perf_counter() - began
            channel.arrived.append(message)
            channel.changes.notify_all()

    def _is_full(self) -> bool:
        """Return whether the channel is full; it always has room for the last messages."""
        channel = self._channel
        return len(channel.arrived) >= CHANNEL and not channel.is_stopped

    def _is_held(self, made: int) -> bool:
        admitted = self._channel.admitted.get(self._job.actor)
        return admitted is not None and made >= admitted
