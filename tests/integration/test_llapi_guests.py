"""Guests behind the low-level API of ML-Agents, in this process."""

import numpy as np
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.duel_guest import duel
from tests.integration.test_environment import INITIAL, INTERRUPTED, RUNNING, TERMINAL, scripted

from arkml.envs.llapi.base_env import ActionTuple, BaseEnv
from arkml.envs.llapi.exception import (
    UnityActionException,
    UnityCommunicatorStoppedException,
    UnityEnvironmentException,
)
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.side_channel.stats_side_channel import (
    StatsAggregationMethod,
    StatsSideChannel,
)

PENDULUM = GUESTS / "c_pendulum.wasm"
NAME = "script?team=0"


@pytest.fixture
def make():
    made = []

    def env(module, **options):
        made.append(GuestUnityEnv(module, **options))
        return made[-1]

    yield env
    for found in made:
        if found._env is not None:
            found.close()


def floats(*values):
    return ActionTuple(continuous=np.array(values, "f4").reshape(len(values), 1))


def answered(env, count):
    """What the guest got for its last rows."""
    return np.frombuffer(env.guest_env.guest.read_memory(256, 4 * count), "f4").tolist()


def test_a_guest_is_a_base_env_whose_behaviors_appear_when_it_is_reset(make):
    env = make(PENDULUM, configure=(4, "{seed}"))
    before = dict(env.behavior_specs)
    env.step()
    deciding, over = env.get_steps("pendulum?team=0")
    spec = env.behavior_specs["pendulum?team=0"]

    assert isinstance(env, BaseEnv)
    assert before == {}
    assert list(env.behavior_specs) == ["pendulum?team=0"]
    assert spec.observation_specs[0].shape == (3,)
    assert (spec.observation_specs[0].name, spec.action_spec.continuous_size) == ("obs_0", 1)
    assert deciding.obs[0].shape == (4, 3)
    assert deciding.agent_id.dtype == np.int32
    assert len(over) == 0


GAME = [
    [(1, INITIAL, 0.5), (2, INITIAL, 0)],
    [(1, TERMINAL, 5), (2, RUNNING, 1), (3, INITIAL, 0)],
    [(3, INTERRUPTED, 2), (2, INTERRUPTED, 1)],
    [(4, INITIAL, 0)],
]


def test_a_guest_may_name_the_teams_of_its_behaviors(make):
    env = make(duel("red?team=1", "blue"))
    env.reset()
    for _ in range(3):
        env.step()

    assert set(env.behavior_specs) == {"red?team=1", "blue?team=0"}


def test_rows_that_decide_and_rows_that_ended_come_apart(make):
    env = make(scripted(*GAME))
    env.reset()
    first = env.get_steps(NAME)
    env.step()
    second = env.get_steps(NAME)
    env.step()
    third = env.get_steps(NAME)
    env.step()

    assert first[0].reward.tolist() == [0.5, 0.0]
    assert second[0].agent_id.tolist() == [1, 2]
    assert second[1].agent_id.tolist() == [0]
    assert (second[1].reward.tolist(), second[1].interrupted.tolist()) == ([5.0], [False])
    assert len(third[0]) == 0
    assert third[1].interrupted.tolist() == [True, True]
    assert env.get_steps(NAME)[0].agent_id.tolist() == [3]


def test_actions_are_set_for_all_or_one_and_are_zeros_otherwise(make):
    env = make(scripted(*[[(1, RUNNING if n else INITIAL, 0), (2, RUNNING if n else INITIAL, 0)]
                          for n in range(5)]))  # fmt: skip
    env.reset()
    env.set_actions(NAME, floats(0.25, 0.5))
    env.step()
    both = answered(env, 2)
    env.step()
    none = answered(env, 2)
    env.set_action_for_agent(NAME, 1, floats(0.75))
    env.step()

    assert (both, none, answered(env, 2)) == ([0.25, 0.5], [0.0, 0.0], [0.0, 0.75])
    with pytest.raises(IndexError, match="agent_id 9 is did not request a decision"):
        env.set_action_for_agent(NAME, 9, floats(0.75))


STEADY = [[(1, RUNNING if n else INITIAL, 0), (2, RUNNING if n else INITIAL, 0)] for n in range(5)]


def test_actions_that_were_set_are_the_environments_own(make):
    env = make(scripted(*STEADY))
    env.reset()
    mine = np.array([[0.25], [0.5]], "f4")
    env.set_actions(NAME, ActionTuple(continuous=mine))
    env.set_action_for_agent(NAME, 1, floats(0.75))
    kept = mine.tolist()
    mine[...] = 9
    env.step()

    assert kept == [[0.25], [0.5]]
    assert answered(env, 2) == [0.25, 0.75]


def test_actions_may_be_set_from_arrays_that_cannot_be_written(make):
    env = make(scripted(*STEADY), spec={"actions": {"discrete": [3]}})
    env.reset()
    fixed = np.array([[2], [1]], np.int32)
    fixed.setflags(write=False)
    env.set_actions(NAME, ActionTuple(discrete=fixed))
    env.set_action_for_agent(NAME, 0, ActionTuple(discrete=np.array([[0.0]])))
    env.step()

    assert answered(env, 2) == [0.0, 1.0]


def test_what_is_wrong_is_refused_with_the_texts_of_the_original(make):
    env = make(scripted(*GAME))
    env.reset()
    with pytest.raises(UnityActionException, match=r"dimension \(2, 1\)"):
        env.set_actions(NAME, floats(0.5))
    with pytest.raises(UnityActionException, match="NaN"):
        env.set_actions(NAME, floats(0.5, np.nan))
    with pytest.raises(UnityActionException, match="infinite"):
        env.set_actions(NAME, floats(0.5, np.inf))
    with pytest.raises(UnityActionException, match="group walker does not correspond"):
        env.set_actions("walker", floats(0.5))
    with pytest.raises(UnityActionException, match="does not correspond"):
        env.get_steps("walker")

    env.step()
    assert answered(env, 2) == [0.0, 0.0]


def test_a_closed_environment_says_so(make):
    env = make(PENDULUM)
    env.reset()
    env.close()
    env.close()
    for call in (env.step, env.reset):
        with pytest.raises(UnityEnvironmentException, match="No Unity environment is loaded"):
            call()


def test_a_guest_that_fails_interrupts_its_agents_and_a_reset_starts_over(make):
    env = make(scripted([(1, INITIAL, 0)], [(1, RUNNING, 1)], after="unreachable"))
    env.reset()
    env.step()
    env.step()
    deciding, over = env.get_steps(NAME)
    with pytest.raises(UnityCommunicatorStoppedException, match="unreachable"):
        env.step()
    env.reset()

    assert len(deciding) == 0
    assert over.interrupted.tolist() == [True]
    assert env.get_steps(NAME)[0].agent_id.tolist() == [1]


def test_what_a_guest_says_goes_to_the_statistics(make):  # ENV 17
    stats = StatsSideChannel()
    env = make(PENDULUM, configure=(2, 1), side_channels=[stats])
    env.reset()
    for _ in range(200):
        env.step()
    told = stats.get_and_reset_stats()

    assert list(told) == ["angle"]
    assert len(told["angle"]) == 2
    assert {method for _, method in told["angle"]} == {StatsAggregationMethod.AVERAGE}


def test_the_seed_is_that_of_the_first_instance(make):
    seen = []
    for _ in range(2):
        env = make(PENDULUM, configure=(4, "{seed}"), seed=11)
        env.reset()
        seen.append(env.get_steps("pendulum?team=0")[0].obs[0])
        env.reset()
        seen.append(env.get_steps("pendulum?team=0")[0].obs[0])

    assert np.array_equal(seen[0], seen[2])
    assert np.array_equal(seen[1], seen[3])
    assert not np.array_equal(seen[0], seen[1])
