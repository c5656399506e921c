"""
Guests behind the low-level Python API of ML-Agents.

Modules have the names of `mlagents_envs` 1.1: code for it runs with this package's name instead.
"""
