"""Asynchronous training: actors sample in parallel while one trainer learns."""

from __future__ import annotations

from arkml.async_trainer import util
from arkml.async_trainer.actor import Actor, ActorStat, actor_stats_fmt
from arkml.async_trainer.actor_manager import ActorManager, ActorManagerConfig
from arkml.async_trainer.async_trainer import AsyncTrainer, AsyncTrainerConfig, AsyncTrainStat
from arkml.async_trainer.messages import PushedItemMessage
from arkml.async_trainer.replay_buffer_proxy import ReplayBufferProxy, ReplayBufferProxyConfig
from arkml.async_trainer.sync_model import SyncModel
from arkml.async_trainer.trainer_errors import BorderAsyncTrainerError, SendMsgForPush

__all__ = [
    "Actor",
    "ActorManager",
    "ActorManagerConfig",
    "ActorStat",
    "AsyncTrainStat",
    "AsyncTrainer",
    "AsyncTrainerConfig",
    "BorderAsyncTrainerError",
    "PushedItemMessage",
    "ReplayBufferProxy",
    "ReplayBufferProxyConfig",
    "SendMsgForPush",
    "SyncModel",
    "actor_stats_fmt",
    "util",
]
