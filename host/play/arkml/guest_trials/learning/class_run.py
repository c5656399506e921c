"""
A trial server's session in one run: it sends rows of an actor class, and gets policy versions.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import groupby

from arkml.base.loggers import SafeLogger
from arkml.envs.core.decisions import Behavior
from arkml.errors import ArkmlError, NotTrainable
from arkml.guest_trials.learning.spans import SpanRow
from arkml.guest_trials.learning.trial_rows import as_columns
from arkml.hive.client import HiveClient
from arkml.hive.protocol.parts import learned_parts
from arkml.hive.protocol.runs import OnConflict, RunInfo, RunRequest
from arkml.hive.protocol.session_messages import ON_POLICY
from arkml.hive.protocol.settings import Settings
from arkml.hive.run_session import RunSession
from arkml.runs.version_loader import VersionLoader

log = SafeLogger(__name__)

Offer = Callable[[str, int, bytes, str], object]
"""Takes a policy version: the class, its number, its ONNX file, and its origin for logs."""


def planned_run(
    runs: Sequence[RunInfo], name: str, game: str, behavior: Behavior, *, learns: bool
) -> RunInfo | RunRequest:
    """
    Return the newest run of a name, or a request for a new one that fits a behavior.

    Args:
        runs: The runs of the hive, the newest first.
        name: The name of the run.
        game: The game of the run.
        behavior: The behavior, whose numbers of features and actions the run must have.
        learns: Whether the run gets demonstrations from trials.

    Raises:
        NotTrainable: The run has other numbers of features or actions, or it `learns`, but a new
            run could take no demonstrations.

    """
    for run in runs:
        if run.name == name:
            _require_counts(run, behavior)
            return run
    spec = behavior.spec
    settings = Settings(
        behavior.num_features,
        behavior.num_actions,
        spec.actions.branches,
        parts=learned_parts(spec.declared),
    )
    if learns and settings.learner in ON_POLICY:
        raise NotTrainable(_off_policy(name, settings.learner))
    return RunRequest(name=name, game=game, settings=settings, on_conflict=OnConflict.JOIN)


class ClassRun:
    """
    One session of a run, shared by all trials of a server. Making it blocks until it has joined.

    Args:
        client: The client of the hive.
        run: The run.
        actor_class: The class of actors that takes part in the run.
        offer: Called with each new version, on `loaders`. If versions arrive faster than they are
            loaded, only the newest is offered.
        loaders: The threads that load versions.
        learns: Whether the run gets demonstrations from trials.

    Raises:
        NotTrainable: The run is to learn from trials, but takes no demonstrations.
        HiveError: The run cannot be joined.

    """

    def __init__(
        self,
        client: HiveClient,
        run: RunInfo,
        actor_class: str,
        offer: Offer,
        loaders: ThreadPoolExecutor,
        *,
        learns: bool,
    ) -> None:
        self.run = run
        self.actor_class = actor_class
        self._offer = offer
        self._joined: Future[RunSession] = Future()
        self.session = client.join(
            run.id,
            run.features,
            run.actions,
            on_policy=VersionLoader(loaders, self._load).receive,
        ).result()
        self._joined.set_result(self.session)
        if learns and self.session.is_on_policy:
            self.leave().result()
            raise NotTrainable(_off_policy(run.name, self.session.learner))

    def take(self, rows: Sequence[SpanRow]) -> None:
        """Queue rows for the run; rows of an ended run are dropped. One thread calls it."""
        if self.session.failure is not None:
            return
        for (kind, version), group in groupby(rows, lambda row: (row.kind, row.version)):
            columns = as_columns(list(group))
            self.session.outbox.append(
                columns.agent,
                columns.step,
                version,
                columns.reward,
                columns.state,
                columns.features,
                columns.action,
                kind=kind,
            )

    def leave(self) -> Future[None]:
        """Send the waiting rows, and leave the run, which other sessions may continue."""
        return self.session.leave(stop=False)

    def _load(self, version: int, data: bytes) -> None:
        session = self._joined.result()
        try:
            self._offer(self.actor_class, version, data, f"{self.run.name}@{version}")
        except ArkmlError as error:
            log.warning("version %d of run %s is not used: %s", version, self.run.name, error)
        else:
            session.loaded(version)


def _require_counts(run: RunInfo, behavior: Behavior) -> None:
    """Raise NotTrainable unless a run has the counts of a behavior."""
    theirs = run.features, run.actions, tuple(run.branches)
    own = behavior.num_features, behavior.num_actions, behavior.spec.actions.branches
    if theirs != own:
        raise NotTrainable(
            f"run {run.name!r} has {_counts(*theirs)}, and {behavior.name!r} has {_counts(*own)}"
        )


def _counts(features: int, actions: int, branches: Sequence[int]) -> str:
    text = f"{features} features and {actions} actions"
    return text + (f", of them branches of {list(branches)} choices" if branches else "")


def _off_policy(name: str, learner: str) -> str:
    return (
        f"run {name!r} learns by {learner}, from rows of its own policy only, and not from what"
        " people do: the algorithm sac does"
    )
