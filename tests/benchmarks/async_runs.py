"""The pendulum learned by the asynchronous trainer, one seed in a process; run as a module."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, Self

from tests.benchmarks.default_runs import GUESTS
from tests.benchmarks.rating import AHEAD, EPISODES, Policies, statistic
from tests.benchmarks.suite import SUITE

from arkml import evaluate
from arkml.async_trainer import ActorManagerConfig, AsyncTrainerConfig, util
from arkml.async_trainer.adaptors.guest_env import GuestsConfig
from arkml.async_trainer.adaptors.sac_agent import SacAgentConfig
from arkml.async_trainer.adaptors.sac_rows import (
    SacReplayBuffer,
    SacReplayBufferConfig,
    SacStepProcessorConfig,
)
from arkml.async_trainer.core import Evaluator, NullRecorder, Policy, Record
from arkml.async_trainer.runners.choice import RunnerChoice
from arkml.hive.protocol.settings import Settings
from arkml.learning.policy_graph import to_onnx
from arkml.learning.sac import SacWeights

NAME = "pendulum"
ACTORS, AGENTS = 2, 16
"""The actors, and all their guests together: as many as the guest of the hive has agents."""

SYNC, MESSAGE, LOOK = 50, 4, 32
"""Updates from one model to the next, steps of a message, updates between looks at the rows."""


class CountedBuffer(SacReplayBuffer):
    """A replay buffer that counts its rows from the first on."""

    made: CountedBuffer

    @classmethod
    def build(cls, config: SacReplayBufferConfig) -> Self:
        cls.made = buffer = super().build(config)
        buffer.received = 0
        buffer.first = 0.0
        return buffer

    received: int
    first: float

    def push(self, item: Any) -> None:
        if not self.received:
            self.first = time.perf_counter()
        self.received += len(item.records)
        super().push(item)


class Noting(Evaluator):
    """Keeps the weights of the policy at every mark of rows; they are rated later."""

    def __init__(self) -> None:
        self.policies: Policies[SacWeights] = Policies()

    def evaluate(self, agent: Policy) -> tuple[float, Record]:
        sac: Any = agent
        rows = CountedBuffer.made.received
        self.policies.note(rows, lambda: sac._learning().weights())
        return 0.0, Record()


def main(seed: int, runner: RunnerChoice) -> None:
    game = SUITE[NAME]
    settings = Settings(game.features, game.actions, seed=seed)
    agent = SacAgentConfig(settings)
    module = GUESTS / game.guest
    guests = GuestsConfig(module, {"configure": (1, "{seed}")}, seed=seed, count=AGENTS // ACTORS)
    noting = Noting()
    began = time.perf_counter()
    result = util.train_async(
        agent,
        [agent] * ACTORS,
        guests,
        None,
        SacStepProcessorConfig(),
        SacReplayBufferConfig(settings),
        ActorManagerConfig(n_buffer=MESSAGE, runner=runner),
        AsyncTrainerConfig(
            max_opts=game.rows + AHEAD, eval_interval=LOOK, flush_record_interval=0,
            record_compute_cost_interval=0, record_agent_info_interval=0, save_interval=0,
            sync_interval=SYNC, warmup_period=settings.memory_min_size, updates_per_sample=1.0,
        ),
        NullRecorder(),
        noting,
        replay_buffer=CountedBuffer,
    )  # fmt: skip
    first = CountedBuffer.made.first
    noting.policies.seconds = [
        seconds - (first - noting.policies.start) for seconds in noting.policies.seconds
    ]

    def rate(weights: SacWeights) -> float:
        returns = evaluate(module, to_onnx(weights), episodes=EPISODES).returns
        return statistic(game, returns.tolist())

    found = {
        "game": NAME,
        "seed": seed,
        "first": round(first - began, 2),
        "samples": result.samples,
        "made": sum(stat.env_steps for stat in result.actor_stats),
    }
    print(json.dumps(found | noting.policies.rated(game.goal, rate)))


if __name__ == "__main__":
    main(int(sys.argv[1]), sys.argv[2])  # type: ignore[arg-type]
