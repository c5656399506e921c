"""Programs with mistakes that a type checker shows; `make check` fails where one is not shown."""

import arkml
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.relayrl.guests import GuestScalarEnvironment
from arkml.envs.vector_env import vector_env
from arkml.testing import ThreadedHost


def right() -> None:
    """Use the package as its guides do."""
    arkml.Host(policy=lambda observations: observations[:, :1], seed=1)
    GuestGymEnv("x.wasm", configure=(1, "{seed}"), idle_calls=3)
    vector_env("x.wasm", per="guest", num_envs=3, frame_seconds=0.1)


def wrong() -> None:
    """Make one mistake a line."""
    arkml.Host(policy=3)  # type: ignore[arg-type]
    GuestGymEnv("x.wasm", idle_call=3)  # type: ignore[call-arg]
    GuestUnityEnv("x.wasm", frame_seconds="fast")  # type: ignore[arg-type]
    parallel_env("x.wasm", spawn="never")  # type: ignore[arg-type]
    GuestScalarEnvironment(7)  # type: ignore[arg-type]
    vector_env("x.wasm", per="guest", restart="always")  # type: ignore[arg-type]
    ThreadedHost(seeds=1)  # type: ignore[call-arg]
