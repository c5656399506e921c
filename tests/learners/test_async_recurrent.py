"""A recurrent agent of one's own learns by the asynchronous trainer from guests that ask for it."""

from collections import deque
from dataclasses import dataclass
from typing import ClassVar

import numpy as np
import pytest
import torch
from tests.integration.command_line import GUESTS
from torch import nn

from arkml.async_trainer import ActorManagerConfig, AsyncTrainerConfig, SyncModel, util
from arkml.async_trainer.adaptors.guest_env import AgentsAsEnv, AgentsConfig
from arkml.async_trainer.core import (
    Agent,
    DefaultEvaluator,
    NullRecorder,
    Record,
    ReplayBufferBase,
    StepProcessor,
    TransitionBatch,
)

pytestmark = pytest.mark.slow

UNITS, CHANCE, EPISODES = 64, 0.2, 8
ACTORS = 2
SYNC = 20


class ToldEnv(AgentsAsEnv):
    """The agents of one guest, with a last feature that is 1 in the first row of an episode."""

    def reset(self, is_done=None):
        return told(super().reset(is_done), 1)

    def reset_with_index(self, ix):
        return told(super().reset_with_index(ix), 1)

    def step(self, act):
        step, record = super().step(act)
        step.obs = told(step.obs, 0)
        return step, record

    def begin_next(self, step):
        super().begin_next(step)
        if step.init_obs is not None:
            step.init_obs = told(step.init_obs, step.continues < 0)


def told(rows, begins):
    column = np.broadcast_to(np.asarray(begins, np.float32), len(rows))
    return np.concatenate([rows, column[:, None]], axis=1)


@dataclass
class Moment(TransitionBatch):
    """What all agents of an actor saw, did and got in one step."""

    actor: object
    seen: np.ndarray
    act: np.ndarray
    reward: np.ndarray

    def __len__(self):
        return len(self.reward)


class Moments(StepProcessor):
    @classmethod
    def build(cls, _):
        return cls()

    def __init__(self):
        self.actor = object()  # actors are threads here

    def reset(self, init_obs):
        self.seen = init_obs

    def process(self, step):
        moment, self.seen = Moment(self.actor, self.seen, step.act, step.reward), step.obs
        return moment


class Episodes(ReplayBufferBase):
    """The last episodes, of whose agents all begin and end together."""

    @classmethod
    def build(cls, _):
        return cls()

    def __init__(self):
        self.open, self.whole, self.count = {}, deque(maxlen=100), 0

    def push(self, item):
        moments = self.open.setdefault(item.actor, [])
        begins = item.seen[:, -1]
        assert begins.min() == begins.max()
        if begins.all() and moments:
            columns = zip(*((one.seen, one.act, one.reward) for one in moments), strict=True)
            self.whole.append([torch.from_numpy(np.stack(column)) for column in columns])
            moments.clear()
        moments.append(item)
        self.count += len(item)

    def __len__(self):
        return self.count

    def batch(self, size):
        chosen = np.random.default_rng(self.count).integers(0, len(self.whole), size)
        columns = zip(*(self.whole[place] for place in chosen), strict=True)
        return [torch.cat(column, dim=1) for column in columns]


class Network(nn.Module):
    """What each choice is worth at once, by a GRU: [steps, n, features] to [steps, n, choices]."""

    def __init__(self, features, choices):
        super().__init__()
        self.memory = nn.GRU(features, UNITS)
        self.worth = nn.Linear(UNITS, choices)
        with torch.no_grad():  # keep what was seen for 1 to 60 steps at first (arXiv:1804.11188)
            steps = torch.empty(UNITS).uniform_(1.0, 60.0)
            self.memory.bias_hh_l0[UNITS : 2 * UNITS] = torch.log(steps)

    def forward(self, seen, memory=None):
        taken, memory = self.memory(seen, memory)
        return self.worth(taken), memory


class Remembering(Agent, SyncModel):
    @classmethod
    def build(cls, config):
        return cls(config)

    def __init__(self, config):
        torch.manual_seed(config.number)
        self.network = Network(config.features + 1, config.choices)
        self.optimizer = torch.optim.Adam(self.network.parameters(), 3e-3)
        self.random = np.random.default_rng(config.number)
        self.steps, self.explores, self.memory = 0, False, None

    def train(self):
        self.explores = True

    def eval(self):
        self.explores, self.memory = False, None

    def is_train(self):
        return self.explores

    def seed(self, seed):
        self.random = np.random.default_rng(seed)

    def sample(self, obs):
        seen = torch.from_numpy(np.asarray(obs, np.float32))
        if self.memory is None:
            self.memory = torch.zeros(1, len(seen), UNITS)
        with torch.no_grad():
            kept = self.memory * (1 - seen[:, -1:])  # nothing at the beginning of an episode
            worth, self.memory = self.network(seen[None], kept)
        best = worth[0].argmax(dim=1).numpy()
        if self.explores:
            other = self.random.integers(0, worth.shape[2], len(best))
            best = np.where(self.random.random(len(best)) < CHANCE, other, best)
        return best[:, None].astype(np.float32)

    def opt_with_record(self, buffer):
        seen, act, reward = buffer.batch(EPISODES)
        worth = self.network(seen)[0].gather(2, act.long())[..., 0]
        loss = (worth - reward / reward.max().clamp(min=1e-6)).square().mean()
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.steps += 1
        return Record({"loss": float(loss.detach())})

    def model_info(self):
        return self.steps, {k: v.clone() for k, v in self.network.state_dict().items()}

    def sync_model(self, model_info):
        self.network.load_state_dict(model_info)

    def save_params(self, path):
        torch.save(self.network.state_dict(), path / "network.pt")
        return [path / "network.pt"]

    def load_params(self, path):
        self.network.load_state_dict(torch.load(path / "network.pt"))


@dataclass(frozen=True)
class RememberingConfig:
    features: int
    choices: int
    number: int = 0
    builds: ClassVar[type] = Remembering


@pytest.mark.parametrize(
    ("guest", "features", "steps", "without", "enough"),
    [("c_echo", 4, 600, 0.34, 0.9), ("c_maze", 2, 600, 0.51, 0.95)],
)
def test_a_recurrent_agent_learns_to_remember(guest, features, steps, without, enough):
    torch.set_num_threads(1)
    config = AgentsConfig(GUESTS / f"{guest}.wasm")
    agents = [RememberingConfig(features, 3, number) for number in range(1, ACTORS + 1)]
    evaluator = DefaultEvaluator(config, 0, 4, env=ToldEnv)
    result = util.train_async(
        RememberingConfig(features, 3), agents, config, None, None, None,
        ActorManagerConfig(n_buffer=10),
        AsyncTrainerConfig(
            max_opts=steps, eval_interval=0, save_interval=0, sync_interval=SYNC,
            warmup_period=4_000, updates_per_sample=0.01,
        ),
        NullRecorder(), evaluator, env=ToldEnv, step_processor=Moments, replay_buffer=Episodes,
    )  # fmt: skip
    result.agent.eval()
    learned, _ = evaluator.evaluate(result.agent)
    fresh, _ = evaluator.evaluate(Remembering(RememberingConfig(features, 3, 7)))
    evaluator.close()
    print(f"{guest}: {learned:.2f} after {result.samples:,} samples, {fresh:.2f} by a new agent")

    assert fresh < without + 0.2
    assert learned > enough
