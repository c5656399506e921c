"""Batching: one run of a policy answers all guests of a fleet that wait for actions."""

from __future__ import annotations

import math
import time
import weakref
from collections.abc import Callable, Iterator, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.base.handler_errors import is_of_handler
from arkml.batches import ROW, Batch
from arkml.errors import GuestError
from arkml.guests.call_loop import CallLoop
from arkml.guests.trace_recorder import TracedLoop
from arkml.policies.choice_masks import ChoiceMasks
from arkml.policies.policy import Policy
from arkml.policies.training import masks_of
from arkml.policies.workspace import PolicyWorkspace
from arkml.runtime.account import LONG
from arkml.runtime.columns.arena import Arena
from arkml.runtime.columns.region import Region
from arkml.runtime.columns.slabs import Columns, Shape, Slab
from arkml.runtime.lockstep import Lockstep
from arkml.runtime.shim import control_block as at
from arkml.sessions.session import Ready, Session

_APART_ROUNDS = 1_000
"""Rounds in which a guest that had no room for its share of a run is answered by itself."""

_clock = time.perf_counter
_Indices = npt.NDArray[np.intp]
_Members = tuple[Policy, list[CallLoop], list[Region], list[Session]]


class Group:
    """
    The guests that wait for actions of one policy, and their rows as one batch.

    The rows are views of column memory where the queues of the guests lie side by side. Otherwise
    they are copied together before the policy runs, and its answers are copied back. `is_of_guest`
    says that the guests brought the policy, and are charged for its runs.
    """

    def __init__(
        self,
        policy: Policy,
        guests: Sequence[CallLoop],
        regions: Sequence[Region],
        sessions: Sequence[Session],
    ) -> None:
        self.policy = policy
        self.guests = guests
        self.sessions = sessions
        self.is_of_guest = sessions[0].is_of_guest
        self.traced = [guest for guest in guests if isinstance(guest, TracedLoop)]
        self._counts = [region.count() for region in regions]
        self._seconds = 0.0  # of runs that the accounts do not have yet
        self._older = 0.0  # of these, of runs before the present call
        self._call = -1  # the number of that call
        self._has_noted = False
        self._looked_at = -1
        self.noted = 0.0
        """Seconds of the last run that were charged already, for noting metadata."""
        self._moves: list[tuple[Slab, _Indices, slice]] = []
        self._masks = masks_of(policy)
        self._starts = _starts(regions)
        keys = _keys(regions)
        self.batch = _view(regions, keys) or self._compacted(regions, keys)

    def act(self) -> float:
        """
        Run the policy over the rows of all guests, and return the seconds to charge for the run.
        """
        self._has_noted, self.noted = False, 0.0
        lockstep = self.guests[0].instance.lockstep
        if self._call != lockstep.calls:
            self._call, self._older = lockstep.calls, self._seconds
        started = _clock()
        try:
            self._act()
        finally:
            ran = _clock() - started
            if ran > LONG:
                counted = lockstep.counted(ran, may_wait=True, is_charged=False)  # by `settle`
                ran = counted if self.is_of_guest else ran
            if self._has_noted:
                self.noted = sum(guest.account.take_noted() for guest in self.guests)
                ran -= self.noted
            self._seconds += ran
        return ran

    def settle(self) -> None:
        """Charge the guests for the runs of the policy so far, in proportion to their rows."""
        seconds, self._seconds = self._seconds, 0.0
        is_present = self._call == self.guests[0].instance.lockstep.calls
        older, self._older = self._older if is_present else seconds, 0.0
        if seconds:
            part = 1 / (sum(self._counts) or 1)
            for guest, count in zip(self.guests, self._counts, strict=True):
                share = part * count
                guest.account.add_run(
                    seconds * share, is_of_guest=self.is_of_guest, older=older * share
                )

    @property
    def most_unsettled(self) -> float:
        """The most seconds of policy runs that any one guest has not been charged for yet."""
        if not self.is_of_guest:
            return 0.0
        return self._seconds * max(self._counts) / (sum(self._counts) or 1)

    def _act(self) -> None:
        batch = self.batch
        for slab, rows, place in self._moves:
            slab.view(at.ROWS).take(rows, 0, batch.rows[place], "clip")
            slab.view(at.FEATURES).take(rows, 0, batch.features[place], "clip")
            if batch.pushed_actions is not None:
                slab.view(at.GIVEN).take(rows, 0, batch.pushed_actions[place], "clip")
        if self._masks is not None:
            self._mask(self._masks)
        else:  # one guest in each run is looked at, whether it masks choices without branches
            self._looked_at = (self._looked_at + 1) % len(self.sessions)
            self.sessions[self._looked_at].require_no_masks()
        self.policy.act(batch)
        for slab, rows, place in self._moves:
            slab.view(at.ACTIONS)[rows] = batch.actions[place]
            slab.view(at.VALUES)[rows] = batch.values[place]
        # Only sessions of trainings push actions, and only their metadata is noted.
        if batch.pushed_actions is not None and batch.rows["metadata"].any():
            self._has_noted = True
            for session in self.sessions:
                session.note()

    def _mask(self, masks: ChoiceMasks) -> None:
        """Mask the choices of the batch by the metadata of its sessions."""
        masks.begin(len(self.batch))
        if self.batch.rows["metadata"].any():
            self._has_noted = True
            for session, start in zip(self.sessions, self._starts, strict=True):
                session.mask(start)

    def _compacted(self, regions: Sequence[Region], keys: npt.NDArray[np.uint64]) -> Batch:
        by_slab: dict[int, list[Region]] = {}
        for region in regions:
            by_slab.setdefault(id(region.slab), []).append(region)
        shape = regions[0].slab.shape
        total, done = len(keys), 0
        ordered = [region for group in by_slab.values() for region in group]
        for group in by_slab.values():
            rows = np.concatenate([np.arange(r.rows().start, r.rows().stop) for r in group])
            self._moves.append((group[0].slab, rows, slice(done, done + len(rows))))
            done += len(rows)
        keys = _keys(ordered)
        by_region = dict(zip(map(id, ordered), _starts(ordered), strict=True))
        self._starts = [by_region[id(region)] for region in regions]
        return Batch(
            np.zeros(total, ROW),
            np.zeros((total, shape.num_features), np.float32),
            np.zeros((total, shape.num_actions), np.float32),
            np.zeros(total, np.float32),
            keys,
            np.zeros((total, shape.num_actions), np.float32) if shape.training else None,
        )


def _starts(regions: Sequence[Region]) -> list[int]:
    """Return the row of a batch in which the rows of each region begin."""
    counts = [region.count() for region in regions]
    return list(accumulate(counts, initial=0))[:-1]


def _keys(regions: Sequence[Region]) -> npt.NDArray[np.uint64]:
    """Return the key of the session that each row belongs to, u64, [rows]."""
    keys = np.array([region.keys for region in regions], np.uint64)
    return np.repeat(keys, [region.count() for region in regions])


def _view(regions: Sequence[Region], keys: npt.NDArray[np.uint64]) -> Batch | None:
    """Return the rows as one view, if every region is full and follows its predecessor."""
    first = regions[0]
    size = first.slab.shape.rows
    for place, region in enumerate(regions, first.number):
        if region.slab is not first.slab or region.number != place or region.count() != size:
            return None
    start = first.number * size
    return first.slab.batch(start, start + len(regions) * size, keys)


class Batcher:
    """
    Answers the guests of a fleet that are suspended in a submit, round after round.

    The plan of a round is kept as long as the same guests submit the same sessions with as many
    rows and no queue of rows has moved. A guest that lacks the memory for its part of a common run
    is answered by itself for a thousand rounds, so that the others can run.
    """

    def __init__(self, arena: Arena, columns: Columns, lockstep: Lockstep) -> None:
        self._lockstep = lockstep
        lockstep.settle = weakref.WeakMethod(self.settle)
        self._words = arena.word_array
        self._columns = columns
        self._guests: Sequence[CallLoop] = ()
        self._workspace: PolicyWorkspace | None = None  # of their policies
        self._version = -1
        self._groups: list[Group] = []
        self._fitted: set[Shape] = set()  # by sessions, of one row
        none = np.zeros(0, np.intp)
        self._records = self._answers = self._counts = none
        self._seen: Any = None
        self._most = math.inf
        self._rounds = 0
        self._apart: dict[int, int] = {}  # the round up to which a guest is apart, by its number
        self.policy_seconds = 0.0
        """Seconds of policies that the embedder gave, which are not charged."""
        self._limit_run: Callable[[float], None] = _ignore

    def answer(self, guests: Sequence[CallLoop]) -> dict[int, GuestError]:
        """
        Answer every guest of `guests`, each suspended in a submit.

        If a policy refuses the rows of a group, each guest of it is answered by itself, so that
        only the guests with bad rows are refused. Returns the errors of guests that could not be
        answered, by their index in `guests`.
        """
        self._rounds += 1
        if not self._fits(guests):
            self._plan(guests)
        workspace = self._workspace
        assert workspace is not None
        workspace.refused = None  # by a run before
        lockstep = self._lockstep
        is_low = lockstep.spent > lockstep.alert
        failed: list[Group] = []
        for group in self._groups:
            if is_low:
                self._limit(group)
            try:
                ran = group.act()
                if group.is_of_guest:
                    lockstep.spent += ran
                else:
                    self.policy_seconds += ran
                    lockstep.spent += group.noted
            except Exception as error:
                if is_of_handler(error):
                    raise
                failed.append(group)  # each guest is answered by itself below
                self._set_apart(group, workspace)
        if is_low:
            self._limit_run(self._most)
        # One store answers all with 1, Success plus one; guests that failed get their own below.
        self._words[self._answers] = 1
        for group in self._groups:
            if group.traced and group not in failed:
                for guest in group.traced:
                    guest.answered()
        errors = self._answer_alone(failed) if failed else {}
        if lockstep.spent > lockstep.alert:
            self.settle()
        return errors

    @property
    def most_unsettled(self) -> float:
        """The most seconds of policy runs that any one guest has not been charged for yet."""
        return max((group.most_unsettled for group in self._groups), default=0.0)

    def settle(self) -> None:
        """Charge the guests for the runs of policies so far."""
        for group in self._groups:
            group.settle()

    def limit_runs(self, guests: Sequence[CallLoop], seconds: float) -> None:
        """
        Limit each run of a policy to `seconds` of wall time, or to the rest of the call's time.
        """
        self._most, self._limit_run = seconds, guests[0].instance.library.limit_runs
        self._limit_run(seconds)

    def _limit(self, group: Group) -> None:
        """Limit the run of a group; for a single guest, to the time that its call has left."""
        is_alone = len(group.guests) == 1
        group.settle()
        self._limit_run(group.guests[0].account.seconds_left if is_alone else self._most)

    def _set_apart(self, group: Group, workspace: PolicyWorkspace) -> None:
        """Answer a guest that had no memory for its share of a run by itself from now on."""
        number, workspace.refused = workspace.refused, None
        if number is not None and len(group.guests) > 1:
            self._apart[number] = self._rounds + _APART_ROUNDS
            self._version = -1  # there is another plan for the next round

    def _answer_alone(self, failed: Sequence[Group]) -> dict[int, GuestError]:
        """Answer each guest of these groups by itself; returns the errors of failed guests."""
        errors: dict[int, GuestError] = {}
        started = _clock()
        for group in failed:
            for guest in group.guests:
                guest.fiber.suspended_at = _clock()
                try:
                    guest.answer()
                except GuestError as error:
                    errors[self._guests.index(guest)] = error
        self._lockstep.spent += _clock() - started
        return errors

    def held(self) -> Iterator[Ready]:
        """Yield the events that must occur before the guests just answered are resumed."""
        for group in self._groups:
            if (ready := group.sessions[0].held()) is not None:
                yield ready

    def _fits(self, guests: Sequence[CallLoop]) -> bool:
        if self._version != self._columns.version:
            return False
        if guests is not self._guests and list(guests) != list(self._guests):
            return False
        seen = np.concatenate((self._words[self._records], self._words[self._counts]))
        return bool((seen == self._seen).all())

    def _fit(self, regions: Sequence[Region]) -> None:
        """
        Move equal regions, once, side by side into regions that their rows fill.

        They are then one view of the columns, as long as each guest submits as many rows.
        """
        shape, rows = regions[0].slab.shape, regions[0].count()
        session = shape.of(1)
        if session in self._fitted or rows >= shape.rows or len(regions) < 2:
            return
        if any(one.slab.shape != shape or one.count() != rows for one in regions):
            return
        self._fitted.add(session)
        self._columns.fit(shape, rows)
        for region in regions:
            region.move(rows)

    def _plan(self, guests: Sequence[CallLoop]) -> None:
        self.settle()
        self._apart = {one: until for one, until in self._apart.items() if until > self._rounds}
        members: dict[tuple[int, int], _Members] = {}
        counts: list[int] = []
        for guest in guests:
            session, region = guest.submitted(), guest.submitted_region()
            number = guest.instance.number
            key = id(session.policy), number if number in self._apart else -1
            group = members.setdefault(key, (session.policy, [], [], []))
            group[1].append(guest)
            group[2].append(region)
            group[3].append(session)
            counts.append(region.count_word())
        for _, _, regions, _ in members.values():
            self._fit(regions)
        self._groups = [Group(*group) for group in members.values()]
        controls = np.array([guest.control for guest in guests], np.intp)
        self._records = (controls + at.RECORD) >> 2
        self._answers = (controls + at.ANSWER) >> 2
        self._counts = np.array(counts, np.intp)
        self._guests = tuple(guests)  # itself, if it is one
        self._workspace = guests[0].instance.library.workspace
        self._version = self._columns.version
        self._seen = np.concatenate((self._words[self._records], self._words[self._counts]))


def _ignore(_seconds: float) -> None:
    """Set no limit: no call has begun."""
