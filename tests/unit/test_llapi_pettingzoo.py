"""The PettingZoo wrappers of the ML-Agents API."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
from gymnasium import error, spaces
from pettingzoo.test import api_test, parallel_api_test
from tests.unit.fake_llapi_env import FakeEnv

from arkml.envs.llapi.base_env import ActionSpec
from arkml.envs.llapi.envs.unity_aec_env import UnityAECEnv
from arkml.envs.llapi.envs.unity_parallel_env import UnityParallelEnv

A0, A1 = "B?team=0?agent_id=0", "B?team=0?agent_id=1"


def both(action):
    return {A0: action, A1: action}


def test_agents_act_together_and_leave_when_they_end():
    env = UnityParallelEnv(FakeEnv(lengths=(2, 3)))
    observations, infos = env.reset()
    first = env.step({A0: [0.5, 0.25], A1: [1, 0]})
    second = env.step({A0: [1, 1]})
    left = env.agents
    third = env.step({A1: [0, -1]})

    assert observations[A0].tolist() == [0, 0, 0]
    assert infos[A0] == {"behavior_name": "B?team=0", "group_id": 0, "group_reward": 0}
    assert first[1] == {A0: 0.75, A1: 1.0}
    assert second[1] == {A0: 2.0, A1: 0.0}
    assert second[2] == {A0: True, A1: False}
    assert second[3] == {A0: False, A1: False}
    assert second[4][A0]["interrupted"] is False
    assert left == [A1]
    assert list(third[0]) == [A1]
    assert env.agents == []
    assert env.possible_agents == [A0, A1]


def test_interrupted_agents_are_truncated():
    env = UnityParallelEnv(FakeEnv(lengths=(1,), interrupted=True))
    env.reset()
    step = env.step({A0: [0, 0]})

    assert (step[2], step[3]) == ({A0: False}, {A0: True})
    assert step[4][A0]["interrupted"] is True


def test_the_old_interface_has_four_values():
    env = UnityParallelEnv(FakeEnv(lengths=(1,), interrupted=True), legacy_api=True)
    observations = env.reset()
    step = env.step({A0: [0, 0]})

    assert list(observations) == [A0]
    assert len(step) == 4
    assert step[2] == {A0: True}


def test_a_step_needs_a_reset_and_a_closed_environment_nothing():
    parallel, turns = UnityParallelEnv(FakeEnv(lengths=(2, 2))), UnityAECEnv(FakeEnv())
    text = "You must reset the environment before you can perform a step"

    with pytest.raises(error.Error, match=text):
        parallel.step(both([0, 0]))
    with pytest.raises(error.Error, match=text):
        turns.step([0, 0])
    for env in (parallel, turns):
        env.close()
        env.close()
        with pytest.raises(error.Error, match="No environment loaded"):
            env.reset()
        with pytest.raises(error.Error, match="No environment loaded"):
            env.step({})
        with pytest.raises(error.Error, match="No environment loaded"):
            _ = env.side_channel


@pytest.mark.parametrize("bad", [[0, 0, 0], [2, 0], [np.nan, 0], "text", None, [[0], [0, 0]]])
def test_an_action_that_does_not_fit_moves_nobody(bad):
    fake = FakeEnv(lengths=(2, 2))
    env = UnityParallelEnv(fake)
    env.reset()

    with pytest.raises(error.Error, match="Invalid action, got"):
        env.step({A0: [1, 1], A1: bad})
    with pytest.raises(error.Error, match="does not need an action"):
        env.step({A0: [1, 1], "B?team=0?agent_id=9": [0, 0]})
    assert fake.given == []


@pytest.mark.parametrize(
    ("actions", "space", "given"),
    [
        (ActionSpec(2, ()), spaces.Box(-1, 1, (2,), np.float32), [0.5, -0.25]),
        (ActionSpec(0, (3,)), spaces.Discrete(3), 2),
        (ActionSpec(0, (3, 2)), spaces.MultiDiscrete([3, 2]), [2, 1]),
        (
            ActionSpec(2, (3,)),
            spaces.Tuple((spaces.Box(-1, 1, (2,), np.float32), spaces.MultiDiscrete([3]))),
            ([0.5, 0.25], [2]),
        ),
    ],
)
def test_actions_arrive_as_they_were_given(actions, space, given):
    fake = FakeEnv(actions=actions, lengths=(2, 2))
    env = UnityParallelEnv(fake, seed=3)
    env.reset()
    env.step({A1: given})

    row = fake.given[0]["B?team=0"]
    parts = given if isinstance(given, tuple) else (given,)
    sent = [*row.continuous[1], *row.discrete[1]]
    assert env.action_space(A1) == space
    assert env.action_spaces[A0] is env.action_space(A0)
    assert sent == [float(x) for part in parts for x in np.ravel(part)]
    assert not row.continuous[0].any()
    assert not row.discrete[0].any()
    assert space.contains(env.action_space(A0).sample())


NOT_WHOLE = [1.5, -0.5, np.nan, np.inf, 1e300]


@pytest.mark.parametrize("choice", NOT_WHOLE)
@pytest.mark.parametrize(
    ("branches", "given"),
    [
        (ActionSpec(0, (3,)), "{}"),
        (ActionSpec(0, (3, 2)), "[{}, 0]"),
        (ActionSpec(1, (3,)), "both"),
    ],
)
def test_choices_that_are_not_whole_numbers_are_refused_and_move_nothing(branches, given, choice):
    action = {"{}": choice, "[{}, 0]": [choice, 0], "both": ([0.5], [choice])}[given]
    fake = FakeEnv(actions=branches, lengths=(2, 2))
    parallel, turns = UnityParallelEnv(fake), UnityAECEnv(FakeEnv(actions=branches))
    parallel.reset()
    turns.reset()

    with pytest.raises(error.Error, match="Invalid action, got"):
        parallel.step({A0: action})
    with pytest.raises(error.Error, match="Invalid action, got"):
        turns.step(action)
    assert fake.given == []


def test_choices_may_be_whole_floats():
    fake = FakeEnv(actions=ActionSpec(0, (3, 2)), lengths=(2,))
    env = UnityParallelEnv(fake)
    env.reset()
    env.step({A0: [2.0, np.float32(1)]})

    assert fake.given[0]["B?team=0"].discrete.tolist() == [[2, 1]]


def test_a_behavior_that_does_not_act_is_refused():
    with pytest.raises(error.Error, match="No actions found"):
        UnityParallelEnv(FakeEnv(actions=ActionSpec(0, ())))


def test_masks_come_beside_all_observations():
    fake = FakeEnv(actions=ActionSpec(0, (2,)), shapes=((3,), (1,)), masked=True, lengths=(1,))
    env = UnityParallelEnv(fake)
    observations, _ = env.reset()
    ended = env.step({A0: 1})[0]

    assert [each.shape for each in observations[A0]["observation"]] == [(3,), (1,)]
    assert observations[A0]["action_mask"][0].tolist() == [True, True]
    assert [each.shape for each in ended[A0]] == [(3,), (1,)]
    assert isinstance(env.observation_space(A0), spaces.Tuple)


def test_agents_take_turns_until_all_have_ended():
    env = UnityAECEnv(FakeEnv(lengths=(1, 2)))
    env.reset()
    seen = []
    for agent in env.agent_iter(20):
        _, reward, terminated, truncated, _ = env.last()
        seen.append((agent, reward, terminated))
        assert not truncated
        env.step(None if terminated else [0.5, 0])

    assert seen == [
        (A0, 0, False), (A1, 0, False), (A1, 0.5, False), (A0, 0.5, True), (A1, 0.5, True),
    ]  # fmt: skip
    assert env.agents == []


def test_taking_turns_has_the_old_interface():
    env = UnityAECEnv(FakeEnv(lengths=(1,)), legacy_api=True)
    env.reset()
    env.step([1, 1])

    observation, reward, done, info = env.last()
    assert (observation.tolist(), reward, done) == ([1, 1, 1], 2.0, True)
    assert info["interrupted"] is False
    assert env.observe(A0)[2] is True
    assert env.last(observe=False)[0] is None
    with pytest.raises(error.Error, match="has ended: its action is None"):
        env.step([0, 0])


def test_behaviors_have_agents_of_their_own():
    fake = FakeEnv(behaviors=("A?team=0", "B?team=1"), lengths=(2,))
    env = UnityParallelEnv(fake)
    env.reset()
    env.step({"A?team=0?agent_id=0": [1, 0]})

    assert env.agents == ["A?team=0?agent_id=0", "B?team=1?agent_id=0"]
    assert fake.given[0]["A?team=0"].continuous.tolist() == [[1, 0]]
    assert fake.given[0]["B?team=1"].continuous.tolist() == [[0, 0]]


def test_side_channels_are_found_by_class():
    env = UnityParallelEnv(FakeEnv())

    assert list(env.side_channel) == ["StatsSideChannel"]


@pytest.mark.filterwarnings("ignore::UserWarning")  # names, and observations of zeros
def test_pettingzoo_finds_nothing_wrong():
    parallel_api_test(UnityParallelEnv(FakeEnv(lengths=(5, 9))), num_cycles=50)
    api_test(UnityAECEnv(FakeEnv(lengths=(5, 9))), num_cycles=50)


def test_importing_the_wrappers_asks_nobody():
    code = (
        "import socket\n"
        "def refuse(*a): raise SystemExit('connected')\n"
        "socket.socket.connect = refuse\n"
        "from arkml.envs.llapi.envs import unity_gym_env, unity_parallel_env\n"
        "import arkml.envs.llapi.envs as envs\n"
        "assert not hasattr(envs, '__wrapped__')\n"
        "from arkml.envs.llapi.registry import default_registry\n"
        "from arkml.envs.llapi.registry.base_registry_entry import BaseRegistryEntry\n"
        "default_registry.clear()\n"
        "default_registry.register(BaseRegistryEntry('3DBall', 1.0, None))\n"
        "from arkml.envs.llapi.envs import ThreeDBall\n"
        "assert ThreeDBall.env_id == '3DBall'\n"
        "assert not hasattr(envs, 'Other')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], check=False, timeout=300)

    assert done.returncode == 0
