"""
The Gymnasium spaces of a behavior, and conversions between its rows and values of these spaces.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces
from gymnasium.vector.utils import batch_differing_spaces, batch_space, iterate

from arkml.arrays import Marks
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs.core.coercion import floats_of
from arkml.envs.core.decisions import require_masks
from arkml.envs.core.specs import Actions, ObservationPart, Spec
from arkml.errors import InvalidActions, UsageError

Space = spaces.Space[Any]

CONTINUOUS, DISCRETE = "continuous", "discrete"
_FLOAT = np.dtype(np.float32)


class PartsSpace(spaces.Dict):
    """
    A Dict space of the parts of an observation, which keeps their order when Gymnasium batches it.
    """

    def __init__(self, parts: Iterable[tuple[str, Space]], seed: Any = None) -> None:
        super().__init__(OrderedDict(parts), seed)  # which sorts the names of any other mapping
        self.sort_keys = False  # where Gymnasium, from 1.4, makes another space of it


@batch_space.register(PartsSpace)
def _batched(space: PartsSpace, n: int = 1) -> PartsSpace:
    parts = ((name, batch_space(part, n)) for name, part in space.items())
    return PartsSpace(parts, copy.deepcopy(space.np_random))


@batch_differing_spaces.register(PartsSpace)
def _batched_differing(each: Sequence[PartsSpace]) -> PartsSpace:  # type: ignore[misc]  # of items
    first = each[0]
    if any(space.keys() != first.keys() for space in each):
        raise ValueError(f"spaces of other parts: {[list(space) for space in each]}")
    parts = ((name, batch_differing_spaces([space[name] for space in each])) for name in first)
    return PartsSpace(parts, copy.deepcopy(first.np_random))


iterate.register(PartsSpace, iterate.dispatch(spaces.Dict))  # a Tuple takes known types alone


def observation_space(spec: Spec) -> Space:
    """
    Return a Box, or a Dict of Boxes if an observation has several parts.

    Images are of uint8, all other parts of float32. Entities are preceded by a Box with their
    number, and have as many rows as there can be entities; rows of missing entities are zeros.

    The parts are in the order of the guest's row, so that a flattened observation equals the row.
    """
    if len(spec.observations) == 1:
        return _box(spec.observations[0])
    return PartsSpace((part.name, _box(part)) for part in spec.observations)


def action_space(spec: Spec) -> Space:
    """
    Return a Box, from -1 to 1 unless declared, a Discrete or a MultiDiscrete.

    For an agent with both kinds of actions, return a Dict of "continuous" and "discrete".
    """
    actions = spec.actions
    floats = spaces.Box(
        np.array(actions.low, np.float32), np.array(actions.high, np.float32), dtype=np.float32
    )
    if not actions.branches:
        return floats
    choices: Space = spaces.MultiDiscrete(list(actions.branches))
    if not actions.continuous:
        return spaces.Discrete(actions.branches[0]) if len(actions.branches) == 1 else choices
    return spaces.Dict({CONTINUOUS: floats, DISCRETE: choices})


def observations_of(spec: Spec, features: Floats) -> Any:
    """
    Return features, float32, [n, num_features], as an array, [n, *shape], or a dict of parts.

    See `Spec.parts`.
    """
    if len(spec.observations) == 1:
        return spec.observations[0].reshape(features)
    names = (part.name for part in spec.observations)
    return dict(zip(names, spec.parts(features), strict=True))


def observation_of(spec: Spec, features: Floats) -> Any:
    """Return the observation of one agent from its features, float32, [num_features]."""
    if len(spec.observations) == 1:
        part = spec.observations[0]
        return features if len(part.shape) == 1 else part.reshape(features[None])[0]
    return {name: part[0] for name, part in observations_of(spec, features[None]).items()}


def copied(observations: Any) -> Any:
    """Return a copy of observations, an array or a dict of arrays."""
    if isinstance(observations, dict):
        return {name: part.copy() for name, part in observations.items()}
    return observations.copy()


def final_observations(spec: Spec, features: Floats, ended: Marks) -> npt.NDArray[Any]:
    """
    Return the info `final_obs`: an observation for each ended episode, else None.

    Args:
        spec: The meaning of the rows.
        features: float32, [k, num_features], the last rows of the ended ones.
        ended: bool, [n], True for k of them.

    Returns:
        Objects, [n].

    """
    final = np.full(len(ended), None, object)
    rows = observations_of(spec, features)
    if isinstance(rows, dict):
        each: Iterable[Any] = (
            dict(zip(rows, parts, strict=True)) for parts in zip(*rows.values(), strict=True)
        )
    else:
        each = rows
    final[ended] = np.fromiter(each, object, len(features))
    return final


def taken(spec: Spec, action: Any, count: int | None, who: str) -> Floats:
    """
    Convert the actions of `count` agents from values of the space to rows.

    Args:
        spec: The meaning of the rows.
        action: An action of the space, or one action for each agent.
        count: Number of agents, None for a single action.
        who: Subject of the error message.

    Returns:
        float32, [count, num_actions], or [num_actions] for a single action.

    Raises:
        InvalidActions: The action has a wrong shape, type or value.

    """
    actions, lead = spec.actions, () if count is None else (count,)
    is_array = type(action) is np.ndarray and action.dtype == _FLOAT  # else it is converted
    if is_array and action.shape == (*lead, actions.continuous) and actions.are_valid(action):
        rows: Floats = action
        return rows
    if not actions.branches:
        values = _numbers(action, (*lead, actions.continuous), who)
    elif actions.continuous:
        values = _hybrid(actions, action, lead, who)
    elif len(actions.branches) == 1:
        values = _numbers(action, lead, who)[..., None]
    else:
        values = _numbers(action, (*lead, len(actions.branches)), who)
    actions.check(values, who)
    return values


def allowed(spec: Spec, masks: Iterable[Marks]) -> dict[str, Any]:
    """
    Return an agent's info `action_mask`, int8, [choices], in the form that `sample(mask)` takes.

    `masks` has for each branch which choices are masked, bool, [choices]. Infos of agents without
    branches have no `action_mask`.
    """
    return _of_one(spec, tuple((~masked).astype(np.int8) for masked in masks))


def unmasked(spec: Spec) -> dict[str, Any]:
    """Return the info `action_mask` of an agent without masked choices: ones, int8, [choices]."""
    return _of_one(spec, tuple(np.ones(count, np.int8) for count in spec.actions.branches))


def all_allowed(
    spec: Spec, rows: Iterable[tuple[tuple[Marks, ...], Any, Any]], count: int
) -> dict[str, Any]:
    """
    Return the info `action_mask` of `count` sub-environments: per branch int8, [count, choices].

    Args:
        spec: The meaning of the rows.
        rows: Masks of decisions, each with row indices and the indices of their sub-environments.
            All others get ones.
        count: Number of sub-environments.

    Raises:
        UsageError: There are more than `MOST_MASKS` masks.

    """
    require_masks(count, spec.actions.branches)
    allowances = tuple(np.ones((count, choices), np.int8) for choices in spec.actions.branches)
    if not allowances:
        return {}
    for masks, chosen, indices in rows:
        for allowance, masked in zip(allowances, masks, strict=True):
            if masked.any():  # as most are not
                allowance[indices] = ~masked[chosen]
    return {"action_mask": allowances[0] if len(allowances) == 1 else allowances}


def keep_allowed(action_mask: Any, before: Any, places: Marks) -> None:
    """
    Copy the masks of `places`, bool, [count], from a previous info `action_mask` to a new one.
    """
    one_branch = isinstance(action_mask, np.ndarray)
    pairs = [(action_mask, before)] if one_branch else zip(action_mask, before, strict=True)
    for allowance, kept in pairs:
        allowance[places] = kept[places]


def choices_allowed(action_mask: Any) -> Marks:
    """
    Return an info `action_mask` as one mask of the choices of all branches, bool, [..., choices].

    sb3-contrib's MaskablePPO takes masks in this form.
    """
    if isinstance(action_mask, dict):
        action_mask = action_mask[DISCRETE]
    by_branch = action_mask if isinstance(action_mask, tuple) else (action_mask,)
    marks: Marks = np.concatenate(by_branch, axis=-1).astype(bool)
    return marks


def require_branches(spec: Spec, who: str) -> None:
    """Raise UsageError if agents have no discrete choices, which masks would apply to."""
    if not spec.actions.branches:
        raise UsageError(f"{who} has no masks: its agents have continuous actions only")


def _of_one(spec: Spec, masks: tuple[npt.NDArray[np.int8], ...]) -> dict[str, Any]:
    if not masks:
        return {}
    if spec.actions.continuous:
        return {"action_mask": {CONTINUOUS: None, DISCRETE: masks}}
    return {"action_mask": masks[0] if len(masks) == 1 else masks}


def _hybrid(actions: Actions, action: Any, lead: tuple[int, ...], who: str) -> Floats:
    if not isinstance(action, dict) or set(action) != {CONTINUOUS, DISCRETE}:
        raise InvalidActions(
            f"{who} takes actions with {CONTINUOUS!r} and {DISCRETE!r}, not {cut_repr(action)}"
        )
    floats = _numbers(action[CONTINUOUS], (*lead, actions.continuous), who)
    choices = _numbers(action[DISCRETE], (*lead, len(actions.branches)), who)
    return np.concatenate((floats, choices), axis=-1)


def _numbers(values: npt.ArrayLike, shape: Sequence[int], who: str) -> Floats:
    try:
        floats = floats_of(values)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"{who} takes numbers, not {cut_repr(values)}") from error
    if floats.shape != tuple(shape):
        raise InvalidActions(f"{who} takes actions of shape {tuple(shape)}, not {floats.shape}")
    return floats


def _box(part: ObservationPart) -> Space:
    low = np.array(part.low, part.dtype).reshape(part.shape)
    high = np.array(part.high, part.dtype).reshape(part.shape)
    return spaces.Box(low, high, dtype=part.dtype.type)
