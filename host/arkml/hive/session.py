"""A session of a run, as the host holds it: its rows go out, newer policies come in."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
import uuid
from collections.abc import Callable
from concurrent.futures import Future

from arkml.errors import HiveError, HiveRefused, HiveUnreachable, ProtocolError, RunGone
from arkml.hive.answers import Standing, whole
from arkml.hive.delivery import Delivery, Ledger
from arkml.hive.following import Following
from arkml.hive.outbox import Outbox
from arkml.hive.protocol.runs import BATCH_SECONDS, Role
from arkml.hive.transport import GONE, RETRIED, HiveTransport

log = logging.getLogger(__name__)

_BEAT = 5.0  # seconds without rows after which the hive is told that the session lives
_WAITING_BEAT = 0.05  # the same while the guest waits for credit
_BREATH = 0.01
"""Seconds, at most, from one body to the next where no frame may be late: half of what one took."""
_FRAME_END = 0.002
"""Seconds from the rows of a frame to its end, mostly: what is done then disturbs no frame."""


class RunSession:
    """
    One session of a run.

    The thread of the frames appends to `outbox`, asks `must_wait` and calls `wait`; the rest runs
    on the client's event loop. `failure` is why rows can go nowhere any more, or None. `ended` is
    done when the session has left.
    """

    def __init__(
        self,
        link: HiveTransport,
        run_id: str,
        features: int,
        actions: int,
        *,
        role: Role,
        block: bool,
        sync: bool,
        on_policy: Callable[[int, bytes], object],
    ) -> None:
        self.run_id = run_id
        self.index = -1
        self.failure: str | None = None
        self.ended: Future[None] = Future()
        self.outbox = Outbox(features, actions, wake=self._wake, pause=self._pause)
        self._delivery = Delivery(link, self.outbox, self)
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._role = role
        self._block = block or sync
        self._sync = sync
        self._on_policy = on_policy
        self._join_key = str(uuid.uuid4())
        self.sid = ""
        self._widths = features, actions
        self._credit = 0
        self._hold = False
        self._known_version = 0  # newest the hive has
        self._loaded_version = 0
        self._work = asyncio.Event()
        self._frames = asyncio.Event()
        self._is_due = False  # whether the rows that there are are to go, a full body or not
        self._is_waiting = False
        self._gate = threading.Lock()  # a bare lock: a signal handler that raises leaves it whole
        self._gate.acquire()
        self._leaving: bool | None = None
        self._tasks: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Join. Raises HiveError."""
        self._delivery.seq = await self.join()
        self._tasks = [asyncio.ensure_future(self._pump())]
        pause = None if self._block else self._frame_end
        following = Following(self._link, self.run_id, self._received, pause)
        self._tasks.append(asyncio.ensure_future(following.run()))
        self._tasks[0].add_done_callback(self._over)

    @property
    def ledger(self) -> Ledger:
        """What became of the rows."""
        return self._delivery.ledger

    def loaded(self, version: int) -> None:
        """The host acts with this version from now on. From any thread."""
        self._loaded_version = version
        self._open_gate()

    def must_wait(self) -> bool:
        """Whether the guest may not go on yet. Costs next to nothing."""
        if not self._block or self.failure is not None:
            return False
        out = self.outbox.outstanding
        if self._sync:
            return out > 0 or self._loaded_version < self._known_version
        return self._hold or out >= self._credit

    def wait(self, timeout: float) -> bool:
        """Block until the guest may go on, for at most `timeout` seconds; whether it may."""
        self._is_waiting = True  # before looking: what changes from here on opens the gate
        try:
            if self.must_wait():
                self._wake()
                self._gate.acquire(timeout=timeout)
            return not self.must_wait()
        finally:
            self._is_waiting = False

    def leave(self, *, stop: bool) -> Future[None]:
        """Send what is left and leave; `stop` stops the run for everybody. From any thread."""

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
        """Join, or join again; the number of the last body that the hive has."""
        features, actions = self._widths
        wish = {
            "join_key": self._join_key,
            "features": features,
            "actions": actions,
            "role": self._role.value,
        }
        try:
            found = await self._link.fetch("POST", f"/runs/{self.run_id}/sessions", body=wish)
        except HiveRefused as error:
            if error.status in GONE:
                raise RunGone(f"run {self.run_id} is gone: {error}") from error
            raise
        sid, standing = found.get("sid"), Standing.of(found)
        if not isinstance(sid, str):
            raise ProtocolError(f"the hive answered with sid = {sid!r}")
        index, acked = whole(found, "index"), whole(found, "acked")
        self.sid, self.index = sid, index
        self.settle(standing)
        return acked

    async def _pump(self) -> None:
        """Send rows as they come, until the session leaves or fails."""
        try:
            last = time.monotonic()
            while self.failure is None:
                is_urgent = self._sync or self._is_waiting or self._leaving is not None
                is_due, self._is_due = self._is_due, False
                begun = time.monotonic()
                if await self._delivery.send(partial=is_urgent or is_due):
                    last = time.monotonic()
                    if not (is_urgent or self._block):
                        await asyncio.sleep(min((last - begun) / 2, _BREATH))
                    continue
                if self._leaving is not None and self.outbox.is_empty:
                    break
                await self._rest()
                silence = time.monotonic() - last
                if silence > (_WAITING_BEAT if self._is_waiting else _BEAT):
                    await self._beat()
                    last = time.monotonic()
            await self._say_goodbye()
        except HiveError as error:
            self._fail(str(error))
        except Exception as error:
            log.exception("the session of run %s cannot go on", self.run_id)
            self.failure = f"{type(error).__name__} {error}"

    def _over(self, pump: asyncio.Task[None]) -> None:
        """The session has left or failed, or its client was closed."""
        for task in self._tasks[1:]:
            task.cancel()
        if pump.cancelled():
            self.failure = "the client of the hive is closed"
        self._open_gate()
        if not self.ended.done():
            self.ended.set_result(None)

    def settle(self, standing: Standing) -> None:
        """Take over what every answer to a session says."""
        self._credit = standing.credit
        self._hold = standing.hold
        self._known_version = max(self._known_version, standing.policy_version)
        self._open_gate()

    async def _beat(self) -> None:
        try:
            await self._touch()
        except HiveRefused as error:
            if error.status not in RETRIED:
                raise
        except (HiveUnreachable, ProtocolError) as error:
            log.debug("%s", error)

    async def _touch(self) -> None:
        """Tell the hive that the session lives; one that it does not know joins again."""
        try:
            found = await self._link.fetch("POST", f"/sessions/{self.sid}/beat", body={})
        except HiveRefused as error:
            if error.status not in GONE:
                raise
            self.ledger.renewed += 1
            await self.join()
        else:
            self.settle(Standing.of(found))

    async def _say_goodbye(self) -> None:
        body = {"stop": bool(self._leaving)}
        try:
            await self._link.ask("POST", f"/sessions/{self.sid}/leave", body=body)
        except HiveError as error:
            log.debug("the hive was not told that a session left: %s", error)

    def _received(self, version: int, policy: bytes) -> None:
        self._known_version = max(self._known_version, version)
        self._on_policy(version, policy)

    async def _rest(self) -> None:
        """Wait until a body is full, or the rows that there are have waited long enough."""
        self._work.clear()
        try:
            await asyncio.wait_for(self._work.wait(), 2 * BATCH_SECONDS)
        except TimeoutError:  # no frame comes after these rows
            self._is_due = True
            self.outbox.end_stale()
        if self._is_due and not self._is_waiting:
            await asyncio.sleep(_FRAME_END)

    async def _frame_end(self) -> None:
        """Wait until a frame has just ended, or none comes."""
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
        self._frames.set()  # for those who wait now
        self._frames.clear()

    def _filled(self) -> None:
        self._work.set()
        self._delivery.relieve()

    def _call(self, work: Callable[[], object]) -> None:
        """Have something done on the loop."""
        with contextlib.suppress(RuntimeError):  # the client is closed, and the loop with it
            self._loop.call_soon_threadsafe(work)

    def _open_gate(self) -> None:
        if self._is_waiting and self._gate.locked():
            with contextlib.suppress(RuntimeError):  # another thread has opened it meanwhile
                self._gate.release()

    def _fail(self, why: str) -> None:
        log.warning("the session of run %s failed: %s", self.run_id, why)
        self.failure = why
