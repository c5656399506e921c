"""An environment: one guest, the actions of whose agents are given from outside."""

from __future__ import annotations

import time
from collections.abc import Collection
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.closing import Closing, Unclosed
from arkml.envs.core.agent_tracker import Agents
from arkml.envs.core.coercion import drawn_seed, floats_of, seed_of
from arkml.envs.core.decisions import Decision, Demonstrations, Ids, Step
from arkml.envs.core.declarations import Declarations, Declaring
from arkml.envs.core.env_instance import EnvInstance, Pending
from arkml.envs.core.experiments import Experiments
from arkml.envs.core.non_reentrant import NonReentrant
from arkml.envs.core.script import Configuration, Script
from arkml.envs.core.world import FRAME, Pace, SeededWorld
from arkml.errors import GuestStalled, InvalidActions, UsageError
from arkml.guests.guest import Guest
from arkml.guests.instance import SharedResources
from arkml.host import Host, Source, loader_of
from arkml.limits import Limits
from arkml.runs.gateway import settings_of
from arkml.runtime.compiled_module import CompiledModule
from arkml.runtime.wasi.linking import WasiGrant
from arkml.sessions.run_request import Launch

IDLE_CALLS = 1_000


class GuestEnv(Closing):
    """
    Steps a guest from one submit to the next.

    The guest sees a hive that starts every experiment at once. Each submit of a training session
    is a step; those of inference sessions are too if the guest has started no experiment, or with
    `inference=True`. `entry` is what is called: by default the frame of an applet again and again,
    or a cmdlet with `args` once. `configure` is what its export of that name gets: text, or
    numbers. "{seed}" in both stands for the seed. `snapshot` is the ONNX file that the guest
    downloads. `idle_calls` without a submit, or `seconds` in one step, and it has stalled.

    The guest's clocks are not the machine's: each call is a frame of `frame_seconds`, and so is
    each submit where one call is all (see `pace`). Through `wasi` it draws from the seed.

    A policy that is not driven acts with the `host`; without one the environment has its own,
    with `limits` and `wasi`. Environments pickle by the path and the digest of their module and
    what else they were made with, not by what they are doing.
    """

    def __init__(
        self,
        module: Source,
        *,
        entry: str | None = None,
        args: str = "",
        configure: Configuration = None,
        snapshot: bytes | None = None,
        inference: bool | None = None,
        behaviors: Collection[str] | None = None,
        spec: Declaring = None,
        idle_calls: int = IDLE_CALLS,
        seconds: float | None = None,
        frame_seconds: float = FRAME,
        wasi: WasiGrant | None = None,
        limits: Limits | None = None,
        host: Host | None = None,
        digest: str | None = None,
    ) -> None:
        if idle_calls < 1:
            raise UsageError(f"idle_calls is {idle_calls}: 1 at least")
        if not isinstance(configure, str | None):
            configure = tuple(configure)  # ours, whatever becomes of the caller's
        self._module = module
        self._made_with = {
            "module": module, "entry": entry, "args": args, "configure": configure,
            "snapshot": snapshot, "inference": inference, "behaviors": behaviors,
            "idle_calls": idle_calls, "seconds": seconds, "frame_seconds": frame_seconds,
            "wasi": wasi if host is None else host.wasi,
            "limits": limits if host is None else host.limits,
        }  # fmt: skip
        if wasi is not None and host is not None:
            raise UsageError("wasi= is for an environment's own host: grant it to the one you give")
        self.pace: Pace = Pace(frame_seconds)
        """The speed of the guest's clock, which may be set at any time."""
        self._owned = Host(limits=limits, wasi=wasi) if host is None else None
        found = host or self._owned
        assert found is not None
        self.host: Host = found
        try:
            self.program: CompiledModule = found.compile(module)
            _require_same(module, self.program, digest)
            self.script: Script = Script(self.program, entry, args, configure)
            self._declarations = Declarations(spec, self.program.info.spec)
        except BaseException:
            if self._owned is not None:
                self._owned.close()
            raise
        self.unclosed: Unclosed = Unclosed(f"<{type(self).__name__} of {self.program.name}>")
        """Warns if the environment is dropped without `close`."""
        if self._owned is not None:
            loader_of(self._owned).unclosed = self.unclosed
        self._snapshot = snapshot
        self._inference = inference
        self._behaviors = behaviors
        self._idle_calls = idle_calls
        self._seconds = seconds
        self.agents: Agents = Agents()
        self._random = np.random.default_rng()
        self._life: EnvInstance | None = None
        self._call = NonReentrant(self.program.name)
        self.reset_seconds: float = 0.0
        """Seconds that the last reset took, up to the first submit."""
        self._is_closed = False

    @property
    def guest(self) -> Guest | None:
        """The instance that is stepped, None before the first reset."""
        return None if self._life is None else self._life.guest

    @property
    def seedable(self) -> bool:
        """True if a seed reaches the guest."""
        return self.script.is_seedable

    @property
    def decision(self) -> Decision | None:
        """The decision that waits for actions, or None."""
        pending = self._pending
        return None if pending is None else pending.decision

    @property
    def steady_agents(self) -> Ids | None:
        """
        The very array that `decision.agents` will be if the agents that wait all just run on.

        None where that cannot be known by the array.
        """
        pending = self._pending
        return None if pending is None else pending.tracker.steady

    def reset(self, seed: int | None = None) -> Step:
        """
        Start over with a new instance, up to its first submit. Its live agents are forgotten.

        Without `seed` the next one is drawn. Raises GuestError if the guest does not come so far,
        and UsageError if it has none of the `behaviors`.
        """
        self.require_open()
        if seed is not None:
            seed = seed_of(seed)
        with self._call:
            if seed is not None:
                self._random = np.random.default_rng(seed)
                self.script.warn_unseedable()
            drawn = drawn_seed(self._random) if seed is None else seed
            self._end_instance()
            before = time.perf_counter()
            self._life = self.born(drawn, self.shared())
            step = self._run(self._life)
            self.reset_seconds = time.perf_counter() - before
            if step.error is not None:
                self.require_behavior(self._life)
                raise step.error
            if step.done:
                raise GuestStalled(f"{self._life.guest.name} came to its end without a submit")
            return step

    def step(self, actions: npt.ArrayLike) -> Step:
        """
        Answer the submit and run the guest to its next one.

        actions: finite numbers, [m, num_actions], of the agents in `decision.deciding`, in order.
        Raises InvalidActions, and UsageError if nothing waits for actions; nothing has moved then.
        """
        self.require_open()
        with self._call:
            pending, life = self._pending, self._life
            if pending is None or life is None:
                raise UsageError("nothing waits for actions: reset the environment first")
            life.answer(_checked(actions, pending.decision))
            return self._run(life)

    def tell(self, message: bytes) -> bool:
        """
        Have `arkml_side_channel(ptr, len)` of the guest called with these bytes.

        That happens before the next frame; what plays in one call hears of it at its reset. False
        if the guest has no such export.
        """
        return self.script.messages.add(message)

    def take_demonstrations(self) -> list[Demonstrations]:
        """Return the rows with actions of their own that the guest gave since the last call."""
        return [] if self._life is None else self._life.experiments.take_given()

    def shared(self, instances: int = 1) -> SharedResources:
        """
        Return what `instances` guests of this environment share that are stepped together.

        Raises InstanceLimitExceeded if the machine has no room for them.
        """
        return loader_of(self.host).shared(unclosed=self.unclosed, instances=instances)

    def born(self, seed: int, resources: SharedResources) -> EnvInstance:
        """Return a new instance, before its first call, for the caller to step and close."""
        world = SeededWorld(seed, self.pace)
        experiments = Experiments(
            self._snapshot, _shape_of, self._declarations, self._behaviors, world
        )
        shared = resources._replace(gateway=experiments, world=world)
        calls = loader_of(self.host).load(self.program, self.program.name, shared)
        return EnvInstance(
            calls,
            self.script.calls(calls, seed),
            experiments,
            world,
            self._declarations,
            self.agents,
            frame=self.script.frame,
            inference=self._inference,
            idle=self._idle_calls,
            seconds=self._seconds,
        )

    def set_aside(self) -> EnvInstance | None:
        """Return the present instance, which stays suspended where it is; `reset` leaves it be."""
        with self._call:
            life, self._life = self._life, None
            return life

    def take_back(self, life: EnvInstance) -> None:
        """Continue with an instance that was set aside; the present one is closed."""
        with self._call:
            self._end_instance()
            self._life = life

    def close(self) -> None:
        """Free the instance. Raises GuestBusy while a call is in progress. Safe to call again."""
        with self._call:
            self._is_closed = True
            self._end_instance()
            if self._owned is not None:
                self._owned.close()

    def __getstate__(self) -> dict[str, Any]:
        module = self._module
        path = module if isinstance(module, bytes) else str(Path(module).resolve())
        spec = self._declarations.given or None
        return {**self._made_with, "module": path, "spec": spec, "digest": self.program.digest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        GuestEnv.__init__(self, **state)

    @property
    def _pending(self) -> Pending | None:
        return None if self._life is None else self._life.pending

    def _run(self, life: EnvInstance) -> Step:
        step = life.run()
        if step.is_over and life.experiments.refused is not None:
            raise life.experiments.refused
        return step

    def require_behavior(self, life: EnvInstance) -> None:
        """Raise UsageError if the guest has none of the behaviors that are stepped."""
        there = {run.behavior.name for run in life.experiments.started.values()}
        if self._behaviors is not None and there and there.isdisjoint(self._behaviors):
            raise UsageError(
                f"behaviors={sorted(self._behaviors)}: {life.guest.name} has"
                f" {', '.join(sorted(there))}"
            )

    def require_open(self) -> None:
        """Raise UsageError once the environment is closed."""
        if self._is_closed:
            raise UsageError("the environment is closed")

    def _end_instance(self) -> None:
        life, self._life = self._life, None
        if life is not None:
            life.close()


def _require_same(module: Source, program: CompiledModule, digest: str | None) -> None:
    if digest is not None and digest != program.digest:
        raise UsageError(f"{module!r} is another module than when the environment was pickled")


def _shape_of(launch: Launch) -> tuple[int, int]:
    settings = settings_of(launch, {})
    return settings.features, settings.actions


def _checked(actions: npt.ArrayLike, decision: Decision) -> npt.NDArray[np.float32]:
    """Return the actions as float32, [m, num_actions]. Raises InvalidActions."""
    wanted = (int((~decision.ended).sum()), decision.behavior.num_actions)
    try:
        values = floats_of(actions)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"actions are numbers, not {str(actions)[:80]}") from error
    if values.shape != wanted:
        raise InvalidActions(
            f"actions have shape {values.shape}: {decision.behavior.name} takes {wanted}, one row"
            " for each agent that decides"
        )
    if not np.isfinite(values).all():
        raise InvalidActions(f"an action of {decision.behavior.name} is not finite")
    decision.behavior.spec.actions.check_choices(values, decision.behavior.name)
    return values
