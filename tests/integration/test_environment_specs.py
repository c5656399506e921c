"""Declared specs through every interface: parts, bounds, choices, masks, periods, pictures."""

import pickle

import gymnasium
import numpy as np
import pytest
from pettingzoo.test import parallel_api_test
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted

from arkml import GuestEnv
from arkml.base.loggers import forget_notices
from arkml.envs.gymnasium_env import GuestGymEnv
from arkml.envs.gymnasium_fleet import GuestFleetVectorEnv
from arkml.envs.gymnasium_vector import GuestVectorEnv
from arkml.envs.llapi.base_env import ActionTuple
from arkml.envs.llapi.exception import UnityActionException
from arkml.envs.llapi.guest_unity_env import GuestUnityEnv
from arkml.envs.llapi.specs import ObservationType
from arkml.envs.pettingzoo_env import parallel_env
from arkml.envs.relayrl import EnvironmentError as RelayRLError
from arkml.envs.relayrl import GuestScalarEnvironment, GuestVectorEnvironment
from arkml.errors import InvalidActions, InvalidSpec, UsageError

CHOOSERS = GUESTS / "c_choosers.wasm"  # declares itself, in its section arkml.spec
PICKERS, DRIVERS, BOTH = 1, 2, 3
WALK = scripted(
    [(1, INITIAL, 0)], *([(1, RUNNING, reward)] for reward in (1, 2, 4, 8, 16)),
    [(1, TERMINAL, 32)],
)  # fmt: skip


@pytest.fixture
def make():
    made = []

    def env(kind, module=CHOOSERS, **options):
        made.append(kind(module, **options))
        return made[-1]

    yield env
    for found in made:
        found.close()


def test_a_module_declares_its_observations_and_actions_itself(make):
    picker = make(GuestGymEnv, configure=(1, PICKERS))
    driver = make(GuestGymEnv, configure=(1, DRIVERS))

    spaces = gymnasium.spaces
    assert set(picker.observation_space) == {"cell", "target", "flag"}
    assert picker.observation_space["cell"] == spaces.Box(0, 1, (1,), np.float32)
    assert picker.action_space == spaces.MultiDiscrete([3, 2])
    assert set(driver.observation_space) == {"position", "gear"}
    assert driver.action_space["continuous"] == spaces.Box(-1, 1, (2,), np.float32)
    assert driver.action_space["discrete"] == spaces.MultiDiscrete([3])


@pytest.mark.parametrize("kinds", [PICKERS, DRIVERS])
def test_gymnasium_plays_samples_of_the_declared_spaces(make, kinds):
    env = make(GuestGymEnv, configure=(1, kinds))
    env.action_space.seed(1)
    observation, info = env.reset(seed=1)
    masked = "action_mask" in info
    for _ in range(50):
        assert observation in env.observation_space
        observation, _, terminated, truncated, info = env.step(env.action_space.sample())
        masked |= "action_mask" in info
        if terminated or truncated:
            observation, info = env.reset()

    assert masked


def test_what_cannot_be_chosen_is_zero_in_the_mask_of_an_info(make):
    env = make(GuestGymEnv, configure=(1, PICKERS))
    env.action_space.seed(1)
    _, info = env.reset(seed=1)
    for _ in range(50):
        action = env.action_space.sample(mask=info["action_mask"]) if info.get("action_mask") else (
            env.action_space.sample()
        )  # fmt: skip
        _, _, terminated, truncated, info = env.step(action)
        assert not any(name.startswith("mask/") for name in info)
        if terminated or truncated:
            _, info = env.reset()
        if "action_mask" in info:
            cells, flags = info["action_mask"]
            assert cells.dtype == flags.dtype == np.int8
            assert (cells.shape, flags.shape) == ((3,), (2,))
            assert not (cells.all() and flags.all())
            break
    else:
        pytest.fail("nothing was masked")


def test_a_vector_environment_batches_what_is_declared(make):
    envs = make(GuestVectorEnv, configure=(4, DRIVERS))
    envs.action_space.seed(1)
    observations, _ = envs.reset(seed=1)
    masks = []
    for _ in range(20):
        assert observations in envs.observation_space
        observations, *_, info = envs.step(envs.action_space.sample())
        masks.append(info.get("action_mask"))

    assert observations["position"].shape == (4, 2)
    assert envs.single_action_space["discrete"] == gymnasium.spaces.MultiDiscrete([3])
    assert any(mask is not None and mask.shape == (4, 3) for mask in masks)


def test_pettingzoo_has_the_declared_spaces_of_each_behavior(make):
    parallel_api_test(make(parallel_env, configure=(2, DRIVERS), max_cycles=30), num_cycles=60)
    env = make(parallel_env, configure=(2, BOTH), spawn="show")
    env.reset(seed=1)
    for _ in range(4):
        env.step({agent: env.action_space(agent).sample() for agent in env.agents})

    assert {agent.split("/")[0] for agent in env.possible_agents} == {"picker", "driver"}


def test_one_behavior_can_be_chosen_and_the_others_take_zeros(make):
    both = make(GuestGymEnv, configure=(1, BOTH))
    both.reset()
    with pytest.raises(UsageError, match=r"the guest continues with driver: .*behaviors="):
        both.step(both.action_space.sample())
    env = make(GuestGymEnv, configure=(1, BOTH), behaviors=["driver"])
    env.reset(seed=1)
    for _ in range(20):
        *_, terminated, truncated, _ = env.step(env.action_space.sample())
        if terminated or truncated:
            env.reset()

    assert env.observation_space["position"].shape == (2,)


def test_ml_agents_see_parts_goals_branches_and_masks(make):
    env = make(GuestUnityEnv, configure=(2, BOTH), seed=1)
    env.reset()
    env.step()
    picker, driver = (env.behavior_specs[f"{name}?team=0"] for name in ("picker", "driver"))
    masks = []
    for _ in range(30):
        for name in env.behavior_specs:
            steps, _ = env.get_steps(name)
            if steps.action_mask is not None:
                masks.append((name, [mask.shape for mask in steps.action_mask]))
            if len(steps):
                spec = env.behavior_specs[name].action_spec
                env.set_actions(name, spec.random_action(len(steps)))
        env.step()

    assert [seen.name for seen in picker.observation_specs] == ["cell", "target", "flag"]
    assert picker.observation_specs[1].observation_type is ObservationType.GOAL_SIGNAL
    assert picker.action_spec.discrete_branches == (3, 2)
    assert (driver.action_spec.continuous_size, driver.action_spec.discrete_branches) == (2, (3,))
    shapes = dict(masks)
    assert [columns[1] for columns in shapes["picker?team=0"]] == [3, 2]


def test_ml_agents_refuse_branch_values_that_are_not_there(make):
    env = make(GuestUnityEnv, configure=(2, PICKERS), seed=1)
    env.reset()

    for wrong in (3, -1):
        choices = np.array([[0, 0], [wrong, 0]], np.int32)
        message = rf"action {wrong} in row 1 for branch 0, .* 3 actions"
        with pytest.raises(UnityActionException, match=message):
            env.set_actions("picker?team=0", ActionTuple(np.zeros((2, 0), "f4"), choices))


@pytest.mark.parametrize(
    ("kinds", "action", "message"),
    [
        (PICKERS, [3, 0], "branch 0 .* whole numbers from 0 to 2, not 3"),
        (PICKERS, [0, 0.5], "branch 1 .* whole numbers from 0 to 1, not 0.5"),
        (PICKERS, [0], r"shape \(2,\), not \(1,\)"),
        (DRIVERS, [0, 0, 0], "'continuous' and 'discrete'"),
        (DRIVERS, {"continuous": [0, 2], "discrete": [0]}, "from -1 to 1, not 2"),
        (DRIVERS, {"continuous": [0, 0], "discrete": [-1]}, "branch 0 .* not -1"),
    ],
)
def test_an_action_that_is_none_is_refused_and_moves_nothing(make, kinds, action, message):
    env = make(GuestGymEnv, configure=(1, kinds))
    env.reset(seed=1)
    before = env.guest_env.decision

    with pytest.raises(InvalidActions, match=message):
        env.step(action)
    assert env.guest_env.decision is before
    env.step(env.action_space.sample())


def given_to(env, choices):
    """Step the one agent of an interface with these actions."""
    match env:
        case GuestEnv() | GuestVectorEnv() | GuestFleetVectorEnv():
            env.step(np.array([choices]))
        case GuestScalarEnvironment() | GuestGymEnv():
            env.step(choices)
        case GuestVectorEnvironment():
            env.step([(env.env_ids[0], choices)])
        case GuestUnityEnv():
            env.set_actions("picker?team=0", ActionTuple(discrete=np.array([choices])))
            env.step()
        case _:
            env.step({"picker/0": choices})


REFUSALS = (InvalidActions, UnityActionException, RelayRLError)


@pytest.mark.parametrize("choice", [1.5, -0.5, np.nan, np.inf, 1e300])
@pytest.mark.parametrize(
    "kind",
    [GuestEnv, GuestGymEnv, GuestVectorEnv, GuestFleetVectorEnv, parallel_env,
     GuestScalarEnvironment, GuestVectorEnvironment, GuestUnityEnv],
)  # fmt: skip
def test_choices_that_are_not_whole_numbers_are_refused_and_whole_floats_are_taken(
    make, kind, choice
):
    env = make(kind, configure=(1, PICKERS))
    begun = [env.init_num_envs(1)] if kind is GuestVectorEnvironment else []
    env.reset(*begun)

    with pytest.raises(REFUSALS, match=r"whole numbers|is not finite"):
        given_to(env, [0.0, choice])
    given_to(env, [2.0, 1.0])


@pytest.mark.parametrize(
    "kind",
    [GuestEnv, GuestGymEnv, GuestVectorEnv, GuestFleetVectorEnv, GuestScalarEnvironment],
)
@pytest.mark.parametrize("action", [np.inf, -np.inf, 1e300])
def test_what_is_infinite_is_refused_where_there_are_no_bounds(make, kind, action):
    free = {"actions": {"low": -np.inf, "high": np.inf}}
    env = make(kind, WALK, spec=free)
    env.reset()

    with pytest.raises(REFUSALS, match=r"inf|is not finite"):
        given_to(env, [action])
    given_to(env, [3e38])


def test_an_agent_is_asked_once_in_a_period_and_its_rewards_are_summed(make):
    env = make(GuestEnv, WALK, spec={"decision_period": 3})
    decisions = [env.reset().decisions[0], *(env.step([[0.5]]).decisions[0] for _ in range(2))]

    assert [found.rewards.tolist() for found in decisions] == [[0.0], [7.0], [56.0]]
    assert decisions[2].terminated.all()


def test_the_last_actions_are_repeated_within_a_period(make):
    env = make(GuestEnv, WALK, spec={"decision_period": 3})
    env.reset()
    env.step([[0.5]])

    assert np.frombuffer(env.guest.read_memory(256, 4), "f4") == 0.5


def test_a_contradiction_is_an_error_of_the_environment(make):
    with pytest.raises(InvalidSpec, match=r"observations of 2 features, where it has 1"):
        make(GuestEnv, WALK, spec={"observations": [{"shape": [2]}]}).reset()
    with pytest.raises(InvalidSpec, match=r"unknown field `speed`: it takes title, goal, sc"):
        make(GuestEnv, WALK, spec={"speed": 1})


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (GuestGymEnv, {}),
        (GuestVectorEnv, {}),
        (GuestFleetVectorEnv, {"num_envs": 2}),
        (parallel_env, {}),
    ],
)
def test_a_spec_of_none_of_the_behaviors_that_the_guest_has_is_told(make, kind, options, caplog):
    misspelled, beside = {"scripts": {"slots": 1}}, {"script": {"slots": 1}, "later": {}}
    forget_notices()
    make(kind, WALK, spec={"behaviors": misspelled}, **options).reset()
    assert caplog.text.count("spec declares 'scripts', and the guest has 'script'") == 1
    caplog.clear()

    make(kind, WALK, spec={"behaviors": beside}, **options).reset()
    make(kind, WALK, spec={"behaviors": {**misspelled, "*": {"slots": 1}}}, **options).reset()
    assert "declares" not in caplog.text


def test_slots_are_the_places_of_a_vector_environment(make):
    envs = make(GuestVectorEnv, WALK, spec={"slots": 3})

    assert envs.num_envs == 3
    assert envs.reset()[1]["present"].tolist() == [True, False, False]


def test_declared_positions_are_drawn(make):
    env = make(GuestGymEnv, configure=(1, DRIVERS), render_mode="rgb_array")
    env.reset(seed=1)
    before = env.render()
    env.step({"continuous": [1.0, 1.0], "discrete": [2]})
    after = env.render()

    assert before.shape == after.shape == (256, 256, 3)
    assert before.dtype == np.uint8
    assert len(np.unique(before.reshape(-1, 3), axis=0)) == 3  # paper, frame and agent
    assert not np.array_equal(before, after)
    both = make(parallel_env, configure=(3, DRIVERS), render_mode="rgb_array")
    both.reset(seed=1)
    assert len(np.unique(both.render().reshape(-1, 3), axis=0)) == 5


def test_features_and_actions_are_drawn_as_bars_where_no_positions_are_declared(make):
    env = make(GuestGymEnv, configure=(1, PICKERS), render_mode="rgb_array")
    env.reset(seed=1)
    before = env.render()
    env.step(np.array([2, 1]))  # a choice of 0 is a bar without height
    after = env.render()

    assert before.shape == after.shape == (256, 256, 3)
    assert before.dtype == np.uint8
    assert len(np.unique(before.reshape(-1, 3), axis=0)) == 3  # paper, line and features
    assert len(np.unique(after.reshape(-1, 3), axis=0)) == 4  # and the action


def test_agents_without_positions_have_a_strip_of_bars_each(make):
    both = make(parallel_env, configure=(3, PICKERS), render_mode="rgb_array")
    both.reset(seed=1)
    both.step({name: np.array([2, 1]) for name in both.agents})
    colors = np.unique(both.render().reshape(-1, 3), axis=0)

    assert len(colors) == 2 + 2 * 3  # paper, line, features and actions of three agents


def test_a_file_that_is_not_utf_8_is_no_declaration(make, tmp_path):
    path = tmp_path / "spec.json"
    path.write_bytes(b'{"behaviors": {"wal\xffk": {}}}')

    with pytest.raises(InvalidSpec, match=r"spec\.json: 'utf-8' codec can't decode byte 0xff"):
        make(GuestEnv, WALK, spec=path)


def test_a_declaration_goes_along_when_an_environment_is_pickled(make, tmp_path):
    path = tmp_path / "spec.json"
    path.write_text('{"decision_period": 3}')
    module = tmp_path / "walk.wat"
    module.write_bytes(WALK)
    env = make(GuestEnv, module, spec=path)
    path.unlink()
    with pickle.loads(pickle.dumps(env)) as again:
        again.reset()

        assert again.step([[0.5]]).decisions[0].rewards.tolist() == [7.0]
