"""Steps of many guests in lockstep, while none deviates from the common path."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats, Metadata, MetadataLog
from arkml.envs.core.agent_slots import codes_of
from arkml.envs.core.decisions import Behavior, Decision, choice_masks
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.single_rows import SingleRows
from arkml.envs.core.transitions import (
    IS_ONE_REPORT,
    REPORTED,
    RUNS_ON,
)
from arkml.envs.core.world import Pace
from arkml.guests.instance import SharedResources
from arkml.hive.protocol.masks import PREFIX
from arkml.hive.protocol.runs import MAX_NAMES
from arkml.runtime.columns.region import Region
from arkml.runtime.lockstep import Frames, Marks, Places

_RUNNING = np.uint32(EpisodeState.RUNNING)


class Left(Enum):
    """States of a guest that deviated from the common path."""

    SUBMITTED = "submitted"  # in a submit of the session that it submitted before
    ENDED = "ended"  # at the end of its call, or of its frame in a loop
    SUSPENDED = "suspended"  # in something that is not served yet


class BatchStepper:
    """
    The instances of an environment fleet, each parked in a submit; None for one that is over.

    `acts` marks the guests whose agent waits for an action, bool, [guests], and `ids` holds the
    guests' names of these agents, uint64, [guests].
    """

    def __init__(
        self,
        name: str,
        instances: Sequence[EnvInstance | None],
        resources: SharedResources,
        pace: Pace,
    ) -> None:
        self.acts = np.zeros(len(instances), bool)
        self.ids = np.zeros(len(instances), np.uint64)
        self._name = name
        self._instances = instances
        self._resources = resources
        self._lockstep = resources.lockstep
        self._pace = pace
        self._owed = np.zeros(len(instances), np.int64)  # nanoseconds that clocks are behind
        self._is_alone = np.zeros(len(instances), bool)  # the agent of `ids` is the only live one
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
            self.acts[guest] = pending is not None and len(pending.decision.deciding) > 0
            live = 0 if pending is None else pending.tracker.live_count
            self._is_alone[guest] = live == int(self.acts[guest])
            self._is_ahead[guest] = False
            self._forget_said(guest)
            if pending is not None and self.acts[guest]:
                decision = pending.decision
                self.ids[guest] = pending.batch.rows["id"][decision.places[~decision.ended][0]]
            is_new = is_new or not self._is_as_planned(guest)
        if is_new:
            self._plan()

    def waiting(self, guests: Places) -> Places:
        """Return those of `guests` that wait with one row in their queue, as the lockstep needs."""
        if self._version != self._resources.columns.version:
            self._plan()
        holds_one = self._rows.single(guests)
        return guests if holds_one.all() else guests[holds_one]

    def write(self, actions: Floats) -> None:
        """Answer all guests that wait with one row: float32, [guests, num_actions]."""
        self._rows.write(actions)

    def run(self, guests: Places) -> tuple[Places, list[tuple[int, Left]]]:
        """
        Run guests whose answers are written, each to its next submit.

        Returns those that submit one row as before, and for each other one where it is.
        """
        lockstep, call_guard = self._lockstep, self._resources.call_guard
        places = self._places if len(guests) == len(self._places) else self._places[guests]
        call_guard.begin(self._name)
        try:
            before = lockstep.frames(places)
            lockstep.run_ahead(places, 1)  # to the end of the present one, and of the next
            if lockstep.touched:  # what the present one left is forgotten at its end
                lockstep.run_ahead(places[np.isin(places, list(lockstep.touched))], 0)
            ended, submits = lockstep.resume(places)
            begun = (lockstep.frames(places) - before).astype(np.int64)
            if np.count_nonzero(ended):
                begun[ended & (begun > 0)] -= 1
            self._owed[guests] += begun * self._pace.nanoseconds
        finally:
            call_guard.end()
        left = [(guest, Left.ENDED) for guest in guests[ended].tolist()]
        if self._version != self._resources.columns.version:  # a queue has moved
            return guests[:0], left + [(n, Left.SUSPENDED) for n in guests[~ended].tolist()]
        as_before = submits & self._rows.single(guests)
        as_before &= lockstep.records(places) == self._records[guests]
        if not as_before.all():
            left += [(n, Left.SUSPENDED) for n in guests[~(as_before | ended)].tolist()]
            guests = guests[as_before]
        return guests, left

    def show(self, guests: Places, step: FleetStep, behavior: Behavior) -> Places:
        """
        Add to `step` the rows of guests whose agent continues, ends, or begins after another's end.

        Returns the other guests, which have to be looked at one by one.
        """
        rows = self._rows.rows()
        known = rows["id"] == self.ids
        known &= self.acts
        plain = rows["state"] == _RUNNING
        plain &= known
        plain &= rows["metadata"] == 0
        is_whole = len(guests) == len(rows)
        events = (~plain).nonzero()[0] if is_whole else guests[~plain[guests]]
        others: Places = events[:0]
        codes = events
        if len(events):
            is_absent = ~self.acts[events]
            codes = codes_of(rows["state"][events], is_absent)
            fits = IS_ONE_REPORT[codes]
            fits &= self._is_alone[events]
            fits &= is_absent | known[events]
            if np.count_nonzero(fits) < len(events):
                others, events, codes = events[~fits], events[fits], codes[fits]
                guests, is_whole = np.setdiff1d(guests, others), False
        if is_whole:
            self._rows.read(step.observations)
            step.rewards[:] = rows["reward"]
            step.present[:] = True
        else:
            features = np.zeros_like(step.observations)
            self._rows.read(features)
            step.observations[guests] = features[guests]
            step.rewards[guests] = rows["reward"][guests]
            step.present[guests] = True
        if len(events):
            self._show_events(events, codes, rows, step, behavior)
        return others

    def _show_events(
        self,
        guests: Places,
        codes: Places,
        rows: npt.NDArray[Any],
        step: FleetStep,
        behavior: Behavior,
    ) -> None:
        """Add agents that begin or end, and metadata: guests, [n], and the codes of their rows."""
        started, terminated, truncated, absent = REPORTED.take(codes, 1)
        step.started[guests], step.terminated[guests] = started, terminated
        step.truncated[guests] = truncated
        self.acts[guests] = ~absent
        self.ids[guests] = rows["id"][guests]
        self._is_ahead[guests[~RUNS_ON[codes]]] = True
        masks, said = self._metadata(guests, rows["metadata"][guests])
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
        """
        Advance the clock of a guest by the frames that it was stepped in with others.

        Its tracker takes over the agent, and its run the metadata of the steps with others.

        Its call ends with the present frame; the next one is begun where the guest is run alone.
        """
        instance = self._instances[guest]
        assert instance is not None
        self._lockstep.run_ahead(self._places[guest : guest + 1], 0)
        if self._owed[guest]:
            instance.world.skip(int(self._owed[guest]))
            self._owed[guest] = 0
        if self._is_ahead[guest]:
            assert instance.pending is not None
            agent = int(self.ids[guest]) if self.acts[guest] else None
            instance.pending.tracker.replace(agent)
            self._is_ahead[guest] = False
        said = [
            Metadata(0, name, float(values[guest]))
            for name, (values, has) in self._said.items()
            if has[guest]
        ]
        if said:
            self._forget_said(guest)
            self._note(guest, said)

    def _note_all(self) -> None:
        """Have the runs of all guests note their metadata, and forget the names."""
        said: dict[int, list[Metadata]] = {}
        for name, (values, has) in self._said.items():
            for guest in has.nonzero()[0].tolist():
                said.setdefault(guest, []).append(Metadata(0, name, float(values[guest])))
        self._said.clear()
        for guest, items in said.items():
            self._note(guest, items)

    def _note(self, guest: int, said: list[Metadata]) -> None:
        instance = self._instances[guest]
        assert instance is not None
        instance.calls.submitted().note(MetadataLog.of(said))

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
        self._rows = SingleRows(self._resources.columns.arena, regions)
        self._planned = list(self._instances)
        self._version = self._resources.columns.version
