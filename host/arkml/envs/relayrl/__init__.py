"""The environment traits of RelayRL (`relayrl_env_trait` 1.1), and guests that have them."""

from arkml.envs.relayrl.guests import GuestScalarEnvironment, GuestVectorEnvironment
from arkml.envs.relayrl.kinds import (
    EnvDType,
    EnvInfo,
    EnvironmentError,
    EnvironmentKind,
    EnvironmentUuid,
    EnvNdArrayDType,
    EnvTchDType,
)
from arkml.envs.relayrl.traits import (
    DynScalarEnvironment,
    DynVectorEnv,
    Environment,
    EnvironmentHandle,
    ScalarEnvironment,
    ScalarEnvReset,
    ScalarEnvStep,
    TrainingPerformanceReturnFn,
    VectorEnvironment,
    VectorEnvReset,
    VectorEnvStep,
)

__all__ = [
    "DynScalarEnvironment",
    "DynVectorEnv",
    "EnvDType",
    "EnvInfo",
    "EnvNdArrayDType",
    "EnvTchDType",
    "Environment",
    "EnvironmentError",
    "EnvironmentHandle",
    "EnvironmentKind",
    "EnvironmentUuid",
    "GuestScalarEnvironment",
    "GuestVectorEnvironment",
    "ScalarEnvReset",
    "ScalarEnvStep",
    "ScalarEnvironment",
    "TrainingPerformanceReturnFn",
    "VectorEnvReset",
    "VectorEnvStep",
    "VectorEnvironment",
]
