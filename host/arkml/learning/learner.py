"""A run that learns: its experience, its algorithm, and the files it leaves."""

from __future__ import annotations

import time
from dataclasses import dataclass

from arkml.hive.protocol.segments import Place
from arkml.learning.algorithm import Algorithm
from arkml.learning.checkpoints import Checkpoint
from arkml.learning.experience import Experience
from arkml.learning.publisher import Published, Publisher
from arkml.learning.rate_limiter import RateLimiter
from arkml.learning.run import Run


@dataclass(frozen=True, slots=True)
class Saved:
    """A checkpoint that was written. `file` is relative to the directory of the run."""

    file: str
    n_opts: int
    cursor: Place


class Learner:
    """
    What the loop of a trainer calls, and nothing of messages.

    `losses` are those of the newest updates, by tag. `restored_from` names the checkpoint that
    it went on from.
    """

    def __init__(self, run: Run, experience: Experience, algorithm: Algorithm) -> None:
        self.run = run
        self.experience = experience
        self.algorithm = algorithm
        self.settings = run.request.settings
        self.pace = RateLimiter(self.settings)
        self.publisher = Publisher(run.directory / "policies")
        self.losses: dict[str, float] = {}
        self.restored_from: str | None = None
        self._checkpoints = run.checkpoints
        self._origin = 0
        self._began = time.monotonic()
        self._seconds = 0.0
        self._mark: Place | None = None
        self._caught_up = False
        experience.statistics.name(list(run.names))

    @property
    def rows(self) -> int:
        """Rows of the run that were ingested."""
        return self.experience.rows

    @property
    def n_opts(self) -> int:
        """Updates of the policy, also those before this run if it started from a checkpoint."""
        return self.algorithm.n_opts

    @property
    def updates(self) -> int:
        """Updates made in this run."""
        return self.n_opts - self._origin

    @property
    def elapsed(self) -> float:
        """Seconds that learners of this run have lived."""
        return self._seconds + time.monotonic() - self._began

    @property
    def due(self) -> int:
        """Updates to be made now."""
        log = self.experience.log
        if not (self._caught_up and self.experience.is_enough):
            return 0
        if self.settings.sync and not log.is_read:
            return 0
        return self.pace.due(self.rows, self.updates)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Go on from a checkpoint, of this run or of another. Raises CheckpointDamaged."""
        own = checkpoint.run == self.run.id
        self.algorithm.restore(checkpoint.state)
        facts = checkpoint.facts
        counted = checkpoint.rows if own else 0
        self.experience.restore(facts["experience"], counted=counted)
        self._origin = int(facts["origin"]) if own else checkpoint.n_opts
        self._seconds = float(facts["seconds"]) if own else 0.0
        self.restored_from = f"{checkpoint.run}@{checkpoint.n_opts}"
        self.pace.begin(counted, self.updates)

    def commit(self, place: Place) -> None:
        """All rows before `place` may be read."""
        self._mark = self._mark or place
        self.experience.log.commit(place)

    def ingest(self) -> int:
        """Read the next committed rows. Returns how many came."""
        came = self.experience.ingest()
        if not self._caught_up and self._mark and self.experience.log.cursor >= self._mark:
            # What was in the log before this process is in the memory again.
            self._caught_up = True
            self.pace.begin(self.rows, self.updates)
        return came

    def train(self) -> int:
        """Make some of the updates that are due. Returns how many. Raises Diverged."""
        due = self.due
        if not due:
            return 0
        if not self.updates:
            self.experience.normalizer.adopt()
        count = self.pace.turn(due)
        began = time.monotonic()
        self.losses = self.algorithm.train(count)
        self.pace.took(count, time.monotonic() - began)
        return count

    def export(self, *, adopt: bool = False) -> Published:
        """
        Write the present policy; `adopt`: after taking the newest statistics into use.

        Raises Diverged, ExportWrong or OSError.
        """
        if adopt:
            self.experience.normalizer.adopt()
        return self.publisher.write(self.algorithm.weights(), self.algorithm.answer)

    def save(self, *, best: bool = False) -> Saved:
        """Write a checkpoint. Raises OSError."""
        cursor = self.experience.log.cursor
        facts = {
            "experience": self.experience.as_json(),
            "origin": self._origin,
            "seconds": self.elapsed,
        }
        state = self.algorithm.state()
        made = Checkpoint(self.run.id, self.n_opts, self.rows, cursor, state, facts)
        path = self._checkpoints.save(made, best=best)
        return Saved(f"{path.parent.name}/{path.name}", self.n_opts, cursor)
