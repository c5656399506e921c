"""The hive that a guest in an environment sees: experiments in memory, without a learner."""

from __future__ import annotations

import uuid
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field

import numpy as np

from arkml.abi.codes import ExperimentStatus
from arkml.batches import Batch, MetadataLog
from arkml.envs.core.decisions import Behavior, Demonstrations
from arkml.envs.core.declarations import Declarations
from arkml.envs.core.specs import Spec
from arkml.errors import InvalidArguments, InvalidSpec, NotFound, Unavailable
from arkml.policies.constant import zeros
from arkml.policies.external import ExternalPolicy
from arkml.runtime.wasi.virtual import World
from arkml.sessions.run import ExperimentInfo, ExperimentShape, GuestRun, Metric, Pending, settled
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session import Origin, Ready
from arkml.sessions.session_table import TrainingStart

_KEPT = 65_536  # rows of demonstrations; the oldest go first


@dataclass(slots=True)
class Experiment:
    """An experiment that a guest started, with `sessions` open sessions."""

    id: str
    policy: ExternalPolicy
    behavior: Behavior
    started_at: int
    seconds: int
    snapshot_data: bytes
    sessions: int = 0
    ended_at: int = 0
    metric_values: dict[str, float] = field(default_factory=dict)

    @property
    def shape(self) -> Pending[ExperimentShape]:
        return settled(ExperimentShape(self.policy.num_features, self.policy.num_actions))

    def configuration(self) -> Pending[str]:
        return settled(self.behavior.configuration)

    def snapshot(self) -> Pending[bytes]:
        return settled(self.snapshot_data)

    def metrics(self) -> Pending[Sequence[Metric]]:
        return settled([Metric(name, value) for name, value in self.metric_values.items()])

    def info(self) -> ExperimentInfo:
        """Return the entry for a list of experiments."""
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


class Experiments:
    """
    The gateway of a guest in an environment; it answers every request at once.

    The guest downloads `snapshot`, by default a policy that gives zeros. `shape_of` returns the
    numbers of features and actions of a request, `declarations` has the meaning of its rows;
    `refused` is the error of an experiment that contradicts them. Ids and times come from `world`.
    Agents of experiments not in `behaviors` take zeros; None is all. Demonstrations and augmented
    rows are kept until `take_given`.
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
        self._given: list[Demonstrations] = []
        self._given_rows = 0

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
        """Start an experiment. Raises Unavailable for remote workers and InvalidArguments."""
        if request.workers:
            raise Unavailable(f"{request.workers} remote workers were asked for: there are none")
        features, actions = self._shape_of(request)
        name = request.experiment
        for run in self.started.values():
            if run.behavior.name == name and run.sessions:
                raise InvalidArguments(f"experiment {name!r} runs already")
        is_stepped = self._behaviors is None or name in self._behaviors
        run = Experiment(
            uuid.UUID(bytes=self.world.random(16), version=4).hex,
            ExternalPolicy(name, features, actions, is_stepped=is_stepped),
            Behavior(
                name,
                features,
                actions,
                self._spec(request, features, actions),
                request.configuration,
            ),
            self.world.time_of_day(),
            request.seconds or 0,
            self._snapshot or zeros(features, actions),
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
        """Return the demonstrations and augmented rows since the last call."""
        taken, self._given, self._given_rows = self._given, [], 0
        return taken

    def keep(self, given: Demonstrations) -> None:
        """Keep rows for `take_given`; the oldest are dropped beyond 65,536 rows."""
        self._given.append(given)
        self._given_rows += len(given.rows)
        while self._given_rows > _KEPT and len(self._given) > 1:
            self._given_rows -= len(self._given.pop(0).rows)

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
        shape = run.policy.num_features, run.policy.num_actions
        return TrainingStart(run.policy, *shape, sink=_ExperimentSink(self, run), run=run)


class _ExperimentSink:
    """The sink of one session of an experiment."""

    def __init__(self, experiments: Experiments, run: Experiment) -> None:
        self._experiments = experiments
        self._run = run

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        if batch.given is None or (batch.rows["given"] != batch.given.shape[1]).any():
            raise InvalidArguments("augmented and demonstrated rows come with all of their actions")
        self._experiments.keep(
            Demonstrations(
                self._run.behavior,
                origin,
                batch.rows.copy(),
                np.array(batch.features),
                np.array(batch.given),
            )
        )
        self.note(batch, metadata)

    def note(self, batch: Batch, metadata: MetadataLog) -> None:
        del batch
        is_one = len(metadata.names) == 1
        for code, name in enumerate(metadata.names):
            last = -1 if is_one else (metadata.codes == code).nonzero()[0][-1]
            self._run.metric_values[name] = float(metadata.values[last])

    def held(self) -> Ready | None:
        return None

    def leave(self, *, stop: bool) -> None:
        run = self._run
        run.sessions = 0 if stop else max(0, run.sessions - 1)
        if not run.sessions:
            run.ended_at = self._experiments.world.time_of_day()
