"""The state of learning of one run: its experience, its algorithm, and the files it writes."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from arkml.hive.protocol.rows import MAX_ROWS
from arkml.hive.protocol.runs import LEAST_AHEAD
from arkml.hive.protocol.segments import Place
from arkml.learning.algorithm import Algorithm
from arkml.learning.algorithms import make_algorithm
from arkml.learning.checkpoints import Checkpoint, CheckpointDamaged, shaping_settings
from arkml.learning.experience import Experience
from arkml.learning.log_reader import LogReader
from arkml.learning.normalizer import Normalizer
from arkml.learning.publisher import PolicyFile, Publisher
from arkml.learning.run_directory import RunDirectory


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint on disk. `file` is relative to the directory of the run."""

    file: str
    n_opts: int
    cursor: Place


class Learner:
    """
    Reads rows, makes updates and writes files, whenever the loop of a trainer calls it.

    `losses` are those of the newest updates, by tag. `restored_from` names the checkpoint that the
    learner continued from, None if it began anew.
    """

    @classmethod
    def open(cls, directory: Path) -> Learner:
        """
        Return a learner of the run in `directory`, at its newest checkpoint or the beginning.

        Raises ProtocolError or InvalidSettings for a run that cannot be used, NoCheckpoint or
        CheckpointDamaged if the checkpoint it is to start from cannot be loaded, and MemoryError.
        """
        run = RunDirectory.open(directory)
        settings = run.request.settings
        start = run.find_start()
        normalizer = Normalizer(settings.features, active=settings.normalize)
        algorithm = make_algorithm(settings, normalizer)
        log = LogReader(directory / "rows")
        learner = cls(run, Experience(settings, log, algorithm.buffer, normalizer), algorithm)
        if start is not None:
            learner.restore(start)
        return learner

    def __init__(self, run: RunDirectory, experience: Experience, algorithm: Algorithm) -> None:
        self.run = run
        self.experience = experience
        self.algorithm = algorithm
        self.settings = run.request.settings
        self.pace = algorithm.pace
        self.publisher = Publisher(run.directory / "policies")
        self.losses: dict[str, float] = {}
        self.restored_from: str | None = None
        self._checkpoints = run.checkpoints
        self._origin = 0
        self._began = time.monotonic()
        self._seconds = 0.0
        self._first_commit: Place | None = None
        self._caught_up = False
        self.name_metrics(run.names)

    @property
    def rows(self) -> int:
        """Rows of the run that have been read."""
        return self.experience.rows

    @property
    def n_opts(self) -> int:
        """Updates of the policy, with those before this run if it started from a checkpoint."""
        return self.algorithm.n_opts

    @property
    def updates(self) -> int:
        """Updates made in this run."""
        return self.n_opts - self._origin

    @property
    def elapsed(self) -> float:
        """Seconds that the learners of this run have run, one after another."""
        return self._seconds + time.monotonic() - self._began

    @property
    def due(self) -> int:
        """Updates that may be made now."""
        by_log = self.settings.sync and not self.algorithm.is_on_policy
        if not ((self._caught_up or by_log) and self.algorithm.is_ready):
            return 0
        return self.pace.due(self.rows, self.updates)

    def name_metrics(self, names: Sequence[str]) -> None:
        """Set the names of the guest's metrics, in the order of their numbers."""
        self.experience.statistics.name(list(names))
        self.algorithm.name_metrics(names)

    @property
    def admitted(self) -> int:
        """
        Rows that hosts may have sent in all.

        There are always more of them while those that were sent are too few to learn from: they may
        hold no transition yet, or be damaged in part.
        """
        admitted = self.pace.admitted(self.updates)
        if self.algorithm.is_ready:
            return admitted
        return max(admitted, self.rows + LEAST_AHEAD)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of this run or another one. Raises CheckpointDamaged."""
        own = checkpoint.run == self.run.id
        self.algorithm.restore(checkpoint.state)
        facts = checkpoint.facts
        counted = checkpoint.rows if own else 0
        try:
            self.experience.restore(facts["experience"], counted=counted)
            self._origin = int(facts["origin"]) if own else checkpoint.n_opts
            self._seconds = float(facts["seconds"]) if own else 0.0
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise CheckpointDamaged(
                f"the checkpoint {checkpoint.run}@{checkpoint.n_opts} has no usable facts: {error}"
            ) from error
        self.restored_from = f"{checkpoint.run}@{checkpoint.n_opts}"
        self.pace.begin(counted, self.updates)

    def commit(self, place: Place) -> None:
        """Allow reading all rows before `place`."""
        self._first_commit = self._first_commit or place
        self.experience.log.commit(place)

    def ingest(self) -> int:
        """
        Read the next committed rows and return their number.

        In lockstep that is one record of the log, and none while updates are due: a learner that is
        restarted makes the updates of each record as the one before it did.
        """
        if self.settings.sync and self.due:
            return 0
        rows = self.experience.ingest(1 if self.settings.sync else MAX_ROWS)
        first = self._first_commit
        if not self._caught_up and first and self.experience.log.cursor >= first:
            # The rows that were in the log before this process are in the replay buffer again.
            self._caught_up = True
            self.pace.begin(self.rows, self.updates)
        return rows

    def train(self) -> int:
        """Make some of the updates that are due and return their number. Raises Diverged."""
        due = self.due
        if not due:
            return 0
        if not self.updates:
            self.experience.normalizer.adopt()
        count = self.pace.turn(due)
        began = time.monotonic()
        self.losses = self.algorithm.train(count)
        self.pace.record(count, time.monotonic() - began)
        return count

    def export(self, *, adopt: bool = False) -> PolicyFile:
        """
        Write the present policy as an ONNX file.

        With `adopt` the newest normalization statistics are taken into use before. Raises
        Diverged, ExportWrong or OSError.
        """
        began = time.monotonic()
        if adopt:
            self.experience.normalizer.adopt()
        return self.publisher.write(self.algorithm.policy(), began)

    def save(self, *, best: bool = False) -> SavedCheckpoint:
        """
        Write a checkpoint; `best` marks it as the best so far.

        Raises OSError, and Diverged if the state is not finite.
        """
        cursor = self.experience.log.cursor
        facts = {
            "experience": self.experience.as_json(),
            "origin": self._origin,
            "seconds": self.elapsed,
        }
        state = self.algorithm.state()
        shaping = shaping_settings(self.settings)
        checkpoint = Checkpoint(self.run.id, shaping, self.n_opts, self.rows, cursor, state, facts)
        path = self._checkpoints.save(checkpoint, best=best)
        return SavedCheckpoint(f"{path.parent.name}/{path.name}", self.n_opts, cursor)
