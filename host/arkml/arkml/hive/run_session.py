"""A session of a run, as a host holds it: rows go out, newer policy versions come in."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future

from arkml.base.loggers import SafeLogger
from arkml.errors import HiveError, HiveRefused, HiveUnreachable, ProtocolError
from arkml.hive.delivery import Delivery, Ledger, join_run
from arkml.hive.machine import host_name
from arkml.hive.outbox import Outbox
from arkml.hive.policy_poll import PolicyPoll
from arkml.hive.protocol.runs import BATCH_SECONDS, Role
from arkml.hive.protocol.session_messages import JoinRequest, LeaveRequest, SessionState
from arkml.hive.protocol.wire import Nothing
from arkml.hive.transport import GONE, RETRIED, HiveTransport

log = SafeLogger(__name__)

_BEAT = 5.0  # seconds without rows after which a beat renews the session's lease
_FIRST_WAIT, _LAST_WAIT = 0.02, 0.1  # seconds between beats while the guest waits for credit
_LONGEST_PAUSE = 0.01
"""Seconds, at most, between two bodies where no frame may be late: half the time of the first."""
_FRAME_END = 0.002
"""Seconds, usually, from the rows of a frame to its end; work that begins then delays no frame."""

_FORBIDDEN = 403


class RunSession:
    """
    One session of a run, as a host holds it.

    The thread that plays frames appends to `outbox` and calls `must_wait` and `wait`; everything
    else runs on `loop`, the client's.

    Args:
        transport: The connection to the hive.
        loop: The event loop of the client.
        run_id: Id of the run.
        features: Number of features of a row.
        actions: Number of actions of a row.
        choices: Number of choices of all branches together, which rows may mask.
        role: The purpose of the rows.
        block: Whether the guest waits for credit of the learner's rate limiter.
        sync: Whether the guest runs in lockstep with the learner.
        on_policy: Called on the client's thread with each newer policy version and its ONNX file.

    Attributes:
        failure: The reason why rows cannot be delivered any more, or None.
        ended: Done when the session has left.
        place: Position of the run among the runs that wait for a learner, 0 if it does not wait.
        learner: Name of the run's algorithm.
        is_on_policy: True if it learns only from rows of its own policy, not from demonstrations.
        is_pink: True if agents explore by pink noise.

    """

    def __init__(
        self,
        transport: HiveTransport,
        loop: asyncio.AbstractEventLoop,
        run_id: str,
        features: int,
        actions: int,
        *,
        choices: int,
        role: Role,
        block: bool,
        sync: bool,
        on_policy: Callable[[int, bytes], object],
    ) -> None:
        self.run_id = run_id
        self.index = -1
        self.failure: str | None = None
        self.place = 0
        self.ended: Future[None] = Future()
        self.outbox = Outbox(features, actions, choices=choices, wake=self._wake, pause=self._pause)
        self._delivery = Delivery(transport, self.outbox, self)
        self._transport = transport
        self._loop = loop
        self._block = block or sync
        self._sync = sync
        self._on_policy = on_policy
        self._request = JoinRequest(str(uuid.uuid4()), features, actions, role, host_name())
        self.sid = ""
        self.learner = ""
        self.is_on_policy = self.is_pink = False
        self._credit = 0
        self._hold = False
        self._known_version = 0  # the newest at the hive
        self._loaded_version = 0
        self._work = asyncio.Event()
        self._frames = asyncio.Event()
        self._is_due = False  # true if rows are sent now even if they do not fill a body
        self._is_waiting = False
        self._has_news = False  # true from a new version on, with which credit comes, to a beat
        self._gate = threading.Lock()  # a bare lock: a signal handler that raises leaves it whole
        self._gate.acquire()
        self._leaving: bool | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Join the run, and begin to send rows and to poll for policies. Raises HiveError."""
        self._delivery.seq = await self.join()
        pump = asyncio.ensure_future(self._pump())
        pause = None if self._block else self._frame_end
        poll = PolicyPoll(self._transport, self.run_id, self._received, pause)
        self._tasks = [pump, asyncio.ensure_future(poll.run())]
        pump.add_done_callback(self._over)

    @property
    def ledger(self) -> Ledger:
        """Counts of the rows: accepted by the hive, refused by it, or discarded."""
        return self._delivery.ledger

    @property
    def settled(self) -> int:
        """Number of rows that are accepted by the hive, refused by it, or discarded."""
        return self._delivery.settled

    def loaded(self, version: int) -> None:
        """Note that the host acts with this policy version from now on. Any thread may call it."""
        self._loaded_version = version
        self._open_gate()

    def must_wait(self) -> bool:
        """Return whether the guest has to wait for the learner. Takes less than a microsecond."""
        if not self._block or self.failure is not None:
            return False
        out = self.outbox.outstanding
        if self._sync:
            return out > 0 or self._loaded_version < self._known_version
        return self._hold or out >= self._credit

    def wait(self, timeout: float) -> bool:
        """
        Block for at most `timeout` seconds while the guest has to wait; return whether it may run.
        """
        self._is_waiting = True  # before the check: every change from here on opens the gate
        try:
            if self.must_wait():
                self._wake()
                self._gate.acquire(timeout=timeout)
            return not self.must_wait()
        finally:
            self._is_waiting = False

    def leave(self, *, stop: bool) -> Future[None]:
        """
        Send the remaining rows and leave; `stop` also stops the run for all other sessions.

        Any thread may call this.
        """

        def begin() -> None:
            if self._leaving is None:
                self._leaving = stop
            self._leaving |= stop
            self.outbox.end()
            self._work.set()

        if not self.ended.done():
            self._call(begin)
        return self.ended

    async def join(self) -> int:
        """Join the run, or join it again; return the number of the last body that the hive has."""
        joined = await join_run(self._transport, self.run_id, self._request)
        if self.sid not in ("", joined.sid):
            log.warning("a session of run %s, unknown to its hive, is joined again", self.run_id)
        if not self.sid:
            self.outbox.narrow(joined.parts)
        self.sid, self.index = joined.sid, joined.index
        self.learner, self.is_on_policy = joined.learner, joined.is_on_policy
        self.is_pink = joined.is_pink
        self.update(joined)
        return joined.acked

    async def _pump(self) -> None:
        """Send rows as they are appended, until the session leaves or fails."""
        try:
            last, wait = time.monotonic(), _FIRST_WAIT
            while self.failure is None:
                is_urgent = self._sync or self._is_waiting or self._leaving is not None
                is_due, self._is_due = self._is_due, False
                started = time.monotonic()
                if await self._delivery.send(partial=is_urgent or is_due):
                    last, wait = time.monotonic(), _FIRST_WAIT
                    if not (is_urgent or self._block):  # leaves the interpreter to the frames
                        await asyncio.sleep(min((last - started) / 2, _LONGEST_PAUSE))
                    continue
                if self._leaving is not None and self.outbox.is_empty:
                    break
                await self._wait_for_rows(wait if self._is_waiting else 2 * BATCH_SECONDS)
                silence, has_news = time.monotonic() - last, self._has_news and self._is_waiting
                if has_news or silence > (wait if self._is_waiting else _BEAT):
                    self._has_news = False
                    await self._beat()
                    wait = _FIRST_WAIT if has_news else min(2 * wait, _LAST_WAIT)
                    last = time.monotonic()
            await self._leave()
        except HiveError as error:
            self._fail(str(error))
        except Exception as error:
            log.exception("the session of run %s failed", self.run_id)
            self.failure = f"{type(error).__name__} {error}"

    def _over(self, pump: asyncio.Task[None]) -> None:
        """End the poll after the session has left or failed, or its client was closed."""
        for task in self._tasks[1:]:
            task.cancel()
        if pump.cancelled():
            self.failure = "the client of the hive is closed"
        self._open_gate()
        if not self.ended.done():
            self.ended.set_result(None)

    def update(self, state: SessionState) -> None:
        """Adopt the state in an answer of the hive, such as its credit."""
        if state.place != self.place:
            self.place = state.place
            self._log_place()
        self._credit = state.credit
        self._hold = state.hold
        self._known_version = max(self._known_version, state.policy_version)
        self._open_gate()

    def _log_place(self) -> None:
        if self.place:
            log.warning(
                "run %s is pending: it waits for a learner as number %d of the runs that wait",
                self.run_id, self.place,
            )  # fmt: skip
        else:
            log.warning("run %s has a learner now", self.run_id)

    async def _beat(self) -> None:
        try:
            await self._touch()
        except HiveRefused as error:
            if error.status not in RETRIED:
                raise
        except (HiveUnreachable, ProtocolError) as error:
            log.debug("%s", error)

    async def _touch(self) -> None:
        """Renew the lease of the session; join again if the hive does not know it."""
        path = f"/sessions/{self.sid}/beat"
        try:
            state = await self._transport.fetch("POST", path, SessionState, body=Nothing())
        except HiveRefused as error:
            if error.status not in GONE:
                raise
            self.ledger.renewed += 1
            await self.join()
        else:
            self.update(state)

    async def _leave(self) -> None:
        stop, path = bool(self._leaving), f"/sessions/{self.sid}/leave"
        try:
            try:
                await self._transport.ask("POST", path, body=LeaveRequest(stop=stop))
            except HiveRefused as error:
                if not stop or error.status != _FORBIDDEN:
                    raise
                log.warning("run %s is left, and not stopped: %s", self.run_id, error)
                await self._transport.ask("POST", path, body=LeaveRequest())
        except HiveError as error:
            log.debug("a session left without the hive: %s", error)

    def _received(self, version: int, policy: bytes) -> None:
        self._known_version = max(self._known_version, version)
        self._has_news = True
        self._work.set()
        self._on_policy(version, policy)

    async def _wait_for_rows(self, seconds: float) -> None:
        """Wait until a body is full, or the rows in the outbox are old enough to be sent."""
        self._work.clear()
        try:
            await asyncio.wait_for(self._work.wait(), seconds)
        except TimeoutError:  # no frame comes after these rows
            self._is_due = True
            self.outbox.end_stale()
        if self._is_due and not self._is_waiting:
            await asyncio.sleep(_FRAME_END)

    async def _frame_end(self) -> None:
        """Wait until a frame has just ended, or no frame comes."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._frames.wait(), 2 * BATCH_SECONDS)
            await asyncio.sleep(_FRAME_END)

    def _wake(self) -> None:
        self._call(self._filled)

    def _pause(self) -> None:
        self._call(self._paused)

    def _paused(self) -> None:
        self._is_due = True
        self._work.set()
        self._frames.set()  # for the tasks that wait now
        self._frames.clear()

    def _filled(self) -> None:
        self._work.set()
        self._delivery.relieve()

    def _call(self, work: Callable[[], object]) -> None:
        """Call a function on the loop, from any thread."""
        with contextlib.suppress(RuntimeError):  # the client is closed, and the loop with it
            self._loop.call_soon_threadsafe(work)

    def _open_gate(self) -> None:
        if self._is_waiting and self._gate.locked():
            with contextlib.suppress(RuntimeError):  # another thread has opened it meanwhile
                self._gate.release()

    def _fail(self, reason: str) -> None:
        log.warning("the session of run %s failed: %s", self.run_id, reason)
        self.failure = reason
