"""What a run does with the messages of its learner."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from typing import TYPE_CHECKING

from arkml.errors import HiveError
from arkml.hive.protocol.messages import Message
from arkml.hive.protocol.runs import Best
from arkml.hive.protocol.segments import Place
from arkml.server.learner_pool import LearnerPool
from arkml.server.policies import RESERVED

if TYPE_CHECKING:
    from arkml.server.run import Run

_log = logging.getLogger(__name__)

_TRAINING_RETURN = "rollout/ep_rew_mean"
_MOST_UNRECORDED = 1_000

Points = list[tuple[str, int, float]]


class LearnerEvents:
    """Owns the learner of a run on the run's behalf."""

    def __init__(self, run: Run, learners: LearnerPool) -> None:
        self._run = run
        self._learners = learners
        self._refilling: asyncio.Task[None] | None = None
        self._unrecorded: deque[Points] = deque(maxlen=_MOST_UNRECORDED)

    async def hear(self, message: Message) -> None:
        """Take over what a learner says. Raises KeyError, TypeError or ValueError for nonsense."""
        match message["kind"]:
            case "hello":
                _log.info(
                    "run %s learns on %s from %s updates, process %s",
                    self._run.document.id, message["device"], message["n_opts"], message["pid"],
                )  # fmt: skip
                self._run.holds = False
                self._run.has_begun = True
                self._learns(message)
                # Only now, or the next run's learner would hold this one up.
                self._refilling = asyncio.create_task(self._learners.refill())
            case "progress":
                self._run.admitted = int(message["admits"])
                self._run.holds = bool(message["hold"])
                self._learns(message)
            case "policy":
                await self._publish(message)
            case "metrics":
                await self._measure([(str(n), int(s), float(v)) for n, s, v in message["points"]])
            case "checkpoint":
                self._run.n_opts = int(message["n_opts"])
                await self._save()
            case kind:
                _log.warning("nobody here knows messages of the kind %r", kind)

    def greet(self) -> None:
        """Tell a learner the names of metrics, how far the log goes, and what it is to record."""
        self._run.supervisor.send("names", names=self._run.document.names)
        self._run.tell_rows()
        self._record()

    def record(self, points: Points) -> None:
        """Have the learner write metrics to its events, now or when there is one again."""
        self._unrecorded.append(points)
        self._record()

    def _record(self) -> None:
        unrecorded = self._unrecorded
        while unrecorded and self._run.supervisor.send("record", points=unrecorded[0]):
            unrecorded.popleft()

    def turned(self) -> None:
        """The learner began, or ended."""
        self._run.changes.tell()

    async def failed(self, reason: str) -> None:
        """Note why a learner has ended that another one follows."""
        self._run.document.reason = reason
        await self._save()

    async def aborted(self, reason: str) -> None:
        """There will be no learner any more."""
        try:
            await self._run.stop(for_all=False, aborted=reason)
        except OSError as error:
            _log.error("run %s is aborted, but not on the disk: %s", self._run.document.id, error)

    def keep(self, best: Best) -> None:
        """A policy was found the best: the learner keeps a checkpoint of about that time."""
        self._run.document.best = best
        self._run.supervisor.send("checkpoint", req=0, best=True)

    def _learns(self, message: Message) -> None:
        segment, offset = message["cursor"]
        self._run.cursor = Place(int(segment), int(offset))
        self._run.n_opts = int(message["n_opts"])
        self._run.changes.tell()
        if self._run.log is not None and self._run.cursor < self._run.log.end:
            self._repeat()

    def _repeat(self) -> None:
        """Say again how far the log goes, in case it was said while nobody listened."""
        if not self._run.document.request.settings.sync:
            self._run.tell_rows()

    async def _publish(self, message: Message) -> None:
        run = self._run
        document = run.document
        if run.policies.version >= document.version_limit:
            document.version_limit = run.policies.version + RESERVED
            await self._save()
        try:
            policy = await asyncio.to_thread(run.policies.publish, message)
        except (HiveError, OSError) as error:
            _log.warning("a policy of run %s is passed over: %s", document.id, error)
            return
        run.supervisor.send("version", version=policy.version, n_opts=policy.n_opts)
        run.changes.tell()

    async def _measure(self, points: Points) -> None:
        run = self._run
        await run.measurements.add(points)
        for name, _, value in points:
            if name != _TRAINING_RETURN:
                continue
            try:
                best = await asyncio.to_thread(run.scores.trained, value)
            except OSError as error:
                _log.warning("the best policy of run %s is not kept: %s", run.document.id, error)
                continue
            if best is not None:
                self.keep(best)
                await self._save()

    async def _save(self) -> None:
        try:
            await self._run.save()
        except OSError as error:
            _log.warning("run %s is not written down: %s", self._run.document.id, error)
