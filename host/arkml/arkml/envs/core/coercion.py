"""Conversion of the actions and seeds that callers give."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.arrays import real_array
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs.core.specs import Actions
from arkml.errors import InvalidActions, UsageError
from arkml.limits import whole_number

_SEEDS = 1 << 63  # guests take them as an i64
_DRAWN = 1 << 31  # drawn ones fit an i32 too, which `configure` may take


def seed_of(value: Any) -> int:
    """Return a value as a seed. Raises UsageError if it is not a whole number in range."""
    seed = whole_number(value)
    if seed is None or not 0 <= seed < _SEEDS:
        raise UsageError(f"seed is {cut_repr(value)}: a whole number from 0 to {_SEEDS - 1}")
    return seed


def drawn_seed(random: np.random.Generator) -> int:
    """Return a random seed, for a reset without a given one."""
    return int(random.integers(_DRAWN))


def floats_of(values: npt.ArrayLike) -> Floats:
    """
    Return values as float32 in the same shape; numbers that are too large become infinite.

    Raises TypeError or ValueError for values that are not an array of numbers.
    """
    array = real_array(values)
    if array.dtype == np.float32:  # the usual case: the rest takes as long as a small step
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float32, copy=False)


def action_of(action: npt.ArrayLike, actions: Actions, who: str) -> Floats:
    """Return one action as float32, [num_actions]; `who` names the agent in InvalidActions."""
    try:
        values = floats_of(action)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"{who} takes numbers, not {str(action)[:80]}") from error
    if values.shape != (actions.width,):
        raise InvalidActions(f"{who} takes actions of shape {(actions.width,)}, not {values.shape}")
    actions.check(values, who)
    return values
