"""An environment: one guest, the actions of whose agents are given from outside."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from arkml.batches import Batch
from arkml.closing import Closing
from arkml.environment.agents import Agents, Cast
from arkml.environment.decisions import Behaviour, Decision, Demonstrations, Ids, Step
from arkml.environment.experiments import Experiments
from arkml.environment.script import Script
from arkml.environment.stepping import Stepping
from arkml.errors import GuestError, GuestStalled, InvalidActions, UsageError
from arkml.guest import Guest
from arkml.host import Host
from arkml.limits import Limits
from arkml.policies.external import ExternalPolicy
from arkml.runtime.program import Program
from arkml.sessions.launch import Launch
from arkml.sessions.session import InferenceSession, Session, TrainingSession
from arkml.training import settings_of

log = logging.getLogger(__name__)

IDLE_CALLS = 1_000
_SEEDS = 1 << 31


class _Pending(NamedTuple):
    """The submit that the guest is suspended in."""

    batch: Batch
    cast: Cast
    decision: Decision


class GuestEnv(Closing):
    """
    Steps a guest from one submit to the next.

    The guest sees a hive that starts every experiment at once. Each submit of a training session
    is a step; those of inference sessions are too if the guest has started no experiment, or with
    `inference=True`. `entry` is what is called: by default the frame of an applet again and again,
    or a cmdlet with `args` once. `configure` is what its export of that name gets: text, or
    numbers. "{seed}" in both stands for the seed. `snapshot` is the ONNX file that the guest
    downloads. `idle_calls` without a submit, or `seconds` in one step, and it has stalled.

    A policy that is not driven acts with the `host`; without one the environment has its own,
    with `limits`. Environments pickle by the path and the digest of their module and what else
    they were made with, not by what they are doing.
    """

    def __init__(
        self,
        module: str | Path | bytes,
        *,
        entry: str | None = None,
        args: str = "",
        configure: str | Sequence[int | str] | None = None,
        snapshot: bytes | None = None,
        inference: bool | None = None,
        idle_calls: int = IDLE_CALLS,
        seconds: float | None = None,
        limits: Limits | None = None,
        host: Host | None = None,
        digest: str | None = None,
    ) -> None:
        if idle_calls < 1:
            raise UsageError(f"idle_calls is {idle_calls}: 1 at least")
        self._made_with = {
            "module": module, "entry": entry, "args": args, "configure": configure,
            "snapshot": snapshot, "inference": inference, "idle_calls": idle_calls,
            "seconds": seconds, "limits": limits,
        }  # fmt: skip
        self._owned = Host(limits=limits) if host is None else None
        self._host = host or self._owned
        assert self._host is not None
        self.program: Program = self._host.compile(module)
        if digest is not None and digest != self.program.digest:
            raise UsageError(f"{module!r} is another module than when the environment was pickled")
        self._script = Script(self.program, entry, args, configure)
        self._snapshot = snapshot
        self._inference = inference
        self._idle_calls = idle_calls
        self._seconds = seconds
        self.agents = Agents()
        self._random = np.random.default_rng()
        self._told_unseedable = False
        self._guest: Guest | None = None
        self._experiments: Experiments | None = None
        self._stepping: Stepping | None = None
        self._pending: _Pending | None = None
        self._casts: dict[int, Cast] = {}

    @property
    def guest(self) -> Guest | None:
        """The instance that is stepped, None before the first reset."""
        return self._guest

    @property
    def seedable(self) -> bool:
        """Whether the guest takes a seed."""
        return self._script.is_seedable

    @property
    def decision(self) -> Decision | None:
        """What waits for actions, or None."""
        return self._pending.decision if self._pending is not None else None

    @property
    def steady_agents(self) -> Ids | None:
        """
        The very array that `decision.agents` will be if the agents that wait all just run on.

        None where that cannot be known by the array.
        """
        return self._pending.cast.steady if self._pending is not None else None

    def reset(self, seed: int | None = None) -> Step:
        """
        Start over with a new instance, up to its first submit. Its live agents are forgotten.

        Without `seed` the next one is drawn. Raises GuestError if the guest does not come so far.
        """
        if seed is not None:
            self._random = np.random.default_rng(seed)
            self._warn_unseedable()
        drawn = int(self._random.integers(_SEEDS)) if seed is None else seed
        self._end_instance()
        guest, experiments = self._new_instance()
        self._guest, self._experiments = guest, experiments
        self._stepping = Stepping(
            guest,
            self._script.calls(guest, drawn),
            self._is_driven,
            idle=self._idle_calls,
            seconds=self._seconds,
            is_over=lambda: self._script.repeats and experiments.has_ended,
        )
        step = self._run()
        if step.error is not None:
            raise step.error
        if step.done:
            raise GuestStalled(f"{guest.name} came to its end without a submit")
        return step

    def step(self, actions: npt.ArrayLike) -> Step:
        """
        Go on to the next submit.

        actions: [m, num_actions], finite, of the agents in `decision.deciding`, in that order.
        Raises InvalidActions, and UsageError if nothing waits for actions; nothing has moved then.
        """
        pending = self._pending
        if pending is None:
            raise UsageError("nothing waits for actions: reset the environment first")
        values = _checked(actions, pending.decision)
        batch = pending.batch
        batch.actions[...] = 0
        batch.actions[pending.cast.places] = values
        batch.values[...] = 0
        self._answer()
        return self._run()

    def tell(self, message: bytes) -> bool:
        """
        Have `arkml_side_channel(ptr, len)` of the guest called with these bytes.

        That happens before the next frame; what plays in one call hears of it at its reset. False
        if the guest has no such export.
        """
        return self._script.messages.add(message)

    def take_demonstrations(self) -> list[Demonstrations]:
        """The rows with actions of their own that the guest gave since the last call."""
        return [] if self._experiments is None else self._experiments.take_given()

    def close(self) -> None:
        """Free the instance. Safe to call again."""
        self._end_instance()
        if self._owned is not None:
            self._owned.close()

    def __getstate__(self) -> dict[str, Any]:
        module = self._made_with["module"]
        path = module if isinstance(module, bytes) else str(Path(str(module)).resolve())
        return {**self._made_with, "module": path, "digest": self.program.digest}

    def __setstate__(self, state: dict[str, Any]) -> None:
        GuestEnv.__init__(self, **state)

    def _new_instance(self) -> tuple[Guest, Experiments]:
        assert self._host is not None
        experiments = Experiments(self._snapshot, _shape_of)
        return self._host.driven(self.program, experiments), experiments

    def _run(self) -> Step:
        """Up to the next submit that has rows."""
        self._pending = None
        stepping = self._stepping
        assert stepping is not None
        while True:
            try:
                session = stepping.resume()
            except GuestError as error:
                return Step(self._drop_all(), error=error)
            except BaseException:
                self._drop_all()
                raise
            if session is None:
                return Step(self._drop_all(), done=True)
            batch = session.queue.batch()
            if len(batch):
                return self._show(session, batch)
            self._answer()

    def _show(self, session: Session, batch: Batch) -> Step:
        cast = self._casts.get(session.key)
        if cast is None:
            cast = self._casts[session.key] = self.agents.sighting(self._behaviour(session))
        said = session.queue.metadata() if batch.rows["metadata"].any() else ()
        if said:
            session.note()
        decision = cast.see(batch, said)
        self._pending = _Pending(batch, cast, decision)
        return Step((decision,))

    def _answer(self) -> None:
        assert self._guest is not None
        self._guest.fiber.answer(0)

    def _is_driven(self, session: Session) -> bool:
        if isinstance(session, TrainingSession):
            return isinstance(session.policy, ExternalPolicy)
        if self._inference is not None:
            return self._inference
        return self._experiments is not None and not self._experiments.started

    def _behaviour(self, session: Session) -> Behaviour:
        assert self._experiments is not None
        for run in self._experiments.started.values():
            if run.policy is session.policy:
                return run.behaviour
        opened = sum(cast.behaviour.name.startswith("inference") for cast in self._casts.values())
        name = f"inference-{opened + 1}" if opened else "inference"
        assert isinstance(session, InferenceSession)
        return Behaviour(name, session.num_features, session.num_actions)

    def _drop_all(self) -> list[Decision]:
        found = [cast.drop() for cast in self._casts.values()]
        self._casts = {}
        return [decision for decision in found if len(decision)]

    def _end_instance(self) -> None:
        guest = self._guest
        for cast in self._casts.values():
            cast.forget()
        self._guest = self._experiments = self._stepping = self._pending = None
        self._casts = {}
        if guest is not None:
            guest.close()

    def _warn_unseedable(self) -> None:
        if not self.seedable and not self._told_unseedable:
            self._told_unseedable = True
            log.warning(
                "%s takes no seed: it exports no arkml_seed, and {seed} is neither in args nor in"
                " configure; every instance may begin alike",
                self.program.name,
            )


def _shape_of(launch: Launch) -> tuple[int, int]:
    settings = settings_of(launch, {})
    return settings.features, settings.actions


def _checked(actions: npt.ArrayLike, decision: Decision) -> npt.NDArray[np.float32]:
    """The actions as float32, [m, num_actions]. Raises InvalidActions."""
    wanted = (int((~decision.ended).sum()), decision.behaviour.num_actions)
    try:
        values = np.asarray(actions, np.float32)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"actions are numbers, not {str(actions)[:80]}") from error
    if values.shape != wanted:
        raise InvalidActions(
            f"actions have shape {values.shape}: {decision.behaviour.name} takes {wanted}, one row"
            " for each agent that decides"
        )
    if not np.isfinite(values).all():
        raise InvalidActions(f"an action of {decision.behaviour.name} is not finite")
    return values
