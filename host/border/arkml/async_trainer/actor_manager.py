"""The manager of actors: starts them, replaces dead ones, and sums up their statistics."""

from __future__ import annotations

import copy
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from arkml.async_trainer.actor_pace import AdmittedItems
from arkml.async_trainer.core.config_files import YamlConfig, check_choice, check_whole
from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.runners.choice import RunnerChoice, make_runner
from arkml.async_trainer.runners.runner import (
    ActorEnded,
    ActorJob,
    ActorStat,
    OnFull,
    Runner,
    Waits,
)
from arkml.async_trainer.trainer_errors import BorderAsyncTrainerError, SendMsgForPush
from arkml.base.handler_errors import is_of_handler
from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed
from arkml.errors import UsageError
from arkml.workers.deaths import MAX_REPLACEMENTS, WITHIN_SECONDS, Deaths

log = SafeLogger(__name__)

JOIN_SECONDS = 10.0
"""Seconds that actors have to stop by themselves."""


@dataclass(frozen=True)
class ActorManagerConfig(YamlConfig):
    """
    Configuration of ActorManager. Border's Rust version has `n_buffer` alone.

    Args:
        n_buffer: Number of items in one message of an actor.
        runner: Where actors run: in "threads", in "processes" or on a "ray" cluster.
        on_full: Behavior of an actor at a full channel: "wait", or "raise" SendMsgForPush.
        seed: Seed from which replacements of dead actors derive theirs.
        ray_address: Address of the Ray cluster to join; None starts one on this machine.

    Raises:
        UsageError: A value is invalid.

    """

    n_buffer: int = 100
    runner: RunnerChoice = "threads"
    on_full: OnFull = "wait"
    seed: int = 0
    ray_address: str | None = None

    def __post_init__(self) -> None:
        check_whole("n_buffer", self.n_buffer, 1)
        check_choice("runner", self.runner, get_args(RunnerChoice))
        check_choice("on_full", self.on_full, get_args(OnFull))
        check_whole("seed", self.seed)
        if self.ray_address is not None and self.runner != "ray":
            raise UsageError(
                f"ray_address is {self.ray_address!r}, which the runner {self.runner!r} does not"
                " use: set runner='ray'"
            )


@dataclass(frozen=True)
class ActorParts:
    """
    Classes and configurations of the actors' parts.

    There is one actor for each of `agent_configs`.
    """

    agent: type[Any]
    agent_configs: Sequence[Any]
    env: type[Any]
    env_config: Any
    step_processor: type[Any]
    step_processor_config: Any


@dataclass
class _ActorState:
    """An actor over all of its incarnations."""

    incarnation: int = 0
    is_running: bool = False
    env_steps: int = 0
    duration: float = 0.0
    deaths: Deaths = field(default_factory=Deaths)


class ActorManager(Sealed):
    """
    Runs actors and receives their messages. Belongs to one thread.

    Actor i has the seed i. A replacement of it has a seed derived from the manager's seed, i and
    the number of the incarnation (`seed_of`).

    Args:
        config: Configuration.
        parts: Classes and configurations of the actors' parts.
        runner: Where the actors run; by default the runner that `config` names.

    """

    def __init__(
        self, config: ActorManagerConfig, parts: ActorParts, runner: Runner | None = None
    ) -> None:
        if not parts.agent_configs:
            raise UsageError("agent_configs is empty: there is one actor for each of them")
        self.config = config
        self.replacements: int = 0
        """Number of actors that died and were replaced."""
        self._parts = parts
        self._actors = [_ActorState() for _ in parts.agent_configs]
        self._runner = runner or make_runner(config.runner, ray_address=config.ray_address)
        self._admitted: AdmittedItems | None = None
        self._is_stopped = False

    @property
    def waits(self) -> Waits:
        """Number and total seconds of actors' waits at a full channel."""
        return self._runner.waits

    @property
    def is_running(self) -> bool:
        """True while an actor runs."""
        return any(actor.is_running for actor in self._actors)

    @property
    def stats(self) -> list[ActorStat]:
        """Samples and seconds of each actor, without incarnations that are still running."""
        return [ActorStat(actor.env_steps, actor.duration) for actor in self._actors]

    def __len__(self) -> int:
        """Return the number of actors."""
        return len(self._actors)

    def run(self) -> None:
        """
        Start all actors, which then wait for the first model.

        Raises UsageError if a configuration cannot be copied to them.
        """
        jobs = [self._job(actor) for actor in range(len(self))]
        for job in jobs:
            self._start(job)

    def publish(self, n_opts: int, model_info: Any) -> None:
        """Send the model after `n_opts` optimization steps to the actors."""
        self._runner.publish(n_opts, model_info)

    def admit(self, items: int) -> None:
        """
        Allow the actors to make `items` items in total; until the first call they are not limited.

        The budget goes to the actors with the fewest items left, so a fast actor does not wait for
        a slow one.
        """
        if self._admitted is None:
            self._admitted = AdmittedItems(len(self))
        for actor, admitted in self._admitted.admit(items):
            self._runner.admit(actor, admitted)

    def receive(self, seconds: float) -> list[PushedItemMessage]:
        """
        Return the messages that have arrived, waiting for at most `seconds` if there are none.

        Dead actors are replaced. Raises BorderAsyncTrainerError if an actor died more than
        MAX_REPLACEMENTS times within WITHIN_SECONDS, and SendMsgForPush if an actor found the
        channel full and `on_full` is "raise".
        """
        messages, failure = [], None
        for arrived in self._runner.receive(seconds):
            if isinstance(arrived, ActorEnded):
                try:
                    self._end(arrived)
                except BorderAsyncTrainerError as error:
                    failure = failure or error  # first handle the ends of the other actors
            else:
                messages.append(arrived)
                if self._admitted is not None:
                    self._admitted.take(arrived.id, arrived.incarnation, len(arrived.pushed_items))
        if failure is not None:
            raise failure
        return messages

    def stop(self) -> None:
        """Ask the actors to stop. While `is_running`, `receive` returns their last messages."""
        self._is_stopped = True
        self._runner.stop()

    def stop_and_join(self, seconds: float = JOIN_SECONDS) -> list[ActorStat]:
        """
        End all actors, by force after `seconds`, and return their statistics.

        Unreceived messages are dropped. Idempotent.
        """
        self.stop()
        until = time.monotonic() + seconds
        while self.is_running and time.monotonic() < until:
            self.receive(until - time.monotonic())
        self._runner.close(max(0.0, until - time.monotonic()))
        return self.stats

    def _job(self, number: int) -> ActorJob:
        actor, parts, config = self._actors[number], self._parts, self.config
        return ActorJob(
            actor=number,
            incarnation=actor.incarnation,
            seed=seed_of(config.seed, number, actor.incarnation),
            n_buffer=config.n_buffer,
            on_full=config.on_full,
            agent=parts.agent,
            agent_config=_copied("agent_configs", parts.agent_configs[number]),
            env=parts.env,
            env_config=_copied("env_config_train", parts.env_config),
            step_processor=parts.step_processor,
            step_processor_config=_copied("step_proc_config", parts.step_processor_config),
        )

    def _start(self, job: ActorJob) -> None:
        if self._admitted is not None:
            self._runner.admit(job.actor, self._admitted.restart(job.actor, job.incarnation))
        self._runner.start(job)
        self._actors[job.actor].is_running = True

    def _end(self, ended: ActorEnded) -> None:
        actor = self._actors[ended.actor]
        actor.is_running = False
        actor.env_steps += ended.stat.env_steps
        actor.duration += ended.stat.duration
        if not ended.reason:
            return
        name = f"actor {ended.actor} (incarnation {ended.incarnation})"
        log.warning("%s died after %d samples: %s", name, ended.stat.env_steps, ended.reason)
        if self._is_stopped:
            return
        if ended.is_channel_full:
            raise SendMsgForPush(ended.reason)
        if actor.deaths.note(time.monotonic()) > 0:
            raise BorderAsyncTrainerError(
                f"actor {ended.actor} died {MAX_REPLACEMENTS + 1} times within"
                f" {WITHIN_SECONDS:.0f} seconds, the last time of: {ended.reason}"
            )
        actor.incarnation += 1
        self.replacements += 1
        self._start(self._job(ended.actor))


def seed_of(run_seed: int, actor: int, incarnation: int) -> int:
    """Return the seed of an actor's environment: for its first incarnation, the actor's number."""
    if incarnation == 0:
        return actor
    words = np.random.SeedSequence([run_seed, actor, incarnation]).generate_state(1)
    return int(words[0]) >> 1


def _copied(name: str, config: Any) -> Any:
    try:
        return copy.deepcopy(config)
    except Exception as error:
        if is_of_handler(error):
            raise
        raise UsageError(
            f"{name} has a {type(config).__name__} that cannot be copied to actors: {error}"
        ) from error
