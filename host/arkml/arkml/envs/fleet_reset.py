"""The reset of some guests of a fleet, in a vector environment that resets none by itself."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from arkml.arrays import Marks
from arkml.batches import Floats
from arkml.envs.core.coercion import seed_of
from arkml.envs.core.fleet_env import FleetEnv
from arkml.envs.core.fleet_step import FleetStep
from arkml.errors import UsageError


def mask_of(options: dict[str, Any], count: int) -> Marks:
    """Return the `reset_mask` of reset options, bool, [count]. Raises UsageError for others."""
    mask = options["reset_mask"]
    is_mask = isinstance(mask, np.ndarray) and mask.dtype == np.bool_ and mask.shape == (count,)
    if not is_mask or not mask.any():
        raise UsageError(
            f"reset_mask is {mask!r:.80}: it takes an array of {count} bools, one of them True"
        )
    found: Marks = mask
    return found


def seeds_of(seed: int | Sequence[int | None] | None, count: int) -> list[int | None]:
    """Return the seed of each of `count` guests; `seed` is the first one's, or one for each."""
    if seed is None:
        return [None] * count
    if not isinstance(seed, Sequence):
        first = seed_of(seed)
        return [first + guest for guest in range(count)]
    if len(seed) != count:
        raise UsageError(f"{len(seed)} seeds for {count} guests")
    return list(seed)


class Ended(NamedTuple):
    """
    The guests whose episodes are over, bool, [guests].

    observations: float32, [guests, num_features], their last ones. Where the next episode began in
    the submit that ended the last one, `replaced`, bool, [guests], its first observations are in
    next_observations, float32, [guests, num_features].
    """

    guests: Marks
    observations: Floats
    replaced: Marks
    next_observations: Floats


def begin_again(
    fleet: FleetEnv, guests: Marks, seeds: Sequence[int | None], ended: Ended
) -> tuple[FleetStep, list[FleetStep]]:
    """
    Return the first observations of new episodes of guests, bool, [guests], and the steps to them.

    A guest whose episode has ended continues with its next one; another one, or one that is over,
    or that has a seed, starts over with a new instance. One that fails is over, and its step has
    the error.
    """
    has_seed = np.array([seed is not None for seed in seeds])
    anew = guests & (~ended.guests | has_seed | ~fleet.alive)
    begun = guests & ~anew & ended.replaced
    due = guests & ~anew & ~begun
    step = FleetStep.empty(fleet.num_guests, fleet.behavior.num_features)
    step.observations[begun] = ended.next_observations[begun]
    step.present |= begun
    steps = []
    if due.any():
        idle: Floats = np.zeros((fleet.num_guests, fleet.behavior.num_actions), np.float32)
        steps.append(fleet.step(idle, ended.observations, due))
        step.follow(steps[-1], due)
        anew |= due & ~fleet.alive
    if anew.any():
        chosen = np.flatnonzero(anew).tolist()
        steps.append(fleet.renew(chosen, [seeds[guest] for guest in chosen]))
        step.follow(steps[-1], anew)
    return step, steps
