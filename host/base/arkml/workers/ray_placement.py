"""Worker programs on the nodes of a Ray cluster, which only starts and places them."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from arkml.base.closing import Closing
from arkml.base.handler_errors import is_of_handler
from arkml.errors import Unavailable
from arkml.workers.local import LocalWorker, job_line
from arkml.workers.ray_cluster import RayCluster, lost

_RELAY = "arkml.workers.ray_placement:WorkerRelay"
_MAX_EVENTS = 1_000
_LOOK_EVERY = 0.1
_ASK_EVERY = 0.2
_KILLED_WITHIN = 5.0


class RelayState(NamedTuple):
    """The state of a worker program on its node, and its events since the state before."""

    events: list[dict[str, Any]]
    is_alive: bool
    status: int | None
    reason: str


class WorkerRelay:
    """A worker program on the node of a Ray actor, on its side."""

    def __init__(self, module: str, job: bytes, name: str) -> None:
        """Start the program. Raises OSError."""
        self._worker = LocalWorker(module, job, name)

    def state(self, seconds: float) -> RelayState:
        """Wait for the end of the program, for at most `seconds`, and return its state."""
        worker = self._worker
        worker.wait(seconds)
        is_alive = worker.is_alive  # before the events, of which none comes after the end
        return RelayState(worker.events(), is_alive, worker.status, worker.reason)

    def stop(self, seconds: float) -> None:
        """Ask the program to end, and end it by force after `seconds`."""
        self._worker.stop(seconds)

    def kill(self) -> None:
        """End the program by force."""
        self._worker.kill()


class RayWorker:
    """
    A program on a node of a Ray cluster.

    The newest thousand events are kept.
    """

    def __init__(self, cluster: RayCluster, module: str, job: bytes, name: str) -> None:
        """Ask for a node that starts the program."""
        self.name = name
        self.status: int | None = None
        """The exit status, negative for a signal; None before the end, or where it is not known."""
        self.reason = ""
        """A sentence on an end that was not asked for, empty before and otherwise."""
        self.is_alive = True
        """True until the program has ended."""
        self._ray = cluster.ray
        self._handle = cluster.place(_RELAY, module, job, name)
        self._has_begun = self._is_stopped = False
        self._events: deque[dict[str, Any]] = deque(maxlen=_MAX_EVENTS)
        self.call = self._handle.begin.remote()
        """The call that is on its way, one at a time."""

    def events(self) -> list[dict[str, Any]]:
        """Return the JSON objects that the program has printed since the last call. Never waits."""
        events = list(self._events)
        for _ in events:
            self._events.popleft()
        return events

    def stop(self, seconds: float) -> None:
        """Ask the program to end, and end it by force after `seconds`. Does not wait."""
        if self.is_alive and not self._is_stopped:
            self._is_stopped = True
            if self._has_begun:
                self._handle.call.remote("stop", seconds)
            else:
                self.drop()

    def kill(self) -> None:
        """End the program by force. Does not wait."""
        self._is_stopped = True
        if self.is_alive and self._has_begun:
            self._handle.call.remote("kill")  # Ray would leave what the program has started
        else:
            self.drop()

    def drop(self) -> None:
        """Give up the node, with which the program ends, but not what it has started."""
        self._is_stopped = True
        self._end("")

    def answered(self) -> None:
        """Handle the answer to the call on its way, and make the next one."""
        try:
            answer = self._ray.get(self.call)
        except Exception as error:  # Ray raises many kinds
            if is_of_handler(error):
                raise
            self._end(f"{self.name} on the Ray cluster was lost: {lost(error)}")
            return
        if not self._has_begun:
            self._has_begun = True
            if answer:
                self._end(f"{self.name} cannot be started: {answer}")
                return
        else:
            self._events.extend(answer.events)
            if not answer.is_alive:
                self.status = answer.status
                self._end(answer.reason)
                return
        self.call = self._handle.call.remote("state", _ASK_EVERY)

    def _end(self, reason: str) -> None:
        if not self.is_alive:
            return
        self.reason = "" if self._is_stopped else reason
        self._ray.kill(self._handle)  # with which the program ends, if it has not
        self.is_alive = False


class RayPlacement(Closing):
    """
    Starts worker programs on the nodes of a Ray cluster: that at "HOST:PORT", or an own one.

    One that finds no free processor waits for it.
    """

    def __init__(self, address: str | None = None, *, cpus: int = 1) -> None:
        """
        Join the cluster, which must have `cpus` free processors, or start one.

        Raises UsageError if Ray is not installed or in use otherwise, and Unavailable, within ten
        seconds, if the cluster does not answer, runs other versions or has less processors free.
        """
        self._cluster = RayCluster.open(address, cpus=cpus)
        self._workers: list[RayWorker] = []
        self._is_closed = False
        self._changed = threading.Condition()
        self._thread = threading.Thread(target=self._watch, name="arkml-workers", daemon=True)
        self._thread.start()

    def start(self, module: str, job: Mapping[str, Any], name: str) -> RayWorker:
        """
        Start `python -m MODULE`, which reads `job` as a line of JSON from its standard input.

        The version of this package is added to the job. Raises UsageError if JSON cannot take the
        job, and Unavailable if the placement is closed.
        """
        line = job_line(job)
        with self._changed:
            if self._is_closed:
                raise Unavailable(f"{name} cannot be started: the placement is closed")
            worker = RayWorker(self._cluster, module, line, name)
            self._workers.append(worker)
            self._changed.notify_all()
        return worker

    def close(self, seconds: float = 5.0) -> None:
        """End all programs, by force after `seconds`, and free everything. Safe to call again."""
        with self._changed:
            if self._is_closed:
                return
            self._is_closed = True
            for worker in self._workers:
                worker.stop(seconds)
            self._changed.wait_for(lambda: not self._workers, seconds)
            for worker in self._workers:
                worker.kill()
            self._changed.wait_for(lambda: not self._workers, _KILLED_WITHIN)
            for worker in self._workers:
                worker.drop()
            self._changed.notify_all()
        self._thread.join(_KILLED_WITHIN)
        self._cluster.close()

    def _watch(self) -> None:
        """Wait for answers, in the thread of the placement."""
        while True:
            with self._changed:
                self._workers = [worker for worker in self._workers if worker.is_alive]
                self._changed.notify_all()
                calls = [worker.call for worker in self._workers]
                if not calls:
                    if self._is_closed:
                        return
                    self._changed.wait(_LOOK_EVERY)
                    continue
            done, _ = self._cluster.ray.wait(calls, timeout=_LOOK_EVERY)
            with self._changed:
                for worker in self._workers:
                    if worker.is_alive and worker.call in done:
                        worker.answered()
