"""Tells the server how a learner gets on, and writes it down."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator

from arkml.hive.protocol.segments import Place
from arkml.learning.learner import Learner
from arkml.learning.recorder import Recorder
from arkml.learning.server import Server

RECORD_EVERY = 1.0
PROGRESS_EVERY = 0.1


class Reporter:
    """`tell` may be called from any thread, the rest from that of the loop."""

    def __init__(self, learner: Learner, server: Server) -> None:
        self.holds = False
        """Whether hosts are to wait."""
        self._learner = learner
        self._server = server
        self._recorder = Recorder(learner.run.directory / "events")
        now = time.monotonic()
        self._told = self._recorded = now
        self._turned: float | None = None
        self._cursor = learner.experience.log.cursor
        self._told_of = self._recorded_of = self._present

    @property
    def is_done(self) -> bool:
        """Whether everything was told and recorded."""
        return self._present == self._told_of == self._recorded_of

    @property
    def _present(self) -> tuple[Place, int]:
        return self._cursor, self._learner.n_opts

    def hello(self) -> None:
        """The first message."""
        self._server.send(
            "hello",
            pid=os.getpid(),
            device=self._learner.algorithm.device,
            n_opts=self._learner.n_opts,
            cursor=list(self._learner.experience.log.cursor),
            restored_from=self._learner.restored_from,
        )

    def turn(self) -> None:
        """Note that the loop begins to go round."""
        self._turned = time.monotonic()

    def rest(self, *, settled: bool) -> None:
        """
        Note that the loop has worked, and is left to report. `settled`: all that its rows allow
        is done.

        In lockstep rows do not count as read before.
        """
        self._turned = time.monotonic()
        if settled or not self._learner.settings.sync:
            self._cursor = self._learner.experience.log.cursor

    def tell(self) -> None:
        """Tell how far it is. `turn_seconds` is how long the loop has been in its turn."""
        learner, turned = self._learner, self._turned
        self._server.send(
            "progress",
            n_opts=learner.n_opts,
            cursor=list(self._cursor),
            rows=learner.rows,
            updates_per_row=learner.updates / max(1, learner.rows),
            admits=learner.pace.admitted(learner.updates),
            hold=self.holds,
            turn_seconds=0.0 if turned is None else time.monotonic() - turned,
        )

    def report(self, *, at_once: bool = False) -> None:
        """
        Tell and record what is due; the loop goes round then.

        `at_once`: tell even if it was told just now.
        """
        now = time.monotonic()
        if self._present != self._told_of and (at_once or now - self._told >= PROGRESS_EVERY):
            self._told, self._told_of = now, self._present
            self.tell()
        if self._present != self._recorded_of and now - self._recorded >= RECORD_EVERY:
            self._record(now)
        self._turned = None

    def record(self, points: Iterable[tuple[str, int, float]]) -> None:
        """Write metrics that others have measured: name, step, value. The server knows them."""
        for name, step, value in points:
            self._recorder.record([(name, value)], step)

    def close(self) -> None:
        """Tell and record what is left."""
        if self._present != self._recorded_of:
            self._record(time.monotonic())
        self.tell()

    def _record(self, now: float) -> None:
        points = self._recorder.record(self._values(now), self._learner.rows)
        self._recorded, self._recorded_of = now, self._present
        if points:
            self._server.send("metrics", points=points)

    def _values(self, now: float) -> Iterator[tuple[str, float]]:
        learner = self._learner
        rows, experience = learner.rows, learner.experience
        yield from experience.statistics.points()
        yield from learner.losses.items()
        yield "time/total_timesteps", float(rows)
        yield "time/time_elapsed", learner.elapsed
        yield "time/fps", experience.take_fresh() / max(now - self._recorded, 1e-3)
        ages = experience.versions.take()
        if ages is not None:
            yield "hive/policy_age_versions", ages.versions
            yield "hive/policy_age_seconds", ages.seconds
            yield "hive/stale_share", ages.stale
        if experience.log.lost:
            yield "hive/lost", float(experience.log.lost)
        if rows:
            yield "hive/updates_per_row", learner.updates / rows
        if learner.pace.update_seconds:
            yield "hive/update_ms", 1_000 * learner.pace.update_seconds
