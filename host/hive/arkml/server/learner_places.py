"""The slots in which learners run on a hive's machine, given to runs in the order of asking."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from arkml.server.serve_options import ServerLimits
from arkml.server.usage import memory_of, sized

LEARNER_BYTES = 256 << 20
"""Memory set aside for a learner that takes less: one with default networks begins at 133 MiB."""


class LearnerPlace:
    """
    The slot in which a run's learner may run; the run holds it, waits for it, or neither.

    Attributes:
        pid: The process that uses the slot, None for none.
        memory: The bytes that the process used when it was measured last.
        excess: The reason why the process has to end, empty as long as it may run.
        changed: Called when the run's position in the queue may have changed.

    """

    def __init__(self, places: LearnerPlaces, changed: Callable[[], None]) -> None:
        self.pid: int | None = None
        self.memory = 0
        self.excess = ""
        self.changed = changed
        self.number = 0
        """The position in the queue for a learner, from 1; 0 for a place that does not wait."""
        self._places = places
        self._given: asyncio.Future[None] | None = None

    async def take(self) -> None:
        """
        Wait in the queue until the run holds the slot; leave the queue if the wait is canceled.
        """
        self._given = asyncio.get_running_loop().create_future()
        self._places.add(self)
        try:
            await self._given
        except BaseException:
            self.give_up()
            raise

    def give(self) -> None:
        """Note that the run holds the slot from now on, and wake the call of `take`."""
        self.number = 0
        if self._given is not None and not self._given.done():
            self._given.set_result(None)

    def give_up(self) -> None:
        """Release the slot, or leave the queue for it."""
        self.pid, self.memory, self.excess, self.number = None, 0, "", 0
        self._places.remove(self)


class LearnerPlaces:
    """
    All slots of a hive, limited by the number of learners and by the memory that they use.

    A learner may always run while no other one does, so that every run gets to learn.
    """

    def __init__(self, limits: ServerLimits) -> None:
        self._most = limits.learners
        self._bytes = limits.memory_bytes
        self._held: list[LearnerPlace] = []
        self._waiting: list[LearnerPlace] = []

    @property
    def are_wanted(self) -> bool:
        """True while runs wait for a slot."""
        return bool(self._waiting)

    def add(self, place: LearnerPlace) -> None:
        """
        Add a request for a slot, which is granted at once or when earlier runs release theirs.
        """
        self._waiting.append(place)
        self._give()
        place.changed()

    def remove(self, place: LearnerPlace) -> None:
        """Take a slot or a request back, and grant slots to the next runs in the queue."""
        if place in self._held:
            self._held.remove(place)
        if place in self._waiting:
            self._waiting.remove(place)
        self._give()

    def measure(self) -> None:
        """
        Measure the memory of all learners; if it exceeds the limit, set `excess` of the largest.
        """
        for place in self._held:
            place.memory = memory_of(place.pid) if place.pid is not None else 0
        total = sum(place.memory for place in self._held)
        is_ending = any(place.excess for place in self._held)
        if self._bytes and total > self._bytes and not is_ending:
            largest = max(self._held, key=lambda place: place.memory)
            largest.excess = (
                f"its learner takes {sized(largest.memory)} of memory, the learners of this hive"
                f" {sized(total)} in all, and they may take {sized(self._bytes)} (--max-memory)"
            )
        self._give()

    def _give(self) -> None:
        """Give places to the first runs of the queue, as long as learners and memory are left."""
        given = []
        while self._waiting and self._has_room():
            place = self._waiting.pop(0)
            self._held.append(place)
            place.give()
            given.append(place)
        for number, place in enumerate(self._waiting, 1):
            place.number = number
        if given:
            for place in (*given, *self._waiting):
                place.changed()

    def _has_room(self) -> bool:
        if self._most and len(self._held) >= self._most:
            return False
        if not self._bytes or not self._held:
            return True
        used = sum(max(place.memory, LEARNER_BYTES) for place in self._held)
        return used + LEARNER_BYTES <= self._bytes
