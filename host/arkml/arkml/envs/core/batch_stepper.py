"""Steps of many guests in lockstep, while each of them submits one row per step."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import TypeAlias

import numpy as np

from arkml.arrays import Marks, are_all, every, some
from arkml.base.loggers import SafeLogger, notice
from arkml.batches import Floats
from arkml.envs.core.agent_slots import NOWHERE
from arkml.envs.core.decisions import Behavior, Decision, Step, choice_masks
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.single_rows import FirstRows, SingleRows
from arkml.envs.core.transitions import IS_ONE_REPORT, REPORTED
from arkml.envs.core.unnoted_metadata import UnnotedMetadata
from arkml.envs.core.world import Pace
from arkml.errors import GuestCancelled, GuestError
from arkml.guests.instance import SharedResources
from arkml.guests.trace_recorder import TracedLoop
from arkml.hive.protocol.masks import PREFIX
from arkml.runtime.account import WorkKind
from arkml.runtime.columns.region import Region
from arkml.runtime.lockstep import Frames
from arkml.runtime.rounds import Places
from arkml.runtime.shim.control_block import Moved

log = SafeLogger(__name__)

_clock = time.perf_counter
_ANY = np.arange(2 * Moved.LEFT)  # of the field `moved` of a row
_CODES = _ANY % (2 * Moved.ABSENT)  # the numbers of its transition
_FITS = IS_ONE_REPORT[_CODES] & (_ANY < Moved.LEFT)
_REPORTS = REPORTED[:, _CODES] ^ np.array([[False], [False], [False], [True]])
_SHOWN = np.concatenate((_FITS[None], _REPORTS))  # whether it is shown here, and as what

Left: TypeAlias = tuple[int, Callable[[EnvInstance], Step]]
"""A guest that deviated from the common path, and what shows its step after `catch_up`."""


class BatchStepper:
    """
    Steps the guests of an environment fleet together, each parked in a submit, or None if it ended.

    Guests may run through `ahead` frames after the present one without a submit. `acts` marks the
    guests whose agent waits for an action, bool, [guests], and `ids` holds the guests' ids of these
    agents, uint64, [guests].
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
        self._frame = pace.nanoseconds  # the length of the frames by which clocks are behind
        self._behind = 0  # frames that each guest has begun in a step of all
        self._more_behind = np.zeros(len(instances), np.int64)  # and others, of each guest
        self._is_alone = np.zeros(len(instances), bool)  # the agent of `ids` is the only live one
        self._are_alone = False  # each is
        self._is_ahead = np.zeros(len(instances), bool)  # of the tracker of the guest
        self._order = np.arange(len(instances))
        self._unnumbered = np.full(len(instances), -1, np.int32)
        self._unnoted = UnnotedMetadata(len(instances), self._note)
        self._guests: Places = NOWHERE  # that `run` was given last
        self._chosen: Places = NOWHERE  # and their places in the lockstep
        self._frames: Frames | None = None
        """Frames that have ended in their loops, if each of them waits as `run` left it."""
        self._planned: list[EnvInstance | None] = []
        self._version = -1
        self.settle(range(len(instances)))

    def settle(self, guests: Sequence[int]) -> None:
        """Take back guests that were run one by one, and are parked again or have ended."""
        is_new = not self._planned
        self._frames = None
        self._unnoted.forget(guests)
        for guest in guests:
            instance = self._instances[guest]
            pending = None if instance is None else instance.pending
            self.acts[guest] = pending is not None and pending.tracker.acting_count > 0
            live = 0 if pending is None else pending.tracker.live_count
            self._is_alone[guest] = live == int(self.acts[guest])
            if not self._is_alone[guest]:
                self._warn_of_open()
            self._is_ahead[guest] = False
            self._more_behind[guest] = -self._behind
            if pending is not None and self.acts[guest]:
                self.ids[guest] = pending.batch.rows["id"][pending.tracker.acting_rows][0]
            is_new = is_new or not self._is_as_planned(guest)
        self._are_alone = every(self._is_alone)
        if is_new:
            self._plan()

    def waiting(self, guests: Places) -> Places:
        """Return the guests that wait with exactly one row, as stepping together needs."""
        if self._version != self._resources.columns.version:
            self._plan()
        is_known = guests is self._guests and self._frames is not None
        if is_known or self._rows.are_single(guests):
            return guests
        return guests[self._rows.single(guests)]

    def write(self, actions: Floats) -> None:
        """Answer all guests that wait with one row; `actions` is float32, [guests, num_actions]."""
        self._rows.write(actions)

    def run(self, guests: Places) -> tuple[Places, list[Left], list[int]]:
        """
        Run guests whose answers are written, each to its next submit.

        A guest whose call ends, or that asks the host for something, continues by itself. Returns
        three groups: guests that submit one row as before, the other guests, and guests that
        continued by themselves.
        """
        lockstep, call_guard = self._lockstep, self._resources.call_guard
        if guests is not self._guests:
            self._choose(guests)
        places = self._chosen
        before, self._frames = self._frames, None
        if self._pace.nanoseconds != self._frame:
            self._change_pace()
        if call_guard.begin(self._name) is not None:  # guests may be in the middle of frames
            call_guard.end()
            text = "an exception of a signal handler cut a step off: reset the environment"
            raise GuestCancelled(f"{self._name}: {text}")
        try:
            if self._traced:
                self._record_answers(guests)
            if before is None:
                before = lockstep.frames(places)
            lockstep.run_ahead(places, self._ahead)
            if lockstep.touched:  # what the present frame left is forgotten at its end
                lockstep.run_ahead(places[np.isin(places, list(lockstep.touched))], 0)
            ended, submits = lockstep.resume(places, call_guard.check_interrupt)
            after = lockstep.frames(places)
            frames = after - before
            begun = frames
            if self._is_one_call:  # what it submits are its frames
                begun = np.ones_like(frames)
            elif some(ended):
                begun = frames - (ended & (frames > 0))
            if len(guests) == len(self.acts) and are_all(begun, 1):
                self._behind += 1
            else:
                self._more_behind[guests] += begun
        finally:
            call_guard.end()
        if noted := lockstep.noted(places):
            self._tell_news(noted)
        if every(submits) and self._are_as_before(guests, places):
            self._frames = after
            return guests, [], []
        as_before = submits & self._is_as_before(guests, places)
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

    def _record_answers(self, guests: Places) -> None:
        """Record the answers of these guests that are traced; a round would give the code, too."""
        for guest in guests.tolist():
            if (loop := self._traced.get(guest)) is not None:
                loop.fiber.answer(0)
                loop.answered()

    def _tell_news(self, places: Sequence[int]) -> None:
        """Let guests log the news of their shims."""
        for instance in self._instances:
            if instance is not None and instance.calls.place in places:
                instance.calls.instance.news.tell()

    def _choose(self, guests: Places) -> None:
        """Note where guests lie, that are the same array while they are the same."""
        self._guests, self._frames = guests, None
        self._chosen = self._places[guests]
        self._chosen.setflags(write=False)

    def _are_as_before(self, guests: Places, places: Places) -> bool:
        """Return whether all guests are as `_is_as_before` marks them."""
        known = self._records if len(guests) == len(self._records) else self._records[guests]
        is_same = self._lockstep.records(places).tobytes() == known.tobytes()
        return is_same and self._rows.are_single(guests)

    def _is_as_before(self, guests: Places, places: Places) -> Marks:
        """Return which guests are in a submit of one row, to the session of before: bool, [n]."""
        marks = self._rows.single(guests)
        marks &= self._lockstep.records(places) == self._records[guests]
        return marks

    def _run_on(self, guests: Places, ended: Marks, frames: Frames) -> list[Left]:
        """
        Run guests by themselves, each to its next submit of a step, with any number of rows.

        Guests in `ended` are at the end of their call, all others suspended; `frames` have ended
        together with other guests, u32, [n]. Returns the guests that finished or failed.
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
        Add to `step` the rows of guests whose agent continues, ends, or begins after an end.

        Returns the other guests, which must be examined one by one.
        """
        rows = self._rows.rows()
        is_whole = len(guests) == len(self.acts)
        unusual = rows.moved | rows.metadata
        events = unusual.nonzero()[0] if is_whole else guests[unusual[guests].nonzero()[0]]
        others = NOWHERE
        if len(events):
            shown = _SHOWN.take(rows.moved[events], 1)
            fits = shown[0]
            if not self._are_alone:
                fits &= self._is_alone[events]
            if not every(fits):
                others, events, shown = events[~fits], events[fits], shown[:, fits]
                guests, is_whole = np.setdiff1d(guests, others), False
        if is_whole:
            self._rows.read(step.observations)
            step.rewards[:] = rows.rewards
            step.present.fill(True)
        else:
            features = np.zeros_like(step.observations)
            self._rows.read(features)
            step.observations[guests] = features[guests]
            step.rewards[guests] = rows.rewards[guests]
            step.present[guests] = True
        if len(events):
            self._show_events(events, shown, rows, step, behavior)
        return others

    def _show_events(
        self,
        guests: Places,
        shown: Marks,
        rows: FirstRows,
        step: FleetStep,
        behavior: Behavior,
    ) -> None:
        """Add agents that begin or end, and metadata: guests, [n], and the columns of _SHOWN."""
        started, terminated, truncated, acts = shown[1], shown[2], shown[3], shown[4]
        if some(started & self.acts[guests]):
            self._warn_of_open()
        step.started[guests], step.terminated[guests] = started, terminated
        step.truncated[guests] = truncated
        self.acts[guests] = acts
        self.ids[guests] = rows.ids[guests]
        self._is_ahead[guests] = True
        masks, said = self._rows.metadata(guests, rows.metadata[guests]).split(PREFIX)
        self._unnoted.add(guests, said)
        order = self._order[: len(guests)]
        rewards = step.rewards[guests]
        step.is_rewarded = bool(np.count_nonzero(rewards[started]))
        step.event_guests = guests
        step.events = Decision(
            behavior, self._unnumbered[: len(guests)], step.observations.take(guests, 0), rewards,
            started, terminated, truncated, order, said,
            choice_masks(masks, order, behavior.spec.actions.branches),
        )  # fmt: skip

    def _warn_of_open(self) -> None:
        """Log a warning, once in a process, about agents that are left without an end."""
        notice(
            log,
            logging.WARNING,
            f"{self._name}: an agent acts while the one before it has not ended, and the"
            " environment shows both as one episode: push a last row for each agent, Terminal or"
            " Interrupted",
        )

    def catch_up(self, guest: int) -> None:
        """Let a guest be stepped alone from now on: its tracker takes over the agent."""
        instance = self._instances[guest]
        assert instance is not None
        self._frames = None
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
        self._set_clock(guest, instance)
        self._unnoted.hand_over(guest)

    def _change_pace(self) -> None:
        """Let frames have another length from now on."""
        for guest, instance in enumerate(self._instances):
            if instance is not None:
                self._set_clock(guest, instance)
        self._frame = self._pace.nanoseconds

    def _set_clock(self, guest: int, instance: EnvInstance) -> None:
        """Advance the clock of a guest by the frames that it is behind."""
        frames = self._behind + int(self._more_behind[guest])
        instance.world.skip(frames * self._frame)
        self._more_behind[guest] = -self._behind

    def _note(self, guest: int, said: Mapping[str, float]) -> None:
        """Have the run of a guest note metadata by name, and charge the guest with the time."""
        instance = self._instances[guest]
        assert instance is not None
        began = _clock()
        session = instance.calls.services.sessions.at(int(self._records[guest]))
        instance.experiments.note_for(session.policy, said)
        instance.calls.account.charge(WorkKind.IMPORTS, _clock() - began)

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
        self._guests = NOWHERE
        self._records = self._lockstep.records(self._places)
        self._rows = SingleRows(self._resources.columns, regions)
        self._planned = list(self._instances)
        self._traced = {
            guest: one.calls
            for guest, one in enumerate(self._instances)
            if one is not None and isinstance(one.calls, TracedLoop)
        }
        self._version = self._resources.columns.version
