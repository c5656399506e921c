"""A factory of PettingZoo environments from the default registry."""

from __future__ import annotations

from typing import Any

from arkml.envs.llapi.envs.unity_aec_env import UnityAECEnv
from arkml.envs.llapi.exception import UnityWorkerInUseException
from arkml.envs.llapi.registry import default_registry
from arkml.envs.llapi.side_channel.engine_configuration_channel import EngineConfigurationChannel
from arkml.envs.llapi.side_channel.environment_parameters_channel import (
    EnvironmentParametersChannel,
)
from arkml.envs.llapi.side_channel.stats_side_channel import StatsSideChannel

_FIRST_PORT = 6000
_LAST_PORT = 65_535


class PettingZooEnvFactory:
    """A maker of one environment of the registry, as a PettingZoo environment."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    def env(
        self, seed: int | None = None, *, legacy_api: bool = False, **kwargs: Any
    ) -> UnityAECEnv:
        """
        Start the environment and return it. `kwargs` are passed to UnityEnvironment.

        `seed` is for the action spaces. Defaults are the first free port from 6000 on, and the side
        channels of the engine, the parameters and the statistics.
        """
        kwargs.setdefault(
            "side_channels",
            [EngineConfigurationChannel(), EnvironmentParametersChannel(), StatsSideChannel()],
        )
        entry = default_registry[self.env_id]
        if "base_port" in kwargs:
            return UnityAECEnv(entry.make(**kwargs), seed, legacy_api=legacy_api)
        for port in range(_FIRST_PORT, _LAST_PORT):
            try:
                made = entry.make(base_port=port, **kwargs)
            except UnityWorkerInUseException:
                continue
            return UnityAECEnv(made, seed, legacy_api=legacy_api)
        raise UnityWorkerInUseException(kwargs.get("worker_id", 0))
