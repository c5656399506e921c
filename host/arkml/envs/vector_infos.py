"""Metadata of rows in the form of the infos of a vector environment."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from arkml.envs.core.decisions import Decision


def tell(
    info: dict[str, Any],
    shown: Iterable[tuple[Decision, Mapping[int, int]]],
    count: int,
    *,
    same: bool,
) -> None:
    """
    Add the metadata of rows and the rewards of first rows to an info.

    Each name gets an array, float64, [count], and its mask under "_" and the name, bool, [count].
    Names that `info` has already are kept.

    `shown` are decisions, each with the places of its shown rows. With `same`, the place of an
    episode that ended shows the next one, and metadata of the ended one is in `final_info`.
    """
    values_by_name: dict[str, Any] = {}
    final: dict[str, Any] = {}
    for decision, places in shown:
        _gather(values_by_name, final if same else values_by_name, decision, places, count)
    if final:
        info["final_info"].update(final)
    for name, values in values_by_name.items():
        info.setdefault(name, values)


def _gather(
    values_by_name: dict[str, Any],
    final: dict[str, Any],
    decision: Decision,
    places: Mapping[int, int],
    count: int,
) -> None:
    """Collect the metadata of one decision, of rows that continue and of rows that ended."""
    ended = decision.ended
    rows: dict[int, int] = dict(zip(decision.places.tolist(), range(len(decision)), strict=True))
    for item in decision.metadata:
        row = rows.get(item.row, -1)
        if row in places:
            _add(final if ended[row] else values_by_name, item.name, places[row], item.value, count)
    for row in np.flatnonzero(decision.started & ~ended & (decision.rewards != 0)).tolist():
        if row in places:
            _add(values_by_name, "reward", places[row], float(decision.rewards[row]), count)


def _add(values_by_name: dict[str, Any], name: str, place: int, value: float, count: int) -> None:
    if name not in values_by_name:
        values_by_name[name], values_by_name[f"_{name}"] = np.zeros(count), np.zeros(count, bool)
    values_by_name[name][place], values_by_name[f"_{name}"][place] = value, True
