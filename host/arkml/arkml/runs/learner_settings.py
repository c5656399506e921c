"""The settings of a learner as keywords, typed for editors and type checkers."""

from __future__ import annotations

from typing import Any, Literal, TypedDict

from arkml.base.short_reprs import cut_repr
from arkml.base.texts import did_you_mean
from arkml.hive.protocol.parts import Part
from arkml.hive.protocol.settings import DECIDED_BY_GUEST, Settings

_LARGEST = 1 << 32


class LearnerSettings(TypedDict, total=False):
    """
    Settings of a learner; a missing key keeps the guest's value, or the default.

    docs/training_settings.md explains each key. Names and types are the same as in
    `arkml.hive.protocol.settings.Settings`.
    """

    algorithm: str
    pace: Literal["auto", "efficient", "throughput"]
    hidden: int
    layers: int
    encoder: Literal["small", "large", "impala"]
    shifts: int
    frames: int
    memory: int
    sequence_length: int
    noise: Literal["auto", "white", "pink"]
    alpha: float | Literal["auto"]
    target_entropy: float
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
    target_kl: float
    gae_lambda: float
    entropy_coefficient: float
    value_coefficient: float
    max_gradient_norm: float
    seed: int
    sync_interval: int
    device: Literal["auto", "cpu", "cuda"]
    precision: Literal["auto", "float32"]
    sync: bool


_LEARNERS = ("ppo", "sac")  # those of other packages may have settings of their own
_OF_THE_GUEST = ("spec",)  # read from the same object
_SHOWN = 5
_MANY_STEPS = 5
_LARGE_RATE = 3e-3
_LARGE_UPDATE = 64e6  # units of a layer, squared, times rows: a fifth of a second of a core


def doubts(settings: Settings) -> dict[str, str]:
    """
    Return a sentence for each setting whose value usually makes learning bad, by name.

    An example is a `learning_rate_init` above 0.003. The settings take effect all the same.
    docs/training_defaults.md measures the effect of `rollout_length`. The name "other" lists
    unknown settings, for a learner of this package.
    """
    found = {}
    unknown = [name for name in settings.other if name not in _OF_THE_GUEST]
    if unknown and settings.learner in _LEARNERS:
        shown = ", ".join(map(_suggested, unknown[:_SHOWN])) + ("…" if unknown[_SHOWN:] else "")
        found["other"] = (
            f"{shown}: there is no such setting, and {settings.learner} does without; it has"
            f" {', '.join(LearnerSettings.__annotations__)}"
        )
    if settings.learner == "sac" and settings.rollout_length >= _MANY_STEPS:
        found["rollout_length"] = (
            f"rollout_length {settings.rollout_length}: returns of that many steps take their"
            " actions from old policies, and SAC learns less surely than with 1"
        )
    if settings.learning_rate_init > _LARGE_RATE:
        found["learning_rate_init"] = (
            f"learning_rate_init {settings.learning_rate_init:g}: a rate above {_LARGE_RATE:g}"
            " makes losses jump; 0.001 is the default"
        )
    if settings.hidden**2 * settings.batch_size > _LARGE_UPDATE:
        found["hidden"] = (
            f"hidden {settings.hidden} with batch_size {settings.batch_size}: an update takes a"
            " large part of a second on one core, and only a few of them are made for many rows"
        )
    return found


def _suggested(unknown: str) -> str:
    """Return the name of an unknown setting, with the one that may be meant."""
    hint = did_you_mean(unknown, LearnerSettings.__annotations__)
    return f"{cut_repr(unknown)} ({hint})" if hint else cut_repr(unknown)


def differences(asked: LearnerSettings, own: Settings) -> list[str]:
    """
    Return texts on settings that a run has with other values, such as "gamma 0.5, it has 0.99".

    Values that a hive may have decided count as equal: a device for "auto", and a smaller replay
    buffer.
    """
    wanted = own.changed(asked)
    found = []
    for name, value in asked.items():
        given: Any = getattr(wanted, name, wanted.other.get(name))
        kept: Any = getattr(own, name, own.other.get(name))
        is_equal = bool(given == kept)
        if name == "algorithm":
            is_equal = wanted.learner == own.learner
        elif name == "device":
            is_equal = is_equal or value == "auto"
        elif name == "memory_max_size":
            is_equal = bool(given >= kept)
        if not is_equal:
            found.append(f"{cut_repr(name)[1:-1]} {cut_repr(given)}, it has {cut_repr(kept)}")
    return found


def require_valid(settings: LearnerSettings) -> None:
    """Raise InvalidSettings for values that no run can have, whatever its guest asks for."""
    image = Part("image", (1, 1, 1), "image")
    widest = Settings(1, 1, memory_min_size=1, memory_max_size=_LARGEST, parts=(image,))
    asked = {n: value for n, value in settings.items() if n not in DECIDED_BY_GUEST}
    widest.changed(asked)  # the others are compared with the guest's when a run starts
