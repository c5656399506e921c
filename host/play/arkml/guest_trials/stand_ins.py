"""
Stand-ins, policies that replace missing players: files, and versions of runs, for each worker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock

from arkml.errors import InvalidArguments, ModelRejected, UsageError
from arkml.guest_trials.class_policies import ClassPolicies, OfferedVersion, OnceWarned
from arkml.guest_trials.guest_trials_options import StandInActions, StandInRows
from arkml.guest_trials.probe import GuestClass
from arkml.limits import Limits
from arkml.policies.describe import require_loadable
from arkml.policies.library import PolicyLibrary
from arkml.policies.model_cache import ModelCache
from arkml.policies.policy_files import PolicyFile

_LIMITS = Limits()


@dataclass(frozen=True, slots=True)
class StandInFile:
    """
    The bytes of an ONNX or Cervo file that stands in for the players of a class.

    `name` is the policy's name in logs. Without `actor_class` the file is for every class without
    one of its own. `outputs` names the outputs that hold actions, if names and shapes are
    ambiguous.
    """

    name: str
    data: bytes
    actor_class: str | None = None
    outputs: tuple[str, ...] = ()


class StandIns:
    """
    Provides all workers with the policies of each actor class.

    A class acts by its file, or by versions of a run that are offered between episodes.

    Args:
        files: The files, at most one for each class.
        run_classes: The classes whose versions will be offered; they take no file.
        seed: The seed of the noise of stochastic policies.
        deterministic: Whether stochastic policies act without noise.
        limits: The limits of models.

    Raises:
        UsageError: Two files are for one class.
        ModelRejected: A file cannot act.

    """

    def __init__(
        self,
        files: Sequence[StandInFile] = (),
        *,
        run_classes: Sequence[str] = (),
        seed: int = 0,
        deterministic: bool = False,
        limits: Limits = _LIMITS,
    ) -> None:
        self._files = _by_class(files, run_classes)
        self._run_classes = tuple(run_classes)
        self._seed = seed
        self._deterministic = deterministic
        self._limits = limits
        self._models = ModelCache(limits)
        for file in files:
            _require_loadable(file, self._models, limits)
        self._warned = OnceWarned()
        self._lock = Lock()
        self._names: dict[str, str] = {}
        self._versions: dict[str, OfferedVersion] = {}
        self._workers: list[WorkerStandIns] = []

    @property
    def names(self) -> Mapping[str, str]:
        """
        The name of the policy of each class that has one, known after the first `open`.

        The name is empty for a class that follows a run, until the first version is offered.
        """
        return self._names

    def open(self, classes: Sequence[GuestClass]) -> WorkerStandIns:
        """
        Return the policies for one worker.

        Raises UsageError for a class that the guest does not have, and ModelRejected for a file
        that is refused or does not fit its class.
        """
        self._require_classes(classes)
        worker = WorkerStandIns(self._closed)
        library = PolicyLibrary(
            self._models,
            seed=self._seed,
            deterministic=self._deterministic,
            limits=self._limits,
        )
        with self._lock:
            for one in classes:
                policies = self._class_policies(one, library)
                if policies is not None:
                    worker.policies[one.name] = policies
            self._workers.append(worker)
        return worker

    def offer(self, actor_class: str, number: int, data: bytes, origin: str) -> None:
        """
        Let the agents of a class act by a version of its run, from their next episodes on.

        Any thread may call it.

        Args:
            actor_class: The class.
            number: The number of the version.
            data: The ONNX file of the version.
            origin: The name of the version in logs, for example "reach@12".

        Raises:
            UsageError: The class follows no run.
            InvalidArguments: The version does not fit. The previous version stays in use.

        """
        if actor_class not in self._run_classes:
            raise UsageError(f"class {actor_class!r} follows no run: version {number} is refused")
        version = OfferedVersion(number, data, origin)
        with self._lock:
            acting = [worker.policies[actor_class] for worker in self._workers]
            loaded = [policies.loaded(version) for policies in acting]
            for policies, policy in zip(acting, loaded, strict=True):
                policies.offer(policy, origin)
            self._versions[actor_class] = version
            self._names[actor_class] = origin

    def _require_classes(self, classes: Sequence[GuestClass]) -> None:
        known = [one.name for one in classes]
        for name in [*self._files, *self._run_classes]:
            if name is not None and name not in known:
                raise UsageError(
                    f"there is a policy for class {name!r}, and the guest has the classes"
                    f" {', '.join(known)}"
                )

    def _class_policies(
        self, actor_class: GuestClass, library: PolicyLibrary
    ) -> ClassPolicies | None:
        """Return the policies of a class, None without any."""
        name = actor_class.name
        file = None if name in self._run_classes else self._files.get(name, self._files.get(None))
        if file is None and name not in self._run_classes:
            return None
        policies = ClassPolicies(
            actor_class,
            library,
            self._warned,
            seed=self._seed,
            deterministic=self._deterministic,
        )
        if file is not None:
            _load(policies, file, name)
            self._names[name] = file.name
            return policies
        self._names.setdefault(name, "")
        if name in self._versions:
            version = self._versions[name]
            policies.offer(policies.loaded(version), version.origin)
        return policies

    def _closed(self, worker: WorkerStandIns) -> None:
        with self._lock:
            if worker in self._workers:
                self._workers.remove(worker)


class WorkerStandIns:
    """The policies of one worker, by class; see StandInPolicies."""

    def __init__(self, closed: Callable[[WorkerStandIns], None]) -> None:
        self.policies: dict[str, ClassPolicies] = {}
        self._closed = closed

    def act(self, rows: Sequence[StandInRows]) -> list[StandInActions | None]:
        """
        Return actions for each of `rows`, None for a class that has no policy (yet).

        Agents whose policy fails, or returns numbers that are not finite, get the default action in
        that tick, without an origin; the first failure of each policy is logged.
        """
        return [self._act(one) for one in rows]

    def forget(self, keys: Sequence[int]) -> None:
        """Forget the states and policy versions of these slots, whose trials have ended."""
        for policies in self.policies.values():
            for key in keys:
                policies.forget(key)

    def close(self) -> None:
        """Free the policies. Safe to call more than once."""
        self._closed(self)
        self.policies.clear()

    def _act(self, rows: StandInRows) -> StandInActions | None:
        policies = self.policies.get(rows.actor_class)
        return None if policies is None else policies.act(rows)


def _by_class(
    files: Sequence[StandInFile], run_classes: Sequence[str]
) -> dict[str | None, StandInFile]:
    """Return the file of each class, None for all others. Raises UsageError."""
    by_class: dict[str | None, StandInFile] = {}
    for file in files:
        of = "all classes" if file.actor_class is None else f"class {file.actor_class!r}"
        if file.actor_class in by_class:
            raise UsageError(f"{file.name} is a second policy for {of}")
        if file.actor_class in run_classes:
            raise UsageError(f"{file.name} is a policy for {of}, which follows a run")
        by_class[file.actor_class] = file
    return by_class


def _require_loadable(file: StandInFile, models: ModelCache, limits: Limits) -> None:
    """Raise ModelRejected with the name of a file that cannot act."""
    try:
        require_loadable(PolicyFile(file.data, file.outputs), models, limits)
    except InvalidArguments as error:
        raise ModelRejected(f"{file.name}: {error}") from error


def _load(policies: ClassPolicies, file: StandInFile, actor_class: str) -> None:
    """Load a file. Raises ModelRejected with its name and the class."""
    try:
        policies.load_file(PolicyFile(file.data, file.outputs), file.name)
    except InvalidArguments as error:
        raise ModelRejected(f"{file.name} cannot act for class {actor_class!r}: {error}") from error
