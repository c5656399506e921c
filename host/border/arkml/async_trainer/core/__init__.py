"""The core of the trainer, with interfaces such as agents, environments and buffers."""

from __future__ import annotations

from arkml.async_trainer.core.agent import Agent, Policy
from arkml.async_trainer.core.buffers import (
    BatchBase,
    ExperienceBufferBase,
    ReplayBufferBase,
    StepProcessor,
)
from arkml.async_trainer.core.config_builder import ConfigBuilder
from arkml.async_trainer.core.configurable import Configurable
from arkml.async_trainer.core.env import Act, Env, Info, Obs, Step
from arkml.async_trainer.core.evaluator import DefaultEvaluator, Evaluator
from arkml.async_trainer.core.priorities import IwScheduler, PerConfig
from arkml.async_trainer.core.record import LrrError, Record, RecordStorage
from arkml.async_trainer.core.recorders import (
    BufferedRecorder,
    NullRecorder,
    Recorder,
    TensorBoardRecorder,
)
from arkml.async_trainer.core.sampler import Sampler
from arkml.async_trainer.core.simple_replay_buffer import (
    SimpleReplayBuffer,
    SimpleReplayBufferConfig,
)
from arkml.async_trainer.core.step_processor import SimpleStepProcessor, SimpleStepProcessorConfig
from arkml.async_trainer.core.trainer import Trainer, TrainerConfig
from arkml.async_trainer.core.transition_batches import (
    ArrayBatch,
    GenericTransitionBatch,
    TransitionBatch,
)

__all__ = [
    "Act",
    "Agent",
    "ArrayBatch",
    "BatchBase",
    "BufferedRecorder",
    "ConfigBuilder",
    "Configurable",
    "DefaultEvaluator",
    "Env",
    "Evaluator",
    "ExperienceBufferBase",
    "GenericTransitionBatch",
    "Info",
    "IwScheduler",
    "LrrError",
    "NullRecorder",
    "Obs",
    "PerConfig",
    "Policy",
    "Record",
    "RecordStorage",
    "Recorder",
    "ReplayBufferBase",
    "Sampler",
    "SimpleReplayBuffer",
    "SimpleReplayBufferConfig",
    "SimpleStepProcessor",
    "SimpleStepProcessorConfig",
    "Step",
    "StepProcessor",
    "TensorBoardRecorder",
    "Trainer",
    "TrainerConfig",
    "TransitionBatch",
]
