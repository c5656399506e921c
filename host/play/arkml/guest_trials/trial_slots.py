"""Slots of one class in a trial: each holds an agent of the guest until its episode ends."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

import numpy as np

from arkml.envs.core.decisions import Decision
from arkml.errors import GuestError
from arkml.guest_trials.probe import GuestClass

ABSENT: Final = -1
"""The row of a slot that a submit says nothing about."""

_SET: Final = b"\x01"

RUNS_ON, TERMINATED, TRUNCATED = range(3)
"""The ends of an episode, as EpisodeEnd of guest.proto numbers them."""


@dataclass(slots=True)
class SlotRows:
    """
    Rows of one submit by slot.

    Attributes:
        slots: The slot of each row.
        shown: The row that each slot shows, or ABSENT.
        ends: How the episode of that row ended, by slot.
        finals: By slot, the last row of an agent and its end, if another agent took its slot in
            this submit.
        deciding: The slots of the agents that wait for an action, in push order.
        started: For each slot in `deciding`, 1 if this is its agent's first row.

    """

    shown: list[int]
    ends: list[int]
    slots: list[int]
    finals: dict[int, tuple[int, int]] = field(default_factory=dict)
    deciding: list[int] = field(default_factory=list)
    started: list[int] = field(default_factory=list)


class ClassSlots:
    """
    Agents of one class in the slots of a trial.

    An agent takes the lowest free slot and keeps it until its episode ends; `agents` and `episodes`
    are the numbers of the last agent and episode of each slot, -1 before the first.
    """

    def __init__(self, actor_class: GuestClass) -> None:
        self.actor_class: GuestClass = actor_class
        count = actor_class.slots
        self.agents: list[int] = [-1] * count
        self.episodes: list[int] = [-1] * count
        self.has_ended: bool = False
        """True once an episode has ended."""
        self._slots: dict[int, int] = {}
        self._steady: tuple[bytes, SlotRows] | None = None

    @property
    def has_begun(self) -> bool:
        """True once the class has had an agent."""
        return self.episodes[0] >= 0

    @property
    def first_live(self) -> int:
        """The number of agents that are in the first episode of their slot."""
        return sum(self.episodes[slot] == 0 for slot in self._slots.values())

    def take(self, decision: Decision) -> SlotRows:
        """
        Return the rows of a submit of this class by slot, and assign slots to its new agents.

        Raises GuestError if there are more of them than slots.
        """
        agents = decision.agents.tobytes()
        is_steady = not (  # `any` of an array takes thrice as long
            _SET in decision.started.tobytes()
            or _SET in decision.terminated.tobytes()
            or _SET in decision.truncated.tobytes()
        )
        if is_steady and self._steady is not None and self._steady[0] == agents:
            return self._steady[1]
        rows = self._assigned(decision)
        self._steady = (agents, rows) if is_steady else None
        return rows

    def _assigned(self, decision: Decision) -> SlotRows:
        count = len(self.agents)
        numbers = decision.agents.tolist()
        ends = np.where(decision.terminated, TERMINATED, decision.truncated * TRUNCATED).tolist()
        rows = SlotRows([ABSENT] * count, [RUNS_ON] * count, [ABSENT] * len(numbers))
        new = []
        for row, (number, end) in enumerate(zip(numbers, ends, strict=True)):
            slot = self._slots.get(number)
            if slot is None:
                new.append(row)
            else:
                self._show(rows, row, slot, number, end)
        self._admit(rows, new, numbers, ends)
        for row, end in enumerate(ends):
            if end == RUNS_ON:
                rows.deciding.append(rows.slots[row])
        starts = decision.started[~decision.ended]
        rows.started = starts.astype(int).tolist()
        return rows

    def _show(self, rows: SlotRows, row: int, slot: int, number: int, end: int) -> None:
        rows.shown[slot], rows.ends[slot], rows.slots[row] = row, end, slot
        if end != RUNS_ON:
            self._slots.pop(number, None)
            self.has_ended = True

    def _admit(self, rows: SlotRows, new: list[int], numbers: list[int], ends: list[int]) -> None:
        """Give new agents the lowest free slots. Raises GuestError if there are too few."""
        taken = set(self._slots.values())
        free = [slot for slot in range(len(self.agents)) if slot not in taken]
        if len(new) > len(free):
            raise GuestError(
                f"{self.actor_class.behavior.name} has {len(taken) + len(new)} agents at once,"
                f" where a trial has {len(self.agents)} slots of {self.actor_class.name}: declare"
                ' "slots" in the spec of the behavior'
            )
        for row, slot in zip(new, free, strict=False):
            if rows.shown[slot] != ABSENT:
                rows.finals[slot] = rows.shown[slot], rows.ends[slot]
            self._slots[numbers[row]] = slot
            self.agents[slot] = numbers[row]
            self.episodes[slot] += 1
            self._show(rows, row, slot, numbers[row], ends[row])
