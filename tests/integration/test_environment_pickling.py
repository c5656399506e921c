"""Environments go to other processes as what they were made with."""

import multiprocessing
import operator
import pickle
import shutil

import cloudpickle
import numpy as np
import pytest
from tests.integration.command_line import GUESTS

from arkml import GuestEnv
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import env as turn_taking
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.relayrl import GuestScalarEnvironment, GuestVectorEnvironment
from arkml.errors import UsageError

WALKERS = "c_walkers_seeded.wasm"
NEXT = 2
SEED = 77


def guest(env):
    step = env.reset(SEED)
    seen = [step.decisions[0].observations]
    for _ in range(6):
        step = env.step(np.full((len(env.decision.acting_agents), 1), 0.5))
        seen.append(step.decisions[0].observations)
    return seen


def gymnasium(env):
    seen = [env.reset(seed=SEED)[0]]
    return seen + [env.step(np.full(1, 0.5))[0] for _ in range(3)]


def vector(env):
    seen = [env.reset(seed=SEED)[0]]
    return seen + [env.step(np.full((2, 1), 0.5))[0] for _ in range(6)]


def parallel(env):
    seen = list(env.reset(seed=SEED)[0].values())
    while env.agents:
        seen += env.step(dict.fromkeys(env.agents, np.full(1, 0.5)))[0].values()
    return seen


def in_turn(env):
    env.reset(seed=SEED)
    seen = []
    for _ in env.agent_iter(10):
        observation, _reward, terminated, truncated, _info = env.last()
        seen.append(observation)
        env.step(None if terminated or truncated else np.full(1, 0.5))
    return seen


def ml_agents(env):
    env.reset()
    seen = []
    for _ in range(6):
        seen.append(env.get_steps("red?team=0")[0].obs[0])
        env.step()
    return seen


def relayrl(env):
    seen = [env.reset().observation]
    return seen + [env.step(np.full(1, 0.5)).observation for _ in range(3)]


def relayrl_many(env):
    ids = env.init_num_envs(2)
    seen = [found.observation for found in env.reset(ids)]
    found = env.step([(env_id, np.full(1, 0.5)) for env_id in ids])
    return seen + [step.observation for step in found]


def configured(agents):
    return {"configure": (agents, NEXT, 1, 0, 0)}


KINDS = {
    "GuestEnv": (GuestEnv, configured(2), guest),
    "Gymnasium": (GuestGymEnv, configured(1), gymnasium),
    "vector": (GuestVectorEnv, configured(2), vector),
    "PettingZoo": (parallel_env, {**configured(2), "max_cycles": 5}, parallel),
    "PettingZoo in turn": (turn_taking, configured(2), in_turn),
    "ML-Agents": (GuestUnityEnv, {**configured(2), "seed": SEED}, ml_agents),
    "RelayRL": (GuestScalarEnvironment, {**configured(1), "seed": SEED}, relayrl),
    "RelayRL, many": (GuestVectorEnvironment, {**configured(1), "seed": SEED}, relayrl_many),
}
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pettingzoo")


@pytest.fixture
def module(tmp_path):
    return shutil.copy(GUESTS / WALKERS, tmp_path / "walkers.wasm")


def made(kind, module):
    make, options, play = KINDS[kind]
    return make(module, **options), play


@pytest.mark.parametrize("kind", KINDS)
def test_it_pickles_in_the_middle_of_an_episode_and_begins_anew(module, kind):
    env, play = made(kind, module)
    expected = play(env)
    for again in (pickle.loads(pickle.dumps(env)), cloudpickle.loads(cloudpickle.dumps(env))):
        found = play(again)
        again.close()

        assert len(found) == len(expected)
        assert all(map(np.array_equal, found, expected))
    env.close()


@pytest.mark.parametrize("kind", KINDS)
def test_another_module_at_the_path_is_refused(module, kind):
    env, _ = made(kind, module)
    data = pickle.dumps(env)
    env.close()
    shutil.copy(GUESTS / "c_walkers.wasm", module)

    with pytest.raises(UsageError, match="another module than when the environment was pickled"):
        pickle.loads(data)


@pytest.mark.parametrize("kind", ["Gymnasium", "vector", "PettingZoo"])
def test_a_pool_of_spawned_processes_has_environments(module, kind):
    env, _ = made(kind, module)
    expected, _ = env.reset(seed=SEED)
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        begin = operator.methodcaller("reset", seed=SEED)
        found = pool.map_async(begin, [env, env], chunksize=1).get(300)
    env.close()

    for observations, _ in found:
        np.testing.assert_equal(observations, expected)


def test_a_module_that_is_given_as_bytes_travels_along():
    with GuestEnv((GUESTS / WALKERS).read_bytes(), **configured(2)) as env:
        expected = guest(env)
        with pickle.loads(pickle.dumps(env)) as again:
            found = guest(again)

    assert all(map(np.array_equal, found, expected))
