"""The gateway of guests to hives, through which they start, join and query runs."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from functools import partial
from typing import Any, TypeVar

from msgspec.structs import replace

from arkml.abi.codes import ExperimentStatus, HardwareType
from arkml.base.loggers import SafeLogger
from arkml.errors import (
    AbiError,
    ArkmlError,
    HiveError,
    HiveRefused,
    HiveUnreachable,
    HttpRequestFailed,
    InvalidArguments,
    InvalidSettings,
    NotFound,
    ProtocolError,
    RunGone,
    Unavailable,
)
from arkml.hive.client import HiveClient
from arkml.hive.protocol.documents import check_depth
from arkml.hive.protocol.runs import RunInfo, RunRequest, Status
from arkml.hive.protocol.settings import (
    MAX_SETTINGS_BYTES,
    Device,
    Settings,
    from_protocol,
    guest_settings,
)
from arkml.hive.protocol.wire import MAX_COUNT, compact_json
from arkml.policies.library import PolicyLibrary
from arkml.runs.guest_copies import GuestCopies
from arkml.runs.hive_access import HiveAccess
from arkml.runs.membership import RunMembership
from arkml.runs.remote_workers import RemoteWorkers
from arkml.runtime.compiled_module import CompiledModule
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.guest_run import (
    ExperimentInfo,
    ExperimentShape,
    GuestRun,
    Metric,
    Pending,
    settled,
)
from arkml.sessions.run_request import HiveAddress, TrainingRequest
from arkml.sessions.session_table import TrainingStart
from arkml.sessions.text import Allowance, presentable

log = SafeLogger(__name__)

PARTIAL_MEMORY = 64
"""Numbers that the agents of a behavior remember which declares its rows partial."""

_NOTES_PER_SECOND = 10
_NOTE_BYTES = 1_024
T = TypeVar("T")

_STATUS = {
    Status.PENDING: ExperimentStatus.PENDING,
    Status.STARTING: ExperimentStatus.STARTING,
    Status.RUNNING: ExperimentStatus.RUNNING,
    Status.PAUSED: ExperimentStatus.RUNNING,
    Status.TERMINATING: ExperimentStatus.TERMINATING,
    Status.STOPPED: ExperimentStatus.STOPPED,
    Status.NOT_FOUND: ExperimentStatus.NOT_FOUND,
    Status.ABORTED: ExperimentStatus.ABORTED,
    Status.UNHEALTHY: ExperimentStatus.UNHEALTHY,
}


_DEVICES: Mapping[HardwareType, Device] = {
    HardwareType.CPU: "cpu",
    HardwareType.GPU: "cuda",
    HardwareType.LARGE_GPU: "cuda",
}
"""The device of the learner on each kind of hardware."""


class HiveRunGateway:
    """
    The gateway of one guest, or of the guests of one fleet, to the hives of their host.

    Guests that take part in one run share one session of it, and one policy. `block` says whether
    submits wait for the learner's pace. `module` is the guests' module: it may declare agents, and
    is uploaded for remote workers.
    """

    def __init__(
        self, hives: HiveAccess, library: PolicyLibrary, module: CompiledModule, *, block: bool
    ) -> None:
        self._hives = hives
        self._library = library
        self._block = block
        self._module = module
        self._branches = DeclaredBranches(module.info.spec)
        grant = hives.grant
        self._remote = RemoteWorkers(
            module, is_allowed=grant.upload_modules, is_worker=bool(grant.join_run)
        )
        self._guest_copies = GuestCopies(module, hives)
        self._lock = threading.Lock()
        self._notes = Allowance(_NOTES_PER_SECOND, time.monotonic)
        self._memberships: dict[tuple[int, str], RunMembership] = {}

    @property
    def first(self) -> RunMembership | None:
        """The membership of the run that was started first, or None."""
        memberships = self._memberships  # any thread asks
        for client, run in self._hives.started:
            if (found := memberships.get((id(client), run.id))) is not None:
                return found
        return next(iter(list(memberships.values())), None)

    @property
    def others(self) -> dict[str, RunMembership | None]:
        """The memberships of the runs that were started after the first, by their names."""
        found = self._memberships
        return {
            run.name: found.get((id(client), run.id)) for client, run in self._hives.started[1:]
        }

    def answers(self, address: HiveAddress) -> Pending[bool]:
        try:
            client = self._hives.client(address)
        except Unavailable as error:
            self._note(error)
            return settled(value=False)
        return self._later(lambda: self._has_answered(client))

    def experiments(self, address: HiveAddress) -> Pending[Sequence[ExperimentInfo]]:
        client = self._hives.client(address)
        return self._later(lambda: [_experiment(run) for run in client.runs().result()])

    def find(self, address: HiveAddress, run_id: str) -> GuestRun:
        return HiveRun(self._hives.client(address), run_id, self._later)

    def start(self, request: TrainingRequest) -> Pending[TrainingStart]:
        self._hives.is_asked = True
        try:
            client = self._hives.client(request.hive)
            run_request = self._run_request(request)
            feed = self._hives.feed
            if feed is not None:
                feed.require(run_request.name, run_request.settings)
            own = guest_settings(request.configuration).get("spec")
            if bounds := self._branches.other_bounds(request.experiment, own):
                self._hives.tell_bounds(self._module.name, bounds)
        except AbiError as error:
            self._hives.failure = error
            raise

        self._hives.ask(client, run_request)

        def start() -> TrainingStart:
            try:
                self._remote.upload(client, run_request)
                wanted = self._hives.with_origin(run_request, self._module)
                run = self._hives.start(client, wanted).result()
                self._guest_copies.keep(client, run, request)
                with nullcontext() if feed is None else feed.sent(client, run):
                    started = self._take_part(client, run)
            except ArkmlError as error:
                self._hives.failure = error
                self._hives.refuse(client, run_request)
                raise
            self._hives.failure = None
            return started

        return self._later(start)

    def connect(self, address: HiveAddress, run_id: str) -> Pending[TrainingStart]:
        client = self._hives.client(address)
        wanted = self._hives.grant.join_run or run_id

        def connect() -> TrainingStart:
            run = client.run(wanted).result()
            self._branches.require(run.name, run.features, run.actions, run.branches)
            return self._take_part(client, run)

        return self._later(connect)

    def linked_module(self, link: str) -> str:
        return self._remote.linked(link)

    def _run_request(self, request: TrainingRequest) -> RunRequest:
        """Return the hive's form of a guest's request. Raises AbiError."""
        settings = settings_of(request, self._branches, self._hives.grant.settings)
        if (limit := self._hives.limit) is not None:
            settings = replace(settings, max_episode_steps=min(limit.most, MAX_COUNT))
        return RunRequest(
            name=request.experiment,
            game=request.namespace,
            settings=settings,
            configuration=request.configuration,
            checkpoint=request.checkpoint,
            seconds=request.seconds or 0,
            requires_device=request.hardware is not HardwareType.CPU,
            module_id=request.module,
            **self._remote.fields(request),
        )

    def _take_part(self, client: HiveClient, run: RunInfo) -> TrainingStart:
        """Join a run, or share the membership of another guest. Raises HiveError."""
        with self._lock:  # one session for all guests: one policy run, one queue (decision 6)
            key = (id(client), run.id)
            membership = self._memberships.get(key)
            self._let_go_of(membership)
            if membership is None or not membership.enter():
                self._forget_left()
                membership = self._memberships[key] = RunMembership(
                    client,
                    run,
                    self._library,
                    block=self._block,
                    sync=self._hives.grant.settings.get("sync", False),
                    loaders=self._hives.loaders,
                    farewells=self._hives.farewells,
                    limit=self._hives.limit,
                )
        self._hives.beginning.append(membership)
        try:
            policy = membership.policy()
        except BaseException:
            membership.leave(stop=False)
            raise
        finally:
            self._hives.beginning.remove(membership)
        self._keep(membership)
        own_run = HiveRun(client, run.id, self._later)
        opened = partial(self._hives.note_training, run.id)
        return TrainingStart(policy, run.features, run.actions, membership, own_run, opened)

    def _keep(self, membership: RunMembership) -> None:
        """If episodes are cut off, keep the session for the guests that replace these."""
        with self._lock:
            kept = self._hives.kept
            if self._hives.limit is not None and membership not in kept and membership.enter():
                kept.append(membership)

    def _let_go_of(self, membership: RunMembership | None) -> None:
        """Leave a kept session that has ended, so that another one can begin."""
        if membership in self._hives.kept and membership.has_ended:
            self._hives.kept.remove(membership)
            membership.leave(stop=False)

    def _forget_left(self) -> None:
        """Forget the memberships that were left, except the first, which `first` returns."""
        first = self.first
        self._memberships = {
            key: one for key, one in self._memberships.items() if one is first or not one.is_left
        }

    def _has_answered(self, client: HiveClient) -> bool:
        try:
            client.health().result()
        except HiveError as error:
            self._note(error)
            self._hives.failure = error.with_traceback(None)
            return False
        return True

    def _note(self, error: ArkmlError) -> None:
        """Log why a hive cannot be used, at a limited rate: guests may ask in every frame."""
        if self._notes.take():
            log.info("%s", presentable(str(error), _NOTE_BYTES))

    def _later(self, work: Callable[[], T]) -> Pending[T]:
        """Do `work` on another thread, with hive errors as ABI errors, such as Unavailable."""

        def translated() -> T:
            try:
                return work()
            except HiveError as error:
                raise abi_error(error) from error.with_traceback(None)

        try:
            return self._hives.threads.submit(translated)
        except RuntimeError:
            raise Unavailable("the host is closed") from None


class HiveRun:
    """Requests to a run of a hive: for its configuration, its policy and its metrics."""

    def __init__(
        self,
        client: HiveClient,
        run_id: str,
        later: Callable[[Callable[[], Any]], Pending[Any]],
    ) -> None:
        self._client = client
        self._id = run_id
        self._later = later

    @property
    def id(self) -> str:
        return self._id

    @property
    def shape(self) -> Pending[ExperimentShape]:
        def shape() -> ExperimentShape:
            run = self._client.run(self._id).result()
            return ExperimentShape(run.features, run.actions)

        return self._later(shape)

    def configuration(self) -> Pending[str]:
        return self._later(lambda: self._client.config(self._id).result())

    def snapshot(self) -> Pending[bytes]:
        return self._later(lambda: self._client.snapshot(self._id, "now").result())

    def metrics(self) -> Pending[Sequence[Metric]]:
        def metrics() -> Sequence[Metric]:
            newest = self._client.metrics(self._id).result()
            return [Metric(name, value) for name, value, _ in newest]

        return self._later(metrics)


def settings_of(
    request: TrainingRequest, branches: DeclaredBranches | None, overrides: Mapping[str, Any]
) -> Settings:
    """
    Return the settings of a run that a guest asks for, with the overrides of the host.

    `branches` are the guest's declared branches, None for an environment, which has declarations of
    its own. A request of ml-v4 has a ProtocolConfig, a request of v1 to v3 only the numbers of
    features and actions, and a request of v5 a configuration with settings and these numbers, such
    as {"feature_count": 8, "action_count": 2, "gamma": 0.99}. The device follows from the hardware
    in a request of v5, unless the configuration or the host names one. A behavior that declares its
    observations partial gets a recurrent memory of PARTIAL_MEMORY, unless guest or host set its
    size, or name a learner other than PPO. Raises InvalidSettings and InvalidArguments, also for
    settings of more than MAX_SETTINGS_BYTES.
    """
    asked: dict[str, Any] = {}
    if request.protocol is not None:
        settings = from_protocol(request.protocol)
    elif request.num_features is not None and request.num_actions is not None:
        settings = Settings(request.num_features, request.num_actions)
    else:
        settings, asked = _of_configuration(request.configuration, _DEVICES[request.hardware])
    own = guest_settings(request.configuration)
    asked |= {**own, **overrides}
    if branches is not None:
        rows = request.experiment, settings.features, settings.actions, own.get("spec")
        settings = replace(settings, branches=branches.of(*rows), parts=branches.seen_parts(*rows))
        if branches.is_partial(*rows) and asked.get("algorithm", "auto") in ("auto", "ppo"):
            asked = {"memory": PARTIAL_MEMORY, **asked}
    changed = settings.changed(asked)
    _require_sendable(changed)
    return changed


def _require_sendable(settings: Settings) -> None:
    """Raise InvalidSettings if settings are too large for a request, or hold surrogates."""
    try:
        values = settings.as_json()
        size = len(compact_json(values))
        check_depth(values)
    except ValueError as error:
        raise InvalidSettings(f"the settings of a run hold {error}") from None
    except (RecursionError, ProtocolError):
        raise InvalidSettings("the settings of a run have too many objects in each other") from None
    if size > MAX_SETTINGS_BYTES:
        raise InvalidSettings(
            f"the settings of a run take {size} bytes of JSON, they may take {MAX_SETTINGS_BYTES}"
        )


def _of_configuration(text: str, device: Device) -> tuple[Settings, dict[str, Any]]:
    """Return settings with the widths in a configuration, and the others that it asks for."""
    document = json.loads(text) if text else None
    if not isinstance(document, dict):
        raise InvalidArguments(f"the configuration of a run is a JSON object, not {text[:80]!r}")
    known = {"feature_count": "features", "action_count": "actions"}
    values: dict[str, Any] = {str(known.get(name, name)): value for name, value in document.items()}
    if not {"features", "actions"} <= set(values):
        raise InvalidArguments(
            "the configuration of a run holds feature_count and action_count;"
            f" this one has {', '.join(map(repr, document)) or 'nothing'}"
        )
    values.pop("arkml", None)
    widths = values.pop("features"), values.pop("actions")
    return Settings(*widths, device=device), values


def abi_error(error: HiveError) -> AbiError:
    """
    Return the ABI's error for an error of a hive, such as NotFound for RunGone or a status 404.
    """
    match error:
        case HiveUnreachable():
            return Unavailable(str(error))
        case RunGone():
            return NotFound(str(error))
        case HiveRefused(status=404 | 410):
            return NotFound(str(error))
        case HiveRefused(status=400 | 409 | 413 | 422):
            return InvalidArguments(str(error))
        case HiveRefused(status=401 | 403 | 408 | 429 | 503 | 507):
            return Unavailable(str(error))
        case _:
            return HttpRequestFailed(str(error))


def _experiment(run: RunInfo) -> ExperimentInfo:
    return ExperimentInfo(
        name=run.name,
        id=run.id,
        started_at=run.started_at,
        ended_at=run.ended_at,
        max_duration=run.seconds,
        experiment_status=_STATUS[run.status],
        worker_count=run.workers,
    )
