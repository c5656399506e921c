"""Steps, decisions and behaviors: the values that environments return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks
from arkml.base.short_reprs import short_repr
from arkml.batches import NO_METADATA, Floats, MetadataLog
from arkml.envs.core.id_search import Indices, positions_in
from arkml.envs.core.specs import Spec
from arkml.errors import GuestError, UsageError
from arkml.hive.protocol.masks import masked_choice
from arkml.sessions.session import Origin

Ids = npt.NDArray[np.int32]

MOST_MASKS = 1 << 28
"""The most masks of one decision: the declarations of a guest may ask for any number of them."""


@dataclass(frozen=True, slots=True)
class Behavior:
    """
    A kind of agents, under the name that their guest gave it.

    Attributes:
        name: Name of the behavior.
        num_features: Number of features of each row.
        num_actions: Number of actions of each row.
        spec: The meaning of the rows.

    """

    name: str
    num_features: int
    num_actions: int
    spec: Spec


@dataclass(frozen=True, slots=True)
class Decision:
    """
    One submit: n rows of agents of one behavior, in push order.

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
        metadata: Items by row of the submit.
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
        """Mask of the agents whose episode is over, bool, [n]."""
        marks: Marks = self.terminated | self.truncated
        return marks

    @property
    def acting_agents(self) -> Ids:
        """The agents that wait for an action, int32, [m], in push order."""
        return self.agents[~self.ended]

    def idle_actions(self) -> Floats:
        """
        Return the actions of `acting_agents` that nobody plays, float32, [m, num_actions].

        These are zeros, and of each branch the lowest choice that is allowed.
        """
        acting = ~self.ended
        actions = np.zeros((np.count_nonzero(acting), self.behavior.num_actions), np.float32)
        for branch, masked in enumerate(self.masks, -len(self.masks)):
            actions[:, branch] = masked[acting].argmin(axis=1)  # 0 where all are masked
        return actions

    def rows_of(self, submit_rows: Indices) -> Indices:
        """Return the rows of this decision by rows of the submit, intp, [m], -1 for none."""
        return positions_in(self.submit_rows, submit_rows)


class InPlace(NamedTuple):
    """
    The rows of a submit that continue the rows of the previous submit one by one.

    Each row is of the same agent, or of an agent that begins after the end of the previous one. The
    arrays from `observations` to `truncated` are as in `Decision`, but views that are valid until
    the guest is resumed.

    Attributes:
        before: The array `agents` of the previous decision, if it reported these rows and no
            others.
        agents: The array `agents` of this decision.
        begun: intp, the rows of agents that begin; none of them ends.
        over: intp, the rows of agents that end.
        is_rewarded: False if no first row has a reward.

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


@dataclass(frozen=True, slots=True)
class Step:
    """
    The outcome for a guest up to its next submit.

    Attributes:
        decisions: One submit, or at the end of the guest the truncated agents of each behavior.
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
    Rows of one submit that the guest pushed together with the actions taken.

    Attributes:
        behavior: The behavior of the agents.
        origin: Augmented rows or demonstrations.
        rows: ROW, [n].
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
    """Raise UsageError if `count` agents with these branches have more than `MOST_MASKS`."""
    choices = sum(branches)
    if count * choices > MOST_MASKS:
        raise UsageError(
            f"{count} agents with {choices} choices have {count * choices} masks, {MOST_MASKS} at"
            " most: the guest declares too many choices (arkml.spec)"
        )


def choice_masks(masks: MetadataLog, rows: Indices, branches: Sequence[int]) -> tuple[Marks, ...]:
    """
    Return the masked choices of agents: for each branch bool, [n, choices].

    A mask is named mask/BRANCH/CHOICE and holds unless its value is 0. Masks of choices that do not
    exist are ignored.

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
