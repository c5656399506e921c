"""The Gymnasium spaces of a behavior, and its rows as values of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from gymnasium import spaces

from arkml.batches import Floats
from arkml.envs.core.coercion import floats_of
from arkml.envs.core.decisions import Decision
from arkml.envs.core.specs import Actions, Part, Spec
from arkml.errors import InvalidActions

Space = spaces.Space[Any]

CONTINUOUS, DISCRETE = "continuous", "discrete"


def observation_space(spec: Spec) -> Space:
    """Return a Box of float32, or a Dict of them where an observation has several parts."""
    if len(spec.observations) == 1:
        return _box(spec.observations[0])
    return spaces.Dict({part.name: _box(part) for part in spec.observations})


def action_space(spec: Spec) -> Space:
    """
    Return a Box, from -1 to 1 unless declared, a Discrete or a MultiDiscrete.

    Where an agent has both kinds of actions, a Dict of "continuous" and "discrete".
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


def shown(spec: Spec, features: Floats) -> Any:
    """Return features, float32, [n, num_features], as observations: [n, *shape], or by part."""
    parts = spec.parts(features)
    if len(parts) == 1:
        return parts[0]
    names = (part.name for part in spec.observations)
    return dict(zip(names, parts, strict=True))


def shown_one(spec: Spec, features: Floats) -> Any:
    """Return the observation of one agent from its features, float32, [num_features]."""
    found = shown(spec, features[None])
    if isinstance(found, dict):
        return {name: part[0] for name, part in found.items()}
    return found[0]


def taken(spec: Spec, action: Any, count: int | None, who: str) -> Floats:
    """
    Return the actions of `count` agents as rows, float32, [count, num_actions].

    With None it is one agent, [num_actions]. Raises InvalidActions.
    """
    actions = spec.actions
    lead = () if count is None else (count,)
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


def allowed(decision: Decision, row: int) -> dict[str, Any]:
    """
    Return for an info what an agent can choose: int8, [choices], as `sample(mask)` takes it.

    Agents with branches have it in every info, the others never.
    """
    found = tuple((~masks[row]).astype(np.int8) for masks in decision.masks)
    return _of_one(decision.behavior.spec, found)


def unmasked(spec: Spec) -> dict[str, Any]:
    """Return the same of an agent that can choose all."""
    return _of_one(spec, tuple(np.ones(count, np.int8) for count in spec.actions.branches))


def all_allowed(
    spec: Spec, rows: Iterable[tuple[Decision, Any, Any]], count: int
) -> dict[str, Any]:
    """
    Return the same of many agents, for each branch int8, [count, choices].

    `rows` are decisions, each with some of its rows and the places where these sit; what sits
    elsewhere can choose all.
    """
    found = tuple(np.ones((count, choices), np.int8) for choices in spec.actions.branches)
    if not found:
        return {}
    for decision, chosen, places in rows:
        for mask, masks in zip(found, decision.masks, strict=True):
            mask[places] = ~masks[chosen]
    return {"action_mask": found[0] if len(found) == 1 else found}


def _of_one(spec: Spec, masks: tuple[npt.NDArray[np.int8], ...]) -> dict[str, Any]:
    if not masks:
        return {}
    if spec.actions.continuous:
        return {"action_mask": {CONTINUOUS: None, DISCRETE: masks}}
    return {"action_mask": masks[0] if len(masks) == 1 else masks}


def _hybrid(actions: Actions, action: Any, lead: tuple[int, ...], who: str) -> Floats:
    if not isinstance(action, dict) or set(action) != {CONTINUOUS, DISCRETE}:
        raise InvalidActions(
            f"{who} takes actions with {CONTINUOUS!r} and {DISCRETE!r}, not {str(action)[:80]}"
        )
    floats = _numbers(action[CONTINUOUS], (*lead, actions.continuous), who)
    choices = _numbers(action[DISCRETE], (*lead, len(actions.branches)), who)
    return np.concatenate((floats, choices), axis=-1)


def _numbers(values: npt.ArrayLike, shape: Sequence[int], who: str) -> Floats:
    try:
        found = floats_of(values)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"{who} takes numbers, not {str(values)[:80]}") from error
    if found.shape != tuple(shape):
        raise InvalidActions(f"{who} takes actions of shape {tuple(shape)}, not {found.shape}")
    return found


def _box(part: Part) -> Space:
    low = np.array(part.low, np.float32).reshape(part.shape)
    high = np.array(part.high, np.float32).reshape(part.shape)
    return spaces.Box(low, high, dtype=np.float32)
