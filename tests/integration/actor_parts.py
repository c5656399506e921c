"""Actors that count: every item tells who made it, so that none is lost or doubled unseen."""

import os
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from tests.waiting import eventually

from arkml.async_trainer import SyncModel
from arkml.async_trainer.core import Agent, Env, Record, Step, StepProcessor
from arkml.async_trainer.runners.runner import ActorEnded, ActorJob


@dataclass(frozen=True)
class Plan:
    """
    What an environment does: at step `at`, after `pause` seconds a step.

    With `counts`, a directory, the number of steps is in a file there, by the seed.
    """

    act: str = ""
    at: int = -1
    pause: float = 0.0
    reports: str = ""
    counts: str = ""


class CountingEnv(Env):
    """Its observation is the number of the step; the reward is the action, the agent's model."""

    def __init__(self, plan, seed):
        self._plan, self._seed, self._count = plan, seed, 0
        self.child = None
        self._steps = None
        if plan.counts:
            self._steps = os.open(Path(plan.counts) / str(seed), os.O_WRONLY | os.O_CREAT)
        if plan.reports:
            self._report(os.getpid())
        if plan.act == "fail to build":
            raise ValueError("no such game")
        if plan.act == "start a process":
            self.child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(1000)"])
            self._report(self.child.pid)

    @classmethod
    def build(cls, config, seed):
        return cls(config, seed)

    def reset(self, _=None):
        return self._obs()

    def reset_with_index(self, _):
        return self._obs()

    def step(self, act):
        if self._plan.pause:
            time.sleep(self._plan.pause)
        if self._count == self._plan.at:
            self._misbehave()
        self._count += 1
        if self._steps is not None:
            os.pwrite(self._steps, self._count.to_bytes(8, "little"), 0)
        reward = np.full(1, act, np.float32)
        flags = np.zeros(1, np.int8)
        return Step(np.array([[act]]), self._obs(), reward, flags, flags, None), Record.empty()

    def close(self):
        if self._steps is not None:
            os.close(self._steps)
        if self._plan.reports:
            self._report("closed")

    def _misbehave(self):
        match self._plan.act:
            case "raise":
                raise ValueError("the game is broken")
            case "report":
                self._report("here")
            case "kill":
                os.kill(os.getpid(), signal.SIGKILL)
            case "exit":
                os._exit(7)
            case "hang":
                signal.signal(signal.SIGTERM, signal.SIG_IGN)
                time.sleep(1000)

    def _report(self, line):
        with Path(self._plan.reports).open("a") as file:
            file.write(f"{line}\n")

    def _obs(self):
        return np.array([[self._seed, self._count]], np.float64)


class ModelAgent(Agent, SyncModel):
    """Acts as its model says, a number."""

    def __init__(self):
        self.model = -1

    @classmethod
    def build(cls, _):
        return cls()

    def train(self):
        pass

    def eval(self):
        pass

    def is_train(self):
        return True

    def sample(self, _):
        return self.model

    def opt_with_record(self, _):
        return Record.empty()

    def save_params(self, _):
        return []

    def load_params(self, path):
        pass

    def model_info(self):
        return 0, 0

    def sync_model(self, model_info):
        self.model = model_info


class Tuples(StepProcessor):
    """Items (seed, number, model): plain, so that they can be compared."""

    @classmethod
    def build(cls, _):
        return cls()

    def reset(self, init_obs):
        pass

    def process(self, step):
        seed, number = step.obs[0]
        return int(seed), int(number), int(step.reward[0])


N_BUFFER = 10


def job(actor=0, incarnation=0, *, n_buffer=N_BUFFER, on_full="wait", plan=None, **parts):
    given = {
        "agent": ModelAgent, "agent_config": None, "env": CountingEnv, "env_config": plan or Plan(),
        "step_processor": Tuples, "step_processor_config": None,
    }  # fmt: skip
    seed = actor + 100 * incarnation
    return ActorJob(actor, incarnation, seed, n_buffer, on_full, **(given | parts))


@dataclass
class Inbox:
    """What a runner has received so far."""

    runner: object
    messages: list = field(default_factory=list)
    ended: list = field(default_factory=list)

    def receive(self, seconds=0.05):
        for arrived in self.runner.receive(seconds):
            (self.ended if isinstance(arrived, ActorEnded) else self.messages).append(arrived)
        return self

    def until(self, condition, timeout=300):
        eventually(lambda: condition(self.receive()), timeout, interval=0)
        return self

    def items(self, actor=0, incarnation=0):
        mine = [m for m in self.messages if (m.id, m.incarnation) == (actor, incarnation)]
        assert [message.sequence for message in mine] == list(range(len(mine)))
        return [item for message in mine for item in message.pushed_items]


def is_prefix(items, seed):
    """True if the items are the first that an environment of this seed makes."""
    return [(one[0], one[1]) for one in items] == [(seed, n + 1) for n in range(len(items))]


def assert_loses_a_message_at_most(inbox, actor, counts):
    """
    A killed actor of `job` loses what it had not sent, and at most one message of what it had.

    What was received are whole messages with the first items that it made, each once: their
    numbers are equal, and so is every checksum of them.
    """
    items = inbox.items(actor)
    made = int.from_bytes((counts / str(actor)).read_bytes(), "little")

    assert is_prefix(items, actor)
    assert len(items) % N_BUFFER == 0
    assert 0 <= made - len(items) <= N_BUFFER + N_BUFFER
