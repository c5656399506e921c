"""
Importing this tells Gymnasium of guests: `arkml/Guest-v0`, for `make` and `make_vec`.

`gymnasium.make("arkml.envs.gym:arkml/Guest-v0", module="x.wasm")` imports it by itself.
"""

from __future__ import annotations

import gymnasium

NAME = "arkml/Guest-v0"

gymnasium.register(
    NAME,
    entry_point="arkml.envs.gymnasium_env:GuestGymnasiumEnv",
    vector_entry_point="arkml.envs.vector_env:vector_env",
)
