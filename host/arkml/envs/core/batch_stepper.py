"""Steps of many guests in lockstep, while none deviates from the common path."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats, MetadataLog
from arkml.envs.core.decisions import Behavior, Decision, Step, choice_masks
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.single_rows import FirstRows, SingleRows
from arkml.envs.core.transitions import IS_ONE_REPORT, REPORTED
from arkml.envs.core.world import Pace
from arkml.errors import GuestError
from arkml.guests.instance import SharedResources
from arkml.hive.protocol.masks import PREFIX
from arkml.hive.protocol.runs import MAX_NAMES
from arkml.marks import Marks, every, some
from arkml.runtime.columns.region import Region
from arkml.runtime.lockstep import Frames, Places
from arkml.runtime.shim.control import Moved

_ANY = np.arange(2 * Moved.LEFT)  # of the field `moved` of a row
_CODES = _ANY % (2 * Moved.ABSENT)  # the numbers of its transition
_FITS = IS_ONE_REPORT[_CODES] & (_ANY < Moved.LEFT)
_SHOWN = REPORTED[:, _CODES] ^ np.array([[False], [False], [False], [True]])  # LIVE at last

Left: TypeAlias = tuple[int, Callable[[EnvInstance], Step]]
"""A guest that deviated from the common path, and what shows its step after `catch_up`."""


class BatchStepper:
    """
    The instances of an environment fleet, each parked in a submit; None for one that is over.

    Its loops run through `ahead` frames after the present one without a submit.
    `acts` marks the guests whose agent waits for an action, bool, [guests], and `ids` holds the
    guests' names of these agents, uint64, [guests].
    """

    def __init__(
        self,
        name: str,
        instances: Sequence[EnvInstance | None],
        resources: SharedResources,
        pace: Pace,
        ahead: int,
    ) -> None:
        self.acts = np.zeros(len(instances), bool)
        self.ids = np.zeros(len(instances), np.uint64)
        self._name = name
        self._instances = instances
        self._resources = resources
        self._lockstep = resources.lockstep
        self._pace = pace
        self._ahead = ahead
        self._is_one_call = all(one is not None and one.is_one_call for one in instances)
        self._owed = np.zeros(len(instances), np.int64)  # nanoseconds that clocks are behind
        self._is_alone = np.zeros(len(instances), bool)  # the agent of `ids` is the only live one
        self._are_alone = False  # each is
        self._is_ahead = np.zeros(len(instances), bool)  # of the tracker of the guest
        self._order = np.arange(len(instances))
        self._unnumbered = np.full(len(instances), -1, np.int32)
        self._said: dict[str, tuple[npt.NDArray[np.float64], Marks]] = {}
        """Metadata by name that the runs of guests have not noted yet: values and a mask."""
        self._planned: list[EnvInstance | None] = []
        self._version = -1
        self.settle(range(len(instances)))

    def settle(self, guests: Sequence[int]) -> None:
        """Take back guests that were run alone, and are parked again or over."""
        is_new = not self._planned
        for guest in guests:
            instance = self._instances[guest]
            pending = None if instance is None else instance.pending
            self.acts[guest] = pending is not None and pending.tracker.acting_count > 0
            live = 0 if pending is None else pending.tracker.live_count
            self._is_alone[guest] = live == int(self.acts[guest])
            self._is_ahead[guest] = False
            self._owed[guest] = 0  # a guest that was replaced may have left some
            self._forget_said(guest)
            if pending is not None and self.acts[guest]:
                self.ids[guest] = pending.batch.rows["id"][pending.tracker.acting_rows][0]
            is_new = is_new or not self._is_as_planned(guest)
        self._are_alone = every(self._is_alone)
        if is_new:
            self._plan()

    def waiting(self, guests: Places) -> Places:
        """Return those of `guests` that wait with one row in their queue, as the lockstep needs."""
        if self._version != self._resources.columns.version:
            self._plan()
        holds_one = self._rows.single(guests)
        return guests if every(holds_one) else guests[holds_one]

    def write(self, actions: Floats) -> None:
        """Answer all guests that wait with one row: float32, [guests, num_actions]."""
        self._rows.write(actions)

    def run(self, guests: Places) -> tuple[Places, list[Left], list[int]]:
        """
        Run guests whose answers are written, each to its next submit.

        One whose call ends, or that asks the host for something, is run on by itself. Returns the
        guests that submit one row as before, the other ones, and those that were run on.
        """
        lockstep, call_guard = self._lockstep, self._resources.call_guard
        places = self._places if len(guests) == len(self._places) else self._places[guests]
        call_guard.begin(self._name)
        try:
            before = lockstep.frames(places)
            lockstep.run_ahead(places, self._ahead)
            if lockstep.touched:  # what the present frame left is forgotten at its end
                lockstep.run_ahead(places[np.isin(places, list(lockstep.touched))], 0)
            ended, submits = lockstep.resume(places)
            frames = lockstep.frames(places) - before
            begun = frames
            if self._is_one_call:  # what it submits are its frames
                begun = np.ones_like(frames)
            elif some(ended):
                begun = frames - (ended & (frames > 0))
            owed = np.multiply(begun, self._pace.nanoseconds, dtype=np.int64)
            if len(owed) == len(self._owed):
                self._owed += owed  # faster than by places
            else:
                self._owed[guests] += owed
        finally:
            call_guard.end()
        as_before = submits & self._is_as_before(guests, places)
        if every(as_before):
            return guests, [], []
        rest = ~as_before
        alone = guests[rest]
        lockstep.run_ahead(places[rest], 0)
        left = self._run_on(alone, ended[rest], frames[rest])
        if left:
            guests = np.setdiff1d(guests, [guest for guest, _ in left])
        if self._version != self._resources.columns.version:  # a queue has moved
            as_before = np.zeros(len(guests), bool)
        else:
            as_before = self._is_as_before(guests, self._places[guests])
        left += [(guest, EnvInstance.look) for guest in guests[~as_before].tolist()]
        return guests[as_before], left, alone.tolist()

    def _is_as_before(self, guests: Places, places: Places) -> Marks:
        """Return which guests are in a submit of one row, to the session of before: bool, [n]."""
        marks = self._rows.single(guests)
        marks &= self._lockstep.records(places) == self._records[guests]
        return marks

    def _run_on(self, guests: Places, ended: Marks, frames: Frames) -> list[Left]:
        """
        Run guests by themselves, each to its next submit of a step, whatever that has.

        Those that have `ended` are at the end of their call, the others suspended; `frames` have
        ended with others, u32, [n]. Returns the ones that came to their end or failed.
        """
        gone: list[Left] = []
        states = zip(guests.tolist(), ended.tolist(), frames.tolist(), strict=True)
        for guest, has_ended, count in states:
            instance = self._instances[guest]
            assert instance is not None
            self._hand_over(guest, instance)
            try:
                if not instance.reach_submit(count, has_ended=has_ended):
                    gone.append((guest, EnvInstance.finish))
            except GuestError as error:
                gone.append((guest, partial(EnvInstance.fail, error=error)))
        return gone

    def show(self, guests: Places, step: FleetStep, behavior: Behavior) -> Places:
        """
        Add to `step` the rows of guests whose agent continues, ends, or begins after another's end.

        Returns the other guests, which have to be looked at one by one.
        """
        rows = self._rows.rows()
        is_whole = len(guests) == len(self.acts)
        unusual = rows.moved | rows.metadata
        events = unusual.nonzero()[0] if is_whole else guests[unusual[guests].nonzero()[0]]
        others: Places = events[:0]
        if len(events):
            moved = rows.moved[events]
            fits = _FITS[moved]
            if not self._are_alone:
                fits &= self._is_alone[events]
            if not every(fits):
                others, events, moved = events[~fits], events[fits], moved[fits]
                guests, is_whole = np.setdiff1d(guests, others), False
        if is_whole:
            self._rows.read(step.observations)
            step.rewards[:] = rows.rewards
            step.present[:] = True
        else:
            features = np.zeros_like(step.observations)
            self._rows.read(features)
            step.observations[guests] = features[guests]
            step.rewards[guests] = rows.rewards[guests]
            step.present[guests] = True
        if len(events):
            self._show_events(events, moved, rows, step, behavior)
        return others

    def _show_events(
        self,
        guests: Places,
        moved: npt.NDArray[np.uint32],
        rows: FirstRows,
        step: FleetStep,
        behavior: Behavior,
    ) -> None:
        """Add agents that begin or end, and metadata: guests, [n], and `moved` of their rows."""
        started, terminated, truncated, acts = _SHOWN.take(moved, 1)
        step.started[guests], step.terminated[guests] = started, terminated
        step.truncated[guests] = truncated
        self.acts[guests] = acts
        self.ids[guests] = rows.ids[guests]
        self._is_ahead[guests] = True
        masks, said = self._metadata(guests, rows.metadata[guests])
        places = self._order[: len(guests)]
        step.event_guests = guests
        step.events = Decision(
            behavior, self._unnumbered[: len(guests)], step.observations.take(guests, 0),
            step.rewards[guests], started, terminated, truncated, places, said,
            choice_masks(masks, places, behavior.spec.actions.branches),
        )  # fmt: skip

    def _metadata(self, guests: Places, counts: Frames) -> tuple[MetadataLog, MetadataLog]:
        """Return the masks and the other metadata of rows of guests, and note the latter."""
        masks, said = self._rows.metadata(guests, counts).split(PREFIX)
        for code, name in enumerate(said.names):
            if name not in self._said:
                if len(self._said) >= MAX_NAMES:  # the runs of guests limit theirs
                    self._note_all()
                self._said[name] = np.zeros(len(self.ids)), np.zeros(len(self.ids), bool)
            values, has = self._said[name]
            items = slice(None) if len(said.names) == 1 else (said.codes == code).nonzero()[0]
            sayers = guests[said.rows[items]]
            values[sayers], has[sayers] = said.values[items], True
        return masks, said

    def catch_up(self, guest: int) -> None:
        """Let a guest be stepped by itself: its tracker takes over the agent."""
        instance = self._instances[guest]
        assert instance is not None
        self._lockstep.run_ahead(self._places[[guest]], 0)
        self._hand_over(guest, instance)
        if self._is_ahead[guest]:
            assert instance.pending is not None
            agent = int(self.ids[guest]) if self.acts[guest] else None
            instance.pending.tracker.replace(agent)
            self._is_ahead[guest] = False

    def _hand_over(self, guest: int, instance: EnvInstance) -> None:
        """
        Let a guest be run by itself, which may ask for the time, and for the metrics of its run.

        Its clock advances by the frames that it was stepped in with others, and its run notes the
        metadata of these steps. Its call has to end with the present frame: the next one is begun
        where the guest is run alone.
        """
        instance.world.skip(int(self._owed[guest]))  # 0 counts frames in which the clock stood
        self._owed[guest] = 0
        said = {name: values[guest] for name, (values, has) in self._said.items() if has[guest]}
        if said:
            self._forget_said(guest)
            self._note(guest, said)

    def _note_all(self) -> None:
        """Have the runs of all guests note their metadata, and forget the names."""
        said: dict[int, dict[str, np.float64]] = {}
        for name, (values, has) in self._said.items():
            for guest in has.nonzero()[0].tolist():
                said.setdefault(guest, {})[name] = values[guest]
        self._said.clear()
        for guest, items in said.items():
            self._note(guest, items)

    def _note(self, guest: int, said: dict[str, np.float64]) -> None:
        instance = self._instances[guest]
        assert instance is not None
        session = instance.calls.services.session_at(int(self._records[guest]))
        rows, values = np.zeros(len(said), np.intp), np.fromiter(said.values(), np.float64)
        session.note(MetadataLog(rows, tuple(said), np.arange(len(said)), values))

    def _forget_said(self, guest: int) -> None:
        for _, has in self._said.values():
            has[guest] = False

    def _is_as_planned(self, guest: int) -> bool:
        instance = self._instances[guest]
        if instance is not self._planned[guest]:
            return False
        if instance is None:
            return True
        record = self._lockstep.records(self._places[guest : guest + 1])
        return bool(record == self._records[guest])

    def _plan(self) -> None:
        """Note where the rows of all guests lie."""
        regions: list[Region | None] = [
            None if one is None or one.pending is None else one.calls.submitted_region()
            for one in self._instances
        ]
        self._places = np.array([0 if one is None else one.calls.place for one in self._instances])
        self._places.setflags(write=False)
        self._records = self._lockstep.records(self._places)
        self._rows = SingleRows(self._resources.columns, regions)
        self._planned = list(self._instances)
        self._version = self._resources.columns.version
