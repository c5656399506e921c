"""Supervision of one run's learner: its process is started, watched, and started again."""

from __future__ import annotations

import asyncio
import signal
import time
from collections import deque
from collections.abc import Awaitable, Callable
from enum import Enum
from pathlib import Path
from typing import Any

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.runs import Status
from arkml.hive.protocol.wire import Message
from arkml.server.learner_events import (
    LearnerEnded,
    LearnerFailing,
    LearnerGivenUp,
    LearnerProgress,
    LearnerReply,
    LearnerStarted,
    RunEvent,
    read_message,
)
from arkml.server.learner_places import LearnerPlace
from arkml.server.learner_pool import LearnerPool
from arkml.server.learner_process import LearnerProcess
from arkml.server.request_context import begin_run
from arkml.server.serve_options import Timeouts

_log = SafeLogger(__name__)

_LONGER = (1, 2, 4)  # times `Timeouts.restart`, of the first learners that ended
_MISCONFIGURED, _DIVERGED = 3, 4  # exit statuses of `learning.worker`
_MAX_FRUITLESS = 5
"""Learners in a row that ended without an update, after which the run is given up."""
_MAX_DIVERGED = 3
_DIVERGED_WITHIN = 600.0
_STABLE_AFTER = 30.0
_CHECK_EVERY = 1.0


class _Health(Enum):
    STARTING = "starting"
    WELL = "well"
    UNWELL = "unwell"
    ENDED = "ended"


class Supervisor:
    """
    The learner of one run, kept running from `start` until `stop` or until it is given up.

    A learner runs only while the run holds its slot, `place`, which is released when it ends.

    Args:
        run: The directory of the run.
        learners: The source of learners.
        timeouts: The times to wait.
        apply: Called with each event, in order.
        changed: Called when the status may have changed.
        has_begun: Whether a learner of the run has sent a message before.

    """

    def __init__(
        self,
        run: Path,
        learners: LearnerPool,
        timeouts: Timeouts,
        apply: Callable[[RunEvent], Awaitable[None]],
        changed: Callable[[], None],
        *,
        has_begun: bool,
    ) -> None:
        self._run = run
        self._learners = learners
        self._timeouts = timeouts
        self._apply = apply
        self._changed = changed
        self._has_begun = has_begun
        self.place = LearnerPlace(learners.places, changed)
        self.restarts = 0
        """The number of learners that were started in the place of one that had ended."""
        self._health = _Health.ENDED
        self._learner: LearnerProcess | None = None
        self._task: asyncio.Task[None] | None = None
        self._refilling: asyncio.Task[None] | None = None
        self.is_paused = False
        self._is_stopping = False
        self._is_connected = False
        self._replies: dict[int, asyncio.Future[Message]] = {}
        self._requests = 0
        self._last_sign = self._last_probe = 0.0
        self._reason = ""
        self._fruitless = self._crashes = 0
        self._were_silent = True  # true while no fruitless learner has sent a message
        self._n_opts = 0  # at the start of the present learner
        self._diverged: deque[float] = deque(maxlen=_MAX_DIVERGED)

    @property
    def is_running(self) -> bool:
        """True while a learner runs that has sent its first message."""
        return self._is_connected

    def status(self, *, has_policy: bool) -> Status:
        """
        Return the status of a run that has not ended, from the state of its learner.

        `has_policy` says whether the run has a policy version.
        """
        if self.place.number:
            return Status.PENDING
        match self._health:
            case _Health.UNWELL:
                return Status.UNHEALTHY
            case _Health.STARTING | _Health.ENDED if not self._has_begun:
                return Status.PENDING
            case _Health.STARTING:
                return Status.STARTING
            case _Health.ENDED:
                return Status.PAUSED
            case _Health.WELL if self.is_paused:
                return Status.PAUSED
            case _Health.WELL:
                return Status.RUNNING if has_policy else Status.STARTING

    def start(self) -> None:
        """Start a learner, and a new one whenever it ends."""
        if self._task is None or self._task.done():
            self._is_stopping = self.is_paused = False
            self._fruitless = 0
            self._set_health(_Health.STARTING)
            self._task = asyncio.create_task(self._supervise())

    async def stop(self, seconds: float) -> None:
        """End the learner, which has `seconds` for its last checkpoint."""
        task, self._is_stopping = self._task, True
        if task is not None and task is not asyncio.current_task():
            learner = self._learner
            if learner is not None and self._is_connected:
                learner.send("resume")
                learner.send("stop", deadline_s=seconds)
                await asyncio.wait([task], timeout=seconds + min(1.0, seconds / 2))
            task.cancel()
            await asyncio.wait([task])
        self._task = None  # this task itself, where the learner is given up and has ended
        self.is_paused = False
        self._set_health(_Health.ENDED)

    def send(self, kind: str, **fields: Any) -> bool:
        """Send a message. Returns False if there is no learner that takes it now."""
        learner = self._learner
        return self._is_connected and learner is not None and learner.send(kind, **fields)

    def pause(self, *, paused: bool) -> None:
        """Pause the learner, or resume it."""
        if paused != self.is_paused:
            self.is_paused = paused
            self._last_sign = self._last_probe = time.monotonic()
            self.send("pause" if paused else "resume")
            self._changed()

    async def request(self, kind: str, seconds: float) -> Message:
        """Send a request and return the learner's reply. Raises HiveRefused if there is none."""
        self._requests += 1
        number = self._requests
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            if not self.send(kind, req=number):
                raise HiveRefused("the run has no learner now", 503)
            fields = await asyncio.wait_for(reply, seconds)
        except TimeoutError:
            raise HiveRefused(f"the learner does not answer within {seconds:g} s", 503) from None
        finally:
            del self._replies[number]
        if "error" in fields:
            raise HiveRefused(f"the learner reports an error: {fields['error']}", 503)
        return fields

    async def _supervise(self) -> None:
        begin_run(self._run.name)
        try:
            await self.place.take()
            await self._keep_running()
        finally:
            self.place.give_up()

    async def _keep_running(self) -> None:
        while not self._is_stopping:
            try:
                status = await self._run_learner()
            except OSError as error:
                status, self._reason = 1, f"no learner can be started: {error}"
            if self._is_stopping:
                return
            reason = self._final_reason(status)
            if reason:
                _log.error("run %s is aborted: %s", self._run.name, reason)
                self._set_health(_Health.ENDED)
                await self._apply(LearnerGivenUp(reason))
                return
            await self._apply(LearnerEnded(self._reason, status == _DIVERGED))
            self._set_health(_Health.UNWELL)
            longer = _LONGER[min(self._crashes, len(_LONGER)) - 1]
            delay = longer * self._timeouts.restart
            _log.warning(
                "the learner of run %s ended with status %d, the next one starts in %g s: %s",
                self._run.name, status, delay, self._reason,
            )  # fmt: skip
            await asyncio.sleep(delay)
            self.restarts += 1

    def _final_reason(self, status: int) -> str:
        """Return the reason to give the learner up, empty to start a new one."""
        if status == _MISCONFIGURED:
            return self._reason
        if status == _DIVERGED:
            self._diverged.append(time.monotonic())
            times = self._diverged
            if len(times) == _MAX_DIVERGED and times[-1] - times[0] < _DIVERGED_WITHIN:
                return f"diverged {_MAX_DIVERGED} times: {self._reason}"
        if self._fruitless >= _MAX_FRUITLESS:
            when = "before it had begun" if self._were_silent else "without an update between"
            return f"the learner ended {_MAX_FRUITLESS} times {when}: {self._reason}"
        self._crashes += 1
        return ""

    async def _run_learner(self) -> int:
        """Run one learner's process until it ends. Returns its exit status."""
        self._reason = ""
        began = time.monotonic()
        learner = self._learner = await self._learners.take(self._run)
        self.place.pid = learner.pid
        learner.log_to(self._run)
        self._last_sign = self._last_probe = time.monotonic()
        self._were_silent |= not self._fruitless
        self._fruitless += 1
        try:
            await self._read_messages(learner)
            await learner.wait(1.0)
        finally:
            self._is_connected, self._learner, self.place.pid = False, None, None
            ending = asyncio.create_task(learner.end())
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(HiveRefused("the learner ended", 503))
            status = await asyncio.shield(ending)
            self._reason = self._reason or _describe_exit(status, learner.last_line)
            if time.monotonic() - began > _STABLE_AFTER:
                self._crashes = 0
            if self.is_paused:
                self._fruitless = 0  # it had nothing to do
        return status

    async def _read_messages(self, learner: LearnerProcess) -> None:
        """Handle messages until the connection ends, or the learner hangs."""
        reading = asyncio.create_task(learner.receive())
        try:
            while True:
                await asyncio.wait([reading], timeout=_CHECK_EVERY)
                if reading.done():
                    messages = reading.result()
                    if messages is None:
                        return
                    reading = asyncio.create_task(learner.receive())
                    for message in messages:
                        await self._handle(message)
                elif self._hangs():
                    self._reason = self._reason or "it hangs"
                    return
        except (ProtocolError, KeyError, TypeError, ValueError) as error:
            self._reason = f"it sent an invalid message: {error!r}"
        finally:
            reading.cancel()

    def _hangs(self) -> bool:
        if self.is_paused:
            return False
        timeout = self._timeouts.hang if self._is_connected else self._timeouts.start
        return time.monotonic() - self._last_sign > timeout

    async def _handle(self, message: Message) -> None:
        match read_message(message):
            case LearnerStarted() as started:
                self._connect(started.n_opts)
                await self._apply(started)
                # Not before, or the next run's learner would compete with this one as it starts,
                # and a training of some seconds would pay for one that nobody takes.
                refill = self._learners.refill(self._timeouts.spare)
                self._refilling = asyncio.create_task(refill)
            case LearnerProgress() as report:
                self._note_sign(report.turn_seconds)
                if report.progress.n_opts > self._n_opts:
                    self._fruitless = 0
                await self._apply(report)
            case LearnerReply(request=number, fields=fields):
                reply = self._replies.get(number)
                if reply is not None and not reply.done():
                    reply.set_result(fields)
            case LearnerFailing(reason=reason):
                self._reason = reason
            case None:
                _log.warning("a learner sent a message of the unknown kind %r", message["kind"])
            case event:
                await self._apply(event)

    def _connect(self, n_opts: int) -> None:
        self._is_connected = self._has_begun = True
        self._were_silent, self._n_opts = False, n_opts
        self._last_sign = time.monotonic()
        self._set_health(_Health.WELL)
        if self.is_paused:
            self.send("pause")

    def _note_sign(self, turn_seconds: float) -> None:
        """
        Note a sign of life of a learner whose loop last came round `turn_seconds` ago.

        The loop of an idle learner waits for messages, so it is woken by one before that time
        counts as hanging.
        """
        now = time.monotonic()
        if turn_seconds < self._timeouts.hang / 2:
            self._last_sign = now
        elif now - self._last_probe > self._timeouts.hang / 2 and not self.is_paused:
            self._last_probe = now
            self.send("resume")

    def _set_health(self, health: _Health) -> None:
        if health is not self._health:
            self._health = health
            self._changed()


def _describe_exit(status: int, last_line: str) -> str:
    """Return the likely reason of an exit, such as a signal, when the learner gave none."""
    if status == -signal.SIGKILL:
        return "the learner was killed (SIGKILL), perhaps for want of memory"
    if status < 0:
        try:
            name = signal.Signals(-status).name
        except ValueError:
            name = f"signal {-status}"  # one of the real-time signals, which have no names
        return f"the learner was ended by {name}"
    return f"the learner ended with status {status}: {last_line or 'it has printed nothing'}"
