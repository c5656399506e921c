"""An environment of one guest, whose agents take their actions from the caller."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy.typing as npt

from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.envs.core.decisions import Decision, Demonstrations, Step
from arkml.envs.core.declarations import Declaring
from arkml.envs.core.env_core import EnvCore
from arkml.envs.core.instance_factory import InstanceFactory, InstanceSettings, require_host
from arkml.envs.core.script import Configuration, kept_configuration
from arkml.envs.core.world import FRAME, Pace
from arkml.guests.guest import Guest
from arkml.host import Host, Source, own_source
from arkml.limits import Limits
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.memory import BytesLike, bytes_of
from arkml.runtime.wasi.linking import WasiGrant

IDLE_CALLS = 1_000


class GuestEnv(Sealed, Closing):
    """
    Steps a guest from one submit to the next.

    The guest sees a hive that starts every experiment at once. Each submit of a training session
    is a step. Submits of inference sessions are steps only if the guest has started no experiment,
    or with `inference=True`. `entry` is the export that is called: by default the frame of an
    applet, repeatedly, or a cmdlet once, with `args`. `configure` is passed to the guest's export
    of that name: text, or numbers. "{seed}" in both stands for the seed. `snapshot` is the ONNX
    file that the guest downloads. A guest stalls after `idle_calls` calls without a submit, or
    `seconds` in one step.

    An episode of an agent is cut after `max_episode_steps`: all agents of the instance are
    truncated in that step, and only a reset can follow.

    The guest's clocks are virtual: each call is a frame of `frame_seconds`, and so is each submit
    if the guest runs in a single call (see `pace`). Random numbers that it draws through `wasi`
    follow from the seed.

    Policies of sessions that are not stepped run in `host`; without one the environment has its
    own, with `limits` and `wasi`. An environment is pickled as the path and the digest of its
    module and its options, without the state of its guest.
    """

    _is_read_only = True

    def __init__(
        self,
        module: Source,
        *,
        entry: str | None = None,
        args: str = "",
        configure: Configuration = None,
        snapshot: BytesLike | None = None,
        inference: bool | None = None,
        behaviors: Collection[str] | None = None,
        spec: Declaring = None,
        idle_calls: int = IDLE_CALLS,
        seconds: float | None = None,
        frame_seconds: float = FRAME,
        max_episode_steps: int | None = None,
        wasi: WasiGrant | None = None,
        limits: Limits | None = None,
        host: Host | None = None,
        digest: str | None = None,
    ) -> None:
        require_host(host)
        configure = kept_configuration(configure)  # the caller may change a list later
        module = module if isinstance(module, CompiledModule) else own_source(module)
        snapshot = None if snapshot is None else bytes_of(snapshot)
        self._source = module
        self._settings = InstanceSettings(
            entry, args, configure, snapshot, inference, behaviors, idle_calls, seconds,
            frame_seconds, max_episode_steps,
        )  # fmt: skip
        self._wasi = wasi if host is None else host.wasi
        self._limits = limits if host is None else host.limits
        factory = InstanceFactory(
            module,
            self._settings,
            spec=spec,
            wasi=wasi,
            limits=limits,
            host=host,
            digest=digest,
            owner=type(self).__name__,
        )
        self._core = EnvCore(factory)
        self.host: Host = factory.host
        """The host of the guest."""
        self.module: CompiledModule = factory.module
        """The module of the guest."""
        self.pace: Pace = factory.pace
        """The speed of the guest's clock, which may be set at any time."""

    @property
    def guest(self) -> Guest | None:
        """The guest of the current instance, None before the first reset."""
        return None if self._core.instance is None else self._core.instance.guest

    @property
    def seedable(self) -> bool:
        """True if a seed reaches the guest."""
        return self._core.factory.script.is_seedable

    @property
    def reset_seconds(self) -> float:
        """Seconds that the last reset took, up to the first submit."""
        return self._core.reset_seconds

    @property
    def decision(self) -> Decision | None:
        """The decision that waits for actions, or None."""
        return self._core.decision

    def guest_id(self, agent: int) -> int:
        """Return the id that the guest gives a live agent. Raises KeyError for other numbers."""
        return self._core.factory.numbers.guest_id(agent)

    def reset(self, seed: int | None = None) -> Step:
        """
        Start over with a new instance, up to its first submit; live agents are not reported.

        Without `seed` the next one is drawn. Raises GuestError if the guest fails before its first
        submit, and UsageError if it has none of the `behaviors`.
        """
        return self._core.reset(seed)

    def step(self, actions: npt.ArrayLike) -> Step:
        """
        Answer the submit and run the guest to its next one.

        actions: finite numbers, [m, num_actions], of the agents in `decision.deciding`, in order.
        Raises InvalidActions, and UsageError if nothing waits for actions; the guest stays in its
        submit then.
        """
        return self._core.step(actions)

    def tell(self, message: BytesLike) -> bool:
        """
        Pass a message to the guest's export `arkml_side_channel(ptr, len)` before its next frame.

        A guest that runs in a single call gets it at its next reset. Returns False if the guest
        has no such export.
        """
        return self._core.factory.script.messages.add(bytes_of(message))

    def take_demonstrations(self) -> list[Demonstrations]:
        """Return the rows that the guest submitted with their actions since the last call."""
        instance = self._core.instance
        return [] if instance is None else instance.experiments.take_given()

    def close(self) -> None:
        """Free the instance. Raises GuestBusy while a call is in progress. Safe to call again."""
        self._core.close()

    def __getstate__(self) -> dict[str, Any]:
        source = self._source
        return {
            **asdict(self._settings),
            "module": source if isinstance(source, bytes) else str(Path(source).resolve()),
            "spec": self._core.factory.declarations.given or None,
            "wasi": self._wasi,
            "limits": self._limits,
            "digest": self.module.digest,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        GuestEnv.__init__(self, **state)


def core_of(env: GuestEnv) -> EnvCore:
    """Return the core of an environment, for the environments that are built on it."""
    return env._core  # noqa: SLF001
