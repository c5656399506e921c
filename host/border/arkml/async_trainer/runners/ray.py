"""The runner of actors on a Ray cluster."""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.message_codec import decode_arrived, encode_job, encode_model
from arkml.async_trainer.runners.ray_actor import Counts, Wishes
from arkml.async_trainer.runners.runner import CHANNEL, ActorEnded, ActorJob, ActorStat, Waits
from arkml.base.closing import Closing
from arkml.base.handler_errors import is_of_handler
from arkml.errors import Unavailable
from arkml.workers.ray_cluster import RayCluster, lost

_ACTOR = "arkml.async_trainer.runners.ray_actor:RayActor"
_CHECK_EVERY = 0.1


@dataclass(eq=False)
class _Remote:
    """One incarnation of an actor, and its pending calls: two at most."""

    job: ActorJob
    handle: Any
    taking: Any
    updating: Any = None
    has_begun: bool = False
    wishes: Wishes | None = None
    model: int = -1
    counts: Counts = field(default_factory=lambda: Counts(0, Waits()))
    began: float = field(default_factory=time.perf_counter)


class RayRunner(Closing):
    """
    Runs each actor as a Ray actor. Ray never restarts one: the manager does.

    Each actor has pending calls, for which a thread waits: one call takes the actor's next message,
    another updates its state. A model is put into the object store once, replacing its predecessor.
    """

    def __init__(self, address: str | None = None) -> None:
        """
        Join the cluster at "HOST:PORT", or start a private one.

        Raises UsageError if Ray is not installed, and Unavailable if the cluster cannot be reached.
        """
        self._cluster = RayCluster.open(address)
        self._ray = self._cluster.ray
        self._past_waits = Waits()
        self._remotes: list[_Remote] = []
        self._arrived: deque[tuple[ActorJob, bytes] | ActorEnded] = deque()
        self._messages = 0
        self._admitted: dict[int, int] = {}
        self._model: tuple[int, int, Any] = (-1, 0, None)
        self._refusal = ""
        self._is_refused = self._is_stopped = self._is_closing = self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="arkml-actors", daemon=True)
        self._thread.start()

    @property
    def waits(self) -> Waits:
        """Number and total seconds of actors' waits at a full channel."""
        with self._changed:
            waits = [self._past_waits, *(remote.counts.waits for remote in self._remotes)]
            return Waits(sum(one.count for one in waits), sum(one.seconds for one in waits))

    def start(self, job: ActorJob) -> None:
        """
        Start an incarnation of an actor; a replacement may wait for a node.

        Raises UsageError if pickle cannot encode the job, and Unavailable if no CPU is free.
        """
        data = encode_job(job, self._ray.cloudpickle.dumps)
        if job.incarnation == 0:
            self._cluster.reserve(f"actor {job.actor}")
        handle = self._cluster.place(_ACTOR, data)
        with self._changed:
            self._remotes.append(_Remote(job, handle, handle.begin.remote()))
            self._changed.notify_all()

    def publish(self, n_opts: int, model_info: Any) -> None:
        """
        Send a model to all actors, including later ones; older models are dropped.

        Raises UsageError if pickle cannot encode the model.
        """
        reference = self._ray.put(encode_model(model_info))
        with self._changed:
            self._model = self._model[0] + 1, n_opts, reference
            self._update_all()

    def admit(self, actor: int, items: int) -> None:
        """Allow the present incarnation of an actor to make `items` items in total."""
        with self._changed:
            self._admitted[actor] = items
            self._update_all()

    def receive(self, seconds: float) -> list[PushedItemMessage | ActorEnded]:
        """
        Return messages and ends of actors, waiting for at most `seconds` if there are none.

        Raises Unavailable, once, if an actor cannot begin on its node.
        """
        if not self._arrived and seconds <= 0:
            return []
        with self._changed:
            self._changed.wait_for(lambda: self._arrived, seconds)
            if self._refusal and not self._is_refused and not self._is_stopped:
                self._is_refused = True
                raise Unavailable(self._refusal)
            arrived = list(self._arrived)
            self._arrived.clear()
            self._messages = 0
            for remote in self._remotes:
                self._take_next(remote)
            self._update_all()
        return [decode_arrived(one) for one in arrived]

    def stop(self) -> None:
        """Ask all actors to stop."""
        with self._changed:
            self._is_stopped = True
            for remote in self._remotes:
                self._take_next(remote)
            self._update_all()

    def close(self, seconds: float = 5.0) -> None:
        """End all actors, by force after `seconds`, and release resources. Idempotent."""
        if self._is_closed:
            return
        self._is_closed = True
        self.stop()
        with self._changed:
            self._changed.wait_for(lambda: not self._remotes, seconds)
            self._is_closing = True
            for remote in self._remotes:
                self._ray.kill(remote.handle)
            self._remotes.clear()
            self._model = (-1, 0, None)
            self._changed.notify_all()
        self._thread.join()
        self._cluster.close()

    def _watch(self) -> None:
        """Wait for pending calls to return, in the runner's thread."""
        while not self._is_closing:
            with self._changed:
                waiting = [one.taking for one in self._remotes if one.taking is not None]
                waiting += [one.updating for one in self._remotes if one.updating is not None]
                if not waiting:
                    self._changed.wait(_CHECK_EVERY)
            done = self._ray.wait(waiting, timeout=_CHECK_EVERY)[0] if waiting else []
            with self._changed:
                if not done and self._is_full:
                    self._update_all(is_check=True)
                for remote in tuple(self._remotes):
                    self._look_at(remote, done)
                self._changed.notify_all()

    def _look_at(self, remote: _Remote, done: list[Any]) -> None:
        """Handle the returned calls of an actor."""
        try:
            if remote.updating in done:
                updating, remote.updating = remote.updating, None
                remote.counts = self._ray.get(updating)
                self._update(remote)
            if remote.taking in done:
                taking, remote.taking = remote.taking, None
                self._take(remote, self._ray.get(taking))
        except Exception as error:  # Ray raises many kinds
            if is_of_handler(error):
                raise
            if remote in self._remotes:
                reason = f"actor {remote.job.actor} on the Ray cluster was lost: {lost(error)}"
                self._end(remote, self._ended(remote, reason))

    def _take(self, remote: _Remote, returned: Any) -> None:
        """Handle the result of `begin` or `take`."""
        if not remote.has_begun:
            remote.has_begun = True
            if returned:
                reason = f"actor {remote.job.actor} cannot begin on its node: {returned}"
                self._refusal = self._refusal or reason
                self._end(remote, self._ended(remote, reason))
                return
        else:
            remote.counts = returned.counts
            if returned.message is None:
                self._end(remote, returned.ended)
                return
            self._messages += 1
            self._arrived.append((remote.job, returned.message))
            if self._messages == CHANNEL:
                self._update_all()
        self._update(remote)
        self._take_next(remote)

    def _take_next(self, remote: _Remote) -> None:
        """Call for an actor's next message unless the channel is full."""
        if remote.has_begun and remote.taking is None and not self._is_full:
            remote.taking = remote.handle.call.remote("take")

    @property
    def _is_full(self) -> bool:
        """True if the channel is full; it always has room for the last messages."""
        return self._messages >= CHANNEL and not self._is_stopped

    def _update_all(self, *, is_check: bool = False) -> None:
        for remote in self._remotes:
            self._update(remote, is_check=is_check)

    def _update(self, remote: _Remote, *, is_check: bool = False) -> None:
        """
        Send an actor its changed state unless an earlier update is pending.

        With `is_check` it is asked for its counts even without changes.
        """
        if not remote.has_begun or remote.updating is not None:
            return
        wishes = Wishes(self._admitted.get(remote.job.actor), self._is_full, self._is_stopped)
        number, n_opts, reference = self._model
        if wishes == remote.wishes and number == remote.model and not is_check:
            return
        model = reference if number != remote.model else None
        remote.wishes, remote.model = wishes, number
        remote.updating = remote.handle.call.remote("update", wishes, n_opts, model)

    def _ended(self, remote: _Remote, reason: str) -> ActorEnded:
        stat = ActorStat(remote.counts.made, time.perf_counter() - remote.began)
        return ActorEnded(remote.job.actor, remote.job.incarnation, stat, reason)

    def _end(self, remote: _Remote, ended: ActorEnded) -> None:
        self._past_waits.count += remote.counts.waits.count
        self._past_waits.seconds += remote.counts.waits.seconds
        self._remotes.remove(remote)
        self._arrived.append(ended)
        self._ray.kill(remote.handle)
