"""Guests that are gone on with together, as long as each does what it did before."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats
from arkml.envs.core.env_instance import EnvInstance
from arkml.envs.core.fleet_step import FleetStep
from arkml.envs.core.single_rows import SingleRows
from arkml.envs.core.world import Pace
from arkml.guests.instance import SharedResources
from arkml.runtime.columns.region import Region
from arkml.runtime.exported_function import ExportedFunction
from arkml.runtime.parked import Parked, Positions

_RUNNING = np.uint32(EpisodeState.RUNNING)


class Left(Enum):
    """Where a guest is that did something else."""

    SUBMITTED = "submitted"  # in a submit of the session that it submitted before
    ENDED = "ended"  # its call has ended
    SUSPENDED = "suspended"  # in something that nobody has looked at


class BatchStepper:
    """
    The instances of a fleet, None for those that are over, and where each of them is parked.

    `acts` are those whose agent waits for an action, bool, [guests], and `ids` what the guests call
    these agents, uint64, [guests].
    """

    def __init__(
        self, name: str, lives: Sequence[EnvInstance | None], resources: SharedResources, pace: Pace
    ) -> None:
        self.acts = np.zeros(len(lives), bool)
        self.ids = np.zeros(len(lives), np.uint64)
        self._name = name
        self._lives = lives
        self._resources = resources
        self._pace = pace
        self._owed = np.zeros(len(lives), np.int64)  # nanoseconds that clocks are behind
        self._planned: list[EnvInstance | None] = []
        self._calls: list[ExportedFunction | None] = []
        self._loops: list[ExportedFunction | None] = []
        self._version = -1
        self.settle(range(len(lives)))

    def settle(self, positions: Sequence[int]) -> None:
        """These guests were gone on with by themselves, and are parked again or over."""
        is_new = not self._planned
        for position in positions:
            life = self._lives[position]
            pending = None if life is None else life.pending
            self.acts[position] = pending is not None and len(pending.decision.deciding) > 0
            if pending is not None and self.acts[position]:
                decision = pending.decision
                self.ids[position] = pending.batch.rows["id"][decision.places[~decision.ended][0]]
            is_new = is_new or not self._is_as_planned(position)
            if not is_new:
                self._calls[position] = None if life is None else life.stepping.entry
        if is_new:
            self._plan()

    def waiting(self, positions: Positions) -> Positions:
        """Those that wait with one row in their queue, as it takes to go on together."""
        if self._version != self._resources.columns.version:
            self._plan()
        found: Positions = positions[self._rows.single(positions)]
        return found

    def write(self, actions: Floats) -> None:
        """Answer whoever waits with one row: float32, [guests, num_actions]."""
        self._rows.write(actions)

    def run(self, positions: Positions) -> tuple[Positions, list[tuple[int, Left]]]:
        """
        Go on with guests whose answers are written, to their next submit.

        Returns those that submit one row as before, and where the others are.
        """
        parked = self._parked
        parked.answer(positions)
        call_guard = self._resources.call_guard
        call_guard.begin(self._name)
        try:
            before = parked.allow(positions, 2)  # the one that it is in, and the next
            ended, suspended = self._go_on(positions.tolist())
            began = (parked.frames(positions) - before).astype(np.int64)
            if ended:
                began[np.isin(positions, ended) & (began > 0)] -= 1
                ended, more = self._repeat(ended)
                suspended += more
            self._owed[positions] += began * self._pace.nanoseconds
        finally:
            call_guard.end()
        left = [(position, Left.ENDED) for position in ended]
        found = np.array(suspended, np.intp)
        if self._version != self._resources.columns.version:  # a queue has moved
            return found[:0], left + [(position, Left.SUSPENDED) for position in found.tolist()]
        as_before = parked.submits(found) & self._rows.single(found)
        as_before &= parked.records(found) == self._records[found]
        if not as_before.all():
            left += [(position, Left.SUSPENDED) for position in found[~as_before].tolist()]
            found = found[as_before]
        return found, left

    def show(self, positions: Positions, step: FleetStep) -> Positions:
        """Show what guests submitted whose agents just run on; returns the other ones."""
        rows = self._rows.rows()
        steady = (rows["state"] == _RUNNING) & (rows["id"] == self.ids) & (rows["metadata"] == 0)
        chosen = positions[steady[positions]]
        if len(chosen) == len(rows):
            self._rows.read(step.observations)
            step.rewards[:] = rows["reward"]
            step.present[:] = True
            return positions[:0]
        features = np.zeros_like(step.observations)
        self._rows.read(features)
        step.observations[chosen] = features[chosen]
        step.rewards[chosen] = rows["reward"][chosen]
        step.present[chosen] = True
        others: Positions = positions[~steady[positions]]
        return others

    def catch_up(self, position: int) -> None:
        """
        Tell a guest's clock of the frames that it was in with others.

        Its call ends with this frame: what comes after is for whoever goes on with it to begin.
        """
        life = self._lives[position]
        assert life is not None
        self._parked.allow(np.array([position]), 1)
        if self._owed[position]:
            life.world.skip(int(self._owed[position]))
            self._owed[position] = 0

    def _repeat(self, ended: list[int]) -> tuple[list[int], list[int]]:
        """
        Call the frames again of guests whose frame has ended, from now on in one call.

        Returns those whose call has ended, also one that repeats frames: in one of them nothing was
        submitted. The others are suspended.
        """
        parked = self._parked
        frames = [position for position in ended if self._is_in_frame(position)]
        called = parked.call_again(frames, self._calls, self._loops)
        if not called:
            return ended, []
        for position in called:
            self._calls[position] = self._loops[position]
            life = self._lives[position]
            assert life is not None
            life.stepping.entry = self._loops[position]
        parked.allow(np.array(called), 1)
        self._owed[called] += self._pace.nanoseconds
        over, suspended = self._go_on(called)
        repeated = set(called)
        rest = [position for position in ended if position not in repeated]
        return rest + over, suspended

    def _is_in_frame(self, position: int) -> bool:
        life = self._lives[position]
        return life is not None and life.is_in_frame

    def _go_on(self, positions: Sequence[int]) -> tuple[list[int], list[int]]:
        """Run guests; once more where a turn that began long ago is over at once."""
        ended, suspended = self._parked.go_on(positions)
        tired = self._parked.tired(np.array(suspended, np.intp))
        if tired.any():
            again = [position for position, is_so in zip(suspended, tired, strict=True) if is_so]
            rest = [position for position, is_so in zip(suspended, tired, strict=True) if not is_so]
            more, suspended = self._parked.go_on(again)
            return ended + more, rest + suspended
        return ended, suspended

    def _is_as_planned(self, position: int) -> bool:
        life = self._lives[position]
        if life is not self._planned[position]:
            return False
        if life is None:
            return True
        here = np.array([position])
        return bool(self._parked.records(here) == self._records[here])

    def _plan(self) -> None:
        """Note where everybody is parked."""
        lives, arena = self._lives, self._resources.columns.arena
        regions: list[Region | None] = [
            None if life is None or life.pending is None else life.calls.submitted_region()
            for life in lives
        ]
        self._parked = Parked(
            arena,
            [None if life is None else life.calls.fiber for life in lives],
            [0 if life is None else life.calls.control for life in lives],
        )
        self._records = self._parked.records(np.arange(len(lives)))
        self._calls = [None if life is None else life.stepping.entry for life in lives]
        self._loops = [None if life is None else life.loop for life in lives]
        self._rows = SingleRows(arena, regions)
        self._planned = list(lives)
        self._version = self._resources.columns.version
