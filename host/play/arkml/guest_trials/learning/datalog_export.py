"""
Export of logged trials as demonstrations: rows of actors' observations, actions and rewards.

A row is one tick of one actor. Its reward is the previous tick's, which led to the row. An actor's
rows end with its own last action: a default action does not count as its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.demonstrations.dataset import (
    MOST_BYTES,
    DemonstrationSet,
    checked,
    outside,
    require_choices,
)
from arkml.guest_trials.learning.vectors import Vectors
from arkml.trials.core.error import TrialError
from arkml.trials.core.hosting import ActionNote
from arkml.trials.datalog.message_types import Spaces
from arkml.trials.datalog.reader import DatalogReader, TrialRecord
from arkml.trials.datalog.samples import TickSample, observation_in, samples
from arkml.trials.wire.common_pb2 import ActorParams, TrialState

_TERMINATING = TrialState.Name(TrialState.TERMINATING)


@dataclass(slots=True)
class _ActorRows:
    """The rows of one actor in one trial, while they are collected."""

    index: int
    name: str
    features: list[list[float]] = field(default_factory=list)
    actions: list[list[float]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    last_tick: int | None = None  # the tick of the last row, which has no action of its own
    end: EpisodeState = EpisodeState.RUNNING


class DemonstrationExport:
    """
    Collects trials whose chosen actors all have the message types of one class.

    `spaces` are the types of observations and actions by actor class; `actor` is the name or the
    class of the actors to export, empty for all of them.
    """

    def __init__(self, spaces: Mapping[str, Spaces], actor: str = "") -> None:
        self._spaces = spaces
        self._wanted = actor
        self._class = ""
        self._vectors: tuple[Vectors, Vectors] | None = None  # for observations, and for actions
        self._rows: list[_ActorRows] = []
        self._values = 0

    def add(self, reader: DatalogReader, trial: TrialRecord) -> None:
        """Add a trial. Raises TrialError if it cannot be exported."""
        params = reader.params(trial)
        actors = [
            _ActorRows(index, actor.name)
            for index, actor in enumerate(params.actors)
            if self._wanted in ("", actor.name, actor.actor_class)
        ]
        if not actors:
            known = ", ".join(f"{one.name} ({one.actor_class})" for one in params.actors)
            raise TrialError(f"trial {trial.id!r} has no actor {self._wanted!r}: it has {known}")
        vectors = self._choose_types(trial, [params.actors[actor.index] for actor in actors])
        is_soft = False
        earlier: TickSample | None = None
        for sample in samples(reader, trial, params):
            is_soft |= _TERMINATING in sample.states
            for actor in actors:
                if actor.last_tick is None and sample.observations is not None:
                    where = f"of {actor.name!r} in tick {sample.tick} of trial {trial.id!r}"
                    self._take(actor, sample, earlier, vectors, where)
            earlier = sample
        has_end = is_soft and not 0 < params.max_steps < trial.ticks
        for actor in actors:
            if actor.last_tick is not None:
                is_end = has_end and actor.last_tick == trial.ticks - 1
                actor.end = EpisodeState.TERMINAL if is_end else EpisodeState.INTERRUPTED
        self._rows += [actor for actor in actors if len(actor.features) > 1]

    def demonstrations(self) -> DemonstrationSet:
        """Return the rows of all trials. Raises TrialError if there are none, and UsageError."""
        if not self._rows or self._vectors is None:
            raise TrialError(
                "there is nothing to export: no actor has acted, or observations or actions were"
                " excluded from the log"
            )
        actions = self._vectors[1]
        columns = [_columns(agent, rows, actions.width) for agent, rows in enumerate(self._rows)]
        joined = {name: np.concatenate([one[name] for one in columns]) for name in columns[0]}
        branches, source = actions.branches, "the log"
        rows, warnings = checked(source, joined)
        require_choices(source, rows.action, branches)
        warnings += outside(source, rows.action, branches)
        return DemonstrationSet(rows, branches, warnings=tuple(warnings))

    def _take(
        self,
        actor: _ActorRows,
        sample: TickSample,
        earlier: TickSample | None,
        vectors: tuple[Vectors, Vectors],
        where: str,
    ) -> None:
        """Add the row of an actor in one tick, the last one if it did not act in it."""
        given = sample.actions.get(actor.name)
        action = given.content if given is not None and given.note == ActionNote.GIVEN else None
        if action is None:
            actor.last_tick = sample.tick
            if not actor.features:
                return
        observations, actions = vectors
        content = observation_in(sample.observations, actor.index, where)
        actor.features.append(observations.row(content, f"the observation {where}"))
        reward = earlier.rewards.get(actor.name) if earlier is not None else None
        is_first = len(actor.features) == 1
        actor.rewards.append(0.0 if is_first or reward is None else reward.value)
        if action is not None:
            actor.actions.append(actions.row(action, f"the action {where}"))
        self._values += observations.width + actions.width
        if self._values * 4 > MOST_BYTES:
            raise TrialError(f"the rows are more than {MOST_BYTES:,} bytes: export fewer trials")

    def _choose_types(
        self, trial: TrialRecord, actors: Sequence[ActorParams]
    ) -> tuple[Vectors, Vectors]:
        classes = {actor.actor_class for actor in actors} | ({self._class} - {""})
        if len(classes) > 1:
            raise TrialError(
                f"the actors are of the classes {', '.join(sorted(classes))}: choose one of them"
                " with --actor"
            )
        name = classes.pop()
        if name not in self._spaces:
            known = ", ".join(self._spaces) or "none"
            raise TrialError(
                f"trial {trial.id!r} has actors of class {name!r}, and the spec has {known}"
            )
        if self._vectors is None:
            spaces = self._spaces[name]
            self._class = name
            self._vectors = Vectors(spaces.observation), Vectors(spaces.action, has_choices=True)
        return self._vectors


def _columns(agent: int, rows: _ActorRows, width: int) -> dict[str, npt.NDArray[Any]]:
    count = len(rows.features)
    state = np.full(count, EpisodeState.RUNNING, np.uint8)
    state[0], action = EpisodeState.INITIAL, np.zeros((count, width))
    action[: len(rows.actions)] = rows.actions
    state[-1] = rows.end
    return {
        "agent": np.full(count, agent, np.uint64),
        "step": np.arange(count),
        "state": state,
        "reward": np.array(rows.rewards),
        "features": np.array(rows.features),
        "action": action,
    }
