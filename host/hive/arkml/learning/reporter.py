"""Reports of a learner's progress and metrics, sent to its server and recorded in files."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterable, Iterator
from itertools import groupby

from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.settings import Settings
from arkml.learning.learner import Learner
from arkml.learning.pace_figures import PaceFigures
from arkml.learning.recorder import Hparam, Recorder
from arkml.learning.server_connection import ServerConnection
from arkml.learning.version_ratings import Rating

RECORD_EVERY = 1.0
UNCHANGED_EVERY = 10.0
"""Seconds between two records of a value that stays the same."""

PROGRESS_EVERY = 0.025
"""Least seconds between two reports of the loop: hosts that wait hear of their credit by them."""


class Reporter:
    """
    Sends and records progress and metrics.

    Any thread may call `send_progress`; only the loop's thread calls the other methods.
    """

    def __init__(self, learner: Learner, server: ServerConnection) -> None:
        self.is_paused = False
        """True while the learner is paused, and hosts must not send rows."""
        self._learner = learner
        self._server = server
        self._recorder = Recorder(learner.run.directory / "events", _hparams(learner.settings))
        now = time.monotonic()
        self._sent_at = self._recorded_at = now
        self._last_values: dict[str, tuple[float, float]] = {}
        self._turn_began: float | None = None
        self._pace = PaceFigures(now, learner.n_opts, is_on_policy=learner.algorithm.is_on_policy)
        self._cursor = learner.experience.log.cursor
        self._sent = self._recorded = self._present

    @property
    def is_done(self) -> bool:
        """True if the present state has been sent and recorded."""
        return self._present == self._sent == self._recorded

    @property
    def _holds(self) -> bool:
        """True while hosts must not send rows."""
        return self.is_paused or self._learner.pace.holds

    @property
    def _present(self) -> tuple[Place, int, bool]:
        return self._cursor, self._learner.n_opts, self._holds

    def send_hello(self) -> None:
        """Send the first message of the connection to the server."""
        self._server.send(
            "hello",
            pid=os.getpid(),
            device=self._learner.algorithm.device,
            n_opts=self._learner.n_opts,
            cursor=list(self._learner.experience.log.cursor),
            restored_from=self._learner.restored_from,
        )

    def begin_turn(self) -> None:
        """Note the beginning of a turn of the loop."""
        self._turn_began = time.monotonic()

    def end_turn(self, *, settled: bool) -> None:
        """
        Note the end of a turn, before its report.

        `settled` says that all updates allowed by the rows read so far have been made. In lockstep
        (the setting `sync`) rows count as read only then.
        """
        self._turn_began = time.monotonic()
        if settled or not self._learner.settings.sync:
            self._cursor = self._learner.experience.log.cursor

    def send_progress(self) -> None:
        """
        Send the numbers of rows and updates to the server, and how long the learner has been busy.

        The busy time is the time since the present round of updates began, 0 between two rounds.
        """
        learner, began = self._learner, self._turn_began
        self._server.send(
            "progress",
            n_opts=learner.n_opts,
            cursor=list(self._cursor),
            rows=learner.rows,
            updates_per_row=learner.updates / max(1, learner.rows),
            admits=learner.admitted,
            hold=self._holds,
            turn_seconds=0.0 if began is None else time.monotonic() - began,
        )

    def report(self, *, at_once: bool = False) -> None:
        """
        Send and record the reports that are due, at the end of a turn of the loop.

        `at_once` sends progress even if the last message was sent just now.
        """
        for made in self._learner.experience.statistics.ratings.take():
            kind = "rated" if isinstance(made, Rating) else "candidate"
            self._server.send(kind, **made._asdict())
        now, present = time.monotonic(), self._present
        at_once |= present[2] != self._sent[2]  # hosts wait for nothing else, or play in vain
        if present != self._sent and (at_once or now - self._sent_at >= PROGRESS_EVERY):
            self._sent_at, self._sent = now, present
            self.send_progress()
        if self._present != self._recorded and now - self._recorded_at >= RECORD_EVERY:
            self._record(now)
        self._turn_began = None

    def record(self, points: Iterable[tuple[str, int, float]]) -> None:
        """Record metrics that the server sent: name, step, value."""
        for step, values in groupby(points, lambda point: int(point[1])):
            self._recorder.record([(name, value) for name, _, value in values], step)

    def close(self) -> None:
        """Send and record the last state, if that has not happened yet."""
        if self._present != self._recorded:
            self._record(time.monotonic())
        self._recorder.end()
        self.send_progress()

    def _record(self, now: float) -> None:
        rows, experience = self._learner.rows, self._learner.experience
        figures, histograms = experience.figures.take(experience.normalizer.current, now)
        values = self._changed([*self._values(now), *figures], now)
        points = self._recorder.record(values, rows)
        self._recorded_at, self._recorded = now, self._present
        if points:
            self._server.send("metrics", points=points)
        if histograms:
            self._server.send("histograms", rows=rows, histograms=histograms)

    def _changed(
        self, values: Iterable[tuple[str, float]], now: float
    ) -> Iterator[tuple[str, float]]:
        """Yield the values that have changed, or were recorded some time ago."""
        for tag, value in values:
            last, at = self._last_values.get(tag, (None, 0.0))
            if value != last or now - at >= UNCHANGED_EVERY:
                self._last_values[tag] = value, now
                yield tag, value

    def _values(self, now: float) -> Iterator[tuple[str, float]]:
        learner = self._learner
        rows, experience = learner.rows, learner.experience
        yield from experience.statistics.points()
        yield from experience.figures.rewards()
        yield from learner.losses.items()
        yield from learner.algorithm.metrics().items()
        yield "time/total_timesteps", float(rows)
        yield "time/time_elapsed", learner.elapsed
        new_rows = experience.take_new_rows()
        yield "time/fps", new_rows / max(now - self._recorded_at, 1e-3)
        yield from self._pace.points(now, new_rows, learner.n_opts, learner.planned_settings)
        ages = experience.policy_lag.take()
        if ages is not None:
            yield "hive/policy_age_versions", ages.versions
            yield "hive/policy_age_seconds", ages.seconds
            yield "hive/stale_share", ages.stale
        if experience.log.lost:
            yield "hive/lost", float(experience.log.lost)
        yield "hive/updates_due", float(learner.due)
        if rows:
            yield "hive/updates_per_row", learner.updates / rows
            if not learner.algorithm.is_on_policy:
                yield "hive/updates_per_row_wanted", learner.settings.updates_per_row
        if learner.pace.update_seconds:
            yield "hive/update_ms", 1_000 * learner.pace.update_seconds


def _hparams(settings: Settings) -> dict[str, Hparam]:
    """Return the settings by name; a value that is not a text, a number or a bool becomes JSON."""
    return {
        name: value if isinstance(value, Hparam) else json.dumps(value)
        for name, value in (settings.as_json() | {"algorithm": settings.learner}).items()
    }
