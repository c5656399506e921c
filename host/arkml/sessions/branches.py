"""Discrete actions that a guest declares; the learners of a hive cannot train them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from arkml.errors import NotTrainable


def declared_branches(spec: bytes | None) -> dict[str, list[Any]]:
    """
    Return the discrete branches that a module declares in its section `arkml.spec`, by behavior.

    "*" stands for any other behavior. A section that cannot be read declares nothing.
    """
    try:
        document = json.loads(spec or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or not document:
        return {}
    behaviors = document.get("behaviors", {"*": document})
    if not isinstance(behaviors, dict):
        return {}
    return {name: _branches(declared) for name, declared in behaviors.items()}


def require_continuous(name: str, declared: Mapping[str, list[Any]], own: object = None) -> None:
    """
    Raise NotTrainable for a behavior with discrete branches.

    `declared` is the declaration of its module, which precedes `own`, that of the behavior itself.
    """
    branches = declared.get(name, declared.get("*"))
    if branches is None:
        branches = _branches(own)
    if branches:
        choices = ", ".join(map(str, branches))
        raise NotTrainable(
            f"{name!r} declares discrete actions (branches of {choices}), and the learner of a hive"
            " takes continuous ones only: PPO of stable-baselines3 over arkml.envs.gym can train"
            " it, or ML-Agents over `arkml player`"
        )


def _branches(declared: object) -> list[Any]:
    actions = declared.get("actions") if isinstance(declared, dict) else None
    discrete = actions.get("discrete") if isinstance(actions, dict) else None
    return discrete if isinstance(discrete, list) else []
