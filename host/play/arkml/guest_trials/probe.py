"""The actor classes of a guest, one for each behavior, found by playing it for a short time."""

from __future__ import annotations

import keyword
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np

from arkml.batches import Floats
from arkml.envs.core.decisions import Behavior, Decision
from arkml.envs.core.guest_env import GuestEnv, core_of
from arkml.errors import GuestStalled, UsageError
from arkml.guest_trials.behavior_actions import ActionRule
from arkml.sessions.branches import DeclaredBranches
from arkml.sessions.declarations import ANY
from arkml.trials.core.parameters import MOST_ACTORS

_MOST_STEPS: Final = 1_000
_SETTLED: Final = 16  # submits without a new behavior: guests may start one after another

_OTHER = re.compile(r"[^A-Za-z0-9_]+")


@dataclass(frozen=True, slots=True)
class GuestClass:
    """A class of actors for the agents of one behavior; at most `slots` agents are live at once."""

    name: str
    behavior: Behavior
    slots: int

    def actor(self, slot: int) -> str:
        """Return the name of the actor in a slot, from 0."""
        return f"{self.name}_{slot}"


def probe(env: GuestEnv) -> tuple[GuestClass, ...]:
    """
    Return the classes of a guest, by playing default actions until each behavior has submitted.

    The environment is reset with the seed 0, and not reset again. Behaviors that the module
    declares may come late, or never: they are played for while there is time. A class has the
    number of slots that is declared, or that its first submit has rows. Raises GuestError for a
    guest that fails before, and UsageError for a guest with more agents than a trial may have
    actors.
    """
    first: dict[str, Decision] = {}
    step = env.reset(seed=0)
    newest = 0
    declared = DeclaredBranches(env.module.info.spec).behaviors.keys() - {ANY}
    for number in range(_MOST_STEPS):
        for decision in step.decisions:
            if decision.behavior.name not in first:
                first[decision.behavior.name] = decision
                newest = number
        has_all = not _awaited(env, first)
        is_settled = number - newest >= _SETTLED and declared <= first.keys()
        if step.has_ended or (has_all and is_settled):
            break
        waiting = env.decision
        assert waiting is not None
        step = env.step(_default_actions(waiting))
    if missing := _awaited(env, first):
        if step.error is not None:
            raise step.error
        raise GuestStalled(
            f"{env.module.name} submitted nothing for {min(missing)!r} in {_MOST_STEPS}"
            " submits of others: the slots of that behavior cannot be counted"
        )
    return _classes(env.module.name, first)


def _awaited(env: GuestEnv, seen: Mapping[str, Decision]) -> set[str]:
    """Return the names of the stepped behaviors that have not submitted yet."""
    instance = core_of(env).instance
    assert instance is not None
    runs = instance.experiments.started.values()
    return {run.behavior.name for run in runs if run.policy.is_stepped and run.sessions} - {*seen}


def _default_actions(decision: Decision) -> Floats:
    deciding = ~decision.ended
    masks = decision.masks
    allowed = ~np.concatenate(masks, axis=1)[deciding] if masks else None
    return ActionRule(decision.behavior.spec.actions).defaults(int(deciding.sum()), allowed)


def _classes(guest: str, first: Mapping[str, Decision]) -> tuple[GuestClass, ...]:
    names = class_names(list(first))
    classes = []
    for name, decision in zip(names, first.values(), strict=True):
        behavior = decision.behavior
        classes.append(GuestClass(name, behavior, behavior.spec.slots or len(decision)))
    if (total := sum(one.slots for one in classes)) > MOST_ACTORS:
        raise UsageError(f"{guest} has {total} agents, more than the {MOST_ACTORS} of a trial")
    return tuple(classes)


def class_names(behaviors: list[str]) -> list[str]:
    """
    Return an identifier for each name of a behavior, all different, in the same order.

    Characters that identifiers cannot have become "_". A number is appended to a name that is
    taken, and "_" to a keyword of Python.
    """
    names: list[str] = []
    for behavior in behaviors:
        name = _OTHER.sub("_", behavior) or "_"
        if name[0].isdigit():
            name = f"_{name}"
        if keyword.iskeyword(name):  # spec files refuse them
            name = f"{name}_"
        names.append(_free(name, names))
    return names


def _free(name: str, taken: list[str]) -> str:
    if name not in taken:
        return name
    number = 2
    while f"{name}_{number}" in taken:
        number += 1
    return f"{name}_{number}"
