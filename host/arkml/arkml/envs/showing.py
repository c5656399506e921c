"""Checks of actions and contents of infos that all interfaces share."""

from __future__ import annotations

from typing import Any

import numpy.typing as npt

from arkml.batches import Floats
from arkml.envs.core.coercion import floats_of
from arkml.envs.core.decisions import Behavior, Decision, InPlace, Step
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.id_search import positions_in
from arkml.envs.core.specs import Actions
from arkml.errors import InvalidActions, UsageError


def checked(action: npt.ArrayLike, actions: Actions, who: str) -> Floats:
    """Return the columns of one action as float32, [num_actions]. `who` is for InvalidActions."""
    try:
        values = floats_of(action)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"{who} takes numbers, not {str(action)[:80]}") from error
    if values.shape != (actions.width,):
        raise InvalidActions(f"{who} takes actions of shape {(actions.width,)}, not {values.shape}")
    actions.check(values, who)
    return values


def only_decision(step: Step, interface: str, behavior: Behavior | None = None) -> Decision:
    """
    Return the decision of a step of one behavior, which is `behavior` if given.

    Raises UsageError for several behaviors, or another one.
    """
    names = {decision.behavior.name for decision in step.decisions}
    if len(names) != 1:
        raise UsageError(
            f"{interface} has one behavior, not {', '.join(sorted(names)) or 'none'}: choose one"
            " with behaviors="
        )
    decision = step.decisions[0]
    if behavior is not None and decision.behavior != behavior:
        raise UsageError(
            f"the guest continues with {decision.behavior.name}: {interface} has one behavior,"
            " choose it with behaviors="
        )
    return decision


def guest_info(env: GuestEnv, step: Step | None) -> dict[str, Any]:
    """Return the info of a guest: its demonstrations, and the reason if its `step` is the last."""
    info: dict[str, Any] = {}
    if demonstrations := env.take_demonstrations():
        info["demonstrations"] = demonstrations
    if step is None:
        return info
    if step.done:
        info["guest_done"] = True
    if step.error is not None:
        info["error"] = str(step.error)
    return info


def metadata_of(rows: Decision | InPlace, row: int) -> dict[str, float]:
    """Return the metadata of one row by name."""
    return metadata_by_row(rows).get(row, {})


def metadata_by_row(rows: Decision | InPlace) -> dict[int, dict[str, float]]:
    """Return the metadata of the rows that have any, by row and name."""
    by_row: dict[int, dict[str, float]] = {}
    if log := rows.metadata:
        having = positions_in(rows.places, log.rows).tolist()
        for row, code, value in zip(having, log.codes.tolist(), log.values.tolist(), strict=True):
            by_row.setdefault(row, {})[log.names[code]] = value
    return by_row
