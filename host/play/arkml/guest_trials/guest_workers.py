"""
Threads that step guests of trials, so that the event loop never waits for one (decision 19).

A worker hands the results of its steps over to the event loop, which has other things to do, too.
"""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from queue import Empty, SimpleQueue
from typing import Final, NamedTuple

from arkml.base.closing import Closing
from arkml.base.loggers import SafeLogger
from arkml.base.processors import usable_processors
from arkml.errors import GuestError
from arkml.guest_trials.guest_trials_options import StandInActions, StandInPolicies
from arkml.guest_trials.row_batches import act_together
from arkml.guest_trials.trial_guest import TickResult, TrialGuest
from arkml.guests.call_loop import GaveWay
from arkml.guests.instance import SharedResources

log = SafeLogger(__name__)

_DRAIN_STEPS: Final = 64  # of guests, including steps that are played ahead
_DRAIN_SECONDS: Final = 0.010  # then results are handed over
_SHORT_DRAIN_SECONDS: Final = 0.002  # the same, while there are steps that are awaited
_QUIET: Final = 1.0  # seconds without one, after which there are none
_PAUSE: Final = 0.001  # seconds between turns of guests that gave way, where nothing else is to do
_CANCEL_EVERY: Final = 0.02  # seconds, while a thread that is to end is in a guest
_TURN: Final = 0.001  # seconds of handing results over in a turn of the event loop
_PATIENCE: Final = 0.1  # seconds; then a busy loop, or one that does not run, is left alone

GuestStep = Callable[[], TickResult]
"""Runs a guest to its next submit, in the thread of its worker."""

Deliver = Callable[[Sequence[TickResult]], object]
"""Takes the results of a step and of those played ahead after it, in the event loop."""


class _Job(NamedTuple):
    """A step of a guest, or its end, which has no `step`."""

    guest: TrialGuest
    step: GuestStep | None
    deliver: Deliver
    most_ahead: int = 0
    is_awaited: bool = False


@dataclass(eq=False, slots=True)
class _Played:
    """The steps of a guest that are handed over together."""

    job: _Job
    results: list[TickResult] = field(default_factory=list)

    @property
    def may_play_on(self) -> bool:
        """True if stand-ins may play the next tick, and the last tick has no message to send."""
        last = self.results[-1]
        is_over = last.is_last or bool(last.error) or bool(last.answers)
        return not is_over and len(self.results) <= self.job.most_ahead


class GuestWorker(Closing):
    """
    One thread, and the guests that it steps, each from its first step to its end.

    Steps that are waiting are run together, and a `Handover` delivers their results. Guests without
    players play a few steps ahead, but steps that players or clocks wait for come before these. A
    guest that runs for a long time, or waits, takes turns with the others. `stand_ins` are the
    policies for the slots of its guests.
    """

    def __init__(
        self,
        name: str,
        loop: asyncio.AbstractEventLoop,
        resources: SharedResources,
        stand_ins: StandInPolicies | None,
    ) -> None:
        self.guests: int = 0
        """The number of its guests, for the event loop to count."""
        self.resources: SharedResources = resources
        """The resources of its guests."""
        self._handover = Handover(loop)
        self._stand_ins = stand_ins
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self._awaited: deque[_Job] = deque()  # jobs that come first: each has a None in `_jobs`
        self._held: deque[_Played] = deque()  # whose guests gave way
        self._awaited_at = -math.inf  # the time of the last one
        self._is_closing = False
        self._refusal = ""  # of the policies, the last one that was logged
        self._live: set[TrialGuest] = set()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def step(
        self,
        guest: TrialGuest,
        step: GuestStep,
        deliver: Deliver,
        most_ahead: int = 0,
        *,
        is_awaited: bool = False,
    ) -> None:
        """
        Run `step` for a guest, and pass its result to `deliver`.

        Args:
            guest: The guest.
            step: The step to run.
            deliver: Called with the results.
            most_ahead: The number of further steps to play ahead, with the actions of stand-ins.
            is_awaited: True if a player or the clock waits for the step: it comes before other
                steps.

        """
        job = _Job(guest, step, deliver, most_ahead, is_awaited)
        if is_awaited:
            self._awaited.append(job)
            self._jobs.put(None)
            self._handover.release()
        else:
            self._jobs.put(job)

    def end(self, guest: TrialGuest) -> None:
        """Free a guest after all steps that were queued earlier."""
        self._jobs.put(_Job(guest, None, _drop))

    def close(self) -> None:
        """Cut off the step in progress, free all guests and policies, and end the thread."""
        self._is_closing = True
        self._jobs.put(None)
        self._handover.release()
        while self._thread.is_alive():
            self.resources.call_guard.cancel()
            self._thread.join(_CANCEL_EVERY)

    # The thread

    def _run(self) -> None:
        while not self._is_closing:
            self._drain()
            if not (self._awaited or self._held):
                self._handover.wait()
        for guest in self._live:
            _free(guest)
        self._live.clear()
        if self._stand_ins is not None:
            self._stand_ins.close()

    def _drain(self) -> None:
        """Run waiting steps and hand their results over; then continue one guest that gave way."""
        job = self._next(timeout=_PAUSE if self._held else None)
        now = time.monotonic()  # the event loop is kept from Python until steps are handed over
        has_people = now - self._awaited_at < _QUIET
        until = now + (_SHORT_DRAIN_SECONDS if has_people else _DRAIN_SECONDS)
        drained: list[_Played] = []
        steps, is_due = 0, False
        while job is not None and not self._is_closing:
            if job.is_awaited:
                self._awaited_at = time.monotonic()
            if job.step is None:
                self._end(job.guest)
            else:
                self._live.add(job.guest)
                if self._step(played := _Played(job), job.step):
                    drained.append(played)
                steps += 1 + job.most_ahead
            is_due = job.is_awaited and not self._awaited
            if is_due or steps >= _DRAIN_STEPS or time.monotonic() > until:
                break
            job = self._next(timeout=0)
        self._offer(drained)
        self._hand_over(drained if is_due else self._played_on(drained, until))
        if self._held and not self._awaited:
            self._take_turn(self._held.popleft())

    def _step(self, played: _Played, step: GuestStep) -> bool:
        """Run a step of a guest; return False if it gave way."""
        try:
            result = step()
        except GaveWay:
            self._held.append(played)
            return False
        except Exception as error:
            log.exception("a guest could not be stepped, a bug of the host")
            _free(played.job.guest)
            result = TickResult(error=f"the guest could not be stepped: {error}")
        played.results.append(result)
        return True

    def _take_turn(self, played: _Played) -> None:
        """Continue a guest that gave way."""
        if self._step(played, played.job.guest.run_on):
            self._offer([played])
            self._hand_over([played])

    def _played_on(self, drained: Sequence[_Played], until: float) -> list[_Played]:
        """
        Step guests by their stand-ins as long as they may play ahead, and no other step is due.

        Returns the guests that did not give way.
        """
        is_due = False
        while not is_due and (playing := [one for one in drained if one.may_play_on]):
            stepped = []
            for one in playing:
                is_due = bool(self._awaited) or self._is_closing or time.monotonic() > until
                if is_due:
                    break
                if self._step(one, partial(one.job.guest.step, None)):
                    stepped.append(one)
            self._offer(stepped)
            drained = [one for one in drained if one not in self._held]
        return [*drained]

    def _hand_over(self, played: Sequence[_Played]) -> None:
        for one in played:
            job = one.job
            self._handover.add(partial(job.deliver, one.results), is_awaited=job.is_awaited)

    def _next(self, *, timeout: float | None) -> _Job | None:
        """Return the job that is next, None if there is none in time, or if this closes."""
        while not self._awaited:
            try:
                job = self._jobs.get(timeout != 0, timeout)
            except Empty:
                return None
            if job is not None or self._is_closing:
                return job
        return self._awaited.popleft()

    def _offer(self, stepped: Sequence[_Played]) -> None:
        """Fill in the stand-ins of the last results."""
        given = {} if self._stand_ins is None else self._acted(self._stand_ins, stepped)
        for played in stepped:
            result = played.results[-1]
            if not result.error:
                played.job.guest.offer(result, given.get(played))

    def _acted(
        self, policies: StandInPolicies, stepped: Sequence[_Played]
    ) -> dict[_Played, StandInActions | None]:
        """Return the actions of policies for the guests that wait; none if the policies fail."""
        waiting = [(one, one.job.guest.waiting()) for one in stepped if not one.results[-1].error]
        rows = {one: found for one, found in waiting if found is not None}
        try:
            acted = act_together(policies, list(rows.values())) if rows else []
        except Exception as error:
            if str(error) != self._refusal:
                self._refusal = str(error)
                log.exception("policies failed: default actions stand in")
            return {}
        return dict(zip(rows, acted, strict=True))

    def _end(self, guest: TrialGuest) -> None:
        if guest in self._live:
            self._live.discard(guest)
            _free(guest)
            if self._stand_ins is not None:
                self._stand_ins.forget(guest.keys)


class Handover:
    """
    Runs calls from another thread in an event loop, without delaying work that people wait for.

    Awaited calls run in the next turn of the loop. The others are queued, and run for a millisecond
    in each turn, however many there are.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._awaited: deque[Callable[[], object]] = deque()
        self._others: deque[Callable[[], object]] = deque()
        self._is_due = False  # a turn is scheduled
        self._released = threading.Event()

    def add(self, call: Callable[[], object], *, is_awaited: bool) -> None:
        """Queue a call for the event loop; it is dropped if the loop is closed."""
        self._released.clear()
        (self._awaited if is_awaited else self._others).append(call)
        if not self._is_due:
            self._is_due = True
            with suppress(RuntimeError):  # the loop is closed
                self._loop.call_soon_threadsafe(self._take_turn)

    def wait(self) -> None:
        """
        Block until all queued calls were made, or `release` is called.

        Two threads that run Python code at once only slow each other down.
        """
        if self._awaited or self._others:
            self._released.wait(_PATIENCE)

    def release(self) -> None:
        """End a `wait` of the other thread. May be called from any thread."""
        self._released.set()

    def _take_turn(self) -> None:
        self._is_due = False  # before the queues are read: more calls may be added meanwhile
        until = time.monotonic() + _TURN
        has_time = True
        while self._awaited or (self._others and has_time):
            queue = self._awaited or self._others
            try:
                queue.popleft()()
            except Exception:
                log.exception("the step of a guest could not be delivered, a bug of the host")
            has_time = queue is self._awaited or time.monotonic() <= until
        if not (self._awaited or self._others):
            self._released.set()
        elif not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_turn)


def workers_by_default() -> int:
    """Return the default number of threads: one less than there are cores, and at least one."""
    return max(1, usable_processors() - 1)


def _free(guest: TrialGuest) -> None:
    try:
        guest.close()
    except GuestError:
        log.exception("a guest could not be freed")


def _drop(results: Sequence[TickResult]) -> None:
    """Ignore results."""
