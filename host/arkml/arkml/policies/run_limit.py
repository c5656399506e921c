"""The time that runs of one policy may take, and the end of a policy that took longer."""

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

    snapshot: the digest of the snapshot that a guest brought, or None if the embedder or a run did.
    A run of a guest's snapshot that was stopped because it took too long is its last: every later
    run in the same workspace raises Unavailable. `user` is replaced then, so that all arrays are
    bound to the model again.
    """

    __slots__ = ("_snapshot", "_workspace", "user")

    def __init__(self, workspace: PolicyWorkspace, snapshot: bytes | None = None) -> None:
        self.user = object()
        self._workspace = workspace
        self._snapshot = snapshot

    @property
    def is_of_guest(self) -> bool:
        """True if the guest brought the snapshot."""
        return self._snapshot is not None

    def require(self) -> None:
        """Raise Unavailable if a run of the snapshot was stopped."""
        if self._snapshot is not None:
            self._workspace.require_runnable(self._snapshot)

    def seconds(self, most: float) -> float:
        """Return the seconds of wall time that the next run may take: `most`, or fewer."""
        return max(0.0, min(most, self._workspace.run_seconds))

    @property
    def helpers(self) -> Helpers:
        """The threads that may help with a run."""
        return self._workspace.helpers

    def run(self, shared: SharedRun, options: Any, most: float) -> None:
        """
        Make calls that run with `options`, whose `terminate` stops them between nodes.

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
        """Make every later run raise Unavailable, if a guest brought the snapshot."""
        if self._snapshot is not None:
            self._workspace.stopped[self._snapshot] = text
            self.user = object()
