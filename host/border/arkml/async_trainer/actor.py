"""Actors: agents that sample in environments, wherever they run."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Any

import numpy as np

from arkml.async_trainer.core.sampler import Sampler
from arkml.async_trainer.replay_buffer_proxy import ReplayBufferProxy, ReplayBufferProxyConfig
from arkml.async_trainer.runners.runner import ActorEnded, ActorJob, ActorLink, ActorStat
from arkml.async_trainer.trainer_errors import SendMsgForPush
from arkml.base.loggers import SafeLogger
from arkml.base.sealed import Sealed

__all__ = ["Actor", "ActorStat", "actor_stats_fmt", "run_actor", "shortest"]

log = SafeLogger(__name__)

_BUILDING = Lock()
_CHECK_SECONDS = 0.1


class Actor(Sealed):
    """
    One incarnation of an actor: builds an agent and an environment, and samples until stopped.

    Within a process, environments are built one at a time.
    """

    def __init__(self, job: ActorJob) -> None:
        self._job = job
        self._sampler: Sampler | None = None
        self._began = 0.0
        self._duration = 0.0

    @property
    def stat(self) -> ActorStat:
        """Samples so far, even if the actor has failed."""
        return ActorStat(0 if self._sampler is None else self._sampler.samples, self._duration)

    def run(self, link: ActorLink) -> ActorStat:
        """
        Sample until the manager stops the actor, and return statistics.

        Remaining items are sent first, if possible. Raises UsageError for unusable steps,
        SendMsgForPush, and errors of agent, environment and step processor.
        """
        job = self._job
        agent = job.agent.build(job.agent_config)
        agent.seed(job.seed)
        with _one_at_a_time(link) as may_build:
            if not may_build:
                return self.stat
            env = job.env.build(job.env_config, job.seed)
        try:
            self._sample(link, agent, env)
        finally:
            env.close()
        return self.stat

    def _sample(self, link: ActorLink, agent: Any, env: Any) -> None:
        job = self._job
        model = link.first_model()
        if model is None:
            return
        n_opts, model_info = model
        agent.sync_model(model_info)
        agent.train()
        proxy = ReplayBufferProxy(
            job.actor, ReplayBufferProxyConfig(job.n_buffer), link.send, job.incarnation
        )
        processor = job.step_processor.build(job.step_processor_config)
        sampler = self._sampler = Sampler(env, processor)
        began = time.perf_counter()
        items = 0
        try:
            while not link.is_stopped and link.may_step(items):
                model = link.newest_model(n_opts)
                if model is not None:
                    n_opts, model_info = model
                    agent.sync_model(model_info)
                sampler.sample_and_push(agent, proxy)
                items += 1
        finally:
            self._duration = time.perf_counter() - began
            proxy.flush()


def run_actor(job: ActorJob, link: ActorLink) -> ActorEnded:
    """Run one incarnation of an actor; return its end, with a reason if it failed."""
    actor = Actor(job)
    reason, is_channel_full = "", False
    try:
        actor.run(link)
    except BaseException as error:
        log.debug("actor %d has failed", job.actor, exc_info=True)
        reason = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
        is_channel_full = isinstance(error, SendMsgForPush)
    return ActorEnded(job.actor, job.incarnation, actor.stat, reason, is_channel_full)


def actor_stats_fmt(stats: Sequence[ActorStat]) -> str:
    """
    Return actors' statistics as comma-separated text with a header, one line for each actor.

    Durations are in seconds. Numbers look as Rust prints them: the shortest digits of float32,
    whole numbers without a point; for example "0.1" and "3".
    """
    lines = ["actor_id, samples, samples/sec, duration\n"]
    for actor, stat in enumerate(stats):
        rate = stat.env_steps / stat.duration if stat.duration > 0 else 0.0
        lines.append(f"{actor}, {stat.env_steps}, {shortest(rate)}, {shortest(stat.duration)}\n")
    return "".join(lines)


def shortest(value: float) -> str:
    """Return a number in the fewest digits that identify its float32, without an exponent."""
    return np.format_float_positional(np.float32(value), unique=True, trim="-")


@contextmanager
def _one_at_a_time(link: ActorLink) -> Iterator[bool]:
    """Hold the lock for building environments; yield False if the actor is stopped first."""
    while not link.is_stopped:
        if _BUILDING.acquire(timeout=_CHECK_SECONDS):
            try:
                yield True
            finally:
                _BUILDING.release()
            return
    yield False
