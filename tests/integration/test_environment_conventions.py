"""Conventions of Gymnasium, PettingZoo and Stable-Baselines3 that each interface keeps."""

import contextlib

import gymnasium
import numpy as np
import pytest
from gymnasium.spaces import flatten
from gymnasium.vector import AutoresetMode
from gymnasium.wrappers import FlattenObservation
from gymnasium.wrappers.vector import FlattenObservation as FlattenObservations
from tests.integration.command_line import CORRIDOR, GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, scripted

from arkml import GuestEnv
from arkml.envs.gym import NAME
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.envs.unity_gym_env import UnityToGymWrapper
from arkml.envs.llapi.envs.unity_parallel_env import UnityParallelEnv
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.relayrl import GuestScalarEnvironment, GuestVectorEnvironment
from arkml.envs.sb3 import GuestSb3VecEnv
from arkml.envs.step_arrays import StepArrays
from arkml.envs.vector_env import vector_env
from arkml.errors import ArkmlError, UsageError

CARTPOLE = GUESTS / "c_cartpole.wasm"
PENDULUM = GUESTS / "c_pendulum.wasm"
ONE = {"configure": (1, 7)}
PARTS = ["cell", "breath", "door", "color"]  # as corridor.c writes them
BOTH = pytest.mark.parametrize("kind", [GuestVectorEnv, GuestFleetVectorEnv])


@pytest.fixture
def make():
    """Environments that are closed after the test."""
    with contextlib.ExitStack() as made:

        def opened(kind, *arguments, **options):
            env = kind(*arguments, **options)
            made.callback(env.close)
            return env

        yield opened


@pytest.fixture
def row(make):
    """The first row of the corridor, as the guest writes it."""
    return make(GuestEnv, CORRIDOR, **ONE).reset(1).decisions[0].observations[0]


def test_the_parts_of_one_agent_are_in_the_order_of_its_row(make, row):
    env = make(gymnasium.make, NAME, module=CORRIDOR, **ONE)
    seen, _ = env.reset(seed=1)
    flat, _ = FlattenObservation(env).reset(seed=1)

    assert list(env.observation_space) == list(seen) == PARTS
    assert np.array_equal(flatten(env.observation_space, seen), row)
    assert np.array_equal(flat, row)


@BOTH
def test_the_parts_of_vector_environments_are_in_the_order_of_the_row(make, row, kind):
    envs = make(kind, CORRIDOR, num_envs=1, **ONE)
    seen, _ = envs.reset(seed=1)
    backwards = StepArrays.empty(envs)
    backwards = backwards._replace(observations=dict(reversed(backwards.observations.items())))
    stepped = envs.step(envs.action_space.sample(), out=backwards)[0]
    flat, _ = FlattenObservations(envs).reset(seed=1)

    for parts in (envs.observation_space, envs.single_observation_space, seen, stepped):
        assert list(parts) == PARTS
    assert np.array_equal(flat[0], row)


def test_the_parts_in_pettingzoo_stable_baselines3_ml_agents_and_relayrl_are_in_that_order(
    make, row
):
    zoo = make(parallel_env, CORRIDOR, **ONE)
    seen = zoo.reset(seed=1)[0]["corridor/0"]
    sb3 = make(GuestSb3VecEnv, CORRIDOR, **ONE)
    sb3.seed(1)
    unity = make(GuestUnityEnv, CORRIDOR, seed=1, **ONE)
    unity.reset()
    (spec,) = unity.behavior_specs.values()
    (name,) = unity.behavior_specs
    relay = make(GuestScalarEnvironment, CORRIDOR, seed=1, **ONE)

    assert list(seen) == list(zoo.observation_space("corridor/0")) == PARTS
    assert np.array_equal(flatten(zoo.observation_space("corridor/0"), seen), row)
    assert list(sb3.reset()) == list(sb3.observation_space) == PARTS
    assert [each.name for each in spec.observation_specs] == PARTS
    observed = [part[0] for part in unity.get_steps(name)[0].obs]
    assert np.array_equal(np.concatenate(observed), row)
    assert np.array_equal(relay.reset().observation, row)


def test_a_vector_of_more_places_than_agents_is_refused_with_both_ways_out():
    with pytest.raises(UsageError, match=r"num_envs is 4, and c_cartpole.wasm has 1 agent: per="):
        gymnasium.make_vec(NAME, num_envs=4, module=CARTPOLE, **ONE)
    with pytest.raises(UsageError, match="has 2 agents: per='guest' makes that many guests"):
        vector_env(CARTPOLE, num_envs=4, configure=(2, 7))


@pytest.mark.parametrize("per", ["agent", "guest"])
def test_a_vector_of_more_places_than_there_can_be_is_refused(per):
    """Numpy has no memory for them, or as much as the machine has."""
    with pytest.raises(ArkmlError, match=r"1099511627776.* (65536|20000)"):
        vector_env(CARTPOLE, per=per, num_envs=1 << 40)


@pytest.mark.parametrize(
    "options",
    [
        {"num_envs": 4, "per": "agent", **ONE},  # places for agents that begin later
        {"num_envs": 4, "spec": {"slots": 4}, **ONE},
        {"num_envs": 4, "configure": (4, 7)},
        {"num_envs": 4, "per": "guest", **ONE},
    ],
)
def test_places_that_are_wanted_are_made(make, options):
    envs = make(gymnasium.make_vec, NAME, module=CARTPOLE, **options)

    assert envs.num_envs == 4


@pytest.mark.parametrize("mode", list(AutoresetMode))
def test_a_fleet_truncates_an_agent_after_its_steps_with_its_last_observation(make, mode):
    envs = make(
        gymnasium.make_vec, NAME, num_envs=3, per="guest", module=PENDULUM, max_episode_steps=5,
        autoreset_mode=mode, **ONE,
    )  # fmt: skip
    free = make(GuestFleetVectorEnv, PENDULUM, num_envs=3, **ONE)
    first, _ = envs.reset(seed=3)
    free.reset(seed=3)
    actions = np.full((3, 1), 0.5, np.float32)
    for _ in range(4):
        *_, truncated, _ = envs.step(actions)
        last = free.step(actions)[0]
        assert not truncated.any()
    seen, rewards, terminated, truncated, info = envs.step(actions)
    last, expected, *_ = free.step(actions)

    assert truncated.all()
    assert not terminated.any()
    assert np.array_equal(rewards, expected)
    if mode is AutoresetMode.SAME_STEP:
        assert np.array_equal(np.stack(list(info["final_obs"])), last)
    else:
        assert np.array_equal(seen, last)
    if mode is AutoresetMode.DISABLED:
        seen, _ = envs.reset(options={"reset_mask": np.ones(3, bool)})
    if mode is AutoresetMode.NEXT_STEP:
        seen, rewards, _, truncated, _ = envs.step(actions)
        assert not truncated.any()
        assert not rewards.any()
    assert seen.shape == first.shape
    counts = [bool(envs.step(actions)[3].all()) for _ in range(5)]
    assert counts == [False] * 4 + [True]


def test_the_agents_of_one_guest_are_truncated_together_and_begin_in_a_new_instance(make):
    envs = make(GuestVectorEnv, PENDULUM, configure=(3, 7), max_episode_steps=4)
    free = make(GuestVectorEnv, PENDULUM, configure=(3, 7))
    envs.reset(seed=1)
    free.reset(seed=1)
    actions = np.full((3, 1), 0.5, np.float32)
    for _ in range(4):
        seen, _, _, truncated, info = envs.step(actions)
        last = free.step(actions)[0]
    first = envs.step(actions)

    assert truncated.all()
    assert np.array_equal(seen, last)
    assert "guest_done" not in info
    assert not first[1].any()
    assert not first[3].any()
    assert [bool(envs.step(actions)[3].all()) for _ in range(4)] == [False] * 3 + [True]


@pytest.mark.parametrize("per", ["agent", "guest"])
def test_stable_baselines3_is_told_of_the_limit_and_sees_the_next_episode(make, per):
    options = {"num_envs": 2, **ONE} if per == "guest" else {"configure": (2, 7)}
    envs = make(GuestSb3VecEnv, PENDULUM, per=per, max_episode_steps=3, **options)
    envs.reset()
    actions = np.zeros((2, 1), np.float32)
    for _ in range(3):
        seen, _, over, infos = envs.step(actions)

    assert over.all()
    for place in range(2):
        assert infos[place]["TimeLimit.truncated"] is True
        assert not np.array_equal(infos[place]["terminal_observation"], seen[place])


def test_one_agent_its_names_and_its_uuid_are_truncated_after_their_steps(make):
    single = make(GuestGymEnv, PENDULUM, max_episode_steps=3, **ONE)
    zoo = make(parallel_env, PENDULUM, max_episode_steps=3, configure=(2, 7))
    relay = make(GuestScalarEnvironment, PENDULUM, max_episode_steps=3, **ONE)
    single.reset(seed=1)
    zoo.reset(seed=1)
    relay.reset()
    for _ in range(3):
        one = single.step(np.zeros(1, np.float32))
        all_of_them = zoo.step(dict.fromkeys(zoo.agents, np.zeros(1, np.float32)))
        step = relay.step(np.zeros(1, np.float32))

    assert one[2:4] == (False, True)
    assert set(all_of_them[3].values()) == {True}
    assert zoo.agents == []
    assert (step.terminated, step.truncated) == (False, True)
    single.reset()
    assert single.step(np.zeros(1, np.float32))[2:4] == (False, False)


def test_ml_agents_see_interrupted_agents_and_the_next_step_begins_anew(make):
    env = make(GuestUnityEnv, PENDULUM, seed=1, max_episode_steps=3, configure=(2, 7))
    env.reset()
    (name,) = env.behavior_specs
    for _ in range(3):
        env.step()
    deciding, ended = env.get_steps(name)
    env.step()

    assert len(deciding) == 0
    assert ended.interrupted.tolist() == [True, True]
    assert len(env.get_steps(name)[0]) == 2


SKIPPING = scripted(
    [(1, INITIAL, 0), (2, INITIAL, 0)], [(1, RUNNING, 1)], [(1, RUNNING, 1)], [(1, RUNNING, 1)]
)


def test_an_agent_without_a_row_is_truncated_with_the_one_that_is_over_its_limit(make):
    env = make(GuestEnv, SKIPPING, max_episode_steps=2)
    env.reset()
    env.step(np.zeros((2, 1)))
    step = env.step(np.zeros((1, 1)))
    agents = np.concatenate([decision.agents for decision in step.decisions])

    assert step.is_cut
    assert sorted(agents.tolist()) == [0, 1]
    assert all(decision.truncated.all() for decision in step.decisions)
    with pytest.raises(UsageError, match="nothing waits for actions"):
        env.step(np.zeros((1, 1)))


@pytest.mark.parametrize("limit", [0, -1, 2.5, "5"])
def test_a_limit_that_is_not_a_number_of_steps_is_refused(limit):
    with pytest.raises(UsageError, match="max_episode_steps is"):
        GuestEnv(PENDULUM, max_episode_steps=limit)


def marks(info):
    return np.concatenate(info["action_mask"], axis=-1).astype(bool)


@BOTH
def test_the_masks_of_places_are_those_of_the_last_info(make, kind):
    envs = make(kind, CORRIDOR, num_envs=1, **ONE)
    with pytest.raises(UsageError, match="reset the environment before its masks"):
        envs.action_masks()
    _, info = envs.reset(seed=1)
    for _ in range(30):
        assert np.array_equal(envs.action_masks(), marks(info))
        assert envs.action_masks().shape == (1, 8)
        *_, info = envs.step(envs.action_space.sample())


def test_one_agent_has_the_masks_of_its_last_info(make):
    env = make(gymnasium.make, NAME, module=CORRIDOR, **ONE)
    _, info = env.reset(seed=1)
    for _ in range(30):
        assert np.array_equal(env.get_wrapper_attr("action_masks")(), marks(info))
        *_, info = env.step(env.action_space.sample())


def test_agents_without_choices_have_no_masks(make):
    env = make(GuestGymEnv, PENDULUM, **ONE)

    with pytest.raises(UsageError, match="its agents have continuous actions only"):
        env.action_masks()


def test_stable_baselines3_has_the_masks_of_each_place_in_infos_and_as_a_method(make):
    envs = make(GuestSb3VecEnv, CORRIDOR, num_envs=3, configure=(1, "{seed}"))
    envs.seed(1)
    envs.reset()
    different, random = False, np.random.default_rng(0)
    for _ in range(40):
        each = np.stack(envs.env_method("action_masks"))  # as MaskablePPO asks
        assert envs.get_attr("action_masks")
        different = different or len({tuple(one) for one in each.tolist()}) > 1
        likings = random.random(each.shape) * each
        chosen = [likings[:, :4].argmax(1), np.zeros(3, int)]  # without keys, which cost 1 as well
        _, rewards, _, infos = envs.step(np.stack(chosen, axis=1))
        assert (rewards > -1).all()
        now = np.stack(envs.env_method("action_masks"))
        assert np.array_equal(np.stack([marks(info) for info in infos]), now)

    assert different


def test_pettingzoo_has_the_spaces_of_all_agents(make):
    zoo = make(parallel_env, CORRIDOR, configure=(2, 7))

    assert list(zoo.observation_spaces) == list(zoo.action_spaces) == zoo.possible_agents
    for agent in zoo.possible_agents:
        assert zoo.observation_spaces[agent] == zoo.observation_space(agent)
        assert zoo.action_spaces[agent] == zoo.action_space(agent)


ON_GUESTS = [
    (GuestEnv, {}),
    (GuestGymEnv, {}),
    (GuestVectorEnv, {}),
    (GuestFleetVectorEnv, {"num_envs": 2}),
    (GuestSb3VecEnv, {"num_envs": 2}),
    (parallel_env, {}),
    (GuestUnityEnv, {}),
    (GuestScalarEnvironment, {}),
    (GuestVectorEnvironment, {}),
]


@pytest.mark.parametrize(("kind", "options"), ON_GUESTS)
def test_environments_are_context_managers_and_close_again(kind, options):
    with kind(PENDULUM, **ONE, **options) as env:
        pass
    env.close()


def test_the_wrappers_of_ml_agents_are_context_managers_and_close_again():
    for kind in (UnityParallelEnv, UnityToGymWrapper):
        with kind(GuestUnityEnv(PENDULUM, seed=1, **ONE)) as env:
            pass
        env.close()
