"""The decision of a step, and the contents of infos, which all interfaces have in common."""

from __future__ import annotations

from typing import Any

from arkml.envs.core.decisions import Behavior, Decision, InPlace, Step
from arkml.envs.core.guest_env import GuestEnv
from arkml.envs.core.id_search import positions_in
from arkml.errors import UsageError


def only_decision(step: Step, interface: str, behavior: Behavior | None = None) -> Decision:
    """
    Return the one decision of a step, which must be of `behavior` if that is given.

    Raises UsageError if the step has several behaviors, or another one.
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
    """Return the info about a guest: its demonstrations, and why it ended if `step` is its last."""
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
    """Return the metadata of one row as a dict of values by name."""
    return metadata_by_row(rows).get(row, {})


def metadata_by_row(rows: Decision | InPlace) -> dict[int, dict[str, float]]:
    """Return the metadata of all rows that have some, as a dict of values by name for each row."""
    by_row: dict[int, dict[str, float]] = {}
    if log := rows.metadata:
        having = positions_in(rows.submit_rows, log.rows).tolist()
        for row, code, value in zip(having, log.codes.tolist(), log.values.tolist(), strict=True):
            by_row.setdefault(row, {})[log.names[code]] = value
    return by_row
