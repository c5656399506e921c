"""
Registration of `arkml/Guest-v0` with Gymnasium, by importing this module.

`gymnasium.make("arkml.envs.gym:arkml/Guest-v0", module="x.wasm")` imports it first.
"""

from __future__ import annotations

import gymnasium

NAME = "arkml/Guest-v0"

gymnasium.register(
    NAME,
    entry_point="arkml.envs.gymnasium_env:GuestGymEnv",
    vector_entry_point="arkml.envs.vector_env:vector_env",
)
