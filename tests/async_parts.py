"""Environments, agents and step processors for tests of the asynchronous trainer."""

import json
import sys
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np

from arkml.async_trainer.core import Agent, Env, Record, Step
from arkml.async_trainer.sync_model import SyncModel


@dataclass(frozen=True)
class CountingConfig:
    """`n` counters side by side, whose episodes are `length` steps long; `fault` breaks one."""

    n: int = 1
    length: int = 5
    fault: str = ""
    at: int = 3
    builds: ClassVar[Any]


class CountingEnv(Env):
    """
    Counters from 0 on. An observation is [seed, steps of all episodes, counter].

    The reward is the counter. Episodes end by termination and truncation in turns.
    """

    def __init__(self, config, seed):
        if config.fault == "build":
            raise RuntimeError("no room for a counter")
        self.config = config
        self.seed = seed
        self.steps = 0
        self.episodes = np.zeros(config.n, np.int64)
        self.counters = np.zeros(config.n, np.int64)
        self.is_closed = False

    @classmethod
    def build(cls, config, seed):
        return cls(config, seed)

    def obs(self):
        rows = np.zeros((self.config.n, 3), np.float32)
        rows[:, 0], rows[:, 1], rows[:, 2] = self.seed, self.steps, self.counters
        return rows

    def reset(self, is_done=None):
        if self.config.fault == "reset":
            raise RuntimeError("the counter is stuck")
        done = np.ones(self.config.n, bool) if is_done is None else is_done == 1
        self.counters[done] = 0
        self.episodes[done] += 1
        return self.obs()

    def reset_with_index(self, ix):
        self.episodes[:] = ix
        self.counters[:] = 0
        return self.obs()

    def step(self, act):
        self.steps += 1
        self.counters += 1
        fault = self.config.fault if self.steps == self.config.at else ""
        if fault == "step":
            raise RuntimeError("the counter has jumped")
        if fault == "exit":
            sys.exit(3)
        reward = self.counters.astype(np.float32)
        if fault == "nan":
            reward[0] = np.nan
        ended = (self.counters >= self.config.length).astype(np.int8)
        is_even = (self.episodes % 2 == 0).astype(np.int8)
        obs = self.obs()
        step = Step(act, obs, reward, ended * is_even, ended * (1 - is_even), None)
        if fault == "obs":
            step.obs = obs[:, :2]
        if fault == "reward":
            step.reward = np.zeros(self.config.n + 1, np.float32)
        if fault == "flags":
            step.is_truncated = np.zeros((self.config.n, 1), np.int8)
        return step, Record.empty()

    def close(self):
        self.is_closed = True


CountingConfig.builds = CountingEnv


@dataclass(frozen=True)
class LearnerConfig:
    """`fault` names a method that raises: in the trainer "opt", in actors "sync_model"."""

    fault: str = ""
    first: int = 0
    batch_size: int = 4
    builds: ClassVar[Any]


class LearnerAgent(Agent, SyncModel):
    """Acts with the number of its optimization steps, which is its model."""

    def __init__(self, config):
        self.config = config
        self.n_opts = config.first
        self.training = False
        self.calls = []

    @classmethod
    def build(cls, config):
        return cls(config)

    def train(self):
        self.training = True
        self.calls.append("train")

    def eval(self):
        self.training = False
        self.calls.append("eval")

    def is_train(self):
        return self.training

    def sample(self, obs):
        if self.config.fault == "sample":
            raise RuntimeError("no idea")
        return np.full((len(obs), 1), self.n_opts, np.float32)

    def opt(self, buffer):
        self.calls.append("opt")
        self.update(buffer)

    def opt_with_record(self, buffer):
        self.calls.append("opt_with_record")
        self.update(buffer)
        return Record.from_scalar("loss", self.n_opts)

    def update(self, buffer):
        if self.config.fault == "opt":
            raise ArithmeticError("the loss is not finite")
        batch = buffer.batch(self.config.batch_size)
        assert len(batch) == self.config.batch_size
        self.n_opts += 1

    def save_params(self, path):
        file = path / "agent.json"
        file.write_text(json.dumps(self.n_opts))
        self.calls.append(f"save {path.name}")
        return [file]

    def load_params(self, path):
        self.n_opts = json.loads((path / "agent.json").read_text())

    def model_info(self):
        return self.n_opts, self.n_opts

    def sync_model(self, model_info):
        if self.config.fault == "sync_model":
            raise RuntimeError("this is not my model")
        self.n_opts = model_info


LearnerConfig.builds = LearnerAgent
