"""PPO's settings for few agents and for many: sizes of rollouts and minibatches, and others."""

from __future__ import annotations

from typing import Any

from arkml.hive.protocol.settings import Settings

MANY = 64
"""Agents from which on a run with the pace "auto" learns for throughput."""

STEPS = 64
"""Steps of each agent in a rollout of many agents."""

_FEW_BATCH = 512
_RATE = 3e-3  # of large minibatches
_LEAST, _MOST = 16_384, 131_072  # rows of such a rollout
_LEAST_STEPS = 8  # of so many agents that they would fill the largest rollout with less
_LARGEST = 1 << 20  # that the setting takes
_MOST_GAMMA = 0.999
_MINIBATCHES = 8  # of an epoch, if none is larger than _MOST_BATCH
_MOST_BATCH = 4_096
_MOST_NUMBERS = 1 << 26  # features of all rows: 256 MiB
_DEFAULTS = Settings(1, 1)


def is_for_throughput(settings: Settings, agents: int) -> bool:
    """Return whether a run with this number of agents is tuned for throughput."""
    return settings.pace == "throughput" or (settings.pace == "auto" and agents >= MANY)


def planned(settings: Settings, agents: int) -> Settings:
    """
    Return the settings with which PPO learns from this number of simultaneous agents.

    Settings that have their defaults get values by the number of agents; all others stay.
    docs/training_defaults.md has the table, and how the values were found.
    """
    values: dict[str, Any] = {"entropy_coefficient": 0.01} if settings.branches else {}
    if is_for_throughput(settings, agents):
        values |= _for_throughput(settings, agents)
    else:
        values["batch_size"] = _FEW_BATCH
    return settings.changed(
        {n: v for n, v in values.items() if getattr(settings, n) == getattr(_DEFAULTS, n)}
    )


def discount(settings: Settings, agents: int, steps: float) -> float:
    """
    Return gamma for PPO, given the number of agents and the mean length of episodes in steps.

    In a run tuned for throughput, gamma follows the length, between 0.99 and 0.999, so that the
    horizon is about as long as an episode, unless a gamma is set. In a short game a far horizon
    takes away the reason to hurry, and in a long game a near horizon never reaches the end of an
    episode.
    """
    if settings.gamma != _DEFAULTS.gamma or not is_for_throughput(settings, agents):
        return settings.gamma
    return min(max(1.0 - 1.0 / max(steps, 1.0), settings.gamma), _MOST_GAMMA)


def _for_throughput(settings: Settings, agents: int) -> dict[str, Any]:
    rows = 1 << (STEPS * agents - 1).bit_length()
    fitting = max(settings.batch_size, _MOST_NUMBERS // settings.features)
    rows = min(max(rows, _LEAST), max(_MOST, _LEAST_STEPS * agents), fitting, _LARGEST)
    return {
        "rollout_rows": rows,
        "epochs": 2,
        "batch_size": min(_MOST_BATCH, rows // _MINIBATCHES),
        "learning_rate_init": _RATE,
        "learning_rate_end": _RATE,
    }
