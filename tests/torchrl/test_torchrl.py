"""TorchRL takes guests for environments."""

import gymnasium
import pytest
from tests.integration.command_line import GUESTS
from torchrl.envs.libs.gym import GymEnv, GymWrapper
from torchrl.envs.libs.pettingzoo import PettingZooWrapper
from torchrl.envs.utils import check_env_specs

import arkml.envs.gym  # noqa: F401  registers the guests
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.vector_env import vector_env

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


@pytest.mark.parametrize("mode", ["SameStep", "Disabled"])
def test_a_fleet_is_rolled_out_over_the_ends_of_its_episodes(mode):
    fleet = vector_env(
        GUESTS / "c_cartpole.wasm", per="guest", num_envs=4, autoreset_mode=mode,
        configure=(1, "{seed}"),
    )  # fmt: skip
    env = GymWrapper(fleet)
    env.set_seed(7)
    rolled = env.rollout(80, break_when_any_done=False)
    env.close()

    assert rolled.shape == (4, 80)
    assert rolled["next", "done"].sum() > 4
    assert (rolled["next", "reward"] == 1).all()


@pytest.mark.parametrize("has_agents_that_end_apart", [False, True])
def test_many_agents_are_rolled_out_until_the_last_ends(has_agents_that_end_apart):
    cycles = None if has_agents_that_end_apart else 20
    game = parallel_env(GUESTS / "c_cartpole.wasm", configure=(3, "{seed}"), max_cycles=cycles)
    env = PettingZooWrapper(game, use_mask=True)
    env.set_seed(7)
    rolled = env.rollout(200)
    env.close()

    assert rolled["next", "done"][-1].all()
    assert rolled["cartpole/2", "observation"].shape[1:] == (1, 4)
