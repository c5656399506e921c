"""Steps, decisions and behaviors: the values that environments return."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats, Metadata
from arkml.envs.core.specs import Spec
from arkml.errors import GuestError
from arkml.sessions.session import Origin

Marks = npt.NDArray[np.bool_]
Ids = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True)
class Behavior:
    """
    A kind of agents, and the name that their guest gave it.

    `num_features` and `num_actions` are the widths of their rows, and `spec` says what they mean.
    `configuration` is what the guest started its experiment with.
    """

    name: str
    num_features: int
    num_actions: int
    spec: Spec
    configuration: str = ""


@dataclass(frozen=True, slots=True)
class Decision:
    """
    One submit: n rows of agents of one behavior, in push order.

    agents: int32, [n], unique in the environment's life; a new episode has a new one.
    observations: float32, [n, num_features]. rewards: float32, [n], since the agent's row before.
    started, terminated, truncated: bool, [n]: the first row of an episode, and how it ended. An
    ended row takes no action. places: int, [n], the rows of the submit, -1 for one that was not in
    it. metadata: what the guest said, by row of the submit. masks: for each branch of the actions
    bool, [n, choices], what cannot be chosen.
    """

    behavior: Behavior
    agents: Ids
    observations: Floats
    rewards: Floats
    started: Marks
    terminated: Marks
    truncated: Marks
    places: npt.NDArray[np.intp]
    metadata: Sequence[Metadata] = ()
    masks: tuple[Marks, ...] = ()

    def __len__(self) -> int:
        return len(self.agents)

    @property
    def ended(self) -> Marks:
        """Whose episode is over, bool, [n]."""
        marks: Marks = self.terminated | self.truncated
        return marks

    @property
    def deciding(self) -> Ids:
        """The agents that wait for an action, int32, [m], in push order."""
        return self.agents[~self.ended]


@dataclass(frozen=True, slots=True)
class Step:
    """
    The outcome for a guest up to its next submit.

    `decisions` holds one submit, or one of each behavior where everything is over. `done` says
    that the guest has finished, and `error` why it failed: its agents are truncated then.
    """

    decisions: Sequence[Decision]
    done: bool = False
    error: GuestError | None = None

    @property
    def is_over(self) -> bool:
        """True where only a reset can follow."""
        return self.done or self.error is not None


@dataclass(frozen=True, slots=True)
class Demonstrations:
    """
    Rows of one submit that came with actions of their own, which no agent of a decision took.

    origin: whether the guest submitted them as augmented rows or as demonstrations. rows: ROW, [n].
    observations: float32, [n, num_features]. given: float32, [n, num_actions].
    """

    behavior: Behavior
    origin: Origin
    rows: npt.NDArray[Any]
    observations: Floats
    given: Floats
