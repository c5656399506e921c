"""The membership of guests of one thread in one run: a session, a policy, and the guests' rows."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as TimedOut
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.base.handler_errors import when_done
from arkml.base.loggers import SafeLogger
from arkml.batches import Batch, MetadataLog
from arkml.errors import (
    ArkmlError,
    HiveUnreachable,
    InvalidArguments,
    NotFound,
    Unavailable,
)
from arkml.hive.client import HiveClient
from arkml.hive.protocol.rows import NO_ROW, RowKind
from arkml.hive.protocol.runs import Role, RunInfo
from arkml.hive.run_session import RunSession
from arkml.policies.library import PolicyLibrary
from arkml.policies.noise import Words, streams
from arkml.policies.step_limit import StepLimit
from arkml.policies.training import PolicyVersion, Rows, TrainingPolicy, episode_ends
from arkml.runs.version_loader import VersionLoader
from arkml.sessions.session import Origin, Ready
from arkml.sessions.text import presentable

log = SafeLogger(__name__)

_KINDS = {Origin.AUGMENTED: RowKind.AUGMENTED, Origin.DEMONSTRATION: RowKind.DEMONSTRATION}
_WARNING_BYTES = 1_024
_LOOK = 0.5  # seconds between two checks that the session has not ended
_FIRST_POLICY = 60.0  # seconds; a learner that has to be started takes eight of them at most


class RunMembership:
    """
    One session of a run, shared by all guests of a thread that take part in it.

    It is the `RowSink` of their policy and the `TransitionSink` of their sessions. The session ends
    when the last guest leaves. `limit` cuts episodes off, or None. `latest` is the version that was
    loaded last, with its ONNX file; None before the first. `rejection` says why the newest version
    is not used, or is empty. `has_stopped` is True if a guest of this host has stopped the run.
    """

    def __init__(
        self,
        client: HiveClient,
        run: RunInfo,
        library: PolicyLibrary,
        *,
        block: bool,
        sync: bool,
        loaders: ThreadPoolExecutor,
        farewells: set[Future[Any]],
        limit: StepLimit | None = None,
    ) -> None:
        self._client = client
        self._run = run
        self._library = library
        self._block = block or sync
        self._farewells = farewells
        self._limit = limit
        self.latest: tuple[int, bytes] | None = None
        self.rejection = ""
        self._lock = threading.RLock()  # a finalizer may find it taken
        self.has_stopped = False
        self._users = 1
        self._acting: Future[TrainingPolicy] = Future()
        self._joined: Future[RunSession] = Future()
        self._session: RunSession | None = None
        self._policy: TrainingPolicy | None = None
        self._refused: set[Origin] = set()
        self._frame: tuple[int, Words, Marks | None] = 0, np.zeros(0, np.uint64), None
        joining = client.join(
            run.id,
            run.features,
            run.actions,
            role=Role.ACT,
            block=block,
            sync=sync,
            on_policy=VersionLoader(loaders, self._load_version).receive,
            choices=sum(run.branches),
        )
        when_done(joining, self._on_joined)

    @property
    def shape(self) -> tuple[int, int]:
        """Number of features and of actions, such as (8, 2)."""
        return self._run.features, self._run.actions

    @property
    def session(self) -> RunSession | None:
        """The session at the hive, None before the hive has given one."""
        return self._session

    @property
    def branches(self) -> tuple[int, ...]:
        """The number of choices of each discrete action; the discrete actions are the last ones."""
        return self._run.branches

    @property
    def irregular(self) -> dict[str, int]:
        """The number of rows that were answered with zeros and not sent, by the reason."""
        return {} if self._policy is None else dict(self._policy.irregular.counts)

    @property
    def vanished(self) -> str:
        """A sentence on agents that send no rows any more, and sent no last one; else ""."""
        count = 0 if self._policy is None else self._policy.agents.count_vanished()
        if not count:
            return ""
        agents = "1 agent has" if count == 1 else f"{count:,} agents have"
        return (
            f"{agents} sent no row for long, and no last one, with the state Terminal or"
            " Interrupted: how their episodes ended was not learned from"
        )

    @property
    def is_left(self) -> bool:
        """True after the last guest has left."""
        return not self._users

    @property
    def has_ended(self) -> bool:
        """True after the session has ended, for whatever reason."""
        return self._session is not None and self._session.ended.done()

    @property
    def failure(self) -> str:
        """The reason why rows can no longer be delivered, or ""."""
        return (self._session.failure or "") if self._session is not None else ""

    def enter(self) -> bool:
        """Count one more guest, or return False if the last guest has left already."""
        with self._lock:
            if not self._users:
                return False
            self._users += 1
            return True

    def policy(self) -> TrainingPolicy:
        """
        Return the policy that acts in the run, once its first version has arrived.

        Blocks for a minute at most, and for any time while the run waits for a learner. Raises
        HiveError.
        """
        until = time.monotonic() + _FIRST_POLICY
        while time.monotonic() < until:
            try:
                return self._acting.result(_LOOK)
            except TimedOut:
                if self._session is not None and self._session.place:
                    until = time.monotonic() + _FIRST_POLICY
                if self._session is not None and self._session.ended.done():
                    why = self._session.failure or "it was left"
                    raise HiveUnreachable(
                        f"the session of run {self._run.id} has ended: {why}"
                    ) from None
        raise HiveUnreachable(f"run {self._run.id} gave no policy within {_FIRST_POLICY:g} s")

    def take(self, rows: Rows) -> None:
        """Queue rows for the learner. Raises NotFound when the run is gone."""
        session = self._session
        assert session is not None
        if session.failure is not None:
            raise NotFound(f"run {self._run.id}: {session.failure}")
        outbox = session.outbox
        outbox.begin()
        self._frame = outbox.appended, rows.agent, rows.keep
        outbox.append(*rows[:8], masks=rows.masks)

    def accept(self, batch: Batch, metadata: MetadataLog, origin: Origin) -> None:
        policy, session = self._policy, self._session
        assert policy is not None
        assert session is not None
        if session.failure is not None:
            raise NotFound(f"run {self._run.id}: {session.failure}")
        if session.is_on_policy:
            raise self._off_policy(session.learner, origin)
        if not len(batch):
            return
        rows = batch.rows
        if batch.pushed_actions is None or (rows["given"] != policy.num_actions).any():
            raise InvalidArguments(
                f"{origin.value} rows come with {policy.num_actions} actions each"
            )
        kind = _KINDS[origin]
        agents = policy.others_of(kind)
        visit = agents.visit(batch.keys, rows["id"])
        steps = agents.steps(visit)
        states = rows["state"]
        ended = episode_ends(states)
        over = agents.ended(visit, ended)
        keep, _ = policy.examine(batch, steps, over)  # a bad row is a gap, no error (decision 7)
        agents.advance(visit, ended, None)
        agents.end(visit, over)
        keep = policy.without_false_joins(agents, batch, steps, keep)
        names = streams(policy.seed, batch.keys, rows["id"])
        given = np.where(ended[:, None], np.float32(0), batch.pushed_actions)
        outbox = session.outbox
        outbox.begin()
        self._frame = outbox.appended, names, keep
        outbox.append(
            names, steps, policy.version, rows["reward"], states, batch.features, given, keep, kind
        )
        self.note(batch, metadata)
        outbox.end()

    def _off_policy(self, learner: str, origin: Origin) -> Unavailable:
        """Return the refusal of rows with a guest's own actions; log one for each origin."""
        sentence = (
            f"run {self._run.name!r} learns by {learner}, from rows of its own policy only: it"
            f" takes no {origin.value} rows; the algorithm sac does"
        )
        if origin not in self._refused:
            self._refused.add(origin)
            log.warning("%s", presentable(sentence, _WARNING_BYTES))
        return Unavailable(sentence)

    def note(self, batch: Batch, metadata: MetadataLog) -> None:
        if self._session is not None and metadata:
            rows = self._numbers(batch)[metadata.rows].tolist()
            names = map(metadata.names.__getitem__, metadata.codes.tolist())
            self._session.outbox.note(zip(rows, names, metadata.values.tolist(), strict=True))

    def _numbers(self, batch: Batch) -> npt.NDArray[np.int64]:
        """
        Return, for each row of a session's batch, the number of rows appended before it, or NO_ROW.

        The rows of all sessions that were answered together are one frame, in which the rows of one
        session lie side by side.
        """
        assert self._policy is not None
        first, agents, keep = self._frame
        names = streams(self._policy.seed, batch.keys, batch.rows["id"])
        kept = np.ones(len(agents), bool) if keep is None else keep
        numbers = np.where(kept, first + np.cumsum(kept) - 1, NO_ROW)
        for place in np.flatnonzero(agents == names[0]).tolist():
            if np.array_equal(agents[place : place + len(names)], names):
                return numbers[place : place + len(names)]
        return np.full(len(names), NO_ROW)

    def deliver(self) -> bool:
        """Release the newest rows; return whether all rows have been delivered, refused or lost."""
        session = self._session
        if session is None or session.failure is not None or session.ended.done():
            return True
        session.outbox.end()
        return not session.outbox.outstanding

    def held(self) -> Ready | None:
        session = self._session
        if session is not None:
            session.outbox.end()
        if self._block and session is not None and session.must_wait():
            return session.wait
        return None

    def leave(self, *, stop: bool) -> None:
        with self._lock:
            if not self._users:
                return
            self._users -= 1
            self.has_stopped |= stop
            last = not self._users
        if last or stop:
            farewell: Future[Any] = Future()
            self._farewells.add(farewell)
            farewell.add_done_callback(self._farewells.discard)
            when_done(self._joined, lambda joined: self._leave_session(joined, farewell, stop=stop))

    def _on_joined(self, joined: Future[RunSession]) -> None:
        try:
            session = joined.result()
        except BaseException as error:  # noqa: BLE001  raised by the calls that wait
            self._acting.set_exception(error)
            self._joined.set_exception(error)
            return
        # The session is in the seed, so that agents of two hosts have different names on the wire.
        index = np.array([session.index], np.uint64)
        self._policy = TrainingPolicy(
            f"run {self._run.name}",
            self._run.features,
            self._run.actions,
            sink=self,
            seed=int(streams(self._run.seed, index, np.zeros(1, np.uint64))[0]),
            workspace=self._library.workspace,
            branches=self._run.branches,
            limit=self._limit,
            pink=session.is_pink,
        )
        self._session = session
        self._joined.set_result(session)

    def _load_version(self, version: int, data: bytes) -> None:
        session, policy = self._joined.result(), self._policy
        assert policy is not None
        try:
            loaded = self._library.load_version(data, policy)
        except ArkmlError as error:
            sentence = f"version {version} of run {self._run.id} is not used: {error}"
            self.rejection = presentable(sentence, _WARNING_BYTES)
            log.warning("%s", self.rejection)
            if not self._acting.done():
                self._acting.set_exception(Unavailable(str(error)))
            return
        self.latest, self.rejection = (version, data), ""
        policy.offer(PolicyVersion(version, loaded))
        session.loaded(version)
        if not self._acting.done():
            self._acting.set_result(policy)

    def _leave_session(
        self, joined: Future[RunSession], farewell: Future[Any], *, stop: bool
    ) -> None:
        """Leave the session, if there was one; `farewell` is done when the hive has answered."""
        if joined.exception() is not None:
            farewell.set_result(None)
            return
        leaving = joined.result().leave(stop=stop)
        when_done(leaving, lambda _: farewell.set_result(None))
