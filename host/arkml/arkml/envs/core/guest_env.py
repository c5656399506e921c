"""An environment of one guest, whose agents take their actions from the caller."""

from __future__ import annotations

import copy
import os
from collections.abc import Collection
from dataclasses import asdict
from pathlib import Path
from typing import Any, Self

import numpy.typing as npt

from arkml.base.closing import Closing
from arkml.base.sealed import Sealed
from arkml.envs.core.decisions import Decision, Demonstrations, Step
from arkml.envs.core.env_core import EnvCore
from arkml.envs.core.instance_factory import InstanceFactory, InstanceSettings, require_host
from arkml.envs.core.script import Configuration, kept_configuration
from arkml.envs.core.world import FRAME, Pace
from arkml.guests.guest import Guest
from arkml.guests.trace_recorder import Trace
from arkml.host import Host, Source, own_source
from arkml.limits import Limits, Threads
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.game_functions import Imports
from arkml.runtime.memory import BytesLike, bytes_of
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.declarations import SpecLike

IDLE_CALLS = 1_000


class GuestEnv(Sealed, Closing):
    """
    An environment that steps a guest from one submit to the next.

    The guest sees a hive that starts every experiment at once. Each submit of a training session is
    a step. Submits of inference sessions are steps only if the guest has started no experiment, or
    with `inference=True`. Policies of all other sessions run in `host`.

    The guest's clocks are virtual: each call is a frame of `frame_seconds`, and so is each submit
    if the guest runs in a single call (see the attribute `pace`). Random numbers drawn through
    `wasi` follow from the seed.

    An environment is pickled as the path and the digest of its module and its options, without the
    state of its guest.

    Args:
        module: The path or the bytes of a guest, or a compiled module.
        entry: The export to call; by default the frame of an applet, repeatedly, or a cmdlet, once.
        args: Arguments of a cmdlet, separated by single spaces; "{seed}" stands for the seed.
        configure: Text, or numbers, for the guest's export `configure`; "{seed}" stands for the
            seed.
        snapshot: The ONNX file that the guest downloads. None stands for a policy that returns
            zeros.
        inference: True makes submits of inference sessions steps. None does so if the guest has
            started no experiment.
        behaviors: Names of the behaviors to step; the agents of others get zeros. None steps all.
        spec: The declaration of behaviors: an object, or the path of a JSON file.
        idle_calls: Calls without a submit after which the guest has stalled.
        seconds: Seconds of one step after which the guest has stalled, None for no limit.
        frame_seconds: Seconds of a frame on the guest's clock.
        max_episode_steps: Steps after which an episode is cut: all agents of the guest are
            truncated in that step, and only a reset can follow. None sets no limit.
        wasi: The access of the guest through WASI, for the environment's own host.
        limits: Limits of the guest, for the environment's own host.
        host: The host that loads the guest. None makes a host for this environment.
        threads: The most threads of the environment's own host; None is "auto", as in `Host`.
        imports: The functions of the game that the guest imports, as in `Host`, for the
            environment's own host.
        trace: Records the inputs of the guest, as in `Host`, for the environment's own host. Each
            reset makes a new guest, and a new file.
        digest: The digest that the module must have (`CompiledModule.digest`).

    Raises:
        UsageError: An option has a wrong type or value.
        ModuleError: The module cannot be loaded.
        InvalidSpec: The declaration is malformed.

    Example:
        with GuestEnv("walker.wasm") as env:
            step = env.reset(seed=1)
            while not step.has_ended:
                decision = step.decisions[0]
                actions = np.zeros((len(decision.acting_agents), decision.behavior.num_actions))
                step = env.step(actions)

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
        spec: SpecLike = None,
        idle_calls: int = IDLE_CALLS,
        seconds: float | None = None,
        frame_seconds: float = FRAME,
        max_episode_steps: int | None = None,
        wasi: WasiGrant | None = None,
        limits: Limits | None = None,
        host: Host | None = None,
        threads: Threads | None = None,
        imports: Imports | None = None,
        trace: Trace | str | os.PathLike[str] | None = None,
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
        self._threads = threads
        self._imports = imports
        self._trace = trace
        factory = InstanceFactory(
            module,
            self._settings,
            spec=spec,
            wasi=wasi,
            limits=limits,
            host=host,
            threads=threads,
            imports=imports,
            trace=trace,
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
        """Return the guest's id of a live agent. Raises KeyError for other numbers."""
        return self._core.factory.numbers.guest_id(agent)

    def reset(self, seed: int | None = None) -> Step:
        """
        Start over with a new instance, up to its first submit, without reporting the live agents.

        Args:
            seed: Seed of the instance; None draws the next one.

        Returns:
            The first submit.

        Raises:
            GuestError: The guest failed before its first submit.
            UsageError: The guest has none of the `behaviors`.

        """
        return self._core.reset(seed)

    def step(self, actions: npt.ArrayLike) -> Step:
        """
        Answer the submit and run the guest to its next one.

        Args:
            actions: Finite numbers, [m, num_actions], one row for each agent in
                `decision.acting_agents`, in that order.

        Returns:
            The next submit, or the end of the guest.

        Raises:
            InvalidActions: The actions have a wrong shape, type or value; the guest stays in its
                submit.
            UsageError: No submit waits for actions.

        """
        return self._core.step(actions)

    def send_message(self, message: BytesLike) -> bool:
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

    def clone(self) -> Self:
        """
        Return an independent copy in the same state, as `copy.deepcopy` does.

        The copy has a guest of its own. It loads this guest's newest state, saved at the beginning
        of a frame, and repeats the steps since, with the recorded answers of the game's functions:
        at most 4,096 steps for the first copy, and few for later ones. A guest whose state cannot
        be saved, such as one that runs in a single call, repeats all steps since its reset. Given
        the same actions, both environments then behave the same, also in later resets. They share a
        host, with the functions of its game.

        Raises StateRefused if the guest does something else in the repetition, or was stepped more
        than 100,000 times without a saved state.
        """
        return copy.deepcopy(self)

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        copied = type(self).__new__(type(self))
        memo[id(self)] = copied
        for shared in (self.module, self._imports, self._wasi, self._trace):
            memo[id(shared)] = shared  # as the host has them
        core = copy.deepcopy(self._core, memo)
        for name, value in vars(self).items():
            vars(copied)[name] = core if value is self._core else copy.deepcopy(value, memo)
        return copied

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
            "threads": self._threads,
            "imports": self._imports,
            "trace": self._trace,
            "digest": self.module.digest,
        }

    def __setstate__(self, state: dict[str, Any]) -> None:
        GuestEnv.__init__(self, **state)


def core_of(env: GuestEnv) -> EnvCore:
    """Return the core of an environment, for the environments that are built on it."""
    return env._core  # noqa: SLF001
