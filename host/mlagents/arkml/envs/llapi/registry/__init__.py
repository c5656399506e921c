"""A registry of environments by name, which are downloaded at their first use."""

from arkml.envs.llapi.registry.unity_env_registry import UnityEnvRegistry, default_registry

__all__ = ["UnityEnvRegistry", "default_registry"]
