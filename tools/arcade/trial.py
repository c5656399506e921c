"""The first steps of a new guest, and what it shows in them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from arkml import GuestEnv
from arkml.errors import ArkmlError


@dataclass(frozen=True, slots=True)
class Facts:
    """The figures of a guest in the table, or the reason why it has none."""

    size: int = 0
    imports: tuple[str, ...] = ()
    agents: int = 0
    observation: str = ""
    actions: str = ""
    error: str = ""


def tried(path: Path) -> Facts:
    """Load a guest with one copy of its game, step it once, and return its facts."""
    try:
        with GuestEnv(path, configure=(1, "{seed}")) as environment:
            imports = environment.module.info.imports
            (decision,) = environment.reset(seed=1).decisions
            spec = decision.behavior.spec
            zeros = np.zeros((len(decision.agents), decision.behavior.num_actions), np.float32)
            step = environment.step(zeros)
            if step.error is not None:
                return Facts(error=f"traps in its first step: {_first_line(step.error)}")
    except ArkmlError as error:
        return Facts(error=f"does not start: {_first_line(error)}")
    others = {one.module for one in imports if not one.module.startswith("ark-")}
    parts = ", ".join(
        f"{part.name} {'x'.join(str(side) for side in part.shape)}" for part in spec.observations
    )
    actions = spec.actions
    return Facts(
        size=path.stat().st_size,
        imports=tuple(sorted(others)),
        agents=len(decision.agents),
        observation=f"{decision.behavior.num_features}: {parts}",
        actions="x".join(str(branch) for branch in actions.branches)
        if actions.branches
        else f"{actions.continuous} continuous",
    )


def _first_line(error: object) -> str:
    return str(error).splitlines()[0]
