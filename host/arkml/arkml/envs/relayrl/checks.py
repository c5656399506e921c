"""Checks of arguments of RelayRL environments, which raise EnvironmentError."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

from arkml.base.short_reprs import cut_repr, cut_text
from arkml.batches import Floats
from arkml.envs.core.coercion import floats_of
from arkml.envs.core.specs import Actions
from arkml.envs.relayrl.kinds import EnvironmentError, EnvironmentUuid
from arkml.errors import InvalidActions, InvalidArguments
from arkml.limits import whole_number
from arkml.runtime.memory import bytes_of
from arkml.sessions.declarations import MOST_COUNT


def refused(text: str) -> EnvironmentError:
    """Return an EnvironmentError with this text, for an operation that cannot be done."""
    return EnvironmentError.EnvironmentError(text)


WHO = "a RelayRL environment"


def action(values: Any, actions: Actions) -> Floats:
    """Check an action for bounds and choices, and return it as float32, [num_actions]."""
    try:
        row = floats_of(values)
    except (TypeError, ValueError):
        raise refused(f"an action holds numbers, not {cut_repr(values)}") from None
    if row.ndim != 1:
        raise refused(f"an action has rank 1, not {row.ndim}")
    if row.shape != (actions.width,):
        raise refused(f"an action has shape ({actions.width},), not {row.shape}")
    try:
        actions.check(row, WHO)
    except InvalidActions as error:
        raise refused(str(error)) from None
    return row


def content(data: Any) -> bytes:
    """Check actions given as bytes, and return them as a bytes object."""
    try:
        return bytes_of(data)
    except InvalidArguments as error:
        raise refused(str(error)) from None


def count(number: int) -> int:
    """Check a number of environments, and return it."""
    found = whole_number(number)
    if found is None or not 1 <= found <= MOST_COUNT:
        bound = "1 at least" if found is None or found < 1 else f"{MOST_COUNT:,} at most"
        raise refused(f"{cut_repr(number)} environments cannot be made: {bound}")
    return found


def pairs(asked: Any) -> list[tuple[EnvironmentUuid, Any]]:
    """Check pairs of an environment's id and an action, and return them as a list."""
    items = _listed(asked)
    for pair in items:
        if not isinstance(pair, Sequence) or len(pair) != 2:
            raise refused(f"a step takes pairs of an id and an action, not {cut_repr(pair)}")
    return [(env_id, action) for env_id, action in items]


def ids(asked: Any, known: Iterable[EnvironmentUuid]) -> list[EnvironmentUuid]:
    """Check that all ids are known and differ, and return them as a list."""
    environments = set(known)
    if not environments:
        raise refused("there are no environments yet: call init_num_envs first")
    items = _listed(asked)
    seen: set[EnvironmentUuid] = set()
    for env_id in items:
        if not isinstance(env_id, EnvironmentUuid) or env_id not in environments:
            raise refused(f"there is no environment {cut_text(env_id)}")
        if env_id in seen:
            raise refused(f"environment {env_id} is named twice")
        seen.add(env_id)
    return items


def _listed(asked: Any) -> list[Any]:
    if isinstance(asked, str | bytes) or not isinstance(asked, Iterable):
        raise refused(f"several environments are named in a list, not {cut_repr(asked)}")
    items = list(islice(asked, MOST_COUNT + 1))
    if len(items) > MOST_COUNT:
        raise refused(f"more than {MOST_COUNT:,} environments are named")
    return items
