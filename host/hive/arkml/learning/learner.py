"""
The state of learning of one run: its experience, its algorithm, and the files it writes.

Theory of operation

A learner is a process that serves one run. Its only source of rows is the log of the run, which the
server writes (`server.log`). The server sends the position up to which records are acknowledged;
`LogReader` maps the segments read-only and yields the whole records up to that position, in the
order of their acknowledgement. It skips damaged records and deleted segments.

Rows become transitions in the algorithm's row store (`ReplayBuffer`, `RolloutBuffer`). A record
holds rows of one session in push order, in which agents are mixed. For each session and kind of
rows the store keeps the newest row of each agent; a row that comes exactly one step later is linked
to it, and brings the reward of its action. A gap breaks the chain, so it removes a transition and
never invents one (decision 7). Rows are stored raw. `Normalizer` collects statistics of each new
row; a new scaling is adopted before the first update and whenever the loop publishes a policy, and
then all rows, new and old, are scaled by it.

The loop is `Trainer`, in turns of about a tenth of a second (decision 17): handle the messages,
read rows, make updates, publish, save and report. The pace of the algorithm says how many updates
are due and how many rows hosts may send: `RateLimiter` keeps the ratio of updates to rows,
`RolloutPace` fills one rollout after another. Updates are made by a compiled program, many in one
call, which returns a new state; if a number in it is not finite, the old state stays and Diverged
ends the process (decision 16).

A published policy is an ONNX file. Its server gives it a version, and each row carries the version
that acted. SAC learns from rows of all versions, PPO from rows of the newest policy and, with a
lag, of the policy before it. `VersionRatings` rates versions by the returns of episodes that began
under them: the server keeps the rated version while the episodes play, and its policy if it is the
best.

A checkpoint holds the networks, the optimizers, the random generators, the normalizer, the
statistics of episodes, the number of rows read, and the recurrent states of agents before the rows
with which the next update begins. It holds no rows: they are in the log. It is saved every 30
seconds if there were updates, at a pause, at the end, and when the server asks for it. A file is
whole or absent, and has a checksum: a restart takes the newest undamaged one.

A restarted learner reads the log from its beginning again. Rows that the checkpoint has counted
fill the row store and change nothing else. Updates wait until the store has all rows that were in
the log at the start; then the updates since the checkpoint are due again, up to a bound. In
lockstep (`Settings.sync`) nothing depends on a clock: one record is read, all updates that its rows
allow are made, a policy is published, and then the next record is read. SAC does not wait for the
rest of the log then: no update is due while the counted rows are read, and the updates after them
draw the same rows and the same noise as before. So the weights are the same bit for bit on a CPU,
whether the learner was killed or not.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import EntryPoint
from pathlib import Path

from arkml.errors import InvalidSettings
from arkml.hive.protocol.learners import installed_learners, require_installed
from arkml.hive.protocol.rows import MAX_ROWS, Place
from arkml.hive.protocol.runs import LEAST_AHEAD
from arkml.hive.protocol.settings import Settings
from arkml.learning.algorithm import Algorithm, MakeAlgorithm
from arkml.learning.checkpoint_files import Checkpoint, CheckpointDamaged, shaping_settings
from arkml.learning.experience import Experience
from arkml.learning.normalizer import Normalizer
from arkml.learning.policy_graph import require_numbers
from arkml.learning.rollout_buffer import RolloutBuffer
from arkml.learning.run_directory import LogReader, PolicyFile, Publisher, RunDirectory

EXPLORED_ROWS = 10_000
"""Rows after which the first policy of SAC is replaced, whether an episode has ended or not."""

_ROWS_BEFORE = Settings(1, 1).memory_min_size

_NO_GPU = "no_gpu"  # a file in the directory of a run whose learners stay on the processor


@dataclass(frozen=True, slots=True)
class SavedCheckpoint:
    """A checkpoint on disk. `file` is relative to the directory of the run."""

    file: str
    n_opts: int
    cursor: Place


class Learner:
    """
    The learner of one run, which a `Trainer` drives: it reads rows, makes updates and writes files.

    `losses` are the losses of the newest updates, by tag. `restored_from` names the checkpoint that
    the learner continued from, None if it began anew.
    """

    @classmethod
    def open(cls, directory: Path) -> Learner:
        """
        Return a learner of the run in `directory`, at its newest checkpoint or the beginning.

        Raises:
            ProtocolError: The files of the run cannot be used.
            InvalidSettings: The settings cannot be used, or the checkpoint has other shapes.
            NoCheckpoint: The checkpoint that the run is to start from does not exist.
            CheckpointDamaged: The checkpoint that the run is to start from cannot be loaded.
            MemoryError: There is no memory for the rows.

        """
        run = RunDirectory.open(directory)
        settings = run.request.settings
        start = run.find_start()
        normalizer = Normalizer(
            settings.features,
            settings.parts,
            active=settings.normalize,
            remembers=settings.memory > 0,
        )
        is_confined = settings.device == "auto" and (directory / _NO_GPU).exists()
        confined = settings.changed({"device": "cpu"}) if is_confined else settings
        algorithm = make_algorithm(confined, normalizer)
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
        """Number of rows of the run that have been read."""
        return self.experience.rows

    @property
    def n_opts(self) -> int:
        """
        Number of updates of the policy, including updates in a checkpoint that it started from.
        """
        return self.algorithm.n_opts

    @property
    def updates(self) -> int:
        """Number of updates made in this run."""
        return self.algorithm.n_opts - self._origin

    @property
    def planned_settings(self) -> Settings:
        """The settings that the learner uses, which may depend on the number of agents."""
        buffer = self.algorithm.buffer
        return buffer.settings if isinstance(buffer, RolloutBuffer) else self.settings

    @property
    def elapsed(self) -> float:
        """Seconds that all learner processes of this run have run, one after another."""
        return self._seconds + time.monotonic() - self._began

    @property
    def due(self) -> int:
        """Number of updates that may be made now."""
        by_log = self.settings.sync and not self.algorithm.is_on_policy
        if not ((self._caught_up or by_log) and self.algorithm.is_ready):
            return 0
        return self.pace.due(self.rows, self.updates)

    @property
    def is_exploring(self) -> bool:
        """
        True while the untrained first policy of SAC should act, so that it explores.

        It acts until an episode has ended. Its noise is the largest, and a reward may come only at
        the end of an episode: in the mountain car task, a policy that learns the cost of driving
        before it has reached the goal stands still for ever. A run that begins at a checkpoint has
        explored already, and a run that sets `memory_min_size` decides itself how far it explores.
        """
        settings = self.settings
        return (
            settings.learner == "sac"
            and settings.memory_min_size == _ROWS_BEFORE
            and not self._origin
            and not self.experience.statistics.episodes
            and self.rows < EXPLORED_ROWS
        )

    def name_metrics(self, names: Sequence[str]) -> None:
        """Set the names of the guest's metrics, in the order of their numbers."""
        self.experience.statistics.name(list(names))
        self.algorithm.name_metrics(names)

    @property
    def admitted(self) -> int:
        """
        Number of rows that hosts may have sent since the run began.

        Until there are enough rows to learn from, hosts may always send more, because the rows so
        far may contain no transition yet, or be damaged in part.
        """
        admitted = self.pace.admitted(self.updates)
        if self.algorithm.is_ready:
            return admitted
        return max(admitted, self.rows + LEAST_AHEAD)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Continue from a checkpoint of this run or of another run. Raises CheckpointDamaged."""
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

    def leave_gpu(self) -> None:
        """Keep the learners that follow in this run off a GPU that this one took by itself."""
        if self.settings.device == "auto" and self.algorithm.device != "cpu":
            (self.run.directory / _NO_GPU).touch()

    def commit(self, place: Place) -> None:
        """Allow reading all rows in the log before the position `place`."""
        self._first_commit = self._first_commit or place
        self.experience.log.commit(place)

    def ingest(self) -> int:
        """
        Read the next committed rows and return their number.

        In lockstep (the setting `sync`) it reads one record of the log, and none while updates are
        due. So a restarted learner makes each update after the same record as before.
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

        Args:
            adopt: Whether to take the newest normalization statistics into use first.

        Raises:
            Diverged: A weight is not finite.
            ExportWrong: The model's answers differ from the networks'.
            OSError: The file cannot be written.

        """
        began = time.monotonic()
        if adopt:
            self.experience.normalizer.adopt()
        policy = self.algorithm.policy()
        require_numbers(policy.model)
        return self.publisher.write(policy, began)

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


def make_algorithm(settings: Settings, normalizer: Normalizer) -> Algorithm:
    """
    Return the algorithm for a run; installed packages, arkml-hive among them, provide algorithms.

    Raises InvalidSettings for an unknown name, a package that cannot be imported, and settings that
    the algorithm cannot follow.
    """
    require_installed(settings.learner)
    return _load(installed_learners()[settings.learner])(settings, normalizer)


def _load(point: EntryPoint) -> MakeAlgorithm:
    try:
        make: MakeAlgorithm = point.load()
    except (ImportError, AttributeError) as error:
        raise InvalidSettings(
            f"algorithm is {point.name!r}: {point.value} cannot be imported: {error}"
        ) from error
    return make
