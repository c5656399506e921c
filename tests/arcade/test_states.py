"""Games of the arcade go on from a snapshot, and from a copy of their environment, to the byte."""

import copy

import numpy as np
import pytest
from tests.arcade.guests import built
from tests.arcade.test_games import ONE, answers
from tests.integration.determinism import differences
from tools.arcade.__main__ import games

from arkml import GuestEnv

pytestmark = pytest.mark.arcade
SLOW = {"nmmo3", "school", "tower_climb"}
"""Games whose frames take long: ten seeds instead of a hundred."""


@pytest.fixture(params=sorted(games()))
def game(request):
    return built(request.param)


def test_a_thousand_frames_after_a_restore_are_those_after_the_snapshot(game, tmp_path):
    seeds = range(10 if game.stem in SLOW else 100)
    assert differences(game, seeds, 1_000, tmp_path) == []


@pytest.mark.parametrize("seed", range(5))
def test_a_copy_of_an_environment_goes_on_alike(game, seed):
    with GuestEnv(game, **ONE) as environment:
        random = np.random.default_rng(seed)
        step = environment.reset(seed=seed)
        for _ in range(50 + seed):
            step = environment.step(answers(step.decisions[0], random))
        with copy.deepcopy(environment) as copied:
            again = copy.deepcopy(random)
            assert played(copied, again) == played(environment, random)
            with copy.deepcopy(copied) as deeper:  # from a state
                assert played(deeper, copy.deepcopy(again)) == played(environment, random)


def played(environment, random, steps=200):
    """The rows of some random steps, as bytes."""
    rows = []
    for _ in range(steps):
        step = environment.step(answers(environment.decision, random))
        rows += [
            (one.agents.tobytes(), one.observations.tobytes(), one.rewards.tobytes())
            for one in step.decisions
        ]
    return rows
