"""The entry point of `gymnasium.make_vec` for guests."""

from __future__ import annotations

from typing import Literal, Unpack

from gymnasium.vector import AutoresetMode

from arkml.base.short_reprs import cut_repr
from arkml.envs.core.env_options import GuestEnvOptions
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.vector_places import RestartMode, VectorRenderMode
from arkml.errors import UsageError
from arkml.host import Source


class VectorEnvOptions(GuestEnvOptions, total=False):
    """Keyword arguments of `GuestVectorEnv` and `GuestFleetVectorEnv`."""

    num_envs: int
    """The number of places: of guests, or of agents if it is more than 1."""

    autoreset_mode: AutoresetMode | str
    """`NEXT_STEP` by default, `SAME_STEP`, or, with a place for each guest, `DISABLED`."""

    render_mode: VectorRenderMode
    """"rgb_array": `render` returns a picture of each place."""

    restart: RestartMode
    """"on-failure": a guest that failed starts over."""


def vector_env(
    module: Source,
    *,
    per: Literal["agent", "guest"] | None = None,
    **options: Unpack[VectorEnvOptions],
) -> GuestVectorEnv | GuestFleetVectorEnv:
    """
    Return a vector environment of the agents of one guest, or of many guests with one agent each.

    Args:
        module: The path or the bytes of a guest.
        per: "agent" makes a `GuestVectorEnv`, "guest" a `GuestFleetVectorEnv`. None is "agent", but
            then `num_envs` may not exceed the number of the guest's agents, or its declared
            `slots`.
        options: Options of these environments, and of `GuestEnv`.

    Raises:
        UsageError: An option has a wrong value, or the guest has too few agents.
        GuestError: A guest failed before its first submit.

    Example:
        envs = vector_env("walker.wasm", per="guest", num_envs=64)

    """
    if per is None:
        return _full(GuestVectorEnv(module, **options))
    if per == "agent":
        return GuestVectorEnv(module, **options)
    if per == "guest":
        return GuestFleetVectorEnv(module, **options)
    raise UsageError(f"per is {cut_repr(per)}: it takes 'agent' or 'guest'")


def _full(envs: GuestVectorEnv) -> GuestVectorEnv:
    """Return an environment whose places are all for agents of its guest. Raises UsageError."""
    decision = envs.guest_env.decision
    assert decision is not None
    agents, slots = len(decision.acting_agents), decision.behavior.spec.slots or 0
    if envs.num_envs <= max(agents, slots):
        return envs
    envs.close()
    raise UsageError(
        f"num_envs is {envs.num_envs}, and {envs.guest_env.module.name} has {agents} agent"
        f"{'' if agents == 1 else 's'}: per='guest' makes that many guests of one agent each,"
        " per='agent' keeps empty places for agents that begin later"
    )
