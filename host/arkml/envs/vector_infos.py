"""Metadata of single agents, as the infos of a vector environment hold it."""

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
    Add the metadata of rows and the rewards of first rows.

    By name float64, [count], and under
    "_" and the name bool, [count], who has it. Names that `info` has already stay what they are.

    `shown` are decisions, each with the places of those of its rows that are shown. What belongs to
    an episode that ended goes to `info["final_info"]` where its place shows the next one by now,
    which `same` says.
    """
    said: dict[str, Any] = {}
    final: dict[str, Any] = {}
    for decision, places in shown:
        _gather(said, final if same else said, decision, places, count)
    if final:
        info["final_info"].update(final)
    for name, values in said.items():
        info.setdefault(name, values)


def _gather(
    said: dict[str, Any],
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
            _add(final if ended[row] else said, item.name, places[row], item.value, count)
    for row in np.flatnonzero(decision.started & ~ended & (decision.rewards != 0)).tolist():
        if row in places:
            _add(said, "reward", places[row], float(decision.rewards[row]), count)


def _add(said: dict[str, Any], name: str, place: int, value: float, count: int) -> None:
    if name not in said:
        said[name], said[f"_{name}"] = np.zeros(count), np.zeros(count, bool)
    said[name][place], said[f"_{name}"][place] = value, True
