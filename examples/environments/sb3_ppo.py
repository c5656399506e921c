"""PPO of Stable-Baselines3 keeps poles upright in a fleet of 16 guests."""

import sys

import numpy as np
import torch
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecMonitor

from arkml.envs.sb3 import GuestSb3VecEnv

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_cartpole.wasm"
STEPS = 4_096  # of all guests, between two lines

torch.set_num_threads(1)
envs = VecMonitor(GuestSb3VecEnv(MODULE, num_envs=16, configure=(1, "{seed}")))
model = PPO(
    "MlpPolicy", envs, n_steps=64, batch_size=256, n_epochs=8, gamma=0.98, learning_rate=2e-3,
    seed=1, device="cpu",
)  # fmt: skip
for turn in range(1, 4):
    model.learn(STEPS, reset_num_timesteps=turn == 1)
    episodes = list(model.ep_info_buffer)[-50:]
    mean = np.mean([episode["r"] for episode in episodes])
    print(f"{model.num_timesteps:6} steps   mean return of the last 50 episodes {mean:6.1f}")
envs.close()
