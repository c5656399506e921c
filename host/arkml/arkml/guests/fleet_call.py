"""A call of one exported function of many guests, served round by round."""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from arkml.base.handler_errors import is_of_handler
from arkml.base.short_reprs import short_repr
from arkml.errors import GuestError, GuestTimeout
from arkml.guests.batching import Batcher
from arkml.guests.call_loop import CallLoop, cancellation
from arkml.guests.shares import FRAMES_SEEN, LEAST, FleetShares
from arkml.guests.trace_recorder import TracedFiber, TracedLoop
from arkml.runtime.account import LONG
from arkml.runtime.call_guard import CallGuard, GuardedCalls
from arkml.runtime.deadline import SHORT
from arkml.runtime.exported_function import Calls, Number, Numbers, ResultRoom, calls_of
from arkml.runtime.fiber import Pause
from arkml.runtime.game_functions import BoundFunction
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.memory import GuestMemory
from arkml.runtime.rounds import Places
from arkml.runtime.waits import Wait

_PAUSE = 0.001  # seconds, when a guest that is left waits for something beside a clock
_PATIENCE = 0.02  # seconds between two looks at SIGINT, when all wait
_clock = time.perf_counter


@dataclass(frozen=True, slots=True)
class FleetResult:
    """
    Results of one call of many guests.

    Attributes:
        values: The results of the calls, in the order of the guests; None for a call that failed or
            returns nothing.
        failures: The errors of guests that failed, in this call or before, by their index in
            `values`. The error of a closed guest appears in the first call after it was closed.

    """

    __repr__ = short_repr

    values: list[Any]
    failures: dict[int, GuestError] = field(default_factory=dict)


class FleetParts(NamedTuple):
    """The parts of a fleet that all its calls use."""

    call_guard: CallGuard
    lockstep: Lockstep
    batcher: Batcher
    shares: FleetShares
    told: set[CallLoop]
    """Closed guests that a call has reported already."""
    guests: dict[int, CallLoop]
    """Those that take part in calls, by place."""


class FleetCall:
    """
    One kind of call of a fleet: the guests that take part, and the errors of the other guests.

    The object is reused for call after call, while no guest joins, fails or is closed. A frame
    function without parameters and results, such as `ark_applet_update`, runs in the shim's loop of
    frames: there a guest is parked at the end of its frame until the next one. Guests leave that
    loop for other calls. So a frame after calls of most guests is a plain call, which costs less
    than entering the loop and leaving it again.
    """

    def __init__(
        self,
        parts: FleetParts,
        chosen: Sequence[CallLoop],
        function: str,
        *,
        is_frame: bool = False,
    ) -> None:
        """Take the guests that can be called. Raises EntryPointMissing."""
        self._call_guard, self._lockstep, self._batcher, self._shares, self._told, guests = parts
        self._count = len(chosen)
        self._function = function
        self._refused: dict[int, GuestError] = {}  # of guests that failed before, by index
        self._closed: dict[int, tuple[CallLoop, GuestError]] = {}  # that no call has told of
        self._failed: dict[int, GuestError] = {}
        self._held: dict[int, float] = {}  # seconds for which guests held all up, by place
        self._guests = guests
        self._limits: tuple[float | None, float | None] = (None, None)
        self._round_began = math.inf
        self._counted = 0.0  # seconds of guests and policies when the round began
        indices: list[int] = []
        for index, guest in enumerate(chosen):
            if refusal := guest.instance.refusal():
                if not guest.instance.is_closed:
                    self._refused[index] = refusal
                elif guest not in self._told:
                    self._closed[index] = guest, refusal
            else:
                guests[guest.place] = guest
                indices.append(index)
        self._everyone = tuple(chosen[index] for index in indices)
        self._places = tuple(guest.place for guest in self._everyone)
        self._traced = [
            (index, guest)
            for index, guest in zip(indices, self._everyone, strict=True)
            if isinstance(guest, TracedLoop)
        ]
        self._functions = self._everyone[0].instance.module.game if self._everyone else ()
        self._is_frame = is_frame
        self._loops = _loops(self._everyone, function) if is_frame else None
        self._rows = None if len(indices) == self._count else np.array(indices)
        self._begun, self._left = self._lockstep.begun, self._lockstep.left
        self._is_plain = False  # the last frame was not in the loops
        self._room: ResultRoom | None = None
        if self._loops is None and self._everyone:
            self._room = self._room_for_results()

    def run(
        self, arguments: Sequence[Numbers], budget: float | None, call_seconds: float | None
    ) -> None:
        """
        Run the call of every guest to its end or, in the loop of frames, to the end of a frame.

        `budget` limits the seconds charged to each guest, `call_seconds` the seconds including
        waits. Raises UsageError before any guest runs.
        """
        places, lockstep = self._places, self._lockstep
        self._failed, self._held = {}, {}
        if not places:
            return
        room = self._room if self._loops is None else self._room_between_calls()
        if room is not None:
            room.set_arguments(arguments, self._rows, self._count)
        if lockstep.touched:
            self._forget_inputs()
        if self._limits != (budget, call_seconds):
            self._limits = budget, call_seconds
            if budget is not None and budget <= SHORT:
                for guest in self._everyone:
                    guest.fiber.shorten_turns()
            self._batcher.limit_runs(self._everyone, math.inf if budget is None else budget)
        lockstep.allow(budget)
        if room is not None:
            lockstep.begin_calls(places, room.calls)
        elif self._loops is not None:  # a resume costs less than a call of the C API (decision 15)
            lockstep.begin_frames(places, self._loops)
        self._begun, self._left = lockstep.begun, lockstep.left
        for index, traced in self._traced:
            traced.began(self._function, [_number_at(each, index) for each in arguments])
        try:
            self._serve(places)
        except BaseException as error:
            self._take_errors(lockstep.failed(places))
            self._give_up(lockstep.in_frames(places), error)
            raise
        for place in lockstep.noted(places):
            if (guest := self._guests[place]).instance.failure is None:
                guest.instance.news.tell()
        for _, traced in self._traced:
            if traced.place not in self._failed:
                traced.returned()
        self._shares.frame += 1
        if budget is not None and (lockstep.spent > budget / 2 or self._held):
            self._evict(budget)

    def result(self) -> FleetResult:
        """Return the values of the calls, and the errors of the guests that failed."""
        room = self._room
        values = [None] * len(self._places) if room is None else room.results()
        if not self._failed and len(values) == self._count:
            return FleetResult(values)
        by_index: list[Any] = [None] * self._count
        failures = self._refused | self._newly_closed()
        indices = range(self._count) if self._rows is None else self._rows.tolist()
        for index, place, value in zip(indices, self._places, values, strict=True):
            if (error := self._failed.get(place)) is None:
                by_index[index] = value
            else:
                failures[index] = error
        return FleetResult(by_index, dict(sorted(failures.items())))

    def _room_between_calls(self) -> ResultRoom | None:
        """
        Return room for a plain frame, or None for one in the loops.

        It is plain where most guests left their loops for calls since the last frame or, if that
        was plain already, were called again.
        """
        lockstep = self._lockstep
        called = lockstep.begun - self._begun if self._is_plain else lockstep.left - self._left
        self._is_plain = 2 * called > len(self._places)
        if not self._is_plain:
            return None
        if self._room is None:
            self._room = self._room_for_results()
        return self._room

    def _room_for_results(self) -> ResultRoom:
        first = self._everyone[0].instance.entry(self._function)
        return ResultRoom(first, (one.instance.function(self._function) for one in self._everyone))

    def _newly_closed(self) -> dict[int, GuestError]:
        """Return the errors of closed guests, by index, that no call has reported before."""
        found = {
            index: error
            for index, (guest, error) in self._closed.items()
            if guest not in self._told
        }
        self._told.update(guest for guest, _ in self._closed.values())
        self._closed = {}
        return found

    def _forget_inputs(self) -> None:
        """Clear the results and the input that earlier calls left with the services of guests."""
        touched = self._lockstep.touched
        for place in touched.intersection(self._places):
            self._guests[place].forget_call()
            touched.discard(place)

    def _serve(self, places: Sequence[int]) -> None:
        """Run guests and answer them, round after round, until all are at the end."""
        lockstep = self._lockstep
        running, waiting = places, dict[int, Wait]()
        self._round_began = math.inf
        while running or waiting:
            called: Sequence[int] = ()
            turn = lockstep.advance(running, self._call_guard.check_interrupt)
            if turn.ended:
                self._end(turn.ended)
            if turn.is_late:
                self._call_guard.check_interrupt()
            running = turn.submitted
            if turn.other:  # in order: regions side by side are read as one view
                called, others = self._call_game(turn.other)
                also = [place for place in others if self._serve_one(place, waiting)]
                running = sorted([*running, *also])
            if running:
                running = self._answer(running)
            if called:
                running = sorted([*running, *called])
            if waiting:
                self._call_guard.check_interrupt()
                running = sorted([*running, *self._woken(waiting, patient=not running)])
                self._round_began = math.inf
            elif running:
                self._charge_round(running)

    def _charge_round(self, places: Sequence[int]) -> None:
        """
        Charge guests for the work of the host in their second round, and in later ones.

        This is the time that neither guests nor policies took. The first round is not charged,
        because every guest of a frame takes part in it.
        """
        lockstep, now = self._lockstep, _clock()
        counted = lockstep.spent - lockstep.beside + self._batcher.policy_seconds
        rest = now - self._round_began - (counted - self._counted)
        if rest >= LONG:
            rest = lockstep.counted(rest)
        if rest > 0:
            lockstep.spent += rest
            counted += rest
            used, share = lockstep.used, rest / len(places)
            for place in places:
                used[place] += share
        self._round_began, self._counted = now, counted

    def _answer(self, places: Sequence[int]) -> Sequence[int]:
        """
        Answer guests in submits by one policy run, and wait for a learner that is behind.

        Returns the guests that can be resumed; all others failed.
        """
        guests = self._guests
        everyone = places is self._places
        submitted = self._everyone if everyone else tuple(guests[place] for place in places)
        if errors := self._batcher.answer(submitted):
            for index, error in errors.items():
                self._fail(places[index], error)
            places = [place for index, place in enumerate(places) if index not in errors]
        for admitted in self._batcher.held():
            while not admitted(_PATIENCE):
                self._call_guard.check_interrupt()
        return places

    def _call_game(self, places: Sequence[int]) -> tuple[Sequence[int], Sequence[int]]:
        """
        Answer guests that call functions of the game; a function that takes many is called once.

        Returns the guests that can be resumed, and guests to be served otherwise.
        """
        if not self._functions:
            return (), places
        lockstep, index = self._lockstep, np.array(places)
        functions = np.where(lockstep.have_time(index), lockstep.calls_of_game(index), -1)
        called: list[int] = []
        for number, function in enumerate(self._functions):
            chosen = index[functions == number]
            if len(chosen):
                before = lockstep.charged(chosen)
                if function.many:
                    called += self._call_together(function, chosen)
                else:
                    called += self._call_each(chosen)
                lockstep.spent += lockstep.charged(chosen) - before
        others: list[int] = index[functions < 0].tolist()
        return called, others

    def _call_each(self, index: Places) -> list[int]:
        """Answer guests, [n], by a call of the game's function for each; returns the living."""
        living = []
        for place in index.tolist():
            fiber = self._guests[place].fiber
            began = fiber.suspended_at = _clock()
            try:
                fiber.call_game()
            except GuestError as error:
                self._fail(place, error)
                continue
            if fiber.suspended_at - began > LONG:
                self._call_guard.check_interrupt()
                if not self._has_time_left(place):
                    continue
            living.append(place)
        return living

    def _call_together(self, function: BoundFunction, index: Places) -> list[int]:
        """Answer guests, [n], by one call of the game's function; returns the living."""
        lockstep = self._lockstep
        places: list[int] = index.tolist()
        params, _ = function.counts

        def each(place: int) -> tuple[str, GuestMemory, int]:
            guest = self._guests[places[place]]
            return guest.name, *guest.fiber.suspended_memory()

        indices = np.array(lockstep.indices)[index]
        began, error = _clock(), None
        try:
            columns = function.answer_many(indices, each, lockstep.arguments(index, params))
        except Exception as raised:
            if is_of_handler(raised):
                raise
            error = raised
        else:
            lockstep.answer(index, columns)
            for _, traced in self._traced:
                if traced.place in places and isinstance(traced.fiber, TracedFiber):
                    traced.fiber.game_answered()
        took = _clock() - began
        seconds = took if took < LONG else lockstep.counted(took)
        lockstep.charge_functions(index, seconds)
        if error is not None:
            for place in places:
                self._fail(place, function.failure(self._guests[place].name, error))
            return []
        if took <= seconds:
            return places
        for place in places:
            self._guests[place].account.add_extra((took - seconds) / len(places))
        return [place for place in places if self._has_time_left(place)]

    def _has_time_left(self, place: int) -> bool:
        """Fail a guest for which a function of the game waited for too long."""
        fiber = self._guests[place].fiber
        fiber.set_limits(*self._limits)
        try:
            fiber.look_at_budget()
        except GuestError as error:
            self._fail(place, error)
            return False
        return True

    def _serve_one(self, place: int, waiting: dict[int, Wait]) -> bool:
        """
        Let the fiber of one guest serve its request, which is not a plain submit.

        Returns True if the guest is in a submit afterwards; a guest that has to wait joins
        `waiting`.
        """
        lockstep, guest = self._lockstep, self._guests[place]
        if self._is_over() and lockstep.is_running(place):
            text = (
                f"{guest.name} was in the middle of a frame when all guests of its fleet had taken"
                f" {lockstep.spent:.3f} s for it together, over Limits.call_seconds"
            )
            self._fail(place, guest.fiber.timeout(text))
            return False
        fiber, before = guest.fiber, lockstep.used[place]
        fiber.set_limits(*self._limits)
        try:
            if before - lockstep.began[place] > lockstep.alert:
                fiber.look_at_budget()
            event = fiber.proceed()
        except GuestError as error:
            self._fail(place, error)
            return False
        finally:
            lockstep.spent += lockstep.used[place] - before
        if event is None:
            if lockstep.is_in_frame(place):
                self._end([place])
        elif isinstance(event, Wait):
            waiting[place] = event
        elif event is Pause.SUBMIT_NON_FINITE:
            guest.count_features()
        return isinstance(event, Pause)

    def _is_over(self) -> bool:
        """Return whether this is a frame that has taken longer than a call may."""
        most = self._limits[1]
        return self._is_frame and most is not None and self._lockstep.spent >= most

    def _end(self, places: Sequence[int]) -> None:
        """Delete calls that ended, and fail the guests whose calls left an error."""
        self._take_errors(self._lockstep.end(places))

    def _take_errors(self, places: Sequence[int]) -> None:
        """Fail guests by the errors that their calls left."""
        for place in places:
            error = self._guests[place].error_of(self._function)
            if error is not None:
                self._fail(place, error)

    def _evict(self, budget: float) -> None:
        """Fail the guests that took more than their share of too many of the last frames."""
        lockstep, shares, held = self._lockstep, self._shares, self._held
        if lockstep.spent + sum(held.values()) <= budget / 2:
            return
        if not held and lockstep.most_used(self._places) + self._batcher.most_unsettled <= LEAST:
            return  # nobody is over
        self._batcher.settle()
        taken = {
            place: lockstep.used[place] - lockstep.began[place] + held.get(place, 0.0)
            for place in self._places
            if place not in self._failed
        }
        if not taken:
            return
        for place, share in shares.judge(taken, budget).items():
            waited = held.get(place, 0.0)
            text = (
                f"{self._guests[place].name} ran for {taken[place] - waited:.3f} s in a frame of"
                f" its fleet, held it up for {waited:.3f} s by waits"
                f" and was over its share, now of {share:.3f} s, in {shares.most + 1} of the last"
                f" {FRAMES_SEEN} frames: it is evicted (Limits.frames_over_share)"
            )
            self._fail(place, GuestTimeout(text))

    def _fail(self, place: int, error: BaseException) -> None:
        self._guests[place].fail(error)
        if isinstance(error, GuestError):
            self._failed[place] = error

    def _give_up(self, places: Sequence[int], error: BaseException) -> None:
        """
        Fail the guests whose calls an exception has ended.

        The calls of many guests are dropped before the next call, so that Ctrl-C does not wait for
        10,000 of them.
        """
        guests = [self._guests[place] for place in places]
        one = cancellation(error)  # for all: so many new objects would let garbage be collected
        for guest in guests:
            guest.give_up(one)
        until = _clock() + _PATIENCE
        for guest in guests:
            if _clock() > until:
                self._call_guard.waiting.append(_let_go)
                break
            guest.let_go()

    def _woken(self, waiting: dict[int, Wait], *, patient: bool) -> list[int]:
        """
        Take the guests out of `waiting` whose wait is over.

        With `patient`, for when no other guest can run, sleep until one may: until the earliest
        time if all wait for clocks, else for a moment.
        """
        lockstep, now = self._lockstep, time.monotonic()
        over = [
            place for place, wait in waiting.items() if wait.earliest <= now and wait.ready(0.0)
        ]
        for place in over:
            before = lockstep.used[place]
            self._guests[place].fiber.settle(waiting.pop(place))
            lockstep.spent += lockstep.used[place] - before
        for place in list(waiting):
            try:
                self._guests[place].fiber.look_at_wait()
            except GuestError as error:
                del waiting[place]
                self._fail(place, error)
        if patient and waiting and not over:
            left = min(wait.earliest for wait in waiting.values()) - now
            time.sleep(min(left, _PATIENCE) if left > 0 else _PAUSE)
            self._call_guard.check_interrupt()
            self._hold(waiting, time.monotonic() - now)
        return over

    def _hold(self, waiting: Mapping[int, Wait], seconds: float) -> None:
        """Divide time that the fleet only waited among the guests in `waiting`."""
        held, share = self._held, seconds / len(waiting)
        for place, wait in waiting.items():
            if not wait.is_spin:  # else it is charged
                held[place] = held.get(place, 0.0) + share


def _let_go(callers: Iterable[GuardedCalls]) -> None:
    """Let go of the guests that were given up."""
    for caller in list(callers):
        if caller.is_given_up:
            caller.let_go()


def _number_at(argument: Numbers, index: int) -> Number:
    """Return the argument of one guest, of an array or of a number for all."""
    if isinstance(argument, int | float):
        return argument
    number: Number = argument.reshape(-1)[index if argument.ndim else 0].item()
    return number


def _loops(guests: Sequence[CallLoop], function: str) -> Calls | None:
    """
    Return the calls of the guests' frame loops, [n, 8].

    None for a function with arguments or results.
    """
    found = (guest.instance.sandbox.loop_function(function) for guest in guests)
    loops = calls_of(loop for loop in found if loop is not None)
    return loops if len(loops) == len(guests) else None
