"""TorchRL takes guests for environments."""

import gymnasium
import pytest
from tests.integration.command_line import GUESTS
from torchrl.envs.libs.gym import GymEnv, GymWrapper
from torchrl.envs.libs.pettingzoo import PettingZooWrapper
from torchrl.envs.utils import check_env_specs

import arkml.envs.gym  # noqa: F401  registers the guests
from arkml.envs.pettingzoo_env import parallel_env

GUEST = "arkml/Guest-v0"
NEXT = 2

pytestmark = [
    pytest.mark.torchrl,
    pytest.mark.filterwarnings("ignore:PettingZoo in TorchRL is tested:UserWarning"),
]


def one_agent(name, *configure):
    return pytest.param(
        {"module": str(GUESTS / f"{name}.wasm"), "configure": configure}, id=f"{name}{configure}"
    )


def wrapped(name, **options):
    return GymWrapper(gymnasium.make(name, **options))


@pytest.mark.parametrize("make", [GymEnv, wrapped])
@pytest.mark.parametrize(
    "options",
    [
        one_agent("c_pendulum", 1, "{seed}"),
        one_agent("c_walkers_seeded", 1, NEXT, 1, 0, 0),
        one_agent("c_choosers", 1, 1),
        one_agent("c_choosers", 1, 2),
    ],
)
def test_the_checks_of_torchrl_pass(make, options):
    env = make(GUEST, **options)
    check_env_specs(env)
    env.set_seed(7)
    first = env.rollout(5, break_when_any_done=False)
    env.set_seed(7)
    again = env.rollout(5, break_when_any_done=False)
    names = list(env.observation_spec.keys(True, True))
    env.close()

    assert first["next", "reward"].shape == (5, 1)
    assert names
    for name in names:
        assert (first[name][0] == again[name][0]).all()


def test_the_checks_of_torchrl_pass_for_many_agents():
    game = parallel_env(GUESTS / "c_cartpole.wasm", configure=(3, "{seed}"))
    env = PettingZooWrapper(game, use_mask=True)
    check_env_specs(env)
    env.close()
