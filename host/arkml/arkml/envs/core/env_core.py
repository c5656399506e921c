"""The core of an environment: the instance of a guest that it steps, from reset to reset."""

from __future__ import annotations

import copy
import sys
import threading
import time
from typing import Any

import numpy as np
import numpy.typing as npt

from arkml.base.closing import Closing
from arkml.base.short_reprs import cut_repr
from arkml.batches import Floats
from arkml.envs.core.coercion import drawn_seed, floats_of, seed_of
from arkml.envs.core.decisions import Decision, Ids, InPlace, Replaced, Step
from arkml.envs.core.env_copies import copied_instance
from arkml.envs.core.env_instance import EnvInstance, Pending
from arkml.envs.core.instance_factory import InstanceFactory
from arkml.errors import GuestBusy, GuestStalled, InvalidActions, UsageError
from arkml.runtime.interrupts import MAIN_THREAD, runs_below


class NonReentrant:
    """
    A context manager for a call of an environment; it refuses a second entry from any thread.

    On the main thread, an exception of a signal handler may keep `__exit__` from running; the next
    entry then ignores the entry that was never left.
    """

    __slots__ = ("_name", "_thread")

    def __init__(self, name: str) -> None:
        self._name = name
        self._thread: int | None = None  # that has entered

    def __enter__(self) -> None:
        """Enter. Raises GuestBusy, without effect, if a call is in progress."""
        thread = threading.get_ident()
        if self._thread is not None and not self._is_lost(thread):
            raise GuestBusy(f"the environment of {self._name} is in a call: one call at a time")
        self._thread = thread

    def __exit__(self, *error: object) -> None:
        self._thread = None

    def _is_lost(self, thread: int) -> bool:
        is_mains = self._thread == thread == MAIN_THREAD
        return is_mains and not runs_below(sys._getframe(1))  # noqa: SLF001


class EnvCore(Closing):
    """
    Steps one instance of a guest at a time.

    `factory` makes the instances; `close` closes the present one and the factory.
    """

    def __init__(self, factory: InstanceFactory) -> None:
        self.factory: InstanceFactory = factory
        self.instance: EnvInstance | None = None
        """The instance that is stepped, None before the first reset."""
        self.reset_seconds: float = 0.0
        """Seconds that the last reset took, up to the first submit."""
        self._random = np.random.default_rng()
        self._call = NonReentrant(factory.module.name)
        self._is_limited = factory.settings.max_episode_steps is not None

    @property
    def decision(self) -> Decision | None:
        """The decision that waits for actions, or None."""
        pending = None if self.instance is None else self.instance.pending
        return None if pending is None else pending.decision

    @property
    def running_agents(self) -> Ids | None:
        """
        The array `agents` of the next decision if all agents continue, int32, [n].

        None if an agent of this decision has ended, or no decision waits for actions.
        """
        pending = None if self.instance is None else self.instance.pending
        return None if pending is None else pending.tracker.running_agents

    def reset(self, seed: int | None = None) -> Step:
        """Step a new instance to its first submit; see `GuestEnv.reset`."""
        self.factory.require_open()
        if seed is not None:
            seed = seed_of(seed)
            self.factory.script.require_seed(seed)
        with self._call:
            if seed is not None:
                self._random = np.random.default_rng(seed)
                self.factory.script.warn_unseedable()
            drawn = drawn_seed(self._random) if seed is None else seed
            self._end_instance()
            before = time.perf_counter()
            self.instance = self.factory.make_kept(drawn)
            step = _run(self.instance)
            self.reset_seconds = time.perf_counter() - before
            if step.error is not None:
                self.factory.require_behavior(self.instance)
                raise step.error
            self.factory.warn_undeclared(self.instance)
            if step.has_finished:
                raise GuestStalled(f"{self.instance.guest.name} came to its end without a submit")
            return step

    def __deepcopy__(self, memo: dict[int, Any]) -> EnvCore:
        """
        Return a copy in the same state, with an instance of its own in the same host.

        See `copied_instance`. Raises StateRefused.
        """
        with self._call:
            self.factory.require_open()
            copied = EnvCore(self.factory.copied())
            try:
                copied._random = copy.deepcopy(self._random)
                copied.reset_seconds = self.reset_seconds
                if self.instance is not None:
                    copied.instance = copied_instance(self.instance, copied.factory)
                copied.factory.numbers.begin(self.factory.numbers.upcoming)
                copied.factory.script.messages.be_as(self.factory.script.messages)
            except BaseException:
                copied.close()
                raise
        memo[id(self.factory)] = copied.factory
        memo[id(self.instance)] = copied.instance
        for name in ("host", "module", "numbers", "pace"):
            memo[id(getattr(self.factory, name))] = getattr(copied.factory, name)
        return copied

    def step(self, actions: npt.ArrayLike) -> Step:
        """Answer the submit with actions, [m, num_actions]; see `GuestEnv.step`."""
        with self._call:
            instance, pending = self._waiting()
            instance.answer(_checked(actions, pending.decision, pending.tracker.acting_count))
            return _run(instance)

    def step_acting(self, actions: Floats) -> Step:
        """Do as `step` does with checked actions, float32, [m, num_actions]."""
        with self._call:
            instance, _ = self._waiting()
            instance.answer(actions)
            return _run(instance)

    def step_rows(self, actions: Floats) -> Step | InPlace | Replaced:
        """
        Answer all rows of the submit with checked actions, [rows, num_actions].

        Actions of agents that have ended are not used, and may be left out for a `Replaced`.
        Returns the rows of the next submit as the tracker has them, if they are no decision; the
        property `decision` is then made on first access.
        """
        with self._call:
            instance, pending = self._waiting()
            rows = pending.rows
            if isinstance(rows, Replaced) and len(actions) < len(rows.numbers):
                instance.answer_rows(actions, rows.acting)
            else:
                instance.answer_rows(actions)
            if self._is_limited:
                return _run(instance)
            ended = instance.run_to_pending()
            if ended is not None:
                return instance.pass_on(ended)
            assert instance.pending is not None
            rows = instance.pending.rows
            return Step((rows,)) if isinstance(rows, Decision) else rows

    def set_aside(self) -> EnvInstance | None:
        """
        Give up the present instance and return it, for the caller to close or pass to `take_back`.
        """
        with self._call:
            instance, self.instance = self.instance, None
            return instance

    def take_back(self, instance: EnvInstance) -> None:
        """Continue with an instance that was set aside; the present one is closed."""
        with self._call:
            self._end_instance()
            self.instance = instance
            if instance.history is not None:  # the one that was closed may have taken numbers
                instance.history.number(self.factory.numbers.upcoming)

    def close(self) -> None:
        """Free the instance and the factory. Raises GuestBusy while a call is in progress."""
        with self._call:
            self._end_instance()
            self.factory.close()

    def _waiting(self) -> tuple[EnvInstance, Pending]:
        """Return the instance, and the submit that it waits in. Raises UsageError for none."""
        instance = self.instance
        if instance is None or instance.pending is None or self.factory.is_closed:
            self.factory.require_open()
            raise UsageError("nothing waits for actions: reset the environment first")
        return instance, instance.pending

    def _end_instance(self) -> None:
        instance, self.instance = self.instance, None
        if instance is not None:
            instance.close()


def _run(instance: EnvInstance) -> Step:
    """Run to the next submit. Raises InvalidSpec if the guest contradicts the declared specs."""
    return instance.pass_on(instance.run())


def _checked(actions: npt.ArrayLike, decision: Decision, count: int) -> npt.NDArray[np.float32]:
    """Return the actions as float32, [count, num_actions]. Raises InvalidActions."""
    shape = (count, decision.behavior.num_actions)
    try:
        values = floats_of(actions)
    except (TypeError, ValueError) as error:
        raise InvalidActions(f"actions are numbers, not {cut_repr(actions)}") from error
    if values.shape != shape:
        raise InvalidActions(
            f"actions have shape {values.shape}: {decision.behavior.name} takes {shape}, one row"
            " for each agent that decides"
        )
    if not np.isfinite(values).all():
        raise InvalidActions(f"an action of {decision.behavior.name} is not finite")
    decision.behavior.spec.actions.check_choices(values, decision.behavior.name)
    return values
