"""PPO of TorchRL keeps poles upright in a fleet of guests."""

import logging
import sys

import torch
from tensordict.nn import TensorDictModule
from tensordict.nn.distributions import NormalParamExtractor
from torch import nn
from torchrl.collectors import Collector
from torchrl.envs import GymWrapper, RewardSum, TransformedEnv
from torchrl.modules import ProbabilisticActor, TanhNormal, ValueOperator
from torchrl.objectives import ClipPPOLoss
from torchrl.objectives.value import GAE

from arkml.envs.vector_env import vector_env

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_cartpole.wasm"
GUESTS, ROWS, UPDATES = 16, 1024, 12  # rows of all guests, between two updates
EPOCHS, MINIBATCH = 8, 256


def network(height: int) -> nn.Sequential:
    return nn.Sequential(
        nn.LazyLinear(64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, height)
    )


logging.getLogger("torchrl").setLevel(logging.WARNING)  # it logs to stdout
torch.manual_seed(1)
torch.set_num_threads(1)
fleet = vector_env(
    MODULE, per="guest", num_envs=GUESTS, autoreset_mode="SameStep", configure=(1, "{seed}")
)
env = TransformedEnv(GymWrapper(fleet), RewardSum())
env.set_seed(1)
space = fleet.single_action_space
parameters = nn.Sequential(network(2 * space.shape[0]), NormalParamExtractor())
actor = ProbabilisticActor(
    TensorDictModule(parameters, ["observation"], ["loc", "scale"]),
    in_keys=["loc", "scale"], distribution_class=TanhNormal, return_log_prob=True,
    distribution_kwargs={"low": space.low[0], "high": space.high[0]},
)  # fmt: skip
critic = ValueOperator(network(1), in_keys=["observation"])
for module in (actor, critic):
    module(env.reset())  # the widths of the first layers
advantages = GAE(gamma=0.98, lmbda=0.95, value_network=critic)
losses = ClipPPOLoss(actor, critic, clip_epsilon=0.2, entropy_coeff=0.001)
optimizer = torch.optim.Adam(losses.parameters(), lr=2e-3)

collector = Collector(env, actor, frames_per_batch=ROWS, total_frames=UPDATES * ROWS)
returns: list[float] = []
for update, rows in enumerate(collector, 1):
    with torch.no_grad():
        advantages(rows)
    returns += rows["next", "episode_reward"][rows["next", "done"]].tolist()
    flat = rows.reshape(-1)
    for _ in range(EPOCHS):
        for chosen in torch.randperm(len(flat)).split(MINIBATCH):
            found = losses(flat[chosen])
            loss = found["loss_objective"] + found["loss_critic"] + found["loss_entropy"]
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(losses.parameters(), 0.5)
            optimizer.step()
    if update % 4 == 0:
        mean = sum(returns[-50:]) / len(returns[-50:])
        print(f"{update * ROWS:6} steps   mean return of the last 50 episodes {mean:6.1f}")
collector.shutdown()
