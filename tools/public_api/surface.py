"""The public names: what the guides promise, by the module that they are imported from."""

from __future__ import annotations

from collections.abc import Mapping

EVERYTHING = ("*",)
"""All names that a module lists in `__all__`, or else defines without an underscore."""

_LLAPI = "arkml.envs.llapi"
_ADAPTORS = "arkml.async_trainer.adaptors"

SURFACE: Mapping[str, tuple[str, ...]] = {
    "arkml": EVERYTHING,
    "arkml.errors": EVERYTHING,
    "arkml.abi.codes": ("EpisodeState", "ErrorCode", "SnapshotFormat"),
    "arkml.envs": EVERYTHING,
    "arkml.hive.protocol.settings": ("Settings",),
    # Environments.
    "arkml.envs.gym": ("NAME",),
    "arkml.envs.gymnasium_env": ("GuestGymEnv",),
    "arkml.envs.gymnasium_fleet": ("GuestFleetVectorEnv",),
    "arkml.envs.gymnasium_vector": ("GuestVectorEnv",),
    "arkml.envs.step_arrays": ("StepArrays",),
    "arkml.envs.pettingzoo_env": ("GuestParallelEnv", "env", "parallel_env"),
    "arkml.envs.sb3": ("GuestSb3VecEnv",),
    "arkml.envs.vector_env": ("VectorEnvOptions", "vector_env"),
    "arkml.envs.relayrl": EVERYTHING,
    "arkml.envs.relayrl.flat": EVERYTHING,
    # The names of mlagents_envs, in its modules.
    f"{_LLAPI}.base_env": EVERYTHING,
    f"{_LLAPI}.environment": ("UnityEnvironment",),
    f"{_LLAPI}.exception": EVERYTHING,
    f"{_LLAPI}.guest_unity_env": ("GuestUnityEnv",),
    f"{_LLAPI}.registry": EVERYTHING,
    f"{_LLAPI}.registry.unity_env_registry": ("UnityEnvRegistry", "default_registry"),
    f"{_LLAPI}.side_channel": EVERYTHING,
    f"{_LLAPI}.side_channel.engine_configuration_channel": (
        "EngineConfig",
        "EngineConfigurationChannel",
    ),
    f"{_LLAPI}.side_channel.environment_parameters_channel": ("EnvironmentParametersChannel",),
    f"{_LLAPI}.side_channel.float_properties_channel": ("FloatPropertiesChannel",),
    f"{_LLAPI}.side_channel.raw_bytes_channel": ("RawBytesChannel",),
    f"{_LLAPI}.side_channel.stats_side_channel": ("StatsAggregationMethod", "StatsSideChannel"),
    f"{_LLAPI}.envs.unity_aec_env": ("UnityAECEnv",),
    f"{_LLAPI}.envs.unity_gym_env": ("UnityToGymWrapper",),
    f"{_LLAPI}.envs.unity_parallel_env": ("UnityParallelEnv",),
    # The asynchronous trainer.
    "arkml.async_trainer": (
        "Actor", "ActorManager", "ActorManagerConfig", "ActorStat", "AsyncTrainStat",
        "AsyncTrainer", "AsyncTrainerConfig", "BorderAsyncTrainerError", "PushedItemMessage",
        "ReplayBufferProxy", "ReplayBufferProxyConfig", "SendMsgForPush", "SyncModel",
        "actor_stats_fmt",
    ),
    f"{_ADAPTORS}.guest_env": (
        "AgentsAsEnv", "AgentsConfig", "GuestsAsEnv", "GuestsConfig",
    ),
    f"{_ADAPTORS}.gymnasium_env": ("GymnasiumAsEnv", "GymnasiumConfig"),
    f"{_ADAPTORS}.sac_agent": (
        "PARAMETERS", "POLICY", "SacAgent", "SacAgentConfig", "SacModel",
    ),
    f"{_ADAPTORS}.sac_rows": (
        "SacItem", "SacReplayBuffer", "SacReplayBufferConfig", "SacStepProcessor",
        "SacStepProcessorConfig",
    ),
    "arkml.async_trainer.core": EVERYTHING,
    "arkml.async_trainer.util": ("AsyncTrainResult", "train_async"),
    "arkml.testing.async_trainer": EVERYTHING,
    # Trials.
    "arkml.trials": EVERYTHING,
    # Tests of guests.
    "arkml.testing": EVERYTHING,
    "arkml.testing.relayrl": ("check_scalar", "check_vector"),
}  # fmt: skip

MEMBERS: Mapping[str, tuple[str, ...]] = {
    "arkml.Batch": (
        "__len__", "actions", "features", "keys", "pushed_actions", "rows", "scratch", "values",
    ),
    "arkml.CompiledModule": ("digest", "functions", "info", "limits", "name"),
    "arkml.Fleet": (
        "__len__", "call", "close", "guests", "initialize", "join", "name", "read", "remove",
        "replace", "slowest", "statistics", "update", "update_async", "use", "write",
    ),
    "arkml.Host": ("__init__", "close", "compile", "fleet", "limits", "load", "use", "wasi"),
    f"{_ADAPTORS}.guest_env.AgentsConfig": (
        "__init__", "builds", "module", "module_hash", "options", "seed",
    ),
    f"{_ADAPTORS}.guest_env.GuestsConfig": (
        "__init__", "builds", "count", "module", "module_hash", "options", "seed",
    ),
    f"{_ADAPTORS}.gymnasium_env.GymnasiumConfig": (
        "__init__", "arguments", "builds", "count", "env", "rescales",
    ),
    f"{_ADAPTORS}.sac_rows.SacReplayBuffer": ("__len__", "batch", "build", "capacity", "push"),
    "arkml.testing.RecordingPolicies": (
        "__init__", "batches", "failure", "limit_runs", "load", "load_file", "load_network",
        "load_override", "load_version", "network_keys", "networks", "policies", "prepare", "seed",
        "snapshots", "takes_snapshots", "workspace",
    ),
    "arkml.hive.protocol.settings.Settings": (
        "actions", "algorithm", "alpha", "batch_size", "branches", "clip_range", "demo_fraction",
        "device", "entropy_coefficient", "epochs", "features", "gae_lambda", "gamma", "hidden",
        "layers", "learning_rate_end", "learning_rate_init", "learning_rate_steps",
        "max_gradient_norm", "memory_max_size", "memory_min_size", "normalize", "rollout_length",
        "rollout_rows", "seed", "sync", "sync_interval", "tau", "updates_per_row",
        "use_terminal_masking", "value_coefficient",
    ),
}  # fmt: skip
"""The public members of classes that have others, for the rest of the package."""

NOT_MADE_BY_PROGRAMS = {
    "arkml.Batch", "arkml.CompiledModule", "arkml.EntryPoint", "arkml.Fleet", "arkml.FleetResult",
    "arkml.EvaluationResult", "arkml.Guest", "arkml.LearningCurve",
    "arkml.ModuleInfo", "arkml.Reply", "arkml.Statistics", "arkml.TrainedPolicy",
    "arkml.TrainingFailed", "arkml.TrainingProgress", "arkml.TrainingResult",
    "arkml.envs.Behavior", "arkml.envs.Decision", "arkml.envs.Demonstrations", "arkml.envs.Pace",
    "arkml.envs.Step",
    f"{_ADAPTORS}.guest_env.AgentsAsEnv", f"{_ADAPTORS}.guest_env.GuestsAsEnv",
    f"{_ADAPTORS}.gymnasium_env.GymnasiumAsEnv",
}  # fmt: skip
"""Classes whose objects a program gets; their constructors are not public."""
