"""The time limit on runs of one policy, and the end of a policy that exceeded it."""

from __future__ import annotations

from functools import partial
from typing import Any

from arkml.base.handler_errors import is_of_handler
from arkml.errors import Unavailable
from arkml.policies.shared_run import Helpers, SharedRun
from arkml.policies.watchdog import Watch, watched
from arkml.policies.workspace import PolicyWorkspace

_MOSTLY = 0.5  # the share of the time that a run must have had the processor to be blamed


class RunLimit:
    """
    The limit on the runs of a policy or network.

    snapshot: the digest of a model that a guest brought, None for a model of the embedder or of a
    training run. A guest's model that was stopped because it took too long is never run again:
    every later run in the same workspace raises Unavailable. `user` is then replaced, so that all
    arrays must be bound to the model again.
    """

    __slots__ = ("_snapshot", "_workspace", "user")

    def __init__(self, workspace: PolicyWorkspace, snapshot: bytes | None = None) -> None:
        self.user = object()
        self._workspace = workspace
        self._snapshot = snapshot

    @property
    def is_of_guest(self) -> bool:
        """True if a guest brought the model."""
        return self._snapshot is not None

    def require(self) -> None:
        """Raise Unavailable if an earlier run of the model was stopped."""
        if self._snapshot is not None:
            self._workspace.require_runnable(self._snapshot)

    def seconds(self, most: float) -> float:
        """Return the wall time in seconds that the next run may take, at most `most`."""
        return max(0.0, min(most, self._workspace.run_seconds))

    @property
    def helpers(self) -> Helpers:
        """The threads that may help with a run."""
        return self._workspace.helpers

    def run(self, shared: SharedRun, options: Any, most: float) -> None:
        """
        Run the parts of a model with `options`, whose `terminate` stops runs between nodes.

        Raises Unavailable if they take longer than `most` seconds or than the workspace allows, or
        if the caller is interrupted.
        """
        self.require()
        seconds = self.seconds(most)
        options.terminate = False

        def cancel() -> None:
            options.terminate = True

        with watched(cancel, wall_seconds=seconds) as watch:
            try:
                shared(partial(self._require_in_time, watch))
            except Exception as error:
                if watch.reason is None or is_of_handler(error):
                    raise
                raise self._stopped(watch.cpu_seconds, seconds) from error
        if watch.reason is not None:
            raise self._stopped(watch.cpu_seconds, seconds)

    def _require_in_time(self, watch: Watch) -> None:
        watch.look()
        if watch.reason is not None:
            raise TimeoutError
        # A signal is handled between two calls, because they run outside of Python.
        if self._workspace.is_interrupted():
            raise Unavailable("the run of the model was interrupted")

    def _stopped(self, used: float, seconds: float) -> Unavailable:
        text = f"the model ran longer than {seconds:.3g} s"
        if used < _MOSTLY * seconds:
            return Unavailable(f"{text}, of which it had the processor for {used:.3g} s")
        self.fail(text)
        return Unavailable(text)

    def fail(self, text: str) -> None:
        """Make every later run raise Unavailable with this text, if a guest brought the model."""
        if self._snapshot is not None:
            self._workspace.stopped[self._snapshot] = text
            self.user = object()
