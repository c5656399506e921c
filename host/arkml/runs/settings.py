"""The settings of a learner as keywords, typed for editors and type checkers."""

from __future__ import annotations

from typing import Literal, TypedDict

from arkml.hive.protocol.settings import Settings

_LARGEST = 1 << 32
_WIDTHS = ("features", "actions", "branches")  # compared with the guest's when a run starts


class LearnerSettings(TypedDict, total=False):
    """
    Settings of a learner; a missing key keeps the value that the guest asks for, or the default.

    docs/training.md explains each key. Names and types are those of the fields of
    `arkml.hive.protocol.settings.Settings`.
    """

    algorithm: str
    hidden: int
    layers: int
    alpha: float | Literal["auto"]
    use_terminal_masking: bool
    learning_rate_init: float
    learning_rate_end: float
    learning_rate_steps: int
    batch_size: int
    memory_min_size: int
    memory_max_size: int
    gamma: float
    tau: float
    rollout_length: int
    normalize: bool
    demo_fraction: float
    updates_per_row: float
    rollout_rows: int
    epochs: int
    clip_range: float
    gae_lambda: float
    entropy_coefficient: float
    value_coefficient: float
    max_gradient_norm: float
    seed: int
    sync_interval: int
    device: Literal["auto", "cpu", "cuda"]
    sync: bool


def require_valid(settings: LearnerSettings) -> None:
    """Raise InvalidSettings for values that no run can have, whatever its guest asks for."""
    widest = Settings(1, 1, memory_min_size=1, memory_max_size=_LARGEST)
    widest.changed({name: value for name, value in settings.items() if name not in _WIDTHS})
