"""The values that environments return: steps, decisions and behaviors."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EpisodeState
from arkml.arrays import Marks
from arkml.base.short_reprs import short_repr
from arkml.batches import NO_METADATA, Floats, MetadataLog
from arkml.envs.core.id_search import Indices, positions_in
from arkml.envs.core.specs import Spec
from arkml.errors import GuestError, UsageError
from arkml.hive.protocol.masks import masked_choice
from arkml.sessions.session import Origin

Ids = npt.NDArray[np.int32]
States = npt.NDArray[np.uint32]

MOST_MASKS = 1 << 28
"""The most masks of one decision: the declarations of a guest may ask for any number of them."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """
    A kind of agents, under the name that the guest gives to it.

    Attributes:
        name: Name of the behavior.
        num_features: Number of features of each row.
        num_actions: Number of actions of each row.
        spec: The meaning of features and actions.

    """

    name: str
    num_features: int
    num_actions: int
    spec: Spec


@dataclass(frozen=True, slots=True)
class Decision:
    """
    The rows of one submit, n agents of one behavior in push order, some of which need an action.

    The arrays belong to the caller, who may change all but `agents`, which is read-only, and
    `submit_rows`, which may be read-only.

    Attributes:
        behavior: The behavior of the agents.
        agents: int32, [n], unique in the lifetime of the environment; a new episode has a new
            number.
        observations: float32, [n, num_features].
        rewards: float32, [n], since the agent's previous row.
        started: bool, [n], True for the first row of an episode.
        terminated: bool, [n], True if the episode has ended; such a row takes no action.
        truncated: bool, [n], True if the episode was cut off; such a row takes no action.
        submit_rows: int, [n], indices in the submit, -1 for a row that was not in it.
        metadata: Items that came with the rows, each with the index of its row in the submit.
        masks: For each branch of the actions bool, [n, choices], True for a masked choice.

    """

    __repr__ = short_repr

    behavior: Behavior
    agents: Ids
    observations: Floats
    rewards: Floats
    started: Marks
    terminated: Marks
    truncated: Marks
    submit_rows: Indices
    metadata: MetadataLog = NO_METADATA
    masks: tuple[Marks, ...] = ()

    def __len__(self) -> int:
        return len(self.agents)

    @property
    def ended(self) -> Marks:
        """The agents whose episode is over, as a mask: bool, [n]."""
        marks: Marks = self.terminated | self.truncated
        return marks

    @property
    def acting_agents(self) -> Ids:
        """The agents that wait for an action, int32, [m], in push order."""
        return self.agents[~self.ended]

    def idle_actions(self) -> Floats:
        """
        Return the actions for agents that wait for an action and have no policy.

        The result is float32, [m, num_actions], a row for each of `acting_agents`: zeros, and of
        each branch the lowest choice that is allowed.
        """
        acting = ~self.ended
        actions = np.zeros((np.count_nonzero(acting), self.behavior.num_actions), np.float32)
        for branch, masked in enumerate(self.masks, -len(self.masks)):
            actions[:, branch] = masked[acting].argmin(axis=1)  # 0 where all are masked
        return actions

    def rows_of(self, submit_rows: Indices) -> Indices:
        """
        Return the index in this decision for each row index of the submit, intp, [m], -1 for none.
        """
        return positions_in(self.submit_rows, submit_rows)


class InPlace(NamedTuple):
    """
    The rows of a submit that continue the rows of the previous submit one by one.

    Row k is of the same agent as row k before, or of a new agent if that one's episode has ended.
    The arrays from `observations` to `truncated` are as in `Decision`, but views that are valid
    until the guest is resumed.

    Attributes:
        before: The array `agents` of the previous decision, if it reported these rows and no
            others.
        agents: The array `agents` of this decision.
        begun: intp, the rows of agents that start an episode, and do not end it.
        over: intp, the rows of agents whose episode ends.
        is_rewarded: False if no first row of an episode has a reward.

    """

    behavior: Behavior
    before: Ids
    agents: Ids
    begun: Indices
    over: Indices
    is_rewarded: bool
    observations: Floats
    rewards: Floats
    started: Marks
    terminated: Marks
    truncated: Marks
    submit_rows: Indices
    metadata: MetadataLog
    masks: tuple[Marks, ...]

    def decision(self) -> Decision:
        """Return the rows as a decision, whose arrays are copies."""
        return Decision(
            self.behavior, self.agents, self.observations.copy(), self.rewards.copy(),
            self.started.copy(), self.terminated.copy(), self.truncated.copy(), self.submit_rows,
            self.metadata, self.masks,
        )  # fmt: skip


class Replaced(NamedTuple):
    """
    The rows of a submit in which each agent whose episode ends is followed by another one.

    The n agents that took an action before have their rows in the same order, and a place each. In
    the place of each of the k agents that end another one begins, so that the agents of the next
    action, in the order of their rows, are again those of the n places. The arrays `observations`
    and `rewards` are views that are valid until the guest is resumed.

    Attributes:
        before: The array `agents` of the previous decision, if it reported these agents and no
            others.
        agents: int32, [n], the agents of the next action, by place.
        numbers: int32, [n + k], the agents of all rows.
        continuing: intp, [n], the row of the agent that took an action before, by place.
        acting: intp, [n], the row of the agent that takes the next action, by place.
        places: intp, [k], the places in which an agent ends and another one begins.
        states: uint32, [n + k], the EpisodeState of each row.

    """

    behavior: Behavior
    before: Ids
    agents: Ids
    numbers: Ids
    continuing: Indices
    acting: Indices
    places: Indices
    observations: Floats
    rewards: Floats
    states: States
    submit_rows: Indices
    metadata: MetadataLog
    masks: tuple[Marks, ...]

    def decision(self) -> Decision:
        """Return the rows as a decision, whose arrays are copies."""
        started, terminated, truncated = (
            self.states == state
            for state in (EpisodeState.INITIAL, EpisodeState.TERMINAL, EpisodeState.INTERRUPTED)
        )
        return Decision(
            self.behavior, self.numbers, self.observations.copy(), self.rewards.copy(), started,
            terminated, truncated, self.submit_rows, self.metadata, self.masks,
        )  # fmt: skip


@dataclass(frozen=True, slots=True)
class Step:
    """
    The outcome of a step: what a guest submitted next, or its end.

    Attributes:
        decisions: One submit, or at the end of the guest one decision per behavior with its
            truncated agents.
        has_finished: True if the guest has finished.
        error: The error of a guest that failed, or None.
        is_cut: True if the agents were truncated because an episode had `max_episode_steps`.

    """

    __repr__ = short_repr

    decisions: Sequence[Decision]
    has_finished: bool = False
    error: GuestError | None = None
    is_cut: bool = False

    @property
    def has_ended(self) -> bool:
        """True if the guest has ended, or was cut off: only a reset can follow."""
        return self.has_finished or self.error is not None or self.is_cut


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """
    Rows of one submit that a guest pushed together with actions, for learning from them.

    Attributes:
        behavior: The behavior of the agents.
        origin: Whether the rows are augmented rows or demonstrations.
        rows: Records of the dtype ROW, [n]; see `Batch.rows`.
        observations: float32, [n, num_features].
        actions: float32, [n, num_actions], the actions that came with the rows.

    """

    __repr__ = short_repr

    behavior: Behavior
    origin: Origin
    rows: npt.NDArray[Any]
    observations: Floats
    actions: Floats


def require_masks(count: int, branches: Sequence[int]) -> None:
    """
    Raise UsageError if masks for `count` agents with these branches would exceed `MOST_MASKS`.
    """
    choices = sum(branches)
    if count * choices > MOST_MASKS:
        raise UsageError(
            f"{count} agents with {choices} choices have {count * choices} masks, {MOST_MASKS} at"
            " most: the guest declares too many choices (arkml.spec)"
        )


def choice_masks(masks: MetadataLog, rows: Indices, branches: Sequence[int]) -> tuple[Marks, ...]:
    """
    Return the masked choices of agents: for each branch a bool array, [n, choices].

    A choice is masked by metadata named mask/BRANCH/CHOICE whose value is not 0. Masks of choices
    that do not exist are ignored.

    Args:
        branches: Number of choices of each branch.
        masks: Metadata of the submit.
        rows: intp, [n], the rows of the submit.

    Raises:
        UsageError: There are more than `MOST_MASKS` masks.

    """
    if not branches:
        return ()
    require_masks(len(rows), branches)
    marks = tuple(np.zeros((len(rows), choices), bool) for choices in branches)
    if not masks:
        return marks
    entries = positions_in(rows, masks.rows)
    for code, name in enumerate(masks.names):
        if (masked := masked_choice(name, branches)) is None:
            continue
        branch, choice = masked
        items = np.flatnonzero((masks.codes == code) & (entries >= 0))
        marks[branch][entries[items], choice] = masks.values[items] != 0  # the last item counts
    return marks
