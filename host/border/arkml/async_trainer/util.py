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
    The result of a training.

    Args:
        agent: The trained agent.
        stat: Speed of the training.
        actor_stats: Statistics of each actor.
        samples: Number of samples pushed into the replay buffer.
        waits: Number and total seconds of actors' waits at a full channel.
        replacements: Number of dead actors that were replaced.

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
    Train an agent with the samples of actors. All actors have ended when this returns or raises.

    A class that is not given is the one that the configuration names in its attribute `builds`.

    Args:
        agent_config: Configuration of the agent that learns.
        agent_configs: Configurations of the acting agents, one for each actor.
        env_config_train: Configuration of the actors' environments.
        env_config_eval: Configuration of the environment for evaluation; unused with an
            `evaluator`.
        step_proc_config: Configuration of the actors' step processors.
        replay_buffer_config: Configuration of the replay buffer.
        actor_man_config: Configuration of the manager of actors.
        async_trainer_config: Configuration of the trainer.
        recorder: Recorder of scores, losses and speeds.
        evaluator: Evaluator of the agent; by default it plays one episode.
        agent: Class of the agents.
        env: Class of the environments.
        step_processor: Class of the step processors.
        replay_buffer: Class of the replay buffer.

    Raises:
        UsageError: A configuration is invalid.
        BorderAsyncTrainerError: Actors keep dying, or the first model has optimization steps.
        SendMsgForPush: The channel was full, and actors raise then. Errors of agent, buffer,
            recorder and evaluator are raised, too.

    Example:
        guests = GuestsConfig("pendulum.wasm", count=8)
        agent = SacAgentConfig(settings)
        result = train_async(
            agent, [agent] * 4, guests, guests, SacStepProcessorConfig(),
            SacReplayBufferConfig(settings), ActorManagerConfig(runner="processes"),
            AsyncTrainerConfig(max_opts=20_000), NullRecorder("models"),
        )

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
