"""
Rounds, in which the calls of many guests run, each until it ends or is suspended.

The native library runs them, on one thread or several, without Python's global lock. Where the
library is missing, `_run_in_python` does the same, one guest after another.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, MutableSequence, Sequence
from ctypes import addressof
from typing import TypeAlias, TypeVar

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.errors import GuestBusy
from arkml.runtime import bindings, native
from arkml.runtime.columns.arena import Arena
from arkml.runtime.exported_function import Calls
from arkml.runtime.native import AT_FRAME_END, ENDED, OTHER, SUBMITTED
from arkml.runtime.shim import control_block as at
from arkml.runtime.shim.control_block import Reason

Outcomes: TypeAlias = npt.NDArray[np.uint8]
Places: TypeAlias = npt.NDArray[np.intp]
SLICE = 0.01  # seconds, after which a round looks at SIGINT: no handler runs meanwhile
_LOCKED = 50e-6  # seconds of a poll by Python, in which others may have held the interpreter's lock

_clock = time.perf_counter
_poll = bindings.poll
_call_async, _delete = bindings.call_async, bindings.delete_future
_POLL, _CALL_ASYNC = bindings.address_of(_poll), bindings.address_of(_call_async)
_DELETE = bindings.address_of(_delete)
_RUNNING, _SUBMIT, _FRAME_END = int(Reason.RUNNING), int(Reason.SUBMIT), int(Reason.FRAME_END)
_OUTCOMES = 5
_Item = TypeVar("_Item")


class Rounds:
    """
    The calls in progress of guests, by place in the lockstep, and the rounds that run them.

    Args:
        arena: The column memory, with the control blocks of the guests.
        threads: The most threads that may take part in a round.
        long_stretch: Seconds from which a period is compared with the processor time of its thread.

    """

    def __init__(self, arena: Arena, threads: int, long_stretch: float) -> None:
        self.futures: array[int] = array("Q")
        """Calls in progress by place, 0 for none. Only the lockstep changes them."""
        self.used: array[float] = array("d")
        """Seconds that are charged to each guest since it entered, by place."""
        self.began: array[float] = array("d")
        """Seconds that were charged to each guest when its call or frame began, by place."""
        self.memories: array[int] = array("Q")
        """Addresses of the guests' memories, by place, which are fetched ahead; 0 for none."""
        self.outcomes: Outcomes = np.zeros(64, np.uint8)
        """How each guest of the last round stopped, by its position in the round."""
        self.counts: Sequence[int] = [0] * _OUTCOMES
        """The guests of the last round, by outcome."""
        self.seconds = self.elsewhere = self.wall = 0.0
        """
        Seconds of the last round: charged to all guests, of these by workers, and of the clock.
        """
        self.is_late = False
        """True if a guest of the last round ran for a whole turn."""
        self._arena = arena
        self._words = arena.words
        self._reasons: array[int] = array("Q")  # addresses
        self._long = long_stretch
        self.is_new = False
        """True if a guest has entered since the library was told where the arrays lie."""
        self._library = native.LIBRARY
        self._state = native.Round(
            poll=_POLL, answer=at.ANSWER - at.REASON, long_stretch=long_stretch, slice=SLICE,
            threads=threads, is_measured=1, begin=_CALL_ASYNC, delete=_DELETE,
        )  # fmt: skip
        self._counts = self._state.counts
        self._places: Places | None = None  # of the last round
        self._into = 0
        self.address: bindings.Address = addressof(self._state)
        """Address of the library's struct."""

    def enter(self, place: int, control: int) -> None:
        """Make room for a guest; `control` is the offset of its control block in column memory."""
        if self._state.runs:
            raise GuestBusy("guests of a fleet that is in a call cannot be joined by others")
        self.is_new = True
        put(self.used, place, 0.0)
        put(self.began, place, 0.0)
        put(self.memories, place, 0)
        put(self._reasons, place, self._arena.base + control + at.REASON)
        if place == len(self.futures):
            self.futures.append(0)  # last: the others have as many items at least

    def delete(self, places: Places) -> None:
        """Delete the calls of the guests at these places, [n]. Runs no guest code."""
        if self._library is None:
            for place in places.tolist():
                future, self.futures[place] = self.futures[place], 0  # it is not deleted twice
                if future:
                    _delete(future)
            return
        into, _ = self.futures.buffer_info()
        self._library.delete(_DELETE, places.ctypes.data, len(places), into)

    def are_in_calls(self, places: Places) -> Marks:
        """Return, for each guest, whether it is in a call: bool, [n]."""
        in_calls: Marks = np.frombuffer(self.futures, np.uint64)[places] != 0
        return in_calls

    def run(
        self,
        places: Places,
        flags: int,
        alert: float,
        check: Callable[[], None],
        counted: Callable[[float], float],
        calls: Calls | None = None,
    ) -> None:
        """
        Run guests, and set the attributes that say how each of them stopped.

        A guest that has run for a whole turn runs once more, since its turn may have been nearly
        over when it began.

        Args:
            places: The guests, int, [n], side by side in memory.
            flags: `native.ANSWER` to tell each guest first that its import returns zero,
                `native.CHARGE` to charge its time.
            alert: Seconds in a call after which a guest in a submit is left to its fiber.
            check: Called every 10 ms; an exception ends the round before all guests have run.
            counted: Returns the seconds to charge for a long period, where Python runs the round.
            calls: Calls to begin, uint64, [n, 8], zeros for guests that are in a call: each begins
                in the turn of its guest, and is deleted if it ends in that turn.

        """
        count = len(places)
        if count > len(self.outcomes) or self.is_new:
            self.renew(count)
        if self._library is None:
            self._run_in_python(places, flags, alert, check, counted, calls)
            return
        state, run, address = self._state, self._library.run, self.address
        state.alert = alert
        state.calls = None if calls is None else calls.ctypes.data
        if places is not self._places:  # as in most frames; the address costs 0.5 µs
            self._places, self._into = places, places.ctypes.data
        into = self._into
        while not run(address, into, count, flags):
            check()
            flags |= native.GO_ON
            if self.is_new:  # a signal handler has made a guest
                self.renew(count)
        self.counts = self._counts[:]
        self.is_late = state.is_late != 0
        if flags & native.CHARGE:
            self.seconds, self.elsewhere, self.wall = state.seconds, state.elsewhere, state.wall

    def renew(self, count: int = 0) -> None:
        """Note the new addresses of the arrays, and make room for `count` outcomes."""
        self.is_new = True  # first: a signal handler that raises below leaves it to the next round
        if count > len(self.outcomes):
            self.outcomes = np.zeros(2 * count, np.uint8)
        state = self._state
        state.futures, _ = self.futures.buffer_info()
        state.reasons, _ = self._reasons.buffer_info()
        state.memories, _ = self.memories.buffer_info()
        state.used, _ = self.used.buffer_info()
        state.began, _ = self.began.buffer_info()
        state.outcomes = self.outcomes.ctypes.data
        self.is_new = False

    def _run_in_python(
        self,
        places: Places,
        flags: int,
        alert: float,
        check: Callable[[], None],
        counted: Callable[[float], float],
        calls: Calls | None,
    ) -> None:
        """Run guests as the library does, on this thread."""
        futures, used, began, words = self.futures, self.used, self.began, self._words
        base, outcomes = self._arena.base, self.outcomes
        charges, answers = flags & native.CHARGE, flags & native.ANSWER
        counts = [0] * _OUTCOMES
        long_stretch = min(self._long, _LOCKED)
        self.is_late = False
        start = then = looked = _clock()
        self.seconds = self.elsewhere = 0.0
        for index, place in enumerate(places.tolist()):
            word = (self._reasons[place] - base) >> 2
            if answers:
                words[word + ((at.ANSWER - at.REASON) >> 2)] = 1
            if calls is not None and calls[index, 0]:
                futures[place] = _call_async(*calls[index].tolist())
            for is_last in (False, True):
                ended = _poll(futures[place])
                now = _clock()
                if charges:
                    ran = now - then
                    charged = ran if ran < long_stretch else counted(ran)
                    used[place] += charged
                    self.seconds += charged
                then = now
                reason = words[word]
                is_low = charges and used[place] - began[place] > alert
                if ended or reason != _RUNNING:
                    break
                self.is_late = True
                if is_low or is_last:
                    break
            if ended and calls is not None:
                future, futures[place] = futures[place], 0  # it is not deleted twice
                _delete(future)
            outcome = OTHER
            if ended:
                outcome = ENDED
            elif reason == _SUBMIT and not is_low:
                outcome = SUBMITTED
            elif reason == _FRAME_END:
                outcome = AT_FRAME_END
            outcomes[index] = outcome
            counts[outcome] += 1
            if now - looked > SLICE:
                check()
                looked = now
        self.counts, self.wall = counts, then - start


def put(items: MutableSequence[_Item], place: int, item: _Item) -> None:
    """Set the item at an index, or append it if the index is the length of the sequence."""
    if place < len(items):
        items[place] = item
    else:
        items.append(item)
