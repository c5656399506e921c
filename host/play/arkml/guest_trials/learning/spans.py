"""
Spans of ticks in which one player or policy version acted for a slot, as rows of a run.

A span begins with an Initial row, as an episode does, and counts as one agent of the run. It ends
with the guest's agent, or is Interrupted when another source acts. No transition has its two rows
in two spans.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.batches import Floats
from arkml.guest_trials.learning.learned_ticks import SlotTick
from arkml.hive.protocol.rows import RowKind
from arkml.trials.core.hosting import ActionNote
from arkml.trials.datalog.samples import LoggedAction
from arkml.trials.wire.guest_pb2 import EpisodeEnd, Observation

HOLD: Final = 0.25
"""Seconds for which a player's held action counts as the player's own."""

_RUNS_ON = EpisodeEnd.RUNS_ON
_ENDS = {
    EpisodeEnd.TERMINATED: EpisodeState.TERMINAL,
    EpisodeEnd.TRUNCATED: EpisodeState.INTERRUPTED,
}

Applied = Callable[[bytes, Observation], Floats]
"""Returns the floats that a guest gets for a serialized action: float32, [A]."""


class Source(NamedTuple):
    """
    The source of actions, a player or a version of the run's policy, and the kind of its rows.
    """

    kind: RowKind
    origin: str
    version: int = 0


class SpanRow(NamedTuple):
    """
    A row of a span; the fields correspond to `hive.protocol.rows.RowColumns`.

    features: float32, [F]. action: float32, [A].
    """

    kind: RowKind
    agent: int
    step: int
    version: int
    reward: float
    state: EpisodeState
    features: Floats
    action: Floats


@dataclass(frozen=True, slots=True)
class SpanRules:
    """
    The rule that selects the ticks to learn from.

    Ticks of players are always learned from, as demonstrations. With `run`, the name of a run,
    ticks in which a version of its policy acted are learned from, too, as training rows of that
    run. With `is_aggregated` the rewards are the aggregated ones of all senders, not the guest's
    own.
    """

    is_aggregated: bool = False
    run: str = ""

    def source(self, action: LoggedAction | None) -> Source | None:
        """Return the source of an action to learn from, None for an action not to learn from."""
        if action is None:
            return None
        note, _, idle = action.note.partition(" ")
        if note == ActionNote.GIVEN or (note == ActionNote.HELD and _seconds(idle) <= HOLD):
            return Source(RowKind.DEMONSTRATION, action.origin)
        if self.run and note == ActionNote.STAND_IN:
            name, _, version = action.origin.rpartition("@")
            if name == self.run and version.isdecimal():
                return Source(RowKind.TRAINING, action.origin, int(version))
        return None


@dataclass(slots=True)
class _Span:
    """
    An open span: its source, the guest's number of the agent, and the run's number of the agent.

    `pending` is the last row, which waits until it is known that the span continues.
    """

    source: Source
    guest_agent: int
    agent: int
    step: int = 0
    pending: SpanRow | None = None


@dataclass(slots=True)
class Spans:
    """
    The spans of one slot, at most one of which is open.

    `name` is unique to the slot among all slots of all trials: the run numbers agents by it, so the
    numbers are the same wherever the rows are made. `width` is the number of floats of an action.
    """

    name: str
    width: int
    rules: SpanRules
    applied: Applied
    _open: _Span | None = None
    _reward: float = 0.0  # since the last row
    _counts: dict[RowKind, int] = field(default_factory=dict)

    def take(self, tick: SlotTick) -> list[SpanRow]:
        """Add a tick, and return the rows that it completes."""
        observed = tick.observation
        self._reward += tick.aggregated if self.rules.is_aggregated else tick.own
        rows: list[SpanRow] = []
        if self._open is not None:
            rows += self._continue(self._open, observed, tick.action)
        if self._open is None and observed.present and observed.end == _RUNS_ON:
            self._begin(observed, tick.action)
        return rows

    def close(self) -> list[SpanRow]:
        """End the open span at its last observation, and return its last row."""
        span, self._open = self._open, None
        last = None if span is None else span.pending
        if last is None or last.state is EpisodeState.INITIAL:  # one row is not a transition
            return []
        return [last._replace(state=EpisodeState.INTERRUPTED, action=np.zeros_like(last.action))]

    def _continue(
        self, span: _Span, observed: Observation, action: LoggedAction | None
    ) -> list[SpanRow]:
        if observed.final_end != _RUNS_ON:
            return self._end(span, observed.final_values, _ENDS[observed.final_end])
        if observed.end != _RUNS_ON and observed.agent == span.guest_agent:
            return self._end(span, observed.values, _ENDS[observed.end])
        if not observed.present:
            return []
        if observed.agent != span.guest_agent:
            return self.close()
        if self.rules.source(action) != span.source:
            return self._end(span, observed.values, EpisodeState.INTERRUPTED)
        assert action is not None
        floats = self.applied(action.content, observed)
        return self._push(span, EpisodeState.RUNNING, observed.values, floats)

    def _begin(self, observed: Observation, action: LoggedAction | None) -> None:
        source = self.rules.source(action)
        if source is None:
            return
        assert action is not None
        number = self._counts.get(source.kind, 0)
        self._counts[source.kind] = number + 1
        agent = _agent_number(f"{self.name}\n{source.kind:d}\n{number}")
        self._open = span = _Span(source, observed.agent, agent)
        self._reward = 0.0  # it led to a row of another agent of the run
        floats = self.applied(action.content, observed)
        self._push(span, EpisodeState.INITIAL, observed.values, floats)

    def _end(self, span: _Span, values: Sequence[float], state: EpisodeState) -> list[SpanRow]:
        """Close a span with a last row, and return its last rows."""
        self._open = None
        rows = self._push(span, state, values, None)
        return rows if span.pending is None else [*rows, span.pending]

    def _push(
        self, span: _Span, state: EpisodeState, values: Sequence[float], action: Floats | None
    ) -> list[SpanRow]:
        """
        Make a row the pending one, and return the row that was pending.

        A row that is not finite is left out; it counts as a step, so that the rows around it are
        not consecutive (decision 7).
        """
        before = [] if span.pending is None else [span.pending]
        with np.errstate(over="ignore"):
            reward = float(np.float32(self._reward))
        self._reward = 0.0
        features = np.array(values, np.float32)
        source, step = span.source, span.step
        span.step += 1
        span.pending = None
        if math.isfinite(reward) and np.isfinite(features).all():
            if action is None:
                action = np.zeros(self.width, np.float32)
            span.pending = SpanRow(
                source.kind, span.agent, step, source.version, reward, state, features, action
            )
        return before


def _agent_number(name: str) -> int:
    return int.from_bytes(hashlib.blake2b(name.encode(), digest_size=8).digest(), "little")


def _seconds(text: str) -> float:
    """Return the seconds in a note, infinity if there are none."""
    try:
        return float(text)
    except ValueError:
        return math.inf
