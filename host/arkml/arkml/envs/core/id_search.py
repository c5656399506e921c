"""Searches for keys, such as agents' ids, in arrays: by position and order, then by sorting."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.arrays import Marks

Keys = npt.NDArray[Any]
Indices = npt.NDArray[np.intp]


def positions_of(keys: Keys, held: Keys, live: Marks) -> Indices:
    """
    Return the position of each key among the live values of `held`, intp, [n]; -1 if missing.

    Keys at the position where they are held cost one comparison, all others a sorted search.

    Args:
        keys: [n], all different.
        held: [m], of the same dtype.
        live: bool, [m]; live values differ from each other.

    """
    count, both = len(keys), min(len(keys), len(held))
    at_same = keys[:both] == held[:both]
    at_same &= live[:both]
    positions = np.arange(count)
    if both == count and at_same.all():
        return positions
    positions[:both][~at_same] = -1
    positions[both:] = -1
    left = live.copy()
    left[:both] &= ~at_same
    candidates = left.nonzero()[0]
    if len(candidates):
        moved = (positions < 0).nonzero()[0]
        positions[moved] = searched(keys[moved], held, candidates)
    return positions


def in_order(keys: Keys, held: Keys, candidates: Indices) -> Indices | None:
    """
    Return the position of each key, intp, [n], if the keys are all candidates in their order.

    Between them there may be higher keys, as of agents that begin, themselves in ascending order:
    their position is -1. All keys differ then. Returns None for other keys.

    Args:
        keys: [n].
        held: [m], of the same dtype.
        candidates: intp, [k], positions in `held` with different keys.

    """
    values = held[candidates]
    is_held = keys <= values.max(initial=0)
    higher = keys[~is_held]
    if len(keys) - len(higher) != len(values) or (higher[1:] <= higher[:-1]).any():
        return None
    if (keys[is_held] != values).any():
        return None
    positions = np.full(len(keys), -1)
    positions[is_held] = candidates
    return positions


def earlier_of(keys: Keys) -> Indices | None:
    """Return the index of the previous equal key, intp, [n], -1 for none; None if all differ."""
    if (keys[1:] > keys[:-1]).all():  # as most guests number their agents
        return None
    order = np.argsort(keys, kind="stable")
    in_order = keys[order]
    again = (in_order[1:] == in_order[:-1]).nonzero()[0]
    if not len(again):
        return None
    earlier = np.full(len(keys), -1)
    earlier[order[again + 1]] = order[again]
    return earlier


def positions_in(rows: Indices, wanted: Indices) -> Indices:
    """
    Return the position in `rows` of each wanted row index, intp, [m]; -1 if missing.

    rows: row indices of a submit in ascending order, with -1 in between for entries without a row.
    """
    if len(rows) and rows[-1] == len(rows) - 1:  # rows only
        return wanted
    positions = np.full(int(max(rows.max(initial=-1), wanted.max(initial=-1))) + 1, -1)
    entries = (rows >= 0).nonzero()[0]
    positions[rows[entries]] = entries
    found: Indices = positions[wanted]
    return found


def searched(keys: Keys, held: Keys, candidates: Indices) -> Indices:
    """
    Return the position of each key in `held`, intp, [n], among `candidates`; -1 if missing.

    candidates: intp, [k], positions in `held` with different keys.
    """
    if not len(candidates):
        return np.full(len(keys), -1)
    candidates = candidates[np.argsort(held[candidates], kind="stable")]
    in_order = held[candidates]
    at = np.minimum(np.searchsorted(in_order, keys), len(candidates) - 1)
    return np.where(in_order[at] == keys, candidates[at], -1)
