"""Masks of choices: which discrete actions the agents of a batch may take, as their guest says."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

import numpy as np
import numpy.typing as npt

from arkml.abi.codes import EPISODE_ENDS
from arkml.base.loggers import SafeLogger
from arkml.batches import Batch, Floats, MetadataLog
from arkml.hive.protocol.masks import PREFIX, masked_choice
from arkml.policies.agents import AgentTable, agents_of
from arkml.policies.policy import Policy
from arkml.policies.workspace import PolicyWorkspace

log = SafeLogger(__name__)

_MOST_NAMES = 1 << 16  # that are remembered: a guest may spell a number in many ways
_LONGEST_NAME = 64  # that is remembered, in characters; names may have a megabyte


class ChoiceMasks:
    """
    The choice masks of one batch at a time.

    `rows` is float32, [n, choices of all branches], 1 for a choice that is allowed and 0 for a
    masked one; None where all are allowed. Call `begin` for each batch before `mask`. `workspace`
    limits the memory.
    """

    def __init__(self, branches: Sequence[int], workspace: PolicyWorkspace) -> None:
        self.choices: int = sum(branches)
        self.rows: Floats | None = None
        self.branches: tuple[int, ...] = tuple(branches)
        self._starts = list(accumulate(branches, initial=0))
        self._last = np.array(branches, np.float32) - 1
        self._columns: dict[str, int | None] = {}
        self._workspace = workspace
        self._kept: Floats = np.ones((0, self.choices), np.float32)
        self._count = 0
        self._has_replaced = self._has_settled = False
        self._has_met_broken = self._has_met_unknown = False

    def begin(self, count: int) -> None:
        """Allow all choices to the agents of a new batch of `count` rows."""
        self._count = count
        self.rows = None

    def mask(self, metadata: MetadataLog, first: int = 0) -> None:
        """
        Mask the choices that metadata names, or allow them again where its value is 0.

        `first` is the index in the batch of the metadata's row 0. Raises Unavailable if the masks
        take too much memory.
        """
        by_name = [self._column(name) for name in metadata.names]
        if not any(column is not None for column in by_name):
            return
        columns = np.array([-1 if column is None else column for column in by_name])[metadata.codes]
        chosen = columns >= 0
        if not chosen.any():
            return
        if self.rows is None:
            self.rows = self._ones()
        rows = first + metadata.rows[chosen]
        self.rows[rows, columns[chosen]] = metadata.values[chosen] == 0  # the last item counts

    def hold(self, batch: Batch, *, is_sure: bool = False) -> None:
        """
        Replace choices in a batch's actions, its last columns, that do not exist or are masked.

        A number between two choices is rounded, halves to the even one. The replacement is the
        lowest allowed choice; the first case of each kind is logged. If all choices of a branch are
        masked, the choice stays. With `is_sure` all choices are known to exist. NaN and infinities,
        which are counted and answered as zeros elsewhere, are replaced only if choice 0 is masked.
        """
        choices = batch.actions[:, -len(self.branches) :]
        if not is_sure:
            self._settle(choices, batch.rows["state"])
        if self.rows is not None:
            self._allow(choices, self.rows)

    def hold_idle(self, batch: Batch, rows: npt.NDArray[np.bool_] | None = None) -> None:
        """
        Let agents without a policy, whose actions are zeros, take choices that are allowed.

        Of each branch it is the lowest one. rows: bool, [n], marks the agents; None marks all.
        """
        if self.rows is not None:
            chosen = slice(None) if rows is None else rows
            choices = batch.actions[chosen, -len(self.branches) :]
            self._allow(choices, self.rows[chosen], is_told=False)
            batch.actions[chosen, -len(self.branches) :] = choices

    def hold_some(
        self,
        choices: Floats,
        first: int,
        rows: npt.NDArray[np.int64] | None,
        states: npt.NDArray[np.uint32] | None,
    ) -> None:
        """
        Replace choices as `hold` does, for some branches and rows of a batch.

        choices: float32, [n, branches from `first` on]. rows: the indices of these rows in the
        batch, None for all. states: uint32, [n], the episode states, None if there are none.
        """
        self._settle(choices, states, first)
        if self.rows is not None:
            self._allow(choices, self.rows if rows is None else self.rows[rows], first)

    def _allow(
        self, choices: Floats, masks: Floats, first: int = 0, *, is_told: bool = True
    ) -> None:
        """Replace each choice that is not allowed by the lowest allowed one."""
        for branch, column in enumerate(choices.T, first):
            start = self._starts[branch]
            allowed = masks[:, start : start + self.branches[branch]] != 0
            exists = np.isfinite(column)
            chosen = np.where(exists, column, 0).astype(np.intp)  # zero is what is answered
            wrong = ~allowed[np.arange(len(column)), chosen] & allowed.any(axis=1)
            if wrong.any():
                if is_told:
                    self._note_replaced(column[wrong])
                column[wrong] = allowed[wrong].argmax(axis=1)

    def _settle(
        self, choices: Floats, states: npt.NDArray[np.uint32] | None, first: int = 0
    ) -> None:
        """Round choices, and replace nonexistent ones by 0."""
        rounded = np.rint(choices)
        last = self._last[first : first + choices.shape[1]]
        settled = np.minimum(np.maximum(rounded, 0), last)
        is_choice = settled == choices
        if np.count_nonzero(is_choice) == is_choice.size:
            return
        wrong = ~is_choice & np.isfinite(choices)
        is_over = False if states is None else np.isin(states, EPISODE_ENDS)[:, None]
        given = choices[wrong & ~np.asarray(is_over)]
        if given.size and not self._has_settled:
            self._has_settled = True
            log.warning(
                "the policy gave %g for a choice, and the branches are of %s choices: such a number"
                " is rounded, or else the lowest choice that is allowed is taken in its place",
                given[0], ", ".join(map(str, self.branches)),
            )  # fmt: skip
        choices[wrong] = np.where(settled == rounded, np.abs(rounded), 0)[wrong]  # no -0

    def write(self, out: Floats) -> None:
        """Copy the masks of the batch to `out`, float32, [n, choices]."""
        out[...] = 1.0 if self.rows is None else self.rows

    def room(self, count: int) -> Floats:
        """Return masks that allow everything: float32, [count, choices]. Raises Unavailable."""
        self._workspace.require_batch(count, 4 * count * self.choices)
        return np.ones((count, self.choices), np.float32)

    def _ones(self) -> Floats:
        if len(self._kept) < self._count:
            self._kept = self.room(self._count)
        rows = self._kept[: self._count]
        rows[...] = 1.0
        return rows

    def _column(self, name: str) -> int | None:
        if name in self._columns:
            return self._columns[name]
        place = masked_choice(name, self.branches)
        column = None if place is None else self._starts[place[0]] + place[1]
        if place is None and name.startswith(PREFIX) and not self._has_met_unknown:
            self._has_met_unknown = True
            log.warning(
                "%r masks nothing: the branches are of %s choices", name[:_LONGEST_NAME],
                ", ".join(map(str, self.branches)),
            )  # fmt: skip
        if len(name) <= _LONGEST_NAME and len(self._columns) < _MOST_NAMES:
            self._columns[name] = column
        return column

    def _note_replaced(self, given: Floats) -> None:
        broken = given[~np.isfinite(given)]
        if broken.size and not self._has_met_broken:
            self._has_met_broken = True
            log.warning(
                "the policy gave %g for a choice: the lowest choice that is allowed is taken in its"
                " place, because 0 is masked", broken[0],
            )  # fmt: skip
        if broken.size < given.size and not self._has_replaced:
            self._has_replaced = True
            log.warning(
                "the policy chose what the guest masks, because it has no input action_masks: the"
                " lowest choice that is allowed is taken in its place"
            )


class MaskedPolicy:
    """
    A policy whose choices are corrected: they exist, and obey the masks of each batch.

    `policy` fills the actions. `masks` are those of the batch; a policy whose model takes masks
    gets them as an input. `is_sure` says that its choices always exist.
    """

    def __init__(self, policy: Policy, masks: ChoiceMasks, *, is_sure: bool = False) -> None:
        self.policy: Policy = policy
        self.masks: ChoiceMasks = masks
        self.num_features: int = policy.num_features
        self.num_actions: int = policy.num_actions
        self._is_sure = is_sure

    def act(self, batch: Batch) -> None:
        """
        Let the policy fill `batch.actions` and `batch.values`, then correct choices.

        Raises the errors of the policy.
        """
        self.policy.act(batch)
        self.masks.hold(batch, is_sure=self._is_sure)

    @property
    def agents(self) -> AgentTable | None:
        """The agents whose steps and states the policy keeps, or None."""
        return agents_of(self.policy)

    def forget(self, key: int) -> None:
        """Drop the policy's state for the agents of session `key`, which is closed."""
        self.policy.forget(key)
