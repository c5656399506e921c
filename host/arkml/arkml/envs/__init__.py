"""
Guests as environments for other learners, by the interfaces of Gymnasium, PettingZoo and others.

The names here are the types of arguments and results of environments. Each interface has a module
of its own, for example `arkml.envs.gymnasium_env`, which needs the packages of that interface.
"""

from __future__ import annotations

from importlib import import_module
from pkgutil import extend_path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from arkml.envs.core.decisions import Behavior, Decision, Demonstrations, Step
    from arkml.envs.core.specs import Actions, ObservationPart, Spec
    from arkml.envs.core.world import Pace
    from arkml.sessions.session import Origin

__path__ = extend_path(__path__, __name__)

__all__ = [
    "Actions",
    "Behavior",
    "Decision",
    "Demonstrations",
    "ObservationPart",
    "Origin",
    "Pace",
    "Spec",
    "Step",
]

# Imported when first asked for: the ML-Agents of this folder need none of them.
_HOMES = {
    "Actions": "arkml.envs.core.specs",
    "Behavior": "arkml.envs.core.decisions",
    "Decision": "arkml.envs.core.decisions",
    "Demonstrations": "arkml.envs.core.decisions",
    "ObservationPart": "arkml.envs.core.specs",
    "Origin": "arkml.sessions.session",
    "Pace": "arkml.envs.core.world",
    "Spec": "arkml.envs.core.specs",
    "Step": "arkml.envs.core.decisions",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'arkml.envs' has no attribute {name!r}")
    value = getattr(import_module(_HOMES[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
