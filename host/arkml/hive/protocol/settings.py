"""How a run learns: every number a learner needs, checked once."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from arkml.errors import InvalidSettings

KEY = "arkml"
"""Of a guest's configuration, the object under this key is ours; the rest is the guest's."""

_WHOLE = {
    "features": (1, 1 << 16),
    "actions": (1, 1 << 12),
    "hidden": (1, 8_192),
    "layers": (1, 8),
    "learning_rate_steps": (0, 1 << 32),
    "batch_size": (2, 1 << 17),
    "memory_min_size": (1, 1 << 32),
    "memory_max_size": (1_000, 1 << 32),
    "rollout_length": (1, 1_000),
    "seed": (0, (1 << 63) - 1),
    "sync_interval": (1, 1 << 32),
}
_NUMBERS = {
    "learning_rate_init": (0.0, 10.0),
    "learning_rate_end": (0.0, 10.0),
    "gamma": (0.0, 1.0),
    "tau": (0.0, 1.0),
    "demo_fraction": (0.0, 1.0),
    "rows_per_update": (0.01, 1e9),
    "max_updates_per_row": (1e-6, 1e3),
}


@dataclass(frozen=True, slots=True)
class Settings:
    """
    How a run learns.

    The defaults are those of stable-baselines3's SAC, which runs of ml-v1 to v3 get; a
    `ProtocolConfig` brings its own. `alpha` is the entropy temperature, "auto" to learn it.
    `learning_rate_steps` is how many updates lead from the first rate to the last, 0 for a
    constant one. `rollout_length` is the n of n-step returns. `rows_per_update` is how many rows
    are admitted for each update in `block`; `max_updates_per_row` is how often the learner may
    go over what it has. `sync` runs in lockstep with one host. `other` keeps what a configuration
    has beside these.
    """

    features: int
    actions: int
    algorithm: str = "sac"
    hidden: int = 256
    layers: int = 2
    alpha: float | str = "auto"
    use_terminal_masking: bool = True
    learning_rate_init: float = 3e-4
    learning_rate_end: float = 3e-4
    learning_rate_steps: int = 0
    batch_size: int = 256
    memory_min_size: int = 1_000
    memory_max_size: int = 1_000_000
    gamma: float = 0.99
    tau: float = 0.005
    rollout_length: int = 1
    normalize: bool = True
    demo_fraction: float = 0.0
    seed: int = 0
    sync_interval: int = 1
    rows_per_update: float = 8.0
    max_updates_per_row: float = 1.0
    device: str = "auto"
    sync: bool = False
    other: Mapping[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises InvalidSettings for a value that makes no sense."""
        for name, (low, high) in _WHOLE.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
                raise InvalidSettings(
                    f"{name} is {value!r}: it takes a whole number from {low} to {high}"
                )
        for name, bounds in _NUMBERS.items():
            if not _is_number(getattr(self, name), *bounds):
                raise InvalidSettings(
                    f"{name} is {getattr(self, name)!r}: it takes a number from {bounds[0]:g}"
                    f" to {bounds[1]:g}"
                )
        for name in ("use_terminal_masking", "normalize", "sync"):
            if not isinstance(getattr(self, name), bool):
                raise InvalidSettings(f"{name} is {getattr(self, name)!r}: it takes true or false")
        if self.alpha != "auto" and not _is_number(self.alpha, 0.0, 100.0):
            raise InvalidSettings(f'alpha is {self.alpha!r}: it takes "auto" or a number to 100')
        if self.device not in DEVICES:
            raise InvalidSettings(f"device is {self.device!r}: it takes auto, cpu or cuda")
        if self.algorithm not in ALGORITHMS:
            raise InvalidSettings(
                f"algorithm is {self.algorithm!r}: it takes one of {', '.join(ALGORITHMS)}"
            )
        if self.memory_min_size > self.memory_max_size:
            raise InvalidSettings(
                f"memory_min_size {self.memory_min_size} is over memory_max_size"
                f" {self.memory_max_size}"
            )

    @classmethod
    def from_json(cls, values: Mapping[str, Any]) -> Settings:
        """What `as_json` made. Raises InvalidSettings."""
        if not isinstance(values, Mapping):
            raise InvalidSettings(f"settings are an object, not {values!r}")
        known = {item.name for item in fields(cls)}
        unknown = set(values) - known
        if unknown or not {"features", "actions"} <= set(values):
            raise InvalidSettings(f"settings need features and actions, and have no {unknown}")
        return cls(**values)

    def as_json(self) -> dict[str, Any]:
        """All settings, to be written as JSON."""
        return asdict(self)

    def changed(self, values: Mapping[str, Any]) -> Settings:
        """
        With other values, as a person or a guest wrote them; unknown keys are kept in `other`.

        Raises InvalidSettings, also for features and actions, which are not for them to set.
        """
        if not isinstance(values, Mapping):
            raise InvalidSettings(f'"{KEY}" is {values!r}: it takes an object of settings')
        known = {item.name for item in fields(self)} - {"features", "actions", "other"}
        for name in ("features", "actions"):
            if name in values and values[name] != getattr(self, name):
                raise InvalidSettings(
                    f"{name} is {values[name]!r}: the guest says {getattr(self, name)}"
                )
        ours = {name: value for name, value in values.items() if name in known}
        rest = {n: v for n, v in values.items() if n not in known | {"features", "actions"}}
        return replace(self, **ours, other={**self.other, **rest})


DEVICES = ("auto", "cpu", "cuda")

ALGORITHMS = ("sac",)
"""What a learner can run."""


def from_protocol(protocol: Mapping[str, Any]) -> Settings:
    """The settings in a `ProtocolConfig` of ml-v4. Raises InvalidSettings."""
    values = dict(protocol)
    features, actions = values.pop("feature_count"), values.pop("action_count")
    values["use_terminal_masking"] = bool(values["use_terminal_masking"])
    return Settings(features, actions, **values)


def guest_settings(configuration: str) -> Mapping[str, Any]:
    """
    What of a guest's configuration is ours: the object under the key `arkml`.

    `configuration` is JSON, or empty. Raises InvalidSettings if that key holds no object.
    """
    if not configuration:
        return {}
    document = json.loads(configuration)
    ours = document.get(KEY, {}) if isinstance(document, dict) else {}
    if not isinstance(ours, dict):
        raise InvalidSettings(f'"{KEY}" is {ours!r}: it takes an object of settings')
    return ours


def _is_number(value: Any, low: float, high: float) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and low <= value <= high
