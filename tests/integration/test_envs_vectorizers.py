"""Other people's vectorizers copy guests, in this process and into others."""

import copy
import multiprocessing
import pickle
from contextlib import closing

import gymnasium
import numpy as np
import pytest
from gymnasium.vector.utils import batch_space, create_empty_array, iterate
from tests.integration.command_line import GUESTS
from tests.waiting import PATIENCE

import arkml.envs.gym
from arkml import GuestEnv
from arkml.envs.pettingzoo_env import parallel_env

WALKERS = GUESTS / "c_walkers_seeded.wasm"
FIXED, NEXT = 0, 2

pytestmark = pytest.mark.filterwarnings(
    "ignore:This process .* is multi-threaded:DeprecationWarning"
)


def walkers(agents, refill=FIXED):
    return {"configure": (agents, refill, 1, 0, 0)}


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("processes", [0, 2])
def test_supersuit_puts_the_agents_of_guests_side_by_side(supersuit, processes):
    game = parallel_env(WALKERS, max_cycles=3, **walkers(3))
    alone, _ = game.reset(seed=5)
    agents = supersuit.pettingzoo_env_to_vec_env_v1(game)
    envs = supersuit.concat_vec_envs_v1(agents, 2, num_cpus=processes, base_class="gymnasium")
    observations, _ = envs.reset(seed=5)
    outcomes = [envs.step(np.full((6, 1), 0.5, "f4")) for _ in range(4)]
    envs.close()
    game.close()

    assert observations.shape == (6, 2)
    assert np.array_equal(observations[:3], list(alone.values()))
    assert np.array_equal(outcomes[0][0][:, 0], observations[:, 0] + np.float32(0.0625))
    assert np.array_equal(outcomes[0][1], -np.abs(outcomes[0][0][:, 0]))
    assert [np.asarray(step[3]).any() for step in outcomes] == [False, False, True, False]


@pytest.mark.usefixtures("forgotten")
def test_supersuit_makes_them_environments_of_stable_baselines3(supersuit):
    game = parallel_env(WALKERS, max_cycles=3, **walkers(3))
    agents = supersuit.pettingzoo_env_to_vec_env_v1(game)
    envs = supersuit.concat_vec_envs_v1(agents, 2, base_class="stable_baselines3")
    first = envs.reset()
    ends = []
    for _ in range(6):
        _, rewards, over, infos = envs.step(np.zeros((6, 1), "f4"))
        ends.append(over.tolist())
    envs.close()
    game.close()

    assert first.shape == (6, 2)
    assert rewards.shape == (6,)
    assert ends == [[False] * 6, [False] * 6, [True] * 6] * 2
    assert all("terminal_observation" in info for info in infos)


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_makes_an_environment_of_each_guest(mode):
    envs = gymnasium.make_vec(
        "arkml/Guest-v0", 3, mode, module=str(WALKERS), **walkers(1, NEXT)
    )  # fmt: skip
    observations, _ = envs.reset(seed=[1, 2, 1])
    outcomes = [envs.step(np.zeros((3, 1), "f4")) for _ in range(4)]
    envs.close()

    assert np.array_equal(observations[0], observations[2])
    assert not np.array_equal(observations[0], observations[1])
    assert [step[2].all() for step in outcomes] == [False, False, True, False]
    assert not outcomes[3][1].any()


def show_first(queue):
    with GuestEnv(WALKERS, **walkers(2)) as env:
        queue.put(env.reset(seed=5).decisions[0].observations.tolist())


def test_a_fork_of_a_process_that_runs_guests_runs_its_own():
    context = multiprocessing.get_context("fork")
    queue = context.Queue()
    show_first(queue)
    process = context.Process(target=show_first, args=(queue,))
    process.start()
    here, there = queue.get(timeout=PATIENCE), queue.get(timeout=PATIENCE)
    process.join(PATIENCE)

    assert here == there
    assert process.exitcode == 0


PARTS = {"observations": [{"name": "speed", "shape": [2]}, {"name": "angle", "shape": [1]}]}
DECLARED = {"module": GUESTS / "c_pendulum.wasm", "configure": (1, "{seed}"), "spec": PARTS}
"""A guest with parts whose names are not sorted."""


@pytest.mark.usefixtures("forgotten")
@pytest.mark.parametrize("observation_mode", ["same", "different"])
@pytest.mark.parametrize("mode", ["sync", "async"])
def test_gymnasium_keeps_the_order_of_parts_where_it_puts_guests_side_by_side(
    mode, observation_mode
):
    envs = gymnasium.make_vec(
        arkml.envs.gym.NAME, 2, mode, {"observation_mode": observation_mode}, **DECLARED
    )
    observations, _ = envs.reset(seed=1)
    spaces = envs.single_observation_space, envs.observation_space
    fits = observations in envs.observation_space
    envs.close()

    assert [list(space) for space in (*spaces, observations)] == [["speed", "angle"]] * 3
    assert fits


def test_wrappers_of_gymnasium_and_copies_keep_the_order_of_parts():
    with gymnasium.make(arkml.envs.gym.NAME, **DECLARED) as env:
        space = env.observation_space
        stacked = gymnasium.wrappers.FrameStackObservation(env, 2)
        observation, _ = stacked.reset(seed=1)
        pair = gymnasium.spaces.Tuple([space, space])
        rows = list(iterate(batch_space(pair, 2), (env_of(space), env_of(space))))

    assert list(stacked.observation_space) == list(observation) == ["speed", "angle"]
    for other in (copy.deepcopy(space), pickle.loads(pickle.dumps(space))):
        assert other == space
        assert list(batch_space(other, 3)) == ["speed", "angle"]
    assert len(rows) == 2


def env_of(space):
    """Two zero observations, side by side."""
    return create_empty_array(space, 2, np.zeros)


@pytest.mark.parametrize("make", [gymnasium.make, gymnasium.make_vec])
def test_the_spec_of_an_environment_has_no_bytes_of_its_module_and_makes_it_anew(make):
    module = (GUESTS / "c_pendulum.wasm").read_bytes()
    with closing(make(arkml.envs.gym.NAME, module=module, configure=(1, "{seed}"))) as env:
        spec = env.spec
        first, _ = env.reset(seed=1)
    with closing(make(pickle.loads(pickle.dumps(spec)))) as again:
        assert np.array_equal(again.reset(seed=1)[0], first)
        assert again.spec == spec

    assert spec.kwargs["module"] == module
    assert f"<{len(module):,} bytes>" in repr(spec)
    assert len(repr(spec)) < 1_000
