"""What every interface does with steps: actions are checked, infos are made of what there is."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.batches import Floats
from arkml.environment.decisions import Decision, Step
from arkml.errors import InvalidActions, UsageError


def checked(action: npt.ArrayLike, shape: tuple[int, ...], who: str) -> Floats:
    """An action as float32 of that shape, within [-1, 1]. Raises InvalidActions."""
    try:
        values = np.asarray(action, np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"{who} takes numbers, not {str(action)[:80]}") from error
    if values.shape != shape:
        raise InvalidActions(f"{who} takes actions of shape {shape}, not {values.shape}")
    if not ((values >= -1) & (values <= 1)).all():  # nor is what is no number
        wrong = values[~((values >= -1) & (values <= 1))].flat[0]
        raise InvalidActions(f"{who} takes actions from -1 to 1, not {wrong}")
    return values


def only_decision(step: Step, interface: str) -> Decision:
    """The decision of an environment that has one behaviour. Raises UsageError."""
    names = {decision.behaviour.name for decision in step.decisions}
    if len(names) != 1:
        raise UsageError(f"{interface} has one behaviour, not {', '.join(sorted(names)) or 'none'}")
    return step.decisions[0]


def ending(step: Step) -> dict[str, Any]:
    """What an info says of a guest that goes on no more."""
    found: dict[str, Any] = {}
    if step.done:
        found["guest_done"] = True
    if step.error is not None:
        found["error"] = str(step.error)
    return found


def metadata_of(decision: Decision, row: int) -> dict[str, float]:
    """What the guest said with one row, by name."""
    place = decision.places[row]
    return {item.name: item.value for item in decision.metadata if item.row == place}
