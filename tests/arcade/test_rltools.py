"""RLtools' environments for memory as guests: their rules, and beside native builds."""

from collections import deque

import numpy as np
import pytest
import stable_baselines3.common.env_checker
from gymnasium.utils.env_checker import check_env
from tests.arcade.guests import built, require_own_imports, require_smoke
from tests.arcade.native_plus import ends_beside_native

from arkml import GuestEnv
from arkml.envs.gymnasium_env import GuestGymEnv

AGENTS = 64

pytestmark = [
    pytest.mark.arcade,
    pytest.mark.filterwarnings("ignore:.*Box observation space m:UserWarning"),
    pytest.mark.filterwarnings("ignore::UserWarning:stable_baselines3.common.env_checker"),
]


@pytest.fixture(params=["flag", "memory"])
def game(request):
    return built(request.param)


def test_a_game_passes_the_smoke_test(game):
    require_smoke(game)


def test_a_game_imports_nothing_but_our_functions(game):
    require_own_imports(game)


def test_a_game_passes_the_checkers_of_environments(game):
    env = GuestGymEnv(game, configure=(1, "{seed}"))
    check_env(env, skip_render_check=True)
    stable_baselines3.common.env_checker.check_env(env)
    env.close()


def test_a_game_plays_as_its_native_build_does_to_the_bit(game, tmp_path):
    ends = ends_beside_native(game, tmp_path, 10_000)

    assert ends > 10


def episodes(name, policy):
    """The returns of the first episode of each agent; `policy` is given rows and their agents."""
    returns, over = np.zeros(AGENTS), np.zeros(AGENTS, bool)
    with GuestEnv(built(name), configure=(AGENTS, 1)) as environment:
        (decision,) = environment.reset().decisions
        while not over.all():
            live = np.flatnonzero(~decision.ended)
            actions = policy(decision.observations[live], live)
            (decision,) = environment.step(np.asarray(actions, np.float32)).decisions
            returns += np.where(over, 0, decision.rewards)
            over |= decision.ended
    return returns


def test_in_memory_one_that_counts_the_last_ten_inputs_loses_nothing():
    inputs = [deque([0] * 10, maxlen=10) for _ in range(AGENTS)]

    def count(rows, agents):
        for row, agent in zip(rows, agents, strict=True):
            inputs[agent].append(row[0])
        return [[sum(inputs[agent]) / 10] for agent in agents]

    guessed = episodes("memory", lambda rows, _: [[0.4]] * len(rows))

    assert episodes("memory", count) == pytest.approx(np.zeros(AGENTS), abs=1e-4)
    assert -40 < guessed.mean() < -25


def test_in_flag_one_that_remembers_both_flags_visits_them_in_order():
    flags = {}

    def go(rows, agents):
        actions = []
        for row, agent in zip(rows, agents, strict=True):
            if row[7] != -1:
                flags[agent] = row[7:11].reshape(2, 2)
            goal = flags[agent][int(row[5] == 1)]
            actions.append(np.clip((2 * (goal - row[:2]) - row[2:4]) / 2, -1, 1))
        return actions

    returns = episodes("flag", go)
    still = episodes("flag", lambda rows, _: np.zeros((len(rows), 2)))

    # An episode begins with the first flag visited as often as not.
    assert set(returns.tolist()) == {1_000.0, 2_000.0}
    assert 0.3 < (returns == 2_000).mean() < 0.7
    assert still.mean() < 100
