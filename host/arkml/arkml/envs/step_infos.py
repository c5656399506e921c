"""The decision of a step, and the contents of infos, as all interfaces show them."""

from __future__ import annotations

from typing import Any

from arkml.envs.core.decisions import Behavior, Decision, InPlace, Step
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.id_search import positions_in
from arkml.errors import UsageError


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
    if step.has_finished:
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
        having = positions_in(rows.submit_rows, log.rows).tolist()
        for row, code, value in zip(having, log.codes.tolist(), log.values.tolist(), strict=True):
            by_row.setdefault(row, {})[log.names[code]] = value
    return by_row
