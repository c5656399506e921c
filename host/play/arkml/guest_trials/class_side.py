"""One class of actors of a trial, between submits of its guest and messages of its actors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.decisions import Decision
from arkml.errors import GuestError
from arkml.guest_trials.behavior_actions import ActionRule
from arkml.guest_trials.guest_trials_options import StandInActions, StandInRows
from arkml.guest_trials.probe import GuestClass
from arkml.guest_trials.trial_slots import (
    RUNS_ON,
    ClassSlots,
    ObservationWriter,
    RewardWriter,
    SlotRows,
    allowed_choices,
)
from arkml.trials.core.hosting import Acted, HostedRewards, StandIn

_STATES = np.array([EpisodeState.RUNNING, EpisodeState.INITIAL], np.uint32)


@dataclass(slots=True)
class Offer:
    """
    Actions of stand-ins for the agents of one submit.

    applied: float32, [m, num_actions], settled, in push order. contents: their messages. stand_ins:
    one for each actor of the trial.
    """

    applied: Floats
    contents: list[bytes]
    stand_ins: Sequence[StandIn]


@dataclass(slots=True)
class _Steady:
    """Default actions for the agents of `rows`, which are the same from submit to submit."""

    rows: SlotRows
    offer: Offer


class ClassSide:
    """
    The agents of one class: their slots, their observations, and the actions offered to them.

    Args:
        actor_class: The class.
        actors: The index in the trial of each slot's actor.
        count: The number of actors of the trial.
        key: The key of the first slot; the keys of the other slots follow.
        environment: The name of the environment, which its rewards carry.

    Attributes:
        rewards: The rewards of the last submit.
        is_waiting: Whether agents of the last submit wait for an action.

    """

    def __init__(
        self,
        actor_class: GuestClass,
        actors: Sequence[int],
        count: int,
        key: int,
        environment: str,
    ) -> None:
        self.actor_class: GuestClass = actor_class
        self.slots: ClassSlots = ClassSlots(actor_class)
        self.rewards = HostedRewards((), (), ())
        self.is_waiting = False
        self._writer = ObservationWriter(self.slots)
        self._reward_writer = RewardWriter(actors, environment)
        self._rule = ActionRule(actor_class.behavior.spec.actions)
        self._actors = actors
        self._count = count
        self._key = np.uint64(key)
        self._steady: _Steady | None = None
        self._decision: Decision | None = None
        self._rows: SlotRows | None = None
        self._allowed: Marks | None = None
        self._offer: Offer | None = None

    def take(self, decision: Decision) -> list[bytes]:
        """
        Apply a submit of the class; return the observation of each slot.

        Raises GuestError for a submit whose widths differ from the class's.
        """
        behavior, known = decision.behavior, self.actor_class.behavior
        if behavior is not known and (
            (behavior.num_features, behavior.num_actions) != (known.num_features, known.num_actions)
        ):
            raise GuestError(
                f"{behavior.name!r} has {behavior.num_features} features and"
                f" {behavior.num_actions} actions, where it had {known.num_features} and"
                f" {known.num_actions} when its slots were counted"
            )
        rows = self.slots.take(decision)
        allowed = allowed_choices(decision)
        self._decision, self._rows, self._allowed = decision, rows, allowed
        self.rewards = self._reward_writer.write(rows, decision)
        self.is_waiting = bool(rows.deciding)
        return self._writer.write(rows, decision, allowed)

    @property
    def ended(self) -> list[int]:
        """Actors whose episodes ended with the last submit, in a game that people are told of."""
        rows = self._rows
        if rows is None or self.actor_class.behavior.spec.game is None:
            return []
        slots = [slot for slot, end in enumerate(rows.ends) if end != RUNS_ON]
        return [self._actors[slot] for slot in (*slots, *rows.finals)]

    def absent(self) -> list[bytes]:
        """Return the observation of each slot in a submit of another class."""
        return self._writer.absent()

    def waiting(self) -> StandInRows:
        """Return the agents that wait for an action."""
        decision, rows = self._decision, self._rows
        assert decision is not None
        assert rows is not None
        deciding = self._deciding(rows)
        return StandInRows(
            self.actor_class.name,
            decision.observations[deciding],
            None if self._allowed is None else self._allowed[deciding],
            np.array(rows.deciding, np.uint64) + self._key,
            decision.agents[deciding].astype(np.uint64),
            _STATES[rows.started],
        )

    def offer(self, given: StandInActions | None) -> Sequence[StandIn]:
        """Store actions for `waiting`, None for the default; return one for each actor."""
        rows = self._rows
        assert rows is not None
        if given is None and self._allowed is None:
            if self._steady is None or self._steady.rows is not rows:
                applied = self._rule.defaults(len(rows.deciding), None)
                self._steady = _Steady(rows, self._offered(rows, applied, None))
            self._offer = self._steady.offer
        else:
            deciding = self._deciding(rows)
            allowed = None if self._allowed is None else self._allowed[deciding]
            if given is None:
                applied = self._rule.defaults(len(rows.deciding), allowed)
            else:
                applied = self._rule.settled(given.actions, allowed)
            self._offer = self._offered(rows, applied, given)
        return self._offer.stand_ins

    def offered(self) -> Floats:
        """Return the actions that were offered, float32, [m, num_actions], in push order."""
        assert self._offer is not None
        return self._offer.applied

    def applied(self, acted: Sequence[Acted]) -> Floats:
        """Return the actions that were applied, float32, [m, num_actions], in push order."""
        offer, rows, actors = self._offer, self._rows, self._actors
        assert offer is not None
        assert rows is not None
        contents = [acted[actors[slot]].content for slot in rows.deciding]
        if contents == offer.contents:
            return offer.applied
        actions = offer.applied.copy()
        masks = None if self._allowed is None else self._allowed[self._deciding(rows)]
        for row, content in enumerate(contents):
            if content != offer.contents[row]:
                actions[row] = self._rule.applied(content, None if masks is None else masks[row])
        return actions

    def _offered(self, rows: SlotRows, applied: Floats, given: StandInActions | None) -> Offer:
        contents = self._rule.contents(applied)
        origins = [""] * len(contents) if given is None else given.origins
        stand_ins = [StandIn(b"")] * self._count
        for slot, content, origin in zip(rows.deciding, contents, origins, strict=True):
            stand_ins[self._actors[slot]] = StandIn(content, origin)
        return Offer(applied, contents, stand_ins)

    def _deciding(self, rows: SlotRows) -> Any:
        """Return the rows of the submit that wait for an action: a slice, or bool, [n]."""
        assert self._decision is not None
        if len(rows.deciding) == len(rows.slots):
            return slice(None)
        return ~self._decision.ended
