"""Guests as PettingZoo environments, all at once or in turn."""

import types
import weakref

import numpy as np
import pettingzoo.test
import pytest
from tests.integration.command_line import GUESTS
from tests.integration.test_environment import INITIAL, RUNNING, TERMINAL, scripted

from arkml.envs.pettingzoo_env import env, parallel_env
from arkml.errors import InvalidActions, UsageError

CARTPOLE = GUESTS / "c_cartpole.wasm"
FIVE = {"configure": (5, "{seed}")}

pytestmark = pytest.mark.filterwarnings("ignore::UserWarning:pettingzoo")


@pytest.fixture
def make():
    made = []

    def parallel(module, **options):
        made.append(parallel_env(module, **options))
        return made[-1]

    yield parallel
    for found in made:
        found.close()


@pytest.mark.parametrize("spawn", ["show", "hide"])
def test_the_parallel_test_of_pettingzoo_passes(make, spawn):
    pettingzoo.test.parallel_api_test(make(CARTPOLE, spawn=spawn, **FIVE), num_cycles=300)


@pytest.mark.usefixtures("forgotten")
def test_the_turn_taking_test_of_pettingzoo_passes():
    pettingzoo.test.api_test(env(CARTPOLE, **FIVE), num_cycles=300)


@pytest.mark.usefixtures("forgotten")
def test_the_seed_test_of_pettingzoo_passes():
    pettingzoo.test.parallel_seed_test(lambda: parallel_env(CARTPOLE, **FIVE), num_cycles=100)


@pytest.mark.usefixtures("forgotten")
def test_the_cycles_test_of_pettingzoo_passes():
    module = types.SimpleNamespace(
        env=lambda max_cycles: env(CARTPOLE, max_cycles=max_cycles, **FIVE),
        parallel_env=lambda max_cycles: parallel_env(CARTPOLE, max_cycles=max_cycles, **FIVE),
    )
    pettingzoo.test.max_cycles_test(module)


STAGGERED = [
    [(1, INITIAL, 0), (2, INITIAL, 0.5)],
    [(1, TERMINAL, 5), (2, RUNNING, 1)],
    [(3, INITIAL, 0), (2, RUNNING, 1)],
    [(3, RUNNING, 2)],
    [(3, RUNNING, 2), (2, TERMINAL, 1)],
]


def test_an_agent_that_ends_is_told_of_once_and_one_that_is_skipped_repeats_itself(make):
    game = make(scripted(*STAGGERED))
    observations, infos = game.reset()
    steps = [game.step({name: np.zeros(1, "f4") for name in game.agents}) for _ in range(4)]

    assert list(observations) == ["script/0", "script/1"]
    assert infos["script/1"] == {"reward": 0.5}
    assert steps[0][2] == {"script/0": True, "script/1": False}
    assert [list(step[0]) for step in steps[1:]] == [["script/1"]] * 3
    assert [step[1]["script/1"] for step in steps] == [1.0, 1.0, 0.0, 1.0]
    assert steps[2][0]["script/1"].tolist() == [2.0]
    assert steps[2][4]["script/1"] == {"acted": False}
    assert game.agents == []


def test_later_agents_join_under_new_names_where_they_are_shown(make):
    game = make(scripted(*STAGGERED), spawn="show")
    game.reset()
    steps = [game.step({name: np.zeros(1, "f4") for name in game.agents}) for _ in range(4)]

    assert list(steps[1][0]) == ["script/1", "script/2"]
    assert game.possible_agents == ["script/0", "script/1", "script/2"]
    assert game.agents == ["script/2"]


@pytest.mark.parametrize("spawn", ["show", "hide"])
def test_an_agent_that_ends_with_the_first_row_of_all_takes_no_part(make, spawn):
    turns = [[(1, INITIAL, 0), (2, TERMINAL, 9)], [(1, RUNNING, 1)], [(1, TERMINAL, 2)]]
    game = make(scripted(*turns), spawn=spawn)
    observations, infos = game.reset()
    steps = [game.step({name: np.zeros(1, "f4") for name in game.agents}) for _ in range(2)]

    assert list(observations) == list(infos) == game.possible_agents == ["script/0"]
    assert [step[1] for step in steps] == [{"script/0": 1.0}, {"script/0": 2.0}]
    assert game.agents == []


@pytest.mark.parametrize("name", ["hare", "hare/0"])
def test_an_agent_without_spaces_is_named(make, name):
    game = make(scripted(*STAGGERED))

    for space in (game.observation_space, game.action_space):
        with pytest.raises(KeyError) as found:
            space(name)
        assert found.value.args == (name,)


def test_supersuit_draws_by_the_seed_for_how_many_frames_actions_hold(make, supersuit):
    def lengths(seed):
        game = make(scripted(*STAGGERED[:1], *[[(1, RUNNING, 1), (2, RUNNING, 1)]] * 60))
        skipping = supersuit.frame_skip_v0(game, (1, 5))
        skipping.reset(seed=seed)
        actions = {name: np.zeros(1, "f4") for name in game.agents}
        return [skipping.step(actions)[1]["script/0"] for _ in range(10)]

    first = lengths(3)

    assert set(first) <= {1.0, 2.0, 3.0, 4.0, 5.0}
    assert lengths(3) == first
    assert lengths(4) != first


def test_nothing_is_kept_of_agents_that_have_ended(make):
    game = make(CARTPOLE, spawn="show", **FIVE)
    game.reset(seed=1)
    last = {}
    for _ in range(100):
        observations = game.step({name: np.ones(1, "f4") for name in game.agents})[0]
        last.update((name, weakref.ref(seen.base)) for name, seen in observations.items())
        del observations
    game.step({name: np.ones(1, "f4") for name in game.agents})
    kept = {name for name, array in last.items() if array() is not None}

    assert len(last) > 20
    assert kept <= set(game.agents)


def test_hidden_agents_take_zeros(make):
    game = make(scripted(*STAGGERED))
    game.reset()
    for _ in range(3):
        game.step({name: np.ones(1, "f4") for name in game.agents})
    actions = np.frombuffer(game.guest_env.guest.read_memory(256, 8), "f4")

    assert actions.tolist() == [0.0, 1.0]


def test_after_the_last_cycle_all_are_truncated_and_a_reset_is_a_new_instance(make):
    game = make(CARTPOLE, max_cycles=3, **FIVE)
    game.reset(seed=1)
    instance = game.guest_env.guest
    for _ in range(3):
        _, _, _, truncated, _ = game.step({name: np.zeros(1, "f4") for name in game.agents})
    with pytest.raises(UsageError, match="reset"):
        game.step({"cartpole/0": np.zeros(1, "f4")})
    after = game.step({})
    game.reset()

    assert truncated == dict.fromkeys(game.agents, True)
    assert after == ({}, {}, {}, {}, {})
    assert game.guest_env.guest is not instance


@pytest.mark.parametrize(
    ("actions", "error"),
    [
        ({"script/0": [0.0]}, UsageError),
        ({"script/0": [0.0], "script/1": [0.0], "script/9": [0.0]}, UsageError),
        ({"script/0": [0.0], "script/1": [3.0]}, InvalidActions),
        ({"script/0": [0.0], "script/1": [0.0, 0.0]}, InvalidActions),
    ],
)
def test_wrong_actions_move_nothing(make, actions, error):
    game = make(scripted(*STAGGERED))
    game.reset()
    with pytest.raises(error):
        game.step(actions)

    assert game.agents == ["script/0", "script/1"]
    game.step({"script/0": [0.0], "script/1": [0.0]})
    assert game.agents == ["script/1"]


@pytest.mark.parametrize("seed", [-1, 1.5, "one"])
def test_a_seed_that_is_none_moves_nothing(make, seed):
    game = make(scripted(*STAGGERED))
    game.reset()
    numbers = game.np_random
    with pytest.raises(UsageError, match="seed is"):
        game.reset(seed=seed)

    assert game.np_random is numbers
    assert game.agents == ["script/0", "script/1"]


def test_the_first_step_wants_a_reset(make):
    game = make(CARTPOLE, **FIVE)

    with pytest.raises(UsageError, match="reset"):
        game.step({})


def test_agents_that_act_in_turn_are_known_from_the_start():
    with pytest.raises(UsageError, match="spawn='hide'"):
        env(CARTPOLE, spawn="show")
