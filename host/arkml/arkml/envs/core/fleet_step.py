"""Arrays with the outcome of a step for each guest of a fleet."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.agent_slots import NOWHERE
from arkml.envs.core.decisions import Behavior, Decision, Step
from arkml.envs.core.id_search import Indices
from arkml.errors import GuestError, UsageError


@dataclass(slots=True)
class FleetStep:
    """
    The outcome of a step for all guests of a fleet, in order.

    A guest without a row in this step has zeros, and is not `present`.

    Attributes:
        observations: float32, [guests, num_features], the last ones if an episode ended.
        rewards: float32, [guests].
        started: bool, [guests].
        terminated: bool, [guests].
        truncated: bool, [guests].
        present: bool, [guests].
        replaced: bool, [guests], True if the next agent began in the submit that ended the previous
            one.
        next_observations: float32, [guests, num_features], the first observations of these next
            agents.
        events: Rows of guests stepped in lockstep, whose agents begin or end or have metadata;
            without numbers of agents.
        event_guests: intp, [n], the guests of these rows.
        is_rewarded: False if no first row of an episode among `events` has a reward.
        steps: The `Step` of each guest that was stepped alone, by the guest's index.
        alone: The guests in `steps`, and guests that ran alone in a part of the step, for example
            because they asked the host for something. They may have given demonstrations.

    """

    observations: Floats
    rewards: Floats
    started: Marks
    terminated: Marks
    truncated: Marks
    present: Marks
    replaced: Marks
    next_observations: Floats
    steps: dict[int, Step] = field(default_factory=dict)
    alone: set[int] = field(default_factory=set)
    events: Decision | None = None
    event_guests: Indices = field(default_factory=lambda: NOWHERE)
    is_rewarded: bool = False

    @staticmethod
    def empty(guests: int, features: int) -> FleetStep:
        """Return a step in which no guest is present."""
        marks = np.zeros((5, guests), bool)
        observations, following = np.zeros((2, guests, features), np.float32)
        return FleetStep(
            observations, np.zeros(guests, np.float32), marks[0], marks[1], marks[2], marks[3],
            marks[4], following,
        )  # fmt: skip

    @property
    def ended(self) -> Marks:
        """The guests whose episode is over, as a mask: bool, [guests]."""
        marks: Marks = self.terminated | self.truncated
        return marks

    def take(self, guest: int, step: Step, behavior: Behavior, before: Floats) -> None:
        """
        Store one guest's step; `before`, [num_features], is its agent's last observation.

        Raises UsageError if it has several agents, or another behavior.
        """
        decisions = [found for found in step.decisions if found.behavior == behavior]
        if len(decisions) < len(step.decisions):
            raise UsageError(
                f"a fleet has one behavior, {behavior.name}, and this guest continues with another:"
                " choose one with behaviors="
            )
        if decisions and _count_agents(decisions[0]) > 1:
            raise UsageError(
                "a fleet has one agent a guest, and this guest has several: take one guest, with a"
                " sub-environment for each of its agents (GuestVectorEnv, per='agent')"
            )
        self.steps[guest] = step
        self.alone.add(guest)
        if decisions:
            self._take(guest, decisions[0], before)

    def fail(self, guest: int, error: GuestError, before: Floats) -> None:
        """
        Store the truncation of a failed guest; `before`, [num_features], is its last observation.
        """
        self.steps[guest] = Step((), error=error)
        self.alone.add(guest)
        self.present[guest] = self.truncated[guest] = True
        self.observations[guest] = before

    def follow(self, later: FleetStep, guests: Marks) -> None:
        """Copy first observations of some guests, marked by bool, [guests], from a later step."""
        self.observations[guests] = later.observations[guests]
        self.present |= guests & later.present
        self.truncated |= guests & later.truncated
        self.alone |= later.alone
        for guest, step in later.steps.items():
            if step.has_ended:
                before = self.steps.get(guest, Step(()))
                error = before.error or step.error
                has_finished = before.has_finished or step.has_finished
                self.steps[guest] = Step(before.decisions, has_finished, error)

    def _take(self, guest: int, decision: Decision, before: Floats) -> None:
        ended = np.flatnonzero(decision.ended)
        deciding = np.flatnonzero(~decision.ended)
        self.present[guest] = True
        if not len(ended):
            self._show(guest, decision, int(deciding[0]))
            return
        self._show(guest, decision, int(ended[0]))
        if decision.submit_rows[ended[0]] < 0:  # nothing was submitted for it
            self.observations[guest] = before
        if len(deciding):
            self.replaced[guest] = True
            self.next_observations[guest] = decision.observations[deciding[0]]

    def _show(self, guest: int, decision: Decision, row: int) -> None:
        self.observations[guest] = decision.observations[row]
        self.rewards[guest] = decision.rewards[row]
        self.started[guest] = decision.started[row]
        self.terminated[guest] = decision.terminated[row]
        self.truncated[guest] = decision.truncated[row]


def _count_agents(decision: Decision) -> int:
    """Return the number of agents that are present at once."""
    ended = int(decision.ended.sum())
    return max(ended, len(decision) - ended)
