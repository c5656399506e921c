"""The rows of one trial for learning, made of its slots' spans, and rows as columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from google.protobuf.message import DecodeError

from arkml.batches import Floats
from arkml.envs.core.specs import Actions
from arkml.guest_trials.behavior_actions import ActionRule
from arkml.guest_trials.learning.learned_ticks import SlotTick, TrialTicks
from arkml.guest_trials.learning.spans import Applied, SpanRow, SpanRules, Spans
from arkml.hive.protocol.rows import RowColumns
from arkml.trials.core.error import TrialError
from arkml.trials.core.outputs import Entry
from arkml.trials.datalog.reader import LoggedEntry
from arkml.trials.wire.common_pb2 import TrialParams
from arkml.trials.wire.guest_pb2 import ActionSpace, GuestConfig, Observation


class ClassRow(NamedTuple):
    """A row of one slot, with the name of its actor class."""

    actor_class: str
    row: SpanRow


class TrialRows:
    """
    Makes the rows of a trial from its entries, in the order in which they were added.

    Args:
        trial_id: The id of the trial.
        began_ns: The time of its start, which distinguishes it from other trials with its id.
        params: The parameters of the trial.
        rules: The rules of the actor classes to learn from, or of single actors by their names.

    Raises:
        TrialError: The parameters are of a trial without a guest.

    """

    def __init__(
        self, trial_id: str, began_ns: int, params: TrialParams, rules: Mapping[str, SpanRules]
    ) -> None:
        spaces = action_spaces(params)
        self._spans: dict[int, tuple[str, Spans]] = {}
        for index, actor in enumerate(params.actors):
            rule = rules.get(actor.name, rules.get(actor.actor_class))
            if rule is None:
                continue
            if actor.actor_class not in spaces:
                raise TrialError(
                    f"trial {trial_id!r} says nothing about the actions of {actor.actor_class!r}"
                )
            actions = ActionRule(spaces[actor.actor_class])
            name = f"{trial_id}\n{began_ns}\n{actor.name}"
            spans = Spans(name, actions.width, rule, _applied(actions))
            self._spans[index] = actor.actor_class, spans
        self._ticks = TrialTicks(params, self._spans)

    def add(self, entry: Entry | LoggedEntry) -> list[ClassRow]:
        """Add an entry, and return the rows that it completes. Raises TrialError."""
        return self._rows(self._ticks.add(entry))

    def end(self) -> list[ClassRow]:
        """Return the rows that the end of the trial completes. Raises TrialError."""
        rows = self._rows(self._ticks.end())
        for name, spans in self._spans.values():
            rows += [ClassRow(name, row) for row in spans.close()]
        return rows

    def _rows(self, ticks: Sequence[SlotTick]) -> list[ClassRow]:
        rows: list[ClassRow] = []
        for tick in ticks:
            name, spans = self._spans[tick.actor]
            rows += [ClassRow(name, row) for row in spans.take(tick)]
        return rows


def action_spaces(params: TrialParams) -> dict[str, Actions]:
    """
    Return the declared actions of each actor class of a trial with a guest.

    Raises TrialError for the parameters of a trial that has no guest.
    """
    config = GuestConfig()
    try:
        config.ParseFromString(params.environment.config.content)
    except DecodeError:
        raise TrialError("the configuration of the environment is not that of a guest") from None
    return {space.actor_class: _actions(space) for space in config.action_spaces}


def as_columns(rows: Sequence[SpanRow]) -> RowColumns:
    """Return one or more rows as columns, without metadata."""
    features, actions = len(rows[0].features), len(rows[0].action)
    columns = RowColumns.empty(len(rows), features, actions)
    columns.agent[:] = [row.agent for row in rows]
    columns.step[:] = [row.step for row in rows]
    columns.version[:] = [row.version for row in rows]
    columns.reward[:] = [row.reward for row in rows]
    columns.state[:] = [row.state for row in rows]
    columns.features[:] = [row.features for row in rows]
    columns.action[:] = [row.action for row in rows]
    return columns


def _actions(space: ActionSpace) -> Actions:
    low, high = tuple(space.low), tuple(space.high)
    if len(low) != len(high):
        raise TrialError(
            f"{space.actor_class!r} has {len(low)} lower bounds and {len(high)} upper ones"
        )
    return Actions(len(low), low, high, tuple(space.branches))


def _applied(rule: ActionRule) -> Applied:
    choices = sum(rule.branches)

    def applied(content: bytes, observed: Observation) -> Floats:
        if len(observed.allowed) not in (0, choices):
            raise TrialError(f"an observation masks {len(observed.allowed)} of {choices} choices")
        return rule.applied(content, np.array(observed.allowed, bool) if observed.allowed else None)

    return applied
