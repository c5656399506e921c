"""One run: who takes part, whether it goes on, and what is written of that."""

from __future__ import annotations

import asyncio
import logging
import time
from pathlib import Path

from arkml.errors import HiveRefused
from arkml.hive.protocol.runs import LEAST_AHEAD, Role, Status
from arkml.hive.protocol.segments import Place
from arkml.hive.protocol.sessions import SessionState
from arkml.server.changes import Changes
from arkml.server.document import NAME, Document, packed, write_document
from arkml.server.index import Index
from arkml.server.learner_events import LearnerEvents
from arkml.server.learner_pool import LearnerPool
from arkml.server.log import Log
from arkml.server.maintenance import tend
from arkml.server.measurements import Measurements
from arkml.server.options import ServeOptions
from arkml.server.policies import Policies
from arkml.server.recovery import open_log
from arkml.server.scores import Scores
from arkml.server.session_counts import Tally
from arkml.server.sessions import Session
from arkml.server.supervisor import Supervisor, status_of

_log = logging.getLogger(__name__)

_SYNC_PATIENCE = 40.0


class Run:
    """
    A run in its directory. It sleeps until somebody needs its log or its learner: see `wake`.

    `cursor`, `admitted`, `holds` and `n_opts` are what its learner told last, and it `has_begun`
    once one told anything. `occupied` is when
    somebody took part, by the monotonic clock. `naming` is held while metrics get numbers.
    """

    def __init__(
        self,
        directory: Path,
        document: Document,
        index: Index,
        learners: LearnerPool,
        options: ServeOptions,
    ) -> None:
        self.directory = directory
        self.document = document
        self.changes = Changes()
        self.policies = Policies(directory, document.version_limit)
        self.scores = Scores(document, self.policies)
        self.measurements = Measurements(document.id, directory, index)
        self.log: Log | None = None
        self.hearing = LearnerEvents(self, learners)
        self.supervisor = Supervisor(directory, self.hearing, learners, options.patience)
        self.cursor = Place(0, 0)
        self.admitted = 0
        self.holds = False
        self.n_opts = document.n_opts
        self.has_begun = document.version_limit > 0
        self.is_closing = False
        self._index = index
        self._options = options
        self._is_paused = False
        self._is_stopping = False
        self.occupied = time.monotonic()
        self.naming = asyncio.Lock()
        self._changing = asyncio.Lock()
        self._writing = asyncio.Lock()
        self._syncing = asyncio.Lock()
        self._tending: asyncio.Task[None] | None = None

    @property
    def status(self) -> Status:
        if not (self.directory / NAME).exists():
            return Status.NOT_FOUND
        if self.document.is_over:
            return Status.TERMINATING if self._is_stopping else self.document.status
        return status_of(
            self.supervisor.health,
            has_begun=self.has_begun,
            is_paused=self._is_paused,
            has_policy=self.policies.newest is not None,
        )

    @property
    def is_ending(self) -> bool:
        """Whether nothing more will come of the run for now."""
        return self.is_closing or self.document.is_over

    @property
    def rows(self) -> int:
        """Rows of the run in all."""
        return self.log.rows if self.log else self.document.rows

    @property
    def policy_version(self) -> int:
        """The newest version, 0 before the first."""
        return self.policies.version if self.policies.newest else 0

    @property
    def present(self) -> int:
        """How many sessions take part now."""
        return self.document.sessions.alive(self._options.patience.lease)

    def tend(self) -> None:
        """Look after the run from now on."""
        if self._tending is None or self._tending.done():
            self.occupied = time.monotonic()
            self._tending = asyncio.create_task(tend(self, self._options.patience))

    async def wake(self) -> Log:
        """Open the log and start the learner. Returns the log. Raises HiveRefused, OSError."""
        async with self._changing:
            if self.is_ending:
                raise self._over()
            if self.log is None:
                keep = self.document.request.settings.memory_max_size
                rows, size = self.directory / "rows", self._options.segment_bytes
                self.log = await asyncio.to_thread(
                    open_log, rows, keep=keep, segment=size, least=self.document.rows
                )
                if self.log.lost > self.document.lost:
                    self.document.lost = self.log.lost
                    await self.save()
            self.supervisor.start()
            self.tend()
            return self.log

    async def join(
        self, join_key: object, features: object, actions: object, role: Role
    ) -> tuple[Session, bool]:
        """
        A session, and whether it had joined before. A stopped run goes on.

        Raises HiveRefused, OSError.
        """
        self.document.check_widths(features, actions, 409)
        sessions = self.document.sessions
        known = sessions.find(join_key) if isinstance(join_key, str) else None
        if self.document.status is Status.ABORTED or (known and known.ended):
            raise self._over()
        session = known or sessions.add(join_key, role)
        session.left, session.seen = False, time.monotonic()
        async with self._changing:
            if self.document.status is Status.STOPPED:
                self.document.status, self.document.ended_at = Status.RUNNING, 0
        try:
            await self.save()
            await self.wake()
        except OSError:
            if known is None:
                sessions.remove(session)
            raise
        self.touch(session)
        return session, known is not None

    def touch(self, session: Session) -> None:
        """A session was heard of. Raises HiveRefused if it takes no part any more."""
        if session.left or self.is_ending:
            raise self._over()
        session.seen = time.monotonic()
        self.rouse()

    def rouse(self) -> None:
        """Somebody needs the learner: if it is paused, it goes on."""
        self.occupied = time.monotonic()
        self.pause(paused=False)

    def pause(self, *, paused: bool) -> None:
        """Let the learner rest, or go on."""
        if paused != self._is_paused:
            self._is_paused = paused
            self.supervisor.pause(paused=paused)
            self.changes.tell()

    async def leave(self, session: Session, *, stop: bool) -> None:
        """A session takes no part any more; with the last one, or `stop`, the run stops."""
        session.left = True
        if stop or not self.present:
            await self.stop(for_all=stop)
        else:
            await self.save()

    def tell_rows(self) -> None:
        """Tell the learner how far the log goes."""
        if self.log is not None:
            segment, offset = self.log.end
            self.supervisor.send("rows", segment=segment, offset=offset)

    async def caught_up(self) -> None:
        """Wait until the learner has made all of the rows that there are, if it is in lockstep."""
        if self.log is None or not self.document.request.settings.sync:
            return
        end = self.log.end
        await self.changes.wait(lambda: self.cursor >= end or self.is_ending, _SYNC_PATIENCE)

    def acked(self, session: Session) -> int:
        """The number of the session's last body in the log."""
        tallies = self.log.tallies if self.log else {}
        return tallies.get(session.index, Tally()).acked

    def standing(self, session: Session) -> SessionState:
        """Return the state of a session, which every answer to it holds."""
        admitted = max(self.admitted, self.document.request.settings.memory_min_size + LEAST_AHEAD)
        return SessionState(
            acked=self.acked(session),
            policy_version=self.policy_version,
            credit=max(0, admitted - self.rows),
            hold=self.holds,
        )

    async def stop(self, *, for_all: bool, aborted: str = "") -> None:
        """
        Checkpoint and stop; `for_all`: those who take part may not come back with the same key.

        `aborted` is why the run cannot go on.
        """
        async with self._changing:
            document = self.document
            if for_all:
                document.sessions.end()
            if not document.is_over:
                document.status = Status.ABORTED if aborted else Status.STOPPED
                document.reason, document.ended_at = aborted, time.time_ns()
                self._is_stopping = not aborted
                self.changes.tell()
                await self._sleep(self._options.patience.stop)
                self._is_stopping = False
            await self.save()

    async def close(self, seconds: float) -> None:
        """
        Checkpoint within so many seconds, and let go of everything.

        The run goes on when it is opened again.
        """
        self.is_closing = True
        self.changes.tell()
        if self._tending is not None:
            self._tending.cancel()
        async with self._changing:
            await self._sleep(seconds)
            if not self.document.is_over:
                try:
                    await self.save()
                except OSError as error:
                    _log.error("run %s is not written down: %s", self.document.id, error)

    async def save(self) -> None:
        """Write the document. Raises OSError."""
        async with self._writing:
            document = self.document
            document.rows = self.rows
            document.n_opts = self.n_opts
            await asyncio.to_thread(write_document, self.directory, packed(document))
        await self.note()

    async def note(self) -> None:
        """Let the index know of the run."""
        document = self.document
        request = document.request
        await self._index.note(
            document.id, request.name, request.game, self.status, document.started_at
        )

    async def _sleep(self, seconds: float) -> None:
        await self.supervisor.stop(seconds)
        self._is_paused = False
        async with self._syncing:
            if self.log is not None:
                self.document.rows = self.log.rows
                log, self.log = self.log, None
                try:
                    await asyncio.to_thread(log.close)
                except OSError as error:  # its segments say nearly all that is lost
                    _log.error("the log of run %s: %s", self.document.id, error)

    async def sync(self) -> None:
        """Wait until the disk has the log; delete what is beyond the memory. Raises OSError."""
        async with self._syncing:
            if self.log is None:
                return
            await asyncio.to_thread(self.log.sync)
            expired = self.log.expired(self.cursor.segment)
            if expired:
                await asyncio.to_thread(self.log.remove, expired)

    def _over(self) -> HiveRefused:
        if self.is_closing:
            return HiveRefused("the hive is ending", 503)
        reason = f": {self.document.reason}" if self.document.status is Status.ABORTED else ""
        status = self.document.status if self.document.is_over else self.status
        return HiveRefused(f"run {self.document.id} is {status}{reason}", 410)
