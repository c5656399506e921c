"""Keeps one learner running for a run: starts it, watches it, starts it again."""

from __future__ import annotations

import asyncio
import logging
import signal
import time
from collections import deque
from enum import Enum
from pathlib import Path
from typing import Any, Protocol

from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.messages import Message
from arkml.hive.protocol.runs import Status
from arkml.server.learner import Learner
from arkml.server.learner_pool import LearnerPool
from arkml.server.options import Patience

_log = logging.getLogger(__name__)

_PAUSES = (1.0, 2.0, 4.0)
_MISCONFIGURED, _DIVERGED = 3, 4
_MOST_STILLBORN = 5
"""A learner that never said hello so many times in a row will not the next time either."""
_MOST_DIVERGED = 3
_DIVERGED_WITHIN = 600.0
_LONG_LIFE = 30.0
_LOOK_EVERY = 1.0


class Health(Enum):
    """How the learner of a run is."""

    STARTING = "starting"
    WELL = "well"
    UNWELL = "unwell"
    ENDED = "ended"


def status_of(health: Health, *, has_begun: bool, is_paused: bool, has_policy: bool) -> Status:
    """Return the status of a run that is not over. `has_begun`: a learner of it told something."""
    match health:
        case Health.UNWELL:
            return Status.UNHEALTHY
        case Health.STARTING | Health.ENDED if not has_begun:
            return Status.PENDING
        case Health.STARTING:
            return Status.STARTING
        case Health.ENDED:
            return Status.PAUSED
        case Health.WELL if is_paused:
            return Status.PAUSED
        case Health.WELL:
            return Status.RUNNING if has_policy else Status.STARTING


class Owner(Protocol):
    """The run that a learner learns for."""

    async def hear(self, message: Message) -> None:
        """A message of the learner. Its answers go through `Supervisor.send`."""

    def greet(self) -> None:
        """The learner listens: tell it what it has to know."""

    def turned(self) -> None:
        """`Supervisor.health` has changed."""

    async def failed(self, reason: str) -> None:
        """Note why a learner has ended that another one follows."""

    async def aborted(self, reason: str) -> None:
        """There is no learner any more, and will be none."""


class Supervisor:
    """The learner of one run. It is there from `start` until `stop`, or until it is given up."""

    def __init__(self, run: Path, owner: Owner, learners: LearnerPool, patience: Patience) -> None:
        self.health = Health.ENDED
        self._run = run
        self._owner = owner
        self._learners = learners
        self._patience = patience
        self._learner: Learner | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_paused = False
        self._is_stopping = False
        self._is_known = False
        self._replies: dict[int, asyncio.Future[Message]] = {}
        self._requests = 0
        self._heard = self._probed = 0.0
        self._reason = ""
        self._stillborn = self._crashes = 0
        self._diverged: deque[float] = deque(maxlen=_MOST_DIVERGED)

    def start(self) -> None:
        """Start a learner, and another one whenever it ends."""
        if self._task is None or self._task.done():
            self._is_stopping = self._is_paused = False
            self._turn(Health.STARTING)
            self._task = asyncio.create_task(self._supervise())

    async def stop(self, seconds: float) -> None:
        """End the learner; it has so many seconds for its last checkpoint."""
        task, self._is_stopping = self._task, True
        if task is None:
            return
        if task is asyncio.current_task():  # it gives the learner up, and has ended it
            self._task = None
            self._turn(Health.ENDED)
            return
        learner = self._learner
        if learner is not None and self._is_known:
            learner.send("resume")
            learner.send("stop", deadline_s=seconds)
            await asyncio.wait([task], timeout=seconds + min(1.0, seconds / 2))
        task.cancel()
        await asyncio.wait([task])
        self._task = None
        self._turn(Health.ENDED)

    def send(self, kind: str, **fields: Any) -> bool:
        """Send a message; False if there is no learner that takes it now."""
        return self._is_known and self._learner is not None and self._learner.send(kind, **fields)

    def pause(self, *, paused: bool) -> None:
        """Let the learner rest, or go on."""
        if paused != self._is_paused:
            self._is_paused = paused
            self._heard = self._probed = time.monotonic()
            self.send("pause" if paused else "resume")

    async def ask(self, kind: str, seconds: float, **fields: Any) -> Message:
        """The learner's reply. Raises HiveRefused if there is none."""
        self._requests += 1
        number = self._requests
        reply: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
        self._replies[number] = reply
        try:
            if not self.send(kind, req=number, **fields):
                raise HiveRefused("the run has no learner now", 503)
            found = await asyncio.wait_for(reply, seconds)
        except TimeoutError:
            raise HiveRefused(f"the learner does not answer within {seconds:g} s", 503) from None
        finally:
            del self._replies[number]
        if "error" in found:
            raise HiveRefused(f"the learner cannot: {found['error']}", 503)
        return found

    async def _supervise(self) -> None:
        while not self._is_stopping:
            try:
                status = await self._live()
            except OSError as error:
                status, self._reason = 1, f"no learner can be started: {error}"
            if self._is_stopping:
                return
            reason = self._verdict(status)
            if reason:
                _log.error("run %s is aborted: %s", self._run.name, reason)
                self._turn(Health.ENDED)
                await self._owner.aborted(reason)
                return
            await self._owner.failed(self._reason)
            self._turn(Health.UNWELL)
            pause = _PAUSES[min(self._crashes, len(_PAUSES)) - 1]
            _log.warning(
                "the learner of run %s ended with status %d, the next one starts in %g s: %s",
                self._run.name, status, pause, self._reason,
            )  # fmt: skip
            await asyncio.sleep(pause)

    def _verdict(self, status: int) -> str:
        """Why there is no point in another learner, empty if there is one."""
        why = self._reason
        if status == _MISCONFIGURED:
            return why
        if status == _DIVERGED:
            self._diverged.append(time.monotonic())
            times = self._diverged
            if len(times) == _MOST_DIVERGED and times[-1] - times[0] < _DIVERGED_WITHIN:
                return f"diverged {_MOST_DIVERGED} times: {why}"
        if self._stillborn >= _MOST_STILLBORN:
            return f"the learner ended {_MOST_STILLBORN} times before it had begun: {why}"
        self._crashes += 1
        return ""

    async def _live(self) -> int:
        """One life of a learner. Returns its exit status."""
        self._reason = ""
        began = time.monotonic()
        learner = self._learner = await self._learners.take(self._run)
        self._heard = self._probed = time.monotonic()
        self._stillborn += 1
        try:
            await self._listen(learner)
            await learner.ended(1.0)
        finally:
            self._is_known, self._learner = False, None
            ending = asyncio.create_task(learner.end())
            for reply in self._replies.values():
                if not reply.done():
                    reply.set_exception(HiveRefused("the learner ended", 503))
            status = await asyncio.shield(ending)
            self._reason = self._reason or _why(status, learner.last_line)
            if time.monotonic() - began > _LONG_LIFE:
                self._crashes = 0
        return status

    async def _listen(self, learner: Learner) -> None:
        """Hear messages until there are no more, or the learner hangs."""
        reading = asyncio.create_task(learner.receive())
        try:
            while True:
                await asyncio.wait([reading], timeout=_LOOK_EVERY)
                if reading.done():
                    messages = reading.result()
                    if messages is None:
                        return
                    reading = asyncio.create_task(learner.receive())
                    for message in messages:
                        await self._hear(message)
                elif self._hangs():
                    self._reason = self._reason or "it hangs"
                    return
        except (ProtocolError, KeyError, TypeError, ValueError) as error:
            self._reason = f"it talks nonsense: {error!r}"
        finally:
            reading.cancel()

    def _hangs(self) -> bool:
        if self._is_paused:
            return False
        patience = self._patience.hang if self._is_known else self._patience.start
        return time.monotonic() - self._heard > patience

    async def _hear(self, message: Message) -> None:
        match message["kind"]:
            case "hello":
                self._is_known = True
                self._stillborn = 0
                self._heard = time.monotonic()
                self._turn(Health.WELL)
                self._owner.greet()
                if self._is_paused:
                    self.send("pause")
                await self._owner.hear(message)
            case "progress":
                self._watch(float(message.get("turn_seconds", 0.0)))
                await self._owner.hear(message)
            case "reply":
                reply = self._replies.get(message["req"])
                if reply is not None and not reply.done():
                    reply.set_result(message)
            case "fatal":
                self._reason = str(message["reason"])
            case _:
                await self._owner.hear(message)

    def _watch(self, turn_seconds: float) -> None:
        """
        Note a sign of life. `turn_seconds` is how long the loop of the learner has not gone round.

        One that rests has none to go round for, so it is woken before that is held against it.
        """
        now = time.monotonic()
        if turn_seconds < self._patience.hang / 2:
            self._heard = now
        elif now - self._probed > self._patience.hang / 2 and not self._is_paused:
            self._probed = now
            self.send("resume")

    def _turn(self, health: Health) -> None:
        if health is not self.health:
            self.health = health
            self._owner.turned()


def _why(status: int, last_line: str) -> str:
    """Return why a learner ended that gave no reason, as far as its end shows."""
    if status == -signal.SIGKILL:
        return "the learner was killed (SIGKILL), perhaps for want of memory"
    if status < 0:
        return f"the learner was ended by signal {-status}"
    return f"the learner ended with status {status}: {last_line or 'it has printed nothing'}"
