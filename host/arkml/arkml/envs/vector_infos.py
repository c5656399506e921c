"""Metadata of agents, and infos about guests, in the form of infos of a vector environment."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from arkml.arrays import Marks, every, some
from arkml.base.loggers import SafeLogger
from arkml.batches import Floats, MetadataLog
from arkml.envs.core.decisions import Decision
from arkml.envs.core.id_search import Indices
from arkml.hive.protocol.runs import MAX_NAMES

log = SafeLogger(__name__)

_REWARD = "reward"  # of a first row, which no action led to
_OWN = (
    "present", "error", "guest_done", "auto_answered", "demonstrations", "action_mask",
    "final_obs", "final_info",
)  # fmt: skip
_RESERVED = frozenset((*_OWN, *(f"_{name}" for name in _OWN)))
"""Keys of the environment's own, which metadata of these names do not take."""


class VectorInfos:
    """
    Writes the metadata of agents into the infos of a vector environment of `count` places.

    Each name gets an array, float64, [count], and its mask under "_" and the name, bool, [count];
    with NaN and False for a place without such metadata. Once a name is known it is in every info;
    a guest may have as many names as a run keeps, and more are left out.

    With `same` (SAME_STEP autoreset), a place whose episode ended shows the next episode, and
    metadata of the ended one is added to `final_info`.
    """

    def __init__(self, count: int, *, same: bool) -> None:
        self._count = count
        self._is_same = same
        self._has_warned = False
        self._names: dict[str, None] = {}  # known ones, in the order in which they came
        self._final_names: dict[str, None] = {}
        self._unknown = np.full(count, np.nan)

    def add(
        self,
        info: dict[str, Any],
        decision: Decision,
        indices: Indices,
        *,
        are_shown: bool = False,
        is_rewarded: bool = True,
    ) -> None:
        """
        Add the metadata of a decision, and the rewards of rows that start an episode, to an info.

        Args:
            info: The info of the step.
            decision: The decision.
            indices: intp, [n], the place of each row, or -1 for a row that is not shown.
            are_shown: True if each row is shown.
            is_rewarded: False if no row that starts an episode has a reward.

        """
        if log := decision.metadata:
            reports = decision.rows_of(log.rows)
            if are_shown and reports is log.rows and not self._is_same:
                self._add_log(info, self._names, log, indices[reports], are_shown=True)
            else:
                shown = np.where(reports < 0, -1, indices[reports])  # without a row, without an env
                self.add_said(info, log, shown, decision.ended[reports])
        if is_rewarded and np.count_nonzero(decision.rewards[decision.started]):
            begun = (decision.started & (decision.rewards != 0) & ~decision.ended).nonzero()[0]
            self.add_rewards(info, indices[begun], decision.rewards[begun])

    def add_said(
        self, info: dict[str, Any], log: MetadataLog, places: Indices, ended: Marks
    ) -> None:
        """
        Add the items of a log, each of a row of the place at its index in `places`, -1 for none.

        Args:
            info: The info of the step.
            log: The metadata of a submit, m items.
            places: intp, [m].
            ended: bool, [m], whether the episode ends with the item's row.

        """
        if self._is_same:
            if "final_info" in info:
                final = np.where(ended, places, -1)
                self._add_log(info["final_info"], self._final_names, log, final)
            places = np.where(ended, -1, places)
        self._add_log(info, self._names, log, places)

    def add_log(self, info: dict[str, Any], log: MetadataLog) -> None:
        """Add the metadata of a submit whose row k belongs to place k."""
        self._add_log(info, self._names, log, log.rows, are_shown=True)

    def add_rewards(self, info: dict[str, Any], indices: Indices, rewards: Floats) -> None:
        """
        Add rewards, float32, [n], of rows that start episodes in places, intp, [n], -1 for none.
        """
        known = (indices >= 0).nonzero()[0]
        if len(known):
            self._put(info, self._names, _REWARD, indices[known], rewards[known])

    def of_guest(self, info: Mapping[str, Any]) -> dict[str, Any]:
        """
        Repeat infos about a guest for each of its agents' places: arrays, [count], masks of True.
        """
        found: dict[str, Any] = {}
        for name, value in info.items():
            is_number = isinstance(value, bool | int)
            values = np.empty(self._count, type(value) if is_number else object)
            values.fill(value)
            found[name], found[f"_{name}"] = values, np.ones(self._count, bool)
        return found

    def complete(self, info: dict[str, Any]) -> None:
        """Add to an info all known names that it lacks."""
        for found, names in ((info, self._names), (info.get("final_info"), self._final_names)):
            if found is not None:
                for name in names:
                    if name not in found:
                        self._begin(found, name)

    def _add_log(
        self,
        info: dict[str, Any],
        names: dict[str, None],
        log: MetadataLog,
        indices: Indices,
        *,
        are_shown: bool = False,
    ) -> None:
        """
        Add the items of a log, each to its env, intp, [items], or to none where that is -1.

        With `are_shown` each has one.
        """
        if are_shown and len(log.names) == 1:
            self._put(info, names, log.names[0], indices, log.values)
            return
        are_known, count = indices >= 0, len(log.names)
        if not some(are_known):
            return
        if every(are_known) and _are_in_turn(log.codes, count):
            for code, name in enumerate(log.names):
                self._put(info, names, name, indices[code::count], log.values[code::count])
            return
        for code, name in enumerate(log.names):
            items = are_known & (log.codes == code)
            if some(items):
                self._put(info, names, name, indices[items], log.values[items])

    def _put(
        self,
        info: dict[str, Any],
        names: dict[str, None],
        name: str,
        indices: Indices,
        values: Floats | Any,
    ) -> None:
        if name in _RESERVED:
            return
        if name not in info:
            if name not in names and len(names) >= MAX_NAMES:
                self._warn(name)
                return
            names[name] = None
            self._begin(info, name)
        info[name][indices] = values
        info[f"_{name}"][indices] = True

    def _warn(self, name: str) -> None:
        if not self._has_warned:  # a guest may have a new name in every frame
            self._has_warned = True
            log.warning(
                "metadata %r is not in infos: they have %d names already", name[:80], MAX_NAMES
            )

    def _begin(self, info: dict[str, Any], name: str) -> None:
        info[name] = self._unknown.copy()
        info[f"_{name}"] = np.zeros(self._count, bool)


def _are_in_turn(codes: Indices, count: int) -> bool:
    """Return whether codes are 0 to `count` - 1, again and again: each row has all names."""
    return len(codes) % count == 0 and every(codes.reshape(-1, count) == np.arange(count))
