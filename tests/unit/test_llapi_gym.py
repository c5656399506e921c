"""The Gymnasium wrapper of the ML-Agents API."""

from __future__ import annotations

import numpy as np
import pytest
from gymnasium import spaces
from gymnasium.utils.env_checker import check_env
from tests.unit.fake_llapi_env import FakeEnv

from arkml.envs.llapi.base_env import ActionSpec
from arkml.envs.llapi.envs.unity_gym_env import (
    ActionFlattener,
    UnityGymException,
    UnityToGymWrapper,
)
from arkml.envs.llapi.exception import UnityActionException


def test_an_episode_has_five_values_a_step():
    env = UnityToGymWrapper(FakeEnv(lengths=(2,)))
    observation, info = env.reset()
    first = env.step(np.array([0.5, 0.25]))
    second = env.step([1, 1])

    assert observation.tolist() == [0, 0, 0]
    assert len(info["step"]) == 1
    assert first[0].tolist() == [1, 1, 1]
    assert first[1:4] == (0.75, False, False)
    assert second[1:4] == (2.0, True, False)
    assert 0 in second[4]["step"]


def test_an_interrupted_agent_is_truncated():
    env = UnityToGymWrapper(FakeEnv(lengths=(1,), interrupted=True))
    env.reset()

    assert env.step([0, 0])[2:4] == (False, True)


def test_the_old_interface_has_four_values():
    env = UnityToGymWrapper(FakeEnv(lengths=(1,), interrupted=True), legacy_api=True)
    observation = env.reset()
    step = env.step([0, 0])

    assert observation.tolist() == [0, 0, 0]
    assert len(step) == 4
    assert step[1:3] == (0.0, True)


def test_a_step_after_the_end_is_refused_until_the_reset():
    env = UnityToGymWrapper(FakeEnv(lengths=(1,)))
    env.reset()
    env.step([0, 0])

    with pytest.raises(UnityGymException, match="even though this environment has already"):
        env.step([0, 0])
    env.reset()
    assert env.step([0, 0])[2]


@pytest.mark.parametrize(
    ("fake", "text"),
    [
        (FakeEnv(behaviors=("A", "B")), "There can only be one behavior in a UnityEnvironment"),
        (FakeEnv(lengths=(3, 3)), "can only be one Agent in the environment but 2 were detected"),
        (FakeEnv(actions=ActionSpec(1, (2,))), "explicit support for both discrete and contin"),
        (FakeEnv(shapes=()), "There are no observations provided by the environment"),
        (FakeEnv(lengths=()), None),
    ],
)
def test_what_is_no_single_agent_is_refused(fake, text):
    if text is None:
        with pytest.raises(UnityGymException, match="There is no Agent"):
            UnityToGymWrapper(fake).reset()
        return
    with pytest.raises(UnityGymException, match=text):
        UnityToGymWrapper(fake)


@pytest.mark.parametrize(
    ("branches", "flatten", "space"),
    [
        ((3,), False, spaces.Discrete(3)),
        ((3,), True, spaces.Discrete(3)),
        ((3, 2), False, spaces.MultiDiscrete([3, 2])),
        ((3, 2), True, spaces.Discrete(6)),
    ],
)
def test_discrete_branches_become_one_space(branches, flatten, space):
    fake = FakeEnv(actions=ActionSpec(0, branches))
    env = UnityToGymWrapper(fake, flatten_branched=flatten)
    env.reset()
    env.step(env.action_space.sample())

    assert env.action_space == space
    assert fake.given[0]["B?team=0"].discrete.shape == (1, len(branches))


def test_flattened_actions_count_the_last_branch_first():
    flattener = ActionFlattener([2, 3])
    fake = FakeEnv(actions=ActionSpec(0, (2, 3)))
    env = UnityToGymWrapper(fake, flatten_branched=True)
    env.reset()
    env.step(np.int64(4))

    assert flattener.lookup_action(4) == [1, 1]
    assert [flattener.lookup_action(n) for n in range(3)] == [[0, 0], [0, 1], [0, 2]]
    assert fake.given[0]["B?team=0"].discrete.tolist() == [[1, 1]]


def test_continuous_actions_are_a_box_and_are_not_flattened(caplog):
    env = UnityToGymWrapper(FakeEnv(), flatten_branched=True, action_space_seed=3)
    other = UnityToGymWrapper(FakeEnv(), action_space_seed=3)

    assert env.action_space == spaces.Box(-1, 1, (2,), dtype=np.float32)
    assert (env.action_space.sample() == other.action_space.sample()).all()
    assert "It will not be flattened" in caplog.text


def test_the_first_picture_is_the_observation(caplog):
    env = UnityToGymWrapper(FakeEnv(shapes=((2,), (3, 4, 5), (1,))))
    observation, _ = env.reset()

    assert env.observation_space == spaces.Box(0, 1, (3, 4, 5), dtype=np.float32)
    assert observation.shape == (3, 4, 5)
    assert (env.render() == observation).all()
    assert "You must define allow_multiple_obs=True" in caplog.text


def test_all_observations_are_pictures_then_the_vectors_in_one():
    fake = FakeEnv(shapes=((2,), (3, 4, 5), (1,)))
    env = UnityToGymWrapper(fake, allow_multiple_obs=True, uint8_visual=True)
    observation, _ = env.reset()
    stepped = env.step([0, 0])[0]

    assert [each.shape for each in observation] == [(3, 4, 5), (3,)]
    assert observation[0].dtype == np.uint8
    assert stepped[0].max() == 255
    assert env.observation_space[0].dtype == np.uint8


def test_uint8_without_pictures_warns(caplog):
    UnityToGymWrapper(FakeEnv(), uint8_visual=True)

    assert "uint8_visual was set to true, but visual observations are not in use" in caplog.text


def test_seed_says_that_it_does_nothing_and_close_closes(caplog):
    fake = FakeEnv()
    env = UnityToGymWrapper(fake)
    env.seed(3)
    env.close()

    assert "Could not seed environment B?team=0" in caplog.text
    assert fake.is_closed


@pytest.mark.filterwarnings("ignore::UserWarning")  # boxes without bounds, and `seed`
def test_gymnasium_finds_nothing_wrong():
    env = UnityToGymWrapper(FakeEnv(lengths=(100,)))

    check_env(env, skip_render_check=True, skip_close_check=True)


@pytest.mark.parametrize("flatten", [False, True])
@pytest.mark.parametrize("choice", [1.5, -0.5, np.nan, np.inf, 1e300])
def test_choices_that_are_not_whole_numbers_move_nothing(flatten, choice):
    fake = FakeEnv(actions=ActionSpec(0, (3, 2)))
    env = UnityToGymWrapper(fake, flatten_branched=flatten)
    env.reset()

    with pytest.raises(UnityActionException, match="whole number"):
        env.step(choice if flatten else [choice, 0])
    assert fake.given == []


@pytest.mark.parametrize("number", [6, -1, "two", None, [1, 2]])
def test_flattened_actions_that_there_are_not_are_refused(number):
    env = UnityToGymWrapper(FakeEnv(actions=ActionSpec(0, (3, 2))), flatten_branched=True)
    env.reset()

    with pytest.raises(UnityActionException, match="a whole number from 0 to 5, not"):
        env.step(number)


@pytest.mark.parametrize("number", [3, 3.0, np.int64(3), np.array(3), np.array([3.0], "f4")])
def test_flattened_actions_may_be_whole_numbers_of_any_kind(number):
    fake = FakeEnv(actions=ActionSpec(0, (3, 2)))
    env = UnityToGymWrapper(fake, flatten_branched=True)
    env.reset()
    env.step(number)

    assert fake.given[0]["B?team=0"].discrete.tolist() == [[1, 1]]
