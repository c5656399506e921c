"""Asynchronous training in one call."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from arkml.async_trainer.actor import actor_stats_fmt
from arkml.async_trainer.actor_manager import ActorManager, ActorManagerConfig, ActorParts
from arkml.async_trainer.async_trainer import AsyncTrainer, AsyncTrainerConfig, AsyncTrainStat
from arkml.async_trainer.core.agent import Agent
from arkml.async_trainer.core.buffers import ReplayBufferBase, StepProcessor
from arkml.async_trainer.core.configurable import class_of
from arkml.async_trainer.core.env import Env
from arkml.async_trainer.core.evaluator import DefaultEvaluator, Evaluator
from arkml.async_trainer.core.recorders import Recorder
from arkml.async_trainer.runners.runner import ActorStat, Waits
from arkml.base.loggers import SafeLogger
from arkml.base.short_reprs import short_repr

log = SafeLogger(__name__)


@dataclass(frozen=True)
class AsyncTrainResult:
    """
    The trained agent, statistics of the trainer and of each actor.

    `samples` were pushed into the replay buffer. `waits` are those of actors for a full channel,
    and `replacements` is the number of actors that took the place of others that had died.
    """

    __repr__ = short_repr

    agent: Any
    stat: AsyncTrainStat
    actor_stats: list[ActorStat]
    samples: int
    waits: Waits
    replacements: int


def train_async(
    agent_config: Any,
    agent_configs: Sequence[Any],
    env_config_train: Any,
    env_config_eval: Any,
    step_proc_config: Any,
    replay_buffer_config: Any,
    actor_man_config: ActorManagerConfig,
    async_trainer_config: AsyncTrainerConfig,
    recorder: Recorder,
    evaluator: Evaluator | None = None,
    *,
    agent: type[Agent] | None = None,
    env: type[Env[Any, Any]] | None = None,
    step_processor: type[StepProcessor] | None = None,
    replay_buffer: type[ReplayBufferBase] | None = None,
) -> AsyncTrainResult:
    """
    Train the agent of `agent_config` with the samples of actors, one for each of `agent_configs`.

    Without an evaluator, one plays an episode in an environment of `env_config_eval`; with one,
    that configuration is not used. The classes of agent, environment, step processor and replay
    buffer are those that the configurations name in their attribute `builds`, unless they are
    given. All actors have ended when this returns or raises.

    Raises UsageError for configurations that cannot be used, BorderAsyncTrainerError if actors
    cannot be kept alive or the first model is not one of 0 optimization steps, SendMsgForPush at a
    full channel if actors are to raise it, and what agent, buffer, recorder and evaluator raise.
    """
    agent_class = class_of(agent_config, agent, "agent")
    env_class = class_of(env_config_train, env, "env")
    buffer_class = class_of(replay_buffer_config, replay_buffer, "replay_buffer")
    processor_class = class_of(step_proc_config, step_processor, "step_processor")
    parts = ActorParts(
        agent_class, agent_configs, env_class, env_config_train, processor_class, step_proc_config
    )
    with ExitStack() as closing:
        if evaluator is None:
            evaluator = DefaultEvaluator(env_config_eval, 0, 1, env=env)
            closing.callback(evaluator.close)
        actors = ActorManager(actor_man_config, parts)
        closing.callback(actors.stop_and_join)
        trainer = AsyncTrainer(
            async_trainer_config,
            agent_class.build(agent_config),
            buffer_class.build(replay_buffer_config),
            actors,
            recorder,
            evaluator,
        )
        actors.run()
        stat = trainer.train()
        actor_stats = actors.stop_and_join()
    log.info("%s", stat.fmt())
    log.info("%s", actor_stats_fmt(actor_stats))
    return AsyncTrainResult(
        trainer.agent,
        stat,
        actor_stats,
        trainer.samples_total,
        actors.waits,
        actors.replacements,
    )
