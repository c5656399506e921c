"""What `gymnasium.make_vec` makes of guests."""

from __future__ import annotations

from typing import Any, Literal

from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.errors import UsageError


def vector_env(
    module: Any, *, per: Literal["agent", "guest"] = "agent", **options: Any
) -> GuestVectorEnv | GuestFleetVectorEnv:
    """
    A vector environment with a sub-environment for each agent of one guest, or for each guest.

    `options` are those of `GuestVectorEnv` or `GuestFleetVectorEnv`. Raises UsageError.
    """
    if per == "agent":
        return GuestVectorEnv(module, **options)
    if per == "guest":
        return GuestFleetVectorEnv(module, **options)
    raise UsageError(f"per is {per!r}: it takes 'agent' or 'guest'")
