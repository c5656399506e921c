"""PPO of Stable-Baselines3 learns a pendulum, and its policy comes home into the guest."""

import sys
from pathlib import Path

import numpy as np
import torch
from onnxruntime import InferenceSession
from stable_baselines3 import PPO
from stable_baselines3.common.vec_env import VecNormalize

import arkml
from arkml.envs.sb3 import GuestSb3VecEnv

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_pendulum.wasm"
FILE = Path(sys.argv[2] if len(sys.argv) > 2 else "pendulum.onnx")
EPISODES = 16

torch.set_num_threads(1)
envs = VecNormalize(GuestSb3VecEnv(MODULE, num_envs=EPISODES, configure=(1, "{seed}")))
model = PPO("MlpPolicy", envs, n_steps=64, batch_size=256, gamma=0.95, seed=1, device="cpu")
model.learn(4_096)
envs.training = False  # the scaling is as it is from now on


class Home(torch.nn.Module):
    """The policy as the guest asks it: its row goes in, actions within their bounds come out."""

    def __init__(self) -> None:
        super().__init__()
        seen = envs.obs_rms
        self.policy = model.policy
        self.register_buffer("mean", torch.tensor(seen.mean, dtype=torch.float32))
        self.register_buffer("scale", torch.tensor(np.sqrt(seen.var + envs.epsilon)).float())

    def forward(self, row: torch.Tensor) -> torch.Tensor:
        scaled = ((row - self.mean) / self.scale).clamp(-envs.clip_obs, envs.clip_obs)
        features = self.policy.extract_features(scaled)
        mean = self.policy.action_net(self.policy.mlp_extractor.forward_actor(features))
        return mean.clamp(-1, 1)  # an unsquashed Gaussian is clipped by the trainer


torch.onnx.export(
    Home().eval(), (torch.zeros(2, *envs.observation_space.shape),), str(FILE),
    input_names=["obs"], output_names=["actions"],
    dynamic_axes={"obs": {0: "n"}, "actions": {0: "n"}}, dynamo=False,
)  # fmt: skip

rows = np.random.default_rng(1).uniform(-2, 2, (1_000, 3)).astype(np.float32)
(given,) = InferenceSession(FILE).run(["actions"], {"obs": rows})
wanted, _ = model.predict(envs.normalize_obs(rows), deterministic=True)


def show(who: str, returns: np.ndarray) -> None:
    error = returns.std() / len(returns) ** 0.5
    print(f"mean return by {who:15} {returns.mean():8.1f} ± {error:.1f}")


print(f"largest difference of an action {np.abs(given - wanted).max():.4f}")

seen, returns, is_over = envs.reset(), np.zeros(EPISODES), np.zeros(EPISODES, bool)
while not is_over.all():
    seen, _, ended, _ = envs.step(model.predict(seen, deterministic=True)[0])
    returns += np.where(is_over, 0, envs.get_original_reward())
    is_over |= ended
show("the trainer", returns)
envs.close()
show("arkml.evaluate", arkml.evaluate(MODULE, FILE, episodes=64).returns)
