"""PPO in one file, in the manner of CleanRL, keeps poles upright in a fleet of guests."""

import sys

import gymnasium
import numpy as np
import torch
from torch import nn
from torch.distributions import Normal

import arkml.envs.gym  # noqa: F401  registers the guests

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_cartpole.wasm"
GUESTS, STEPS, UPDATES = 16, 64, 12
EPOCHS, MINIBATCHES = 8, 4
GAMMA, LAMBDA, CLIP, RATE = 0.98, 0.95, 0.2, 2e-3


def layer(width: int, height: int, gain: float = 2.0**0.5) -> nn.Linear:
    linear = nn.Linear(width, height)
    nn.init.orthogonal_(linear.weight, gain)
    nn.init.zeros_(linear.bias)
    return linear


def network(width: int, height: int, gain: float) -> nn.Sequential:
    return nn.Sequential(
        layer(width, 64), nn.Tanh(), layer(64, 64), nn.Tanh(), layer(64, height, gain)
    )  # fmt: skip


torch.manual_seed(1)
torch.set_num_threads(1)
envs = gymnasium.make_vec(
    "arkml/Guest-v0", num_envs=GUESTS, vectorization_mode="vector_entry_point",
    module=MODULE, per="guest", autoreset_mode="SameStep", configure=(1, "{seed}"),
)  # fmt: skip
width, height = envs.single_observation_space.shape[0], envs.single_action_space.shape[0]
low, high = envs.single_action_space.low, envs.single_action_space.high
actor, critic = network(width, height, 0.01), network(width, 1, 1.0)
spread = nn.Parameter(torch.zeros(height))
parameters = [*actor.parameters(), *critic.parameters(), spread]
optimizer = torch.optim.Adam(parameters, lr=RATE, eps=1e-5)

seen, _ = envs.reset(seed=1)
totals, returns = np.zeros(GUESTS), []
for update in range(1, UPDATES + 1):
    observations = torch.zeros(STEPS, GUESTS, width)
    actions, logs = torch.zeros(STEPS, GUESTS, height), torch.zeros(STEPS, GUESTS)
    rewards, values, nexts, ends = torch.zeros(4, STEPS, GUESTS)
    for step in range(STEPS):
        observations[step] = torch.from_numpy(seen)
        with torch.no_grad():
            policy = Normal(actor(observations[step]), spread.exp())
            actions[step] = policy.sample()
            logs[step] = policy.log_prob(actions[step]).sum(-1)
            values[step] = critic(observations[step])[:, 0]
        seen, earned, terminated, truncated, infos = envs.step(
            actions[step].numpy().clip(low, high)
        )
        over = terminated | truncated
        following = seen.copy()  # what the last action led to, also where an episode ended
        for place in np.flatnonzero(over):
            following[place] = infos["final_obs"][place]
        with torch.no_grad():
            value = critic(torch.from_numpy(following))[:, 0]
        rewards[step] = torch.from_numpy(earned)
        nexts[step] = value * torch.from_numpy(~terminated)
        ends[step] = torch.from_numpy(over)
        totals += earned
        returns += totals[over].tolist()
        totals[over] = 0
    advantages, later = torch.zeros(STEPS, GUESTS), torch.zeros(GUESTS)
    for step in reversed(range(STEPS)):
        error = rewards[step] + GAMMA * nexts[step] - values[step]
        later = error + GAMMA * LAMBDA * (1 - ends[step]) * later
        advantages[step] = later
    targets = (advantages + values).flatten()
    columns = observations.flatten(0, 1), actions.flatten(0, 1), logs.flatten()
    advantages = advantages.flatten()
    for _ in range(EPOCHS):
        for rows in torch.randperm(STEPS * GUESTS).chunk(MINIBATCHES):
            features, taken, before = (column[rows] for column in columns)
            policy = Normal(actor(features), spread.exp())
            ratio = (policy.log_prob(taken).sum(-1) - before).exp()
            gain = advantages[rows]
            gain = (gain - gain.mean()) / (gain.std() + 1e-8)
            clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
            loss = -torch.min(ratio * gain, clipped * gain).mean()
            loss = loss + 0.5 * (critic(features)[:, 0] - targets[rows]).square().mean()
            optimizer.zero_grad()
            loss.backward()
            nn.utils.clip_grad_norm_(parameters, 0.5)
            optimizer.step()
    if update % 4 == 0:
        steps, mean = update * STEPS * GUESTS, np.mean(returns[-50:])
        print(f"{steps:6} steps   mean return of the last 50 episodes {mean:6.1f}")
envs.close()
