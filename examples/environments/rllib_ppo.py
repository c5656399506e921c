"""PPO of RLlib keeps poles upright in guests that it makes itself."""

import sys

import ray
from ray.rllib.algorithms.ppo import PPOConfig
from ray.tune.registry import register_env

from arkml.envs.gymnasium_env import GuestGymEnv

MODULE = sys.argv[1] if len(sys.argv) > 1 else "fixtures/guests/c_cartpole.wasm"
STEPS = 2_048  # of all guests, between two lines


def guest(settings: dict[str, object]) -> GuestGymEnv:
    del settings
    return GuestGymEnv(MODULE, configure=(1, "{seed}"))


ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
register_env("guest", guest)
config = (
    PPOConfig()
    .environment("guest")
    .env_runners(num_env_runners=0, num_envs_per_env_runner=16)
    .training(
        train_batch_size_per_learner=STEPS, minibatch_size=256, num_epochs=6, lr=2e-3, gamma=0.98
    )
    .debugging(seed=1)
)
algorithm = config.build_algo()
for _ in range(4):
    found = algorithm.train()["env_runners"]
    steps, mean = found["num_env_steps_sampled_lifetime"], found["episode_return_mean"]
    print(f"{steps:6.0f} steps   mean return of the last 100 episodes {mean:6.1f}")
algorithm.stop()
ray.shutdown()
