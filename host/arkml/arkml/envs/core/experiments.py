"""The hive as a guest in an environment sees it: experiments in memory, without a learner."""

from __future__ import annotations

import logging
import sys
import uuid
from collections import deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy.typing as npt

from arkml.abi.codes import ExperimentStatus
from arkml.base.loggers import SafeLogger, notice
from arkml.batches import Batch, Floats, MetadataLog
from arkml.envs.core.decisions import Behavior, Demonstrations
from arkml.envs.core.declared_specs import Declarations
from arkml.envs.core.specs import Spec
from arkml.errors import GuestMemoryFull, InvalidArguments, InvalidSpec, NotFound, Unavailable
from arkml.hive.protocol.runs import MAX_NAMES
from arkml.limits import MIB
from arkml.policies.constant import zeros
from arkml.policies.external import ExternalPolicy
from arkml.policies.policy import Policy
from arkml.runtime.account import Account
from arkml.runtime.kept_bytes import KeptBytes
from arkml.runtime.wasi.virtual import World
from arkml.sessions.guest_run import (
    ExperimentInfo,
    ExperimentShape,
    GuestRun,
    Metric,
    Pending,
    settled,
)
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session import Origin, Ready
from arkml.sessions.session_table import TrainingStart

MOST_GIVEN_ROWS = 65_536
"""Rows of demonstrations that are kept; the oldest go first."""

MOST_GIVEN_BYTES = 64 * MIB
"""Bytes of them, as many as the queues of a guest may have by default."""

# By estimate: the objects of an experiment, of a submit of demonstrations and of a metric, and a
# bound of a spec, which is a number and its place in a tuple.
_EXPERIMENT_BYTES, _GIVEN_BYTES, _METRIC_BYTES, _BOUND_BYTES = 4_096, 1_024, 96, 32

logger = SafeLogger(__name__)


@dataclass(slots=True)
class Experiment:
    """An experiment (a training run) that a guest started; `sessions` of its sessions are open."""

    id: str
    policy: ExternalPolicy
    behavior: Behavior
    started_at: int
    seconds: int
    configuration_text: str | None
    """The text with which the guest started it, None once it has ended."""
    given_snapshot: bytes | None
    sessions: int = 0
    ended_at: int = 0
    metric_values: dict[str, float] = field(default_factory=dict)

    @property
    def shape(self) -> Pending[ExperimentShape]:
        return settled(ExperimentShape(self.policy.num_features, self.policy.num_actions))

    def configuration(self) -> Pending[str]:
        """
        Return the text with which the experiment was started. Raises Unavailable once it has ended.
        """
        if self.configuration_text is None:
            name = self.behavior.name
            raise Unavailable(f"experiment {name!r} has ended: its configuration is not kept")
        return settled(self.configuration_text)

    def snapshot(self) -> Pending[bytes]:
        """
        Return the policy file, ONNX, that the embedder gave, or of a policy that returns zeros.
        """
        shape = self.policy.num_features, self.policy.num_actions
        return settled(self.given_snapshot or zeros(*shape))

    def metrics(self) -> Pending[Sequence[Metric]]:
        return settled([Metric(name, value) for name, value in self.metric_values.items()])

    def info(self) -> ExperimentInfo:
        """Return the entry of the experiment for a list of experiments."""
        ended = bool(self.ended_at)
        return ExperimentInfo(
            name=self.behavior.name,
            id=self.id,
            started_at=self.started_at,
            ended_at=self.ended_at,
            max_duration=self.seconds,
            experiment_status=ExperimentStatus.STOPPED if ended else ExperimentStatus.RUNNING,
            worker_count=0,
        )


class SavedExperiments(NamedTuple):
    """
    An immutable copy of a guest's experiments, without demonstrations.

    Attributes:
        started: The experiments.
        size: Bytes that are charged for the experiments.
        has_warned: Whether a warning about too many metrics was logged.
        refused: The error of an experiment that contradicts the declarations, or None.

    """

    started: tuple[Experiment, ...]
    size: int
    has_warned: bool
    refused: InvalidSpec | None


class Experiments:
    """
    The gateway to a hive for a guest in an environment; it answers every request at once.

    The guest downloads `snapshot`, by default a policy that returns zeros. `shape_of` returns the
    numbers of features and actions of a request, `declarations` has the meaning of its rows;
    `refused` is the error of an experiment that contradicts them. Ids and times come from `world`.
    Agents of experiments that are not in `behaviors` get zeros as actions; None stands for all.
    Demonstrations and augmented rows are kept until `take_given`. The bytes that are kept are
    charged to the account passed to `count_in`.
    """

    def __init__(
        self,
        snapshot: bytes | None,
        shape_of: Callable[[TrainingRequest], tuple[int, int]],
        declarations: Declarations,
        behaviors: Collection[str] | None,
        world: World,
    ) -> None:
        self.started: dict[str, Experiment] = {}
        self.refused: InvalidSpec | None = None
        self.world = world
        self._declarations = declarations
        self._behaviors = behaviors
        self._snapshot = snapshot
        self._shape_of = shape_of
        self.given: deque[Demonstrations] = deque()
        """Demonstrations and augmented rows since the last `take_given`."""
        self._given_rows = self._given_bytes = 0
        self._kept_rows, self._kept_experiments = KeptBytes(), KeptBytes()
        self._has_warned = False

    def count_in(self, account: Account) -> None:
        """Charge the kept bytes to the guest's account; called before the guest's first call."""
        self._kept_rows, self._kept_experiments = account.kept_rows, account.kept_experiments

    @property
    def has_ended(self) -> bool:
        """True once the guest has left all experiments, after at least one."""
        return bool(self.started) and not any(run.sessions for run in self.started.values())

    def answers(self, address: HiveAddress) -> Pending[bool]:
        """Return True: this hive can always be reached."""
        del address
        return settled(value=True)

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]:
        """Return the experiments that the guest has started."""
        del address
        return settled([run.info() for run in self.started.values()])

    def find(self, address: HiveAddress, run_id: str) -> GuestRun:
        """Return an experiment by its id. Raises NotFound."""
        del address
        return self._found(run_id)

    def start(self, request: TrainingRequest) -> Pending[TrainingStart]:
        """
        Start an experiment.

        Raises Unavailable for remote workers, InvalidArguments and GuestMemoryFull.
        """
        if request.workers:
            raise Unavailable(f"{request.workers} remote workers were asked for: there are none")
        features, actions = self._shape_of(request)
        name = request.experiment
        for run in self.started.values():
            if run.behavior.name == name and run.sessions:
                raise InvalidArguments(f"experiment {name!r} runs already")
        spec = self._spec(request, features, actions)
        size = _EXPERIMENT_BYTES + _bytes_of_spec(spec) + sys.getsizeof(name)
        self._kept_experiments.change(size + sys.getsizeof(request.configuration))
        is_stepped = self._behaviors is None or name in self._behaviors
        run = Experiment(
            uuid.UUID(bytes=self.world.random(16), version=4).hex,
            ExternalPolicy(
                name, features, actions, is_stepped=is_stepped, branches=spec.actions.branches
            ),
            Behavior(name, features, actions, spec),
            self.world.time_of_day(),
            request.seconds or 0,
            request.configuration,
            self._snapshot,
        )
        self.started[run.id] = run
        return settled(self._opened(run))

    def linked_module(self, link: str) -> str:
        """Raise Unavailable: an environment has no remote workers."""
        raise Unavailable(f"an environment has no remote workers that could run {link[:80]!r}")

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]:
        """Open another session of an experiment. Raises NotFound."""
        del address
        return settled(self._opened(self._found(run_id)))

    def take_given(self) -> list[Demonstrations]:
        """Return the demonstrations and augmented rows that came since the last call."""
        taken = list(self.given)
        self.given.clear()
        self._kept_rows.change(-self._given_bytes)
        self._given_rows = self._given_bytes = 0
        return taken

    def give_as(self, other: Experiments) -> None:
        """Replace the demonstrations and augmented rows by copies of another object's."""
        self.take_given()
        self._kept_rows.change(other._given_bytes)
        self._given_rows, self._given_bytes = other._given_rows, other._given_bytes
        for one in other.given:
            columns = one.rows.copy(), one.observations.copy(), one.actions.copy()
            self.given.append(Demonstrations(one.behavior, one.origin, *columns))

    def save(self) -> SavedExperiments:
        """Return a copy of the experiments, without demonstrations."""
        started = tuple(_copied(run) for run in self.started.values())
        size = self._kept_experiments.used
        return SavedExperiments(started, size, self._has_warned, self.refused)

    def load(self, saved: SavedExperiments) -> None:
        """Restore saved experiments into an object without any. Raises GuestMemoryFull."""
        self._kept_experiments.change(saved.size)
        self.started = {run.id: _copied(run) for run in saved.started}
        self._has_warned, self.refused = saved.has_warned, saved.refused

    def rejoin(self, run_id: str) -> TrainingStart:
        """Return the data with which an existing session of an experiment is opened again."""
        return self._start(self.started[run_id])

    def keep(self, behavior: Behavior, origin: Origin, batch: Batch, given: Floats) -> None:
        """
        Keep a copy of rows and of their given actions, float32, [n, num_actions], for `take_given`.

        The oldest rows are dropped beyond MOST_GIVEN_ROWS and MOST_GIVEN_BYTES. Raises
        GuestMemoryFull.
        """
        size = _bytes_given(batch.rows, batch.features, given)
        self._kept_rows.change(size)
        self._given_rows += len(batch)
        self._given_bytes += size
        while self.given and self._has_too_many:
            oldest = self.given.popleft()
            size = _bytes_given(oldest.rows, oldest.observations, oldest.actions)
            self._kept_rows.change(-size)
            self._given_rows -= len(oldest.rows)
            self._given_bytes -= size
        rows, observations = batch.rows.copy(), batch.features.copy()
        self.given.append(Demonstrations(behavior, origin, rows, observations, given.copy()))

    def note(self, run: Experiment, name: str, value: float) -> None:
        """Keep the newest value of a metric, unless there are too many metrics already."""
        if name not in run.metric_values and not self._takes(run, name):
            return
        run.metric_values[name] = value

    def of(self, policy: Policy) -> Experiment | None:
        """Return the experiment whose sessions have this policy, or None."""
        return next((run for run in self.started.values() if run.policy is policy), None)

    def note_for(self, policy: Policy, said: Mapping[str, float]) -> None:
        """Keep the newest values of metrics for the experiment of this policy, if there is one."""
        run = self.of(policy)
        if run is not None:
            for name, value in said.items():
                self.note(run, name, value)

    def end(self, run: Experiment) -> None:
        """End an experiment without sessions, and forget its configuration."""
        run.ended_at = self.world.time_of_day()
        text, run.configuration_text = run.configuration_text, None
        if text is not None:
            self._kept_experiments.change(-sys.getsizeof(text))

    def _takes(self, run: Experiment, name: str) -> bool:
        """Return whether an experiment has room for the name of a metric, and count it then."""
        reason = f"it has {len(run.metric_values)}, {MAX_NAMES} are kept"
        if len(run.metric_values) < MAX_NAMES:
            try:
                self._kept_experiments.change(_METRIC_BYTES + sys.getsizeof(name))
            except GuestMemoryFull as error:
                reason = str(error)
            else:
                return True
        if not self._has_warned:  # a guest may have a new name in every frame
            self._has_warned = True
            who = run.behavior.name[:80]
            text = f"experiment {who!r} does not keep metric {name[:80]!r}: {reason}"
            notice(logger, logging.WARNING, text)
        return False

    @property
    def _has_too_many(self) -> bool:
        return self._given_rows > MOST_GIVEN_ROWS or self._given_bytes > MOST_GIVEN_BYTES

    def _spec(self, request: TrainingRequest, features: int, actions: int) -> Spec:
        name, configuration = request.experiment, request.configuration
        try:
            return self._declarations.of(name, features, actions, configuration)
        except InvalidSpec as error:
            self.refused = error
            raise InvalidArguments(str(error)) from error

    def _found(self, run_id: str) -> Experiment:
        if run_id not in self.started:
            raise NotFound(f"there is no experiment {run_id!r}")
        return self.started[run_id]

    def _opened(self, run: Experiment) -> TrainingStart:
        run.sessions += 1
        return self._start(run)

    def _start(self, run: Experiment) -> TrainingStart:
        shape = run.policy.num_features, run.policy.num_actions
        return TrainingStart(run.policy, *shape, sink=_ExperimentSink(self, run), run=run)


class _ExperimentSink:
    """The sink of one session of an experiment."""

    def __init__(self, experiments: Experiments, run: Experiment) -> None:
        self._experiments = experiments
        self._run = run

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        actions = batch.pushed_actions
        if actions is None or (batch.rows["given"] != actions.shape[1]).any():
            raise InvalidArguments("augmented and demonstrated rows come with all of their actions")
        self._experiments.keep(self._run.behavior, origin, batch, actions)
        self.note(batch, metadata)

    def note(self, batch: Batch, metadata: MetadataLog) -> None:
        del batch
        is_one = len(metadata.names) == 1
        for code, name in enumerate(metadata.names):
            last = -1 if is_one else (metadata.codes == code).nonzero()[0][-1]
            self._experiments.note(self._run, name, float(metadata.values[last]))

    def held(self) -> Ready | None:
        return None

    def leave(self, *, stop: bool) -> None:
        run = self._run
        run.sessions = 0 if stop else max(0, run.sessions - 1)
        if not run.sessions:
            self._experiments.end(run)


def _copied(run: Experiment) -> Experiment:
    return replace(run, metric_values=dict(run.metric_values))


def _bytes_given(rows: npt.NDArray[Any], observations: Floats, given: Floats) -> int:
    return _GIVEN_BYTES + rows.nbytes + observations.nbytes + given.nbytes


def _bytes_of_spec(spec: Spec) -> int:
    parts = spec.observations
    bounds = sum(len(part.low) + len(part.high) for part in parts) + 2 * spec.actions.continuous
    names = sum(map(sys.getsizeof, (*spec.actions.names, *spec.actions.choices)))
    return _BOUND_BYTES * (bounds + len(spec.actions.branches)) + 512 * len(parts) + names
