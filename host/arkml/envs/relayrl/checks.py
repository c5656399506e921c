"""The refusals that all implementations share, and their words."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from arkml.batches import Floats
from arkml.envs.core.coercion import floats_of
from arkml.envs.core.specs import Actions
from arkml.envs.relayrl.kinds import EnvironmentError, EnvironmentUuid
from arkml.errors import InvalidActions


def refused(text: str) -> EnvironmentError:
    """Return the error of an operation that cannot be done."""
    return EnvironmentError.EnvironmentError(text)


WHO = "a RelayRL environment"


def action(values: Any, actions: Actions) -> Floats:
    """Return an action as float32, [num_actions], checked for bounds and choices."""
    try:
        found = floats_of(values)
    except (TypeError, ValueError):
        raise refused(f"an action holds numbers, not {str(values)[:80]}") from None
    if found.ndim != 1:
        raise refused(f"an action has rank 1, not {found.ndim}")
    if found.shape != (actions.width,):
        raise refused(f"an action has shape ({actions.width},), not {found.shape}")
    try:
        actions.check(found, WHO)
    except InvalidActions as error:
        raise refused(str(error)) from None
    return found


def count(number: int) -> int:
    """Return the number of environments, checked."""
    if isinstance(number, bool) or not isinstance(number, int) or number < 1:
        raise refused(f"{number} environments cannot be had: 1 at least")
    return number


def pairs(asked: Any) -> list[tuple[EnvironmentUuid, Any]]:
    """Return pairs of an id and an action, checked."""
    found = _listed(asked)
    for pair in found:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise refused(f"a step takes pairs of an id and an action, not {str(pair)[:80]}")
    return [(env_id, action) for env_id, action in found]


def ids(asked: Any, known: Iterable[EnvironmentUuid]) -> list[EnvironmentUuid]:
    """Return the ids, each known and there once."""
    there = set(known)
    if not there:
        raise refused("there are no environments yet: call init_num_envs first")
    found = _listed(asked)
    seen: set[EnvironmentUuid] = set()
    for env_id in found:
        if not isinstance(env_id, EnvironmentUuid) or env_id not in there:
            raise refused(f"there is no environment {env_id}")
        if env_id in seen:
            raise refused(f"environment {env_id} is there twice")
        seen.add(env_id)
    return found


def _listed(asked: Any) -> list[Any]:
    if isinstance(asked, str | bytes) or not isinstance(asked, Iterable):
        raise refused(f"many environments are asked for in a list, not {str(asked)[:80]}")
    return list(asked)
