"""The lockstep, which owns the calls in progress of many guests and advances them together."""

from __future__ import annotations

import math
import time
from array import array
from collections.abc import Callable, Sequence, Sized
from heapq import heappop, heappush
from typing import NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.runtime import bindings, native
from arkml.runtime.account import (
    FRESH,
    KINDS,
    LONG,
    WorkKind,
    counted_seconds,
    last_reading,
    read_processor_clock,
)
from arkml.runtime.columns.arena import Arena
from arkml.runtime.columns.slabs import Columns
from arkml.runtime.deadline import ALERT, SHORT
from arkml.runtime.exported_function import Calls, RawCall
from arkml.runtime.log_levels import KNOWN, MARK, LogLevels
from arkml.runtime.native import ANSWER, AT_FRAME_END, CHARGE, ENDED, OTHER, SUBMITTED
from arkml.runtime.rounds import Places, Rounds, put
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Reason
from arkml.runtime.single_calls import SingleCalls

_clock = time.perf_counter
_call_async = bindings.call_async
_RUNNING, _FRAME_END = int(Reason.RUNNING), int(Reason.FRAME_END)
_MANY = 64  # numbers, from which numpy adds them up faster than Python

Frames: TypeAlias = npt.NDArray[np.uint32]
Slots: TypeAlias = npt.NDArray[np.uint64]


class Turn(NamedTuple):
    """
    The guests of one round, by outcome; a guest is given by its place (slot) in the lockstep.

    A guest that reached the end of a frame is in none of the lists.

    Attributes:
        ended: Guests whose calls ended.
        submitted: Guests suspended in a submit of finite features.
        other: Guests with another request, such as an import, or near the end of their budgets.
        is_late: True if a guest used up its turn: it is time to check for SIGINT.

    """

    ended: Sequence[int]
    submitted: Sequence[int]
    other: Sequence[int]
    is_late: bool = False


class Lockstep:
    """
    The calls in progress of all guests that share column memory; it alone owns their futures.

    Each guest has a place, which is a slot in the arrays of the lockstep, and at most one call in
    progress: a plain call, or the shim's loop of frames, which is parked at the end of each frame.
    Rounds run in the native library, on up to `threads` threads; nothing is done in Python for each
    guest.

    The lockstep refers to no guest; each guest's `GuestStore` keeps it alive until the guest is
    freed.
    """

    def __init__(self, arena: Arena, threads: int = 1) -> None:
        self._rounds = Rounds(arena, threads, LONG)
        self.futures: array[int] = self._rounds.futures
        """Calls in progress by place, 0 for none. Only this class changes them."""
        self.used: array[float] = self._rounds.used
        """Seconds that are charged to each guest since it entered, by place."""
        self.began: array[float] = self._rounds.began
        """Seconds that were charged to each guest when its call or frame began, by place."""
        self.memories: array[int] = self._rounds.memories
        """Addresses of the guests' memories, by place, which whoever makes one sets."""
        self.functions: array[float] = array("d")
        """Of `used`, the seconds of functions of the game, by place."""
        self.work: array[float] = array("d")
        """Of `used`, the seconds of each `WorkKind`, by place."""
        self.before: array[float] = array("d")
        """The seconds of each kind but wasm's before the present call, by place, see `Account`."""
        self.indices: array[int] = array("q")
        """The index of each guest in its fleet, by place."""
        self.touched: set[int] = set()
        """Places of the guests that called host-lane imports since their state was last cleared."""
        self.tight: set[int] = set()
        """Places of the guests whose memory is kept from growing by other bytes of theirs."""
        self.alert = math.inf
        """Seconds in a call or frame after which `advance` leaves a guest to its fiber."""
        self.spent = 0.0
        """Seconds that were charged to all guests together since `allow`."""
        self.beside = 0.0
        """Seconds in `spent` that did not pass for the calling thread: workers took part."""
        self.stale_at = 0.0
        """Time from which on the processor clock is read before guests run."""
        self.calls = 0
        """Calls or frames of many guests so far."""
        self.begun = 0
        """Calls that were begun so far, without loops of frames."""
        self.left = 0
        """Loops of frames that guests left so far, for calls."""
        self.stores = 0
        """A number that changes whenever a guest enters, leaves, or gets another Store."""
        self.settle: Callable[[], Callable[[], None] | None] = _nothing_to_settle
        """Returns a function that enters runs of policies for many guests into their accounts."""
        self.log_levels = LogLevels(arena)
        self._calls: Calls | None = None  # that begin in the next round
        self._reading = -1.0  # of the processor clock, the last one known here
        self._charged = 0.0  # of all `used` together, what was charged until then
        self._controls: list[int] = []
        self._free: list[int] = []  # places, a heap
        self._scalars = arena.words
        self._words = arena.word_array
        self._numbers = arena.number_array
        self._fields: list[Places] | None = None  # by field, of all places
        self._chosen: Sequence[int] | Places | None = None  # the last tuple of places
        self._chosen_index: Places = np.zeros(0, np.intp)
        self._chosen_fields: list[Places] = []

    def enter(self, control: int) -> int:
        """
        Return the place of a new guest: the first free slot.

        `control` is the offset of the guest's control block. Raises GuestBusy in the middle of a
        round.
        """
        was_free = bool(self._free)
        place = heappop(self._free) if was_free else len(self.futures)
        put(self._controls, place, control)
        put(self.functions, place, 0.0)
        for column, none in ((self.work, _NO_WORK), (self.before, _NONE_BEFORE)):
            column[len(none) * place : len(none) * (place + 1)] = none
        put(self.indices, place, place)
        try:
            self._rounds.enter(place, control)
        except BaseException:
            if was_free:
                heappush(self._free, place)
            raise
        self._fields = self._chosen = None
        self.stores += 1
        return place

    def leave(self, place: int) -> None:
        """Drop the call of a guest that is being freed, and free its place."""
        self.drop(place)
        self.memories[place] = 0
        self.log_levels.remove(place)
        self.touched.discard(place)
        self.tight.discard(place)
        self.stores += 1
        heappush(self._free, place)

    def begin(self, place: int, call: RawCall) -> None:
        """Begin a call of one guest; a guest parked in its loop of frames leaves the loop first."""
        if self.futures[place]:
            self.drop(place)
            self.left += 1
        self.began[place] = self.used[place]
        self.begun += 1
        self.futures[place] = _call_async(*call)

    def single(self, place: int, columns: Columns, stopped: Sized) -> SingleCalls | None:
        """
        Return the runner of one guest's calls in the native library, None without the library.

        `stopped` holds the models that must not be run again.
        """
        if native.LIBRARY is None:
            return None
        control = self._controls[place]
        return SingleCalls(native.LIBRARY, self._rounds, columns, place, control, stopped)

    def drop(self, place: int) -> None:
        """Delete the call of one guest, if there is one. Runs no guest code."""
        future, self.futures[place] = self.futures[place], 0
        if future:
            bindings.delete_future(future)
        self._scalars[self._reason(place)] = _RUNNING

    def _reason(self, place: int) -> int:
        """Return the index of the word of a guest's reason."""
        return (self._controls[place] + at.REASON) >> 2

    def is_in_frame(self, place: int) -> bool:
        """Return whether a guest is in a call, and not at the end of a frame."""
        return self.futures[place] != 0 and self._scalars[self._reason(place)] != _FRAME_END

    def in_frames(self, places: Sequence[int]) -> list[int]:
        """Return the places of guests that are in a call, and not at the end of a frame."""
        index = self._index(places)
        reasons = self._words[self._all_fields()[_REASON][index]]
        are_inside = self._rounds.are_in_calls(index) & (reasons != _FRAME_END)
        found: list[int] = index[are_inside].tolist()
        return found

    def is_running(self, place: int) -> bool:
        """Return whether a guest's turn ran out in the middle of a call."""
        return self.futures[place] != 0 and self._scalars[self._reason(place)] == _RUNNING

    def begin_calls(self, places: Sequence[int], calls: Calls) -> None:
        """
        Let the next round begin these calls, uint64, [n, 8], one for each of the n guests.

        Guests parked in their loops of frames leave the loops now.
        """
        index = self._index(places)
        parked = index[self._rounds.are_in_calls(index)]
        if len(parked):
            self._rounds.delete(parked)
            self._words[self._all_fields()[_REASON][parked]] = _RUNNING
            self.left += len(parked)
        self.begun += len(places)
        self._calls = calls

    def begin_frames(self, places: Sequence[int], loops: Calls) -> None:
        """
        Let each guest run its next frame in its loop of frames.

        `loops`, uint64, [n, 8], has the calls of the loops, which the next round begins if
        necessary.
        """
        index = self._index(places)
        are_inside = self._rounds.are_in_calls(index)
        if not are_inside.all():  # once: resuming is cheaper (decision 15)
            outside = ~are_inside
            self._calls = np.zeros_like(loops)
            self._calls[outside] = loops[outside]
        self._words[self._at(_ANSWER, places)] = 1

    def allow(self, budget: float | None) -> None:
        """Let each guest run for `budget` seconds from now on, None for no limit."""
        if MARK not in KNOWN:
            LogLevels.refresh()
        self.began[:] = self.used
        self.calls += 1
        self.spent = self.beside = 0.0
        self._calls = None
        if budget is None:
            self.alert = math.inf
        else:
            self.alert = budget / 2 if budget <= SHORT else budget - ALERT

    def advance(self, places: Sequence[int], check: Callable[[], None]) -> Turn:
        """
        Run each guest until its call or frame ends, or until it is suspended.

        A guest whose turn ran out is run once more, since the turn may have been nearly over when
        it began. `check` is called every 10 ms, and may end the round by raising.
        """
        if (now := _clock()) > self.stale_at:
            self.read_clock(now)
        rounds, index = self._rounds, self._index(places)
        calls, self._calls = self._calls, None
        rounds.run(index, CHARGE, self.alert, check, self.counted, calls)
        self.spent += rounds.seconds
        self.beside += rounds.seconds - rounds.wall
        self._charged += rounds.elsewhere  # which is no time of this thread
        counts, count = rounds.counts, len(places)
        if counts[SUBMITTED] == count:
            return Turn((), places, (), rounds.is_late)
        if counts[AT_FRAME_END] == count:
            return Turn((), (), (), rounds.is_late)
        if counts[ENDED] == count:
            return Turn(places, (), (), rounds.is_late)
        outcomes = rounds.outcomes[:count]

        def chosen(outcome: int) -> list[int]:
            places: list[int] = index[outcomes == outcome].tolist()
            return places

        return Turn(chosen(ENDED), chosen(SUBMITTED), chosen(OTHER), rounds.is_late)

    def end(self, places: Sequence[int]) -> list[int]:
        """Delete calls that ended, and return the places of guests whose calls failed."""
        self._rounds.delete(self._index(places))
        return self.failed(places)

    def failed(self, places: Sequence[int]) -> list[int]:
        """
        Return the places of guests whose calls left a trap or an error that was not taken yet.
        """
        failed = self._numbers[self._at(_TRAP, places)] | self._numbers[self._at(_ERROR, places)]
        if not failed.any():
            return []
        return [place for place, left in zip(places, failed.tolist(), strict=True) if left]

    def resume(self, places: Places, check: Callable[[], None]) -> tuple[Marks, Marks]:
        """
        Answer the submits of these guests, and run each until its call ends or it is suspended.

        Budgets are not checked. `check` is called every 10 ms, and may end the round by raising;
        some guests have not run then. Returns two arrays, bool, [n]: whether each guest is at the
        end of its call or of the last frame that `run_ahead` allows, and whether it is in a submit
        of finite features.
        """
        if MARK not in KNOWN:
            LogLevels.refresh()
        rounds, count = self._rounds, len(places)
        rounds.run(self._index(places), ANSWER, math.inf, check, self.counted)
        if rounds.counts[SUBMITTED] == count:  # as in most rounds
            return np.zeros(count, bool), np.ones(count, bool)
        outcomes = rounds.outcomes[:count]
        return (outcomes == ENDED) | (outcomes == AT_FRAME_END), outcomes == SUBMITTED

    def counted(self, seconds: float, *, may_wait: bool = False, is_charged: bool = True) -> float:
        """
        Return the seconds to charge for a period that this thread just ended.

        The processor time of a period is known only together with preceding periods that were too
        short to read the clock; what guests were charged for these is subtracted.

        Args:
            seconds: Wall time of the period.
            may_wait: True for work that is done elsewhere; see `counted_seconds`.
            is_charged: False if the result is not added to `used` before the next period ends.

        """
        total = self._total()
        is_known = self._reading == last_reading()  # else another lockstep's, or thread's
        charged = max(0.0, total - self._charged) if is_known else 0.0
        counted = counted_seconds(seconds, may_wait=may_wait, charged=charged)
        self._reading = last_reading()
        self._charged = total + counted if is_charged else total
        return counted

    def leave_out(self, seconds: float) -> None:
        """
        Note that these charged seconds are not part of the thread's next processor time reading.
        """
        self._charged += seconds

    def read_clock(self, now: float) -> None:
        """Read the processor clock of this thread before it runs guests."""
        self.stale_at = now + FRESH
        self._reading, self._charged = read_processor_clock(), self._total()

    def run_ahead(self, places: Places, frames: int) -> None:
        """Let loops of frames run `frames` frames after the present one without suspending."""
        self._words[self._at(_FRAMES_AHEAD, places)] = frames

    def frames(self, places: Places) -> Frames:
        """
        Return the number of frames that ended in each guest's loop, u32, [n], which wraps around.
        """
        counts: Frames = self._words[self._at(_FRAMES, places)]
        return counts

    def records(self, places: Places) -> Frames:
        """Return the record index of the session that each guest submitted last, u32, [n]."""
        indices: Frames = self._words[self._at(_RECORD, places)]
        return indices

    def most_used(self, places: Sequence[int]) -> float:
        """Return the most seconds charged to one of these guests in its present call or frame."""
        index = self._index(places)
        used, began = np.frombuffer(self.used), np.frombuffer(self.began)
        return float((used[index] - began[index]).max(initial=0.0))

    def noted(self, places: Sequence[int] | Places) -> list[int]:
        """
        Return the places of guests whose shims noted something for the host, such as a refusal.
        """
        news = self._words[self._at(_NOTED, places)]
        return np.asarray(places)[news != 0].tolist() if news.any() else []

    def calls_of_game(self, places: Places) -> Places:
        """
        Return the index of the game's function that each guest is calling, [n]; negative for none.
        """
        reasons: Places = self._words[self._at(_REASON, places)].astype(np.intp)
        return reasons - Reason.FIRST_GAME

    def have_time(self, places: Places) -> Marks:
        """Return, for each guest, whether it is far from the end of its budget: bool, [n]."""
        used = np.frombuffer(self.used)[places] - np.frombuffer(self.began)[places]
        marks: Marks = used <= self.alert
        return marks

    def arguments(self, places: Places, count: int) -> Slots:
        """
        Return the first `count` arguments of the guests' import calls, 64 bits each: [count, n].
        """
        numbers: Slots = self._numbers[self._slots(places, count)]
        return numbers

    def answer(self, places: Places, results: Slots) -> None:
        """
        Set the results of the import calls in which guests are suspended, 64 bits each: [count, n].
        """
        self._numbers[self._slots(places, len(results))] = results
        self._words[self._at(_ANSWER, places)] = 1

    def charge_functions(self, places: Places, seconds: float) -> None:
        """Charge guests equal shares of the time of a game's function that answered all of them."""
        for items in (self.functions, self.used):
            np.frombuffer(items)[places] += seconds / len(places)

    def charged(self, places: Places) -> float:
        """Return the sum of seconds charged to these guests since each was loaded."""
        return float(np.frombuffer(self.used)[places].sum())

    def _slots(self, places: Places, count: int) -> Places:
        first = self._at(_ARGUMENTS, places)
        return first + np.arange(count)[:, None]

    def _total(self) -> float:
        """Return the seconds that are charged to all guests together, since they entered."""
        used = self.used
        return sum(used) if len(used) < _MANY else float(np.frombuffer(used).sum())

    def _index(self, places: Sequence[int] | Places) -> Places:
        """Return places as an array side by side; that of a tuple is kept."""
        if places is self._chosen or self._keeps(places):
            return self._chosen_index
        return np.ascontiguousarray(places, np.intp)

    def _at(self, field: int, places: Sequence[int] | Places) -> Places:
        """Return the index of a field of each guest; cached for a tuple or a read-only array."""
        if places is self._chosen or self._keeps(places):
            return self._chosen_fields[field]
        return self._all_fields()[field][places]

    def _keeps(self, places: Sequence[int] | Places) -> bool:
        """Keep the indices of a tuple or a read-only array, which stays the same; else False."""
        if not _is_constant(places):
            return False
        self._chosen = None  # first: a signal handler that raises below leaves nothing kept
        self._chosen_index = index = np.ascontiguousarray(places, np.intp)
        fields = self._all_fields()
        are_all = np.array_equal(index, np.arange(len(self._controls)))
        self._chosen_fields = fields if are_all else [column[index] for column in fields]
        self._chosen = places
        return True

    def _all_fields(self) -> list[Places]:
        """Return the index of each field of all guests, by place."""
        if self._fields is None:
            controls = np.array(self._controls, np.intp)
            self._fields = [
                *((controls + word) >> 2 for word in _WORDS),
                *((controls + number) >> 3 for number in _NUMBERS),
            ]
        return self._fields


def _nothing_to_settle() -> None:
    """Return None: the accounts are complete."""


def _is_constant(places: Sequence[int] | Places) -> bool:
    """Return whether places are a tuple, or an array that is read-only."""
    if isinstance(places, np.ndarray):
        return not places.flags.writeable
    return isinstance(places, tuple)


_NO_WORK, _NONE_BEFORE = (array("d", (0.0,)) * count for count in (len(WorkKind), KINDS))
_WORDS = (at.REASON, at.ANSWER, at.RECORD, at.FRAMES, at.FRAMES_AHEAD, at.NOTED)
_NUMBERS = (at.TRAP, at.ERROR, at.ARGUMENTS)
_REASON, _ANSWER, _RECORD, _FRAMES, _FRAMES_AHEAD, _NOTED, _TRAP, _ERROR, _ARGUMENTS = range(9)
