"""How a guest's learner is set in the benchmark of learning: tuned, and by each of the defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from msgspec import NODEFAULT
from msgspec.structs import fields
from tests.benchmarks.games import AGENTS, ROWS_PER_UPDATE, Game

from arkml.hive.protocol.settings import Settings

PROTOCOL: Mapping[str, Any] = {
    "hidden": 1024,
    "alpha": 0.01,
    "use_terminal_masking": True,
    "learning_rate_init": 1e-2,
    "learning_rate_end": 1e-4,
    "learning_rate_steps": 300_000,
    "batch_size": 4_000,
    "memory_min_size": 5_000,
    "memory_max_size": 1_000_000,
    "gamma": 0.97,
    "rollout_length": 5,
}
"""`ProtocolConfig::default()` of the crate `ark-api`."""


@dataclass(frozen=True, slots=True)
class Configuration:
    """
    `settings` go over those that a guest asks for, as `--config` does. `agents` is None for as
    many as the guest has by itself; `seeds` is how many are run, each for at most `seconds`.
    """

    name: str
    agents: int | None
    seeds: int
    settings: Callable[[Game], Mapping[str, Any]]
    seconds: float = 300.0  # what `arkml train` plays without options


def _tuned(game: Game) -> Mapping[str, Any]:
    return {**game.settings, "updates_per_row": 1 / ROWS_PER_UPDATE}


_DEFAULTS: Mapping[str, Any] = {
    item.name: item.default for item in fields(Settings) if item.default is not NODEFAULT
}

TUNED = Configuration("tuned", AGENTS, 3, _tuned)
COMMAND = Configuration("arkml train", None, 3, lambda _: {})
SETTINGS = Configuration("default settings", None, 3, lambda _: _DEFAULTS)
CRATE = Configuration(
    "default ProtocolConfig", None, 1, lambda _: {**_DEFAULTS, **PROTOCOL}, seconds=120.0
)
CONFIGURATIONS = {one.name: one for one in (TUNED, COMMAND, SETTINGS, CRATE)}
