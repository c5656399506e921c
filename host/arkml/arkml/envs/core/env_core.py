"""The instance that an environment steps, from reset to reset."""

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
from arkml.envs.core.decisions import Decision, Ids, InPlace, Step
from arkml.envs.core.env_instance import MOST_HISTORY, EnvInstance, InstanceOrigin, Pending
from arkml.envs.core.instance_factory import InstanceFactory
from arkml.errors import GuestBusy, GuestStalled, InvalidActions, StateRefused, UsageError
from arkml.runtime.interrupts import MAIN_THREAD, runs_below


class NonReentrant:
    """
    A context manager that refuses a second entry, from any thread: a call of an environment.

    An exception of a signal handler, on the main thread, may keep `__exit__` from running: an entry
    that is lost like that is forgotten by the next one.
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
    """Steps one instance of `factory` at a time, and closes both."""

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
        The array that is `agents` of the next decision if all agents keep running, int32, [n].

        None if an agent of this decision has ended, or nothing waits for actions.
        """
        pending = None if self.instance is None else self.instance.pending
        return None if pending is None else pending.tracker.running_agents

    def reset(self, seed: int | None = None) -> Step:
        """Step a new instance to its first submit; see `GuestEnv.reset`."""
        self.factory.require_open()
        if seed is not None:
            seed = seed_of(seed)
        with self._call:
            if seed is not None:
                self._random = np.random.default_rng(seed)
                self.factory.script.warn_unseedable()
            drawn = drawn_seed(self._random) if seed is None else seed
            self._end_instance()
            before = time.perf_counter()
            self.instance = self._made(drawn)
            step = _run(self.instance)
            self.reset_seconds = time.perf_counter() - before
            if step.error is not None:
                self.factory.require_behavior(self.instance)
                raise step.error
            if step.has_finished:
                raise GuestStalled(f"{self.instance.guest.name} came to its end without a submit")
            return step

    def __deepcopy__(self, memo: dict[int, Any]) -> EnvCore:
        """
        Return a copy in the same state, with an instance of its own in the same host.

        The copy's instance repeats what the present one did since its reset: a guest that is
        suspended in a submit cannot be copied itself. Raises StateRefused if it cannot be repeated.
        """
        with self._call:
            self.factory.require_open()
            copied = EnvCore(self.factory.copied())
            try:
                copied._random = copy.deepcopy(self._random)
                copied.reset_seconds = self.reset_seconds
                if self.instance is not None:
                    copied.instance = copied._repeated(self.instance)
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

    def step_rows(self, actions: Floats) -> Step | InPlace:
        """
        Answer all rows of the submit with checked actions, [rows, num_actions].

        Actions of agents that have ended are not used. Returns the rows of the next submit if they
        continue one by one, in which case `decision` is made on first access.
        """
        with self._call:
            instance, _ = self._waiting()
            instance.answer_rows(actions)
            if self._is_limited:
                return _run(instance)
            ended = instance.run_to_pending()
            if ended is not None:
                return _passed(instance, ended)
            assert instance.pending is not None
            rows = instance.pending.rows
            return rows if isinstance(rows, InPlace) else Step((rows,))

    def set_aside(self) -> EnvInstance | None:
        """Return the present instance, for the caller to close or to hand to `take_back`."""
        with self._call:
            instance, self.instance = self.instance, None
            return instance

    def take_back(self, instance: EnvInstance) -> None:
        """Continue with an instance that was set aside; the present one is closed."""
        with self._call:
            self._end_instance()
            self.instance = instance

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

    def _made(self, seed: int, number: int | None = None) -> EnvInstance:
        """Return a new instance that keeps what it is answered."""
        origin = InstanceOrigin(seed, self.factory.numbers.upcoming)
        instance = self.factory.make(seed, self.factory.shared(), number=number)
        instance.origin, instance.history = origin, []
        return instance

    def _repeated(self, other: EnvInstance) -> EnvInstance:
        """Return an instance that has done what `other`, of another core, did; or StateRefused."""
        name, history, origin = other.guest.name, other.history, other.origin
        if history is None or origin is None:
            raise StateRefused(
                f"{name} was stepped more than {MOST_HISTORY:,} times since its reset: what it did"
                " is not kept for a copy any longer"
            )
        if self.factory.module.game:
            raise StateRefused(
                f"{name} imports functions of the game, which a copy would call again"
            )
        if other.has_messages:
            raise StateRefused(f"{name} was sent messages, which are not kept for a copy")
        self.factory.numbers.begin(origin.first_agent)
        made = self._made(origin.seed, other.calls.instance.number)
        log = made.calls.services.log
        try:
            log.is_muted = True
            _run(made)
            for actions in history:
                if made.pending is None or made.pending.batch.actions.shape != actions.shape:
                    break
                made.answer_rows(actions)
                _run(made)
            _require_alike(made, other)
        except BaseException:
            made.close()
            raise
        finally:
            log.is_muted = False
        made.experiments.keep_newest(len(other.experiments.given))
        return made

    def _end_instance(self) -> None:
        instance, self.instance = self.instance, None
        if instance is not None:
            instance.close()


def _require_alike(one: EnvInstance, other: EnvInstance) -> None:
    """Raise StateRefused unless two instances wait in the same submit, or both in none."""
    ours, theirs = (
        None if each.pending is None else each.pending.decision for each in (one, other)
    )
    if ours is None or theirs is None:
        is_alike = ours is theirs
    else:
        is_alike = all(
            getattr(ours, name).tobytes() == getattr(theirs, name).tobytes() for name in _COMPARED
        )
    if not is_alike:
        raise StateRefused(
            f"{one.guest.name} did not do the same again for the same seed and actions: it depends"
            " on something else, such as files or another host"
        )


_COMPARED = ("agents", "observations", "rewards", "started", "terminated", "truncated")


def _run(instance: EnvInstance) -> Step:
    """Run to the next submit. Raises InvalidSpec if the guest contradicts the declared specs."""
    return instance.limited(_passed(instance, instance.run()))


def _passed(instance: EnvInstance, step: Step) -> Step:
    """Return a step. Raises InvalidSpec as `_run`."""
    if step.has_ended and instance.experiments.refused is not None:
        raise instance.experiments.refused
    return step


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
