"""Discrete actions that a guest declares: the branches of the runs that it starts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from arkml.errors import NotTrainable

MOST_CHOICES = 4_096
"""Choices of all branches of an action together."""


class DeclaredBranches:
    """
    The branches that a guest declares for its behaviors.

    They come from the section `arkml.spec` of its module, else from the `spec` in the configuration
    of a run. A section that cannot be read declares nothing.
    """

    def __init__(self, section: bytes | None) -> None:
        self._behaviors = _behaviors(section)

    @property
    def discrete(self) -> tuple[int, ...]:
        """The branches of one behavior if all that the module declares have some, else none."""
        every = [_sizes(name, _discrete(one)) for name, one in self._behaviors.items()]
        return every[0] if every and all(every) else ()

    def of(self, name: str, num_actions: int, own: object = None) -> tuple[int, ...]:
        """
        Return the number of choices of each of the last actions of a behavior, which are discrete.

        `own` is the declaration in the configuration of its run. Raises NotTrainable for a
        declaration that cannot be, or contradicts `num_actions`.
        """
        declared = self._behaviors.get(name, self._behaviors.get("*", own))
        sizes = _sizes(name, _discrete(declared))
        continuous = _actions(declared).get("continuous")
        if continuous is None:
            continuous = max(0, num_actions - len(sizes))
        if type(continuous) is not int or continuous < 0:
            raise NotTrainable(
                f"{name!r} declares {continuous!r} continuous actions: it takes a whole number"
            )
        if continuous + len(sizes) != num_actions:
            raise NotTrainable(
                f"{name!r} declares {continuous} continuous actions and {len(sizes)} branches, and"
                f" starts a run of {num_actions} actions"
            )
        return sizes

    def require(self, name: str, num_actions: int, branches: Sequence[int]) -> None:
        """Raise NotTrainable if a behavior's declaration contradicts the branches of its run."""
        if name not in self._behaviors and "*" not in self._behaviors:
            return
        own = self.of(name, num_actions)
        if own != tuple(branches):
            raise NotTrainable(
                f"{name!r} declares branches of {_listed(own)} choices, and its run has branches of"
                f" {_listed(branches)}"
            )


def _behaviors(section: bytes | None) -> dict[str, Any]:
    """Return the declarations by behavior; "*" stands for any other."""
    try:
        document = json.loads(section or b"{}")
    except (ValueError, RecursionError):
        return {}
    if not isinstance(document, dict) or not document:
        return {}
    behaviors = document.get("behaviors", {"*": document})
    return behaviors if isinstance(behaviors, dict) else {}


def _actions(declared: object) -> Mapping[str, Any]:
    actions = declared.get("actions") if isinstance(declared, dict) else None
    return actions if isinstance(actions, dict) else {}


def _discrete(declared: object) -> object:
    return _actions(declared).get("discrete", [])


def _sizes(name: str, discrete: object) -> tuple[int, ...]:
    """Return the sizes of branches as they are declared. Raises NotTrainable."""
    if not isinstance(discrete, list):
        raise NotTrainable(f"{name!r} declares {discrete!r} as its branches: it takes a list")
    for size in discrete:
        if type(size) is not int or not 1 <= size <= MOST_CHOICES:
            raise NotTrainable(
                f"{name!r} declares a branch of {size!r} choices: it takes a whole number from 1 to"
                f" {MOST_CHOICES}"
            )
    if sum(discrete) > MOST_CHOICES:
        raise NotTrainable(
            f"{name!r} declares {sum(discrete)} choices in all branches: a run takes"
            f" {MOST_CHOICES} at most"
        )
    return tuple(discrete)


def _listed(branches: Sequence[int]) -> str:
    return ", ".join(map(str, branches)) or "no"
