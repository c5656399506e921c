"""Worker programs on the nodes of a Ray cluster."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Mapping, Sequence
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
    """The state of a worker program on its node, with its latest events."""

    events: list[dict[str, Any]]
    is_alive: bool
    status: int | None
    reason: str


class WorkerRelay:
    """The Ray actor's object that runs a worker program on its node."""

    def __init__(self, module: str, job: bytes, name: str) -> None:
        """Start the program. Raises OSError."""
        self._worker = LocalWorker(module, job, name)

    def state(self, seconds: float, messages: Sequence[Mapping[str, Any]]) -> RelayState:
        """
        Pass messages to the program, wait at most `seconds` for its end, and return its state.
        """
        worker = self._worker
        for message in messages:
            worker.send(message)
        worker.wait(seconds)
        is_alive = worker.is_alive  # read first: no events come after the end
        return RelayState(worker.events(), is_alive, worker.status, worker.reason)

    def stop(self, seconds: float) -> None:
        """Ask the program to end, and kill it after `seconds`."""
        self._worker.stop(seconds)

    def kill(self) -> None:
        """Kill the program."""
        self._worker.kill()


class RayWorker:
    """
    A worker program on a node of a Ray cluster.

    The latest thousand events are kept.
    """

    def __init__(self, cluster: RayCluster, module: str, job: bytes, name: str) -> None:
        """Request a node that starts the program."""
        self.name = name
        self.status: int | None = None
        """Exit status, negative for a signal; None while it runs, or if it is unknown."""
        self.reason = ""
        """A sentence about an unexpected end, otherwise empty."""
        self.is_alive = True
        """True until the program has ended."""
        self._ray = cluster.ray
        self._handle = cluster.place(_RELAY, module, job, name)
        self._has_begun = self._is_stopped = False
        self._unsent: deque[Mapping[str, Any]] = deque()  # goes with the next call, in order
        self._events: deque[dict[str, Any]] = deque(maxlen=_MAX_EVENTS)
        self.call = self._handle.begin.remote()
        """The one pending call."""

    def events(self) -> list[dict[str, Any]]:
        """Return the JSON objects printed since the last call. Never waits."""
        events = list(self._events)
        for _ in events:
            self._events.popleft()
        return events

    def send(self, message: Mapping[str, Any]) -> None:
        """Queue a message for the program, sent at most `_ASK_EVERY` seconds later. Never waits."""
        self._unsent.append(dict(message))

    def stop(self, seconds: float) -> None:
        """Ask the program to end, and kill it after `seconds`. Does not wait."""
        if self.is_alive and not self._is_stopped:
            self._is_stopped = True
            if self._has_begun:
                self._handle.call.remote("stop", seconds)
            else:
                self.drop()

    def kill(self) -> None:
        """Kill the program. Does not wait."""
        self._is_stopped = True
        if self.is_alive and self._has_begun:
            self._handle.call.remote("kill")  # Ray would not kill the program's own processes
        else:
            self.drop()

    def drop(self) -> None:
        """Release the node. This ends the program, but not processes that it has started."""
        self._is_stopped = True
        self._end("")

    def answered(self) -> None:
        """Handle the answer to the pending call to the node, and make the next call."""
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
        messages = [self._unsent.popleft() for _ in range(len(self._unsent))]
        self.call = self._handle.call.remote("state", _ASK_EVERY, messages)

    def _end(self, reason: str) -> None:
        if not self.is_alive:
            return
        self.reason = "" if self._is_stopped else reason
        self._ray.kill(self._handle)  # this also ends a program that still runs
        self.is_alive = False


class RayPlacement(Closing):
    """
    Starts worker programs on the nodes of a Ray cluster, at "HOST:PORT" or a private one.

    A program that finds no free processor waits for one.
    """

    def __init__(self, address: str | None = None, *, cpus: int = 1) -> None:
        """
        Join the cluster, which must have `cpus` free processors, or start a private one.

        Raises UsageError if Ray is not installed or this process uses another cluster, and
        Unavailable, within ten seconds, if the cluster does not answer, runs other versions or
        lacks free processors.
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

        The version of this package is added to the job.

        Args:
            module: Name of the module.
            job: JSON object.
            name: Name of the worker.

        Raises:
            UsageError: The job cannot be encoded as JSON.
            Unavailable: The placement is closed.

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
        """End all programs, by force after `seconds`, and release resources. Idempotent."""
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
        """Wait for answers, in the placement's thread."""
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
