"""
A record of the inputs of an instance since its newest saved state, from which a copy can be made.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import NamedTuple, TypeAlias

import numpy as np

from arkml.batches import Floats
from arkml.envs.core.agent_tracker import SavedTracker
from arkml.envs.core.experiments import SavedExperiments
from arkml.envs.core.world import SavedWorld
from arkml.guests.counts import Statistics
from arkml.guests.instance import InstanceState
from arkml.limits import KIB, MIB
from arkml.runtime.game_answers import GameAnswers

MOST_HISTORY = 100_000
"""Entries that are kept of an instance of which there is no state."""

_MOST_BYTES = 64 * MIB  # of them
_MOST_STEPS = 4_096  # from one state to the next, and to the first without a copy
_MOST_STEP_BYTES = 4 * MIB  # likewise: of the entries
_LEAST_STEPS = 8  # to the first state after a copy
_STEP_BYTES = 64 * KIB  # of memory, which are copied in the time of a step, about
_LOOK = 64  # entries from one look at their bytes to the next
_NEVER = sys.maxsize


class InstanceOrigin(NamedTuple):
    """The origin of an instance: its seed, the number of its first agent, and its pace."""

    seed: int
    first_agent: int
    nanoseconds: int


class FrameState(NamedTuple):
    """
    An immutable copy of the state of an instance at the beginning of a frame.

    Attributes:
        guest: The state of the guest.
        statistics: The statistics of the guest.
        warned: Kinds of warnings that were logged.
        world: The clock and the random numbers.
        experiments: The experiments.
        trackers: The agents of each session, by the session's key.
        episodes: The steps of each agent in its episode, where they are limited.
        first_agent: The number of the next agent that begins.
        nanoseconds: Length of a frame.
        calls_left: Calls without a submit that the present step may still take.

    """

    guest: InstanceState
    statistics: Statistics
    warned: frozenset[str]
    world: SavedWorld
    experiments: SavedExperiments
    trackers: tuple[tuple[int, SavedTracker], ...]
    episodes: dict[int, int]
    first_agent: int
    nanoseconds: int
    calls_left: int


class Message(NamedTuple):
    """A message, with its sender, that the guest was handed in the present step."""

    content: bytes
    sender: str


class Paced(NamedTuple):
    """A change of the pace: nanoseconds of each frame from the next answer on."""

    nanoseconds: int


class Numbered(NamedTuple):
    """A change of agents' numbers: the number of the next agent, from the next answer on."""

    first_agent: int


Entry: TypeAlias = "Floats | Message | Paced | Numbered"


class RepeatedStep(NamedTuple):
    """
    One step to repeat, or the rest of a step after a saved state.

    Attributes:
        actions: The actions of all rows, None for a step that was answered before.
        messages: Messages that the guest was handed in the step.
        pace: Nanoseconds of a frame, None if unchanged.
        first_agent: The number of the next agent, None if it follows from the previous steps.

    """

    actions: Floats | None
    messages: tuple[Message, ...]
    pace: int | None
    first_agent: int | None


class History:
    """
    A record of one instance's inputs since it began, or since its newest saved state.

    The state is saved from time to time, so that a copy has few steps to repeat. Before the first
    copy saves are far apart, and an environment that is never copied pays for almost none. After a
    copy the first save comes soon, and the distance doubles with each save: the next copy repeats
    at most about half of the steps since.

    Args:
        origin: How the instance began.
        state: The state in which the record begins, None at the origin.
        answers: A record of the answers of the game's functions, None for a guest that calls none.
        has_states: False for a guest whose state cannot be saved, so that all its steps are
            repeated.

    """

    def __init__(
        self,
        origin: InstanceOrigin,
        *,
        state: FrameState | None = None,
        answers: GameAnswers | None = None,
        has_states: bool = True,
    ) -> None:
        self.origin = origin
        self.state = state
        self.answers = answers
        self.is_whole = True
        """False once it was too much to be kept: there is no copy until the next state."""
        self.is_due = False
        """True if the instance is to be saved at the beginning of its next frame."""
        self._has_states = has_states
        self._entries: list[Entry] = []
        self._pace = origin.nanoseconds if state is None else state.nanoseconds
        self._between = _MOST_STEPS
        self._due_bytes = _MOST_STEP_BYTES
        self._bytes = self._looked = 0  # of the entries that were looked at, and their number
        self._due_at = self._look_at = 0
        self._be_due(_MOST_STEPS)

    def __len__(self) -> int:
        """Return the number of entries."""
        return len(self._entries)

    @property
    def least_steps(self) -> int:
        """Number of steps that take about as long as saving the state of the instance."""
        size = 0 if self.state is None else self.state.guest.nbytes
        return _LEAST_STEPS + size // _STEP_BYTES

    @property
    def pace(self) -> int:
        """Nanoseconds of a frame since the last answer."""
        return self._pace

    def answered(self, actions: Floats, pace: int) -> None:
        """Record the actions of all rows of a step, float32, [rows, num_actions], and the pace."""
        entries = self._entries
        if pace != self._pace:
            self._pace = pace
            entries.append(Paced(pace))
        entries.append(actions)
        if len(entries) >= self._look_at:
            self._look()

    def handed(self, content: bytes, sender: str) -> None:
        """Record a message that the guest is handed now."""
        self._entries.append(Message(content, sender))

    def number(self, first_agent: int) -> None:
        """Record that agents of the next step are numbered from another number on."""
        self._entries.append(Numbered(first_agent))

    def begin_with(self, state: FrameState) -> None:
        """Begin with a state that was saved now, and drop all earlier records."""
        self.state, self.is_whole = state, True
        self._forget()
        self._between = min(2 * self._between, _MOST_STEPS)
        self._due_bytes = _MOST_STEP_BYTES
        self._be_due(self._between)

    def put_off(self) -> None:
        """Postpone the next save, because the state could not be saved now."""
        self._due_bytes *= 2
        self._be_due(2 * len(self._entries) + _LEAST_STEPS)

    def wish(self) -> None:
        """Ask for a save at the beginning of the next frame, if the state can be saved at all."""
        self._be_due(0)

    def wait(self) -> None:
        """Save no state until `wish` or `follow` is called."""
        self._be_due(_NEVER)

    def follow(self, other: History) -> None:
        """Take over the record of another instance that has come to the same point."""
        self.state, self._entries = other.state, list(other._entries)
        self._bytes, self._looked = other._bytes, other._looked
        if self.answers is not None and other.answers is not None:
            self.answers.kept, self.answers.size = list(other.answers.kept), other.answers.size
        self.note_copy()

    def note_copy(self) -> None:
        """
        Save the next state soon, because an environment that was copied is likely copied again.
        """
        self._between = self.least_steps
        self._be_due(self._between)

    def runs(self) -> Iterator[RepeatedStep]:
        """Yield the steps to repeat; the first may be the rest of a step after the saved state."""
        actions: Floats | None = None
        messages: list[Message] = []
        upcoming: tuple[int | None, int | None] = None, None
        present: tuple[int | None, int | None] = None, None
        for entry in self._entries:
            if isinstance(entry, Message):
                messages.append(entry)
            elif isinstance(entry, Paced):
                upcoming = entry.nanoseconds, upcoming[1]
            elif isinstance(entry, Numbered):
                upcoming = upcoming[0], entry.first_agent
            else:
                yield RepeatedStep(actions, tuple(messages), *present)
                actions, messages = entry, []
                present, upcoming = upcoming, (None, None)
        yield RepeatedStep(actions, tuple(messages), *present)

    def _be_due(self, entries: int) -> None:
        """Have the next state when there are so many entries."""
        count = len(self._entries)
        self._due_at = entries
        self.is_due = self._has_states and count >= entries
        self._look_at = min(entries, count + _LOOK)

    def _look(self) -> None:
        """Look at how much there is: a state is due then, or it is too much to be kept."""
        entries = self._entries
        for entry in entries[self._looked :]:
            if isinstance(entry, Message):
                self._bytes += len(entry.content)
            elif isinstance(entry, np.ndarray):
                self._bytes += entry.nbytes
        count = self._looked = len(entries)
        size = self._bytes + (0 if self.answers is None else self.answers.size)
        if count > MOST_HISTORY or size > _MOST_BYTES:
            self._forget()
            self.is_whole = False
            self._be_due(_MOST_STEPS)
            return
        self._look_at = count + _LOOK if count >= self._due_at else min(self._due_at, count + _LOOK)
        if count >= self._due_at or size > self._due_bytes:
            self.is_due = self._has_states

    def _forget(self) -> None:
        self._entries, self._bytes, self._looked = [], 0, 0
        if self.answers is not None:
            self.answers.forget()
