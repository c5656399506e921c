"""A thread that passes the progress of a training on to a tracker, and never stops the training."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from queue import Full, Queue
from typing import TYPE_CHECKING

from arkml.base.closing import Closing
from arkml.base.terminal import harmless
from arkml.training.results import ProgressFunction, TrainingProgress
from arkml.training.tracker_clients import Tracker, open_tracker

if TYPE_CHECKING:
    from arkml.hive.client import HiveClient
    from arkml.hive.protocol.runs import RunInfo
    from arkml.training.training_options import TrainingOptions

_POLICIES = ("onnx", "last")
"""Names of files of a training that a tracker keeps."""

_WAITING = 256
"""The most reports that wait for a slow tracker; further reports are dropped."""

_ENDING = 30.0
"""Seconds that a tracker has at the end of a training."""


class Tracking(Closing):
    """
    Passes metrics, settings and policies to the tracker of a training, on a thread of its own.

    Without a tracker in `options` it does nothing. After the first failure, of which `warn` gets a
    sentence, nothing more is passed on.
    """

    def __init__(
        self,
        options: TrainingOptions,
        warn: Callable[[str], object],
        known: str | None = None,
        keep: Callable[[str], object] = lambda _: None,
    ) -> None:
        """Prepare it; `known` is the run to continue, and `keep` gets the id of the run in use."""
        self._options = options
        self._known = known
        self._keep = keep
        self._warn = warn
        self._jobs: Queue[Callable[[], None] | None] = Queue(_WAITING)
        self._tracker: Tracker | None = None
        self._thread: threading.Thread | None = None
        self._has_failed = False
        self._rows = -1
        self._until = 0.0

    def observing(self, progress: ProgressFunction | None) -> ProgressFunction | None:
        """Return a progress function that also passes metrics to the tracker."""
        if self._options.track is None:
            return progress

        def observe(state: TrainingProgress) -> object:
            if state.rows > self._rows and state.metrics:
                self._rows = state.rows
                self._log(state.metrics, state.rows)
            return None if progress is None else progress(state)

        return observe

    def begin(self, client: HiveClient, run: RunInfo) -> None:
        """Start the thread, which opens the tracker with the settings of the run."""
        options, name = self._options, self._options.track
        if name is None:
            return
        title = f"{options.stem}-{options.seed}"
        own = {"guest": options.name, "run": run.id, "game": run.game, "name": run.name}
        counts = {"instances": options.instances, "actors": options.actors or 1}

        def open_() -> None:
            settings = client.details(run.id).result(_ENDING).settings.as_json()
            config = {**settings, **own, **counts}
            place = options.stem, options.directory
            self._tracker = open_tracker(name, title, *place, config, self._known)
            self._keep(self._tracker.id)

        self._put(open_)
        self._thread = threading.Thread(target=self._run, name="arkml-tracker", daemon=True)
        self._thread.start()

    def finish(self, metrics: Mapping[str, float], rows: int, files: Mapping[str, Path]) -> None:
        """Pass on the last metrics and the policies, and wait some seconds for the tracker."""
        policies = [files[name] for name in _POLICIES if name in files]
        self._log(metrics, rows)
        self._begin_end()
        self._put(lambda: None if self._tracker is None else self._tracker.keep(policies))
        self.close()

    def close(self) -> None:
        """End the record at the tracker. Safe to call twice."""
        thread = self._thread
        if thread is None or not thread.is_alive():
            return
        self._begin_end()
        self._put(None)
        thread.join(self._left)
        if thread.is_alive():
            self._fail(f"it did not end within {_ENDING:g} s")

    @property
    def _left(self) -> float:
        """The seconds that the tracker may be waited for now, 0 while the training runs."""
        return max(0.0, self._until - time.monotonic())

    def _begin_end(self) -> None:
        self._until = self._until or time.monotonic() + _ENDING

    def _log(self, metrics: Mapping[str, float], rows: int) -> None:
        values = dict(metrics)
        self._put(lambda: None if self._tracker is None else self._tracker.log(values, rows))

    def _put(self, job: Callable[[], None] | None) -> None:
        """Queue a job for the thread, or None to end it. It is dropped if the queue stays full."""
        with suppress(Full):
            self._jobs.put(job, timeout=self._left)

    def _run(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._try(job)
        if self._tracker is not None:
            self._try(self._tracker.end)

    def _try(self, job: Callable[[], None]) -> None:
        """Do a job, unless one failed before."""
        if self._has_failed:
            return
        try:
            job()
        except Exception as error:  # noqa: BLE001  whatever it raises, the training continues
            self._fail(f"{type(error).__name__}: {error}")

    def _fail(self, reason: str) -> None:
        if not self._has_failed:
            self._has_failed = True
            first = harmless(reason.strip().splitlines()[0])
            self._warn(f"the tracker {self._options.track} failed, and gets nothing more: {first}")
