"""The low-level Python API of Unity ML-Agents, compatible with the package `mlagents_envs`."""

__version__ = "1.1.0"  # the `mlagents_envs` that this package stands in for, as told to players
