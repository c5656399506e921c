"""Guests are vectorized environments of Stable-Baselines3."""

import numpy as np
import pytest
from sb3_contrib import MaskablePPO
from sb3_contrib.common.maskable.utils import is_masking_supported
from stable_baselines3.common.vec_env import VecCheckNan, VecFrameStack, VecMonitor, VecNormalize
from tests.integration.command_line import GUESTS
from tests.integration.test_environment_fleet import FRAGILE

from arkml.envs.sb3 import GuestSb3VecEnv
from arkml.envs.vector_env import vector_env
from arkml.errors import UsageError

CARTPOLE, WALKERS = GUESTS / "c_cartpole.wasm", GUESTS / "c_walkers_seeded.wasm"
CHOOSERS = GUESTS / "c_choosers.wasm"
ONE = {"configure": (1, "{seed}")}
SAME, NEXT, NEVER = 1, 2, 4


@pytest.fixture
def make():
    made = []

    def env(module=CARTPOLE, **options):
        made.append(GuestSb3VecEnv(module, **options))
        return made[-1]

    yield env
    for one in made:
        one.close()


def until_an_end(envs):
    """The outcome of the first step that ends an episode."""
    actions = np.ones((envs.num_envs, *envs.action_space.shape), envs.action_space.dtype)
    while True:
        outcome = envs.step(actions)
        if outcome[2].any():
            return outcome


def play(envs, steps):
    envs.reset()
    for _ in range(steps):
        envs.step(np.zeros((envs.num_envs, 1), "f4"))


def test_guests_are_stepped_as_the_vector_environment_of_the_same_mode(make):
    envs = make(num_envs=4, **ONE)
    envs.seed(3)
    plain = vector_env(CARTPOLE, per="guest", num_envs=4, autoreset_mode="SameStep", **ONE)
    alike = [np.array_equal(envs.reset(), plain.reset(seed=3)[0])]
    actions = np.random.default_rng(1).uniform(-1, 1, (60, 4, 1)).astype("f4")
    for action in actions:
        observations, rewards, dones, infos = envs.step(action)
        expected, expected_rewards, terminated, truncated, info = plain.step(action)
        alike += [np.array_equal(observations, expected), np.array_equal(rewards, expected_rewards)]
        alike.append(np.array_equal(dones, terminated | truncated))
        for place in np.flatnonzero(dones):
            last = infos[place]["terminal_observation"]
            alike.append(np.array_equal(last, info["final_obs"][place]))
    plain.close()

    assert len(alike) > 181  # at least one episode has ended
    assert all(alike)


def test_only_places_whose_episode_ended_have_an_info_and_each_has_one_dict(make):
    envs = make(num_envs=3, **ONE)
    envs.seed(1)
    envs.reset()
    observations, _, dones, infos = until_an_end(envs)
    told = [dict(info) for info in infos]
    _, _, later, after = envs.step(np.zeros((3, 1), "f4"))

    assert [bool(info) for info in told] == dones.tolist()
    place = int(np.flatnonzero(dones)[0])
    assert told[place]["TimeLimit.truncated"] is False
    assert not np.array_equal(told[place]["terminal_observation"], observations[place])
    assert all(one is other for one, other in zip(infos, after, strict=True))
    assert [bool(info) for info in after] == later.tolist()


def test_an_episode_that_is_cut_says_so(make):
    envs = make(GUESTS / "c_pendulum.wasm", num_envs=2, **ONE)
    envs.reset()
    _, _, dones, infos = until_an_end(envs)

    assert dones.all()
    assert [info["TimeLimit.truncated"] for info in infos] == [True, True]


def test_the_agents_of_one_guest_are_places_if_they_are_replaced_in_the_same_submit(make):
    envs = make(WALKERS, per="agent", configure=(4, SAME, 1, 0, 0))
    envs.reset()
    observations, _, dones, infos = until_an_end(envs)

    assert envs.num_envs == 4
    assert observations.shape == (4, 2)
    assert all("terminal_observation" in infos[place] for place in np.flatnonzero(dones))


def test_agents_that_are_replaced_one_submit_later_end_in_the_step_in_which_they_are(make):
    envs = make(per="agent", configure=(5, 1))
    envs.reset()
    with pytest.raises(UsageError, match="NEXT_STEP"):
        until_an_end(envs)
    later = make(per="agent", configure=(5, 1), autoreset_mode="NextStep")
    later.reset()
    plain = vector_env(CARTPOLE, autoreset_mode="NextStep", configure=(5, 1))
    plain.reset()
    alike, ended, last = [], np.zeros(5, bool), np.zeros((5, 4))
    for action in np.random.default_rng(1).uniform(-1, 1, (60, 5, 1)).astype("f4"):
        observations, rewards, dones, infos = later.step(action)
        alike.append(np.array_equal(dones, ended))
        alike += [
            np.array_equal(infos[place]["terminal_observation"], last[place])
            for place in np.flatnonzero(dones)
        ]
        last, expected, terminated, truncated, _ = plain.step(action)
        alike += [np.array_equal(observations, last), np.array_equal(rewards, expected)]
        alike.append(not rewards[dones].any())
        ended = terminated | truncated
    plain.close()

    assert len(alike) > 245  # some episodes have ended
    assert all(alike)


def test_an_end_that_is_reported_later_has_no_reward_of_the_next_episode(make):
    envs = make(WALKERS, per="agent", configure=(2, SAME, 1, 0, 0), autoreset_mode="NextStep")
    envs.reset()
    rewards, dones = [], []
    for _ in range(12):
        _, reward, done, _ = envs.step(np.ones((2, 1), "f4"))
        rewards.append(reward)
        dones.append(done)

    assert np.any(dones, 0).all()
    assert not np.array(rewards)[np.array(dones)].any()


def test_a_reset_forgets_the_ends_that_were_to_be_reported(make):
    envs = make(per="agent", configure=(5, 1), autoreset_mode="NextStep")
    envs.reset()
    steps = 0
    while not envs.step(np.ones((5, 1), "f4"))[2].any():
        steps += 1
    envs.reset()
    for _ in range(steps):
        envs.step(np.ones((5, 1), "f4"))
    envs.reset()

    assert steps > 5
    assert not envs.step(np.ones((5, 1), "f4"))[2].any()


def test_the_error_of_an_end_that_is_reported_later_comes_with_it(make):
    envs = make(FRAGILE, num_envs=3, autoreset_mode="NextStep")
    envs.seed(1)
    envs.reset()
    steps = [envs.step(np.zeros((3, 1), "f4")) for _ in range(2)]
    silent = [dones.any() for _, _, dones, _ in steps]
    _, rewards, dones, infos = envs.step(np.zeros((3, 1), "f4"))

    assert not any(silent)
    assert dones.tolist() == [False, True, False]
    assert rewards[1] == 0
    assert "unreachable" in infos[1]["error"]


@pytest.mark.parametrize(
    "options", [{"num_envs": 4}, {"configure": (3, NEVER, 1, 0, 0), "autoreset_mode": "NextStep"}]
)
def test_a_guest_that_leaves_places_empty_is_refused_with_what_to_use(make, options):
    envs = make(WALKERS, per="agent", **{"configure": (3, NEXT, 1, 0, 0), **options})

    with pytest.raises(UsageError, match=r"no empty places.*per='guest'.*gymnasium.make_vec"):
        play(envs, 50)


def test_a_guest_that_fails_starts_over_with_its_error_in_the_info(make):
    envs = make(FRAGILE, num_envs=3)
    envs.seed(1)
    envs.reset()
    _, _, dones, infos = until_an_end(envs)

    assert dones.tolist() == [False, True, False]
    assert "unreachable" in infos[1]["error"]
    assert infos[1]["TimeLimit.truncated"] is True
    assert not envs.step(np.zeros((3, 1), "f4"))[2].any()


def test_one_guest_that_fails_shows_the_agents_of_its_successor(make):
    envs = make(FRAGILE, per="agent")
    envs.seed(2)
    first = envs.reset()
    observations, _, dones, infos = until_an_end(envs)

    assert dones.tolist() == [True]
    assert "error" in infos[0]
    assert np.array_equal(observations, first)
    assert not np.array_equal(infos[0]["terminal_observation"], first[0])


def test_choices_and_observations_in_parts_are_spaces_of_stable_baselines3(make):
    envs = make(CHOOSERS, num_envs=2, configure=(1, 2))
    observations = envs.reset()
    sampled = [envs.action_space.sample() for _ in range(2)]

    assert set(observations) == set(envs.observation_space.spaces)
    assert all(space in envs.action_space for space in sampled)


def test_the_wrappers_of_stable_baselines3_take_it(make):
    envs = make(num_envs=8, **ONE)
    wrapped = VecFrameStack(VecNormalize(VecMonitor(VecCheckNan(envs, True))), 3)
    wrapped.seed(1)
    wrapped.reset()
    episodes = []
    for _ in range(60):
        observations, _, dones, infos = wrapped.step(np.ones((8, 1), "f4"))
        episodes += [infos[place]["episode"] for place in np.flatnonzero(dones)]

    assert observations.shape == (8, 12)
    assert episodes
    assert all(episode["l"] == episode["r"] > 1 for episode in episodes)


def test_attributes_methods_and_pictures_are_those_of_the_vector_environment(make):
    envs = make(num_envs=2, render_mode="rgb_array", **ONE)
    envs.reset()
    envs.set_attr("render_mode", "rgb_array")

    assert envs.get_attr("seedable") == [True, True]
    assert envs.env_method("send_message", b"\0", indices=[0]) == [False]
    assert envs.env_is_wrapped(VecMonitor) == [False, False]
    assert [picture.shape for picture in envs.get_images()] == [(256, 256, 3)] * 2
    assert envs.render().shape == (512, 256, 3)
    with pytest.raises(UsageError, match="for all of them"):
        envs.set_attr("render_mode", None, indices=0)


def test_maskable_ppo_takes_no_choice_that_a_guest_masks(make):
    envs = VecMonitor(make(GUESTS / "c_corridor.wasm", num_envs=4, **ONE))
    model = MaskablePPO("MultiInputPolicy", envs, n_steps=64, batch_size=64, n_epochs=1, seed=0)
    model.learn(256)
    masks = model.rollout_buffer.action_masks.reshape(-1, 8).astype(bool)
    moves, keys = model.rollout_buffer.actions.reshape(-1, 2).astype(int).T
    rows = np.arange(len(masks))

    assert is_masking_supported(envs)
    assert not masks.all()
    assert masks[rows, moves].all()
    assert masks[rows, 4 + keys].all()


def test_environments_that_no_one_resets_are_refused():
    with pytest.raises(UsageError, match="autoreset_mode is Disabled"):
        GuestSb3VecEnv(CHOOSERS, num_envs=2, autoreset_mode="Disabled")
