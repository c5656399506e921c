"""The games for people among the fixtures: what they declare, and how well their policies play."""

import numpy as np
import pytest
from tests.integration.command_line import GUESTS

import arkml
from arkml.cli.inspection import inspect_file
from arkml.limits import Limits
from arkml.policies.constant import zeros

EPISODES = 20


def policy_of(game):
    return GUESTS / f"policies/play_{game}.onnx"


def evaluated(game, policy):
    return arkml.evaluate(GUESTS / f"c_play_{game}.wasm", policy, episodes=EPISODES, seed=0)


@pytest.mark.parametrize(
    ("game", "told", "drawn"),
    [
        ("chase", "title 'Hare chase'; goal 'Catch the hare more often", "1 target; 1 wall"),
        ("lander", "title 'Moon lander'; goal 'Set the craft down on the pad", "4 targets; 6 w"),
        (
            "corridor", "title 'Corridor run'; goal 'Run through the gaps of all four doors",
            "1 target; 9 walls",
        ),
    ],
)  # fmt: skip
def test_an_inspection_tells_of_the_game(game, told, drawn):
    [declared] = inspect_file(GUESTS / f"c_play_{game}.wasm", Limits()).declared

    assert told in str(declared)
    assert drawn in str(declared)


def test_the_policies_play_well_at_sixty_steps_a_second():
    assert evaluated("chase", policy_of("chase")).mean_return > 2
    assert evaluated("lander", policy_of("lander")).mean_return > 75
    corridor = evaluated("corridor", policy_of("corridor"))
    assert np.all(corridor.returns == 5)
    assert corridor.lengths.mean() < 5 * 60


@pytest.mark.parametrize("game", ["chase", "lander"])
def test_who_does_nothing_gets_nothing(game):
    assert evaluated(game, zeros(6, 2)).mean_return < 0.2  # a hare may run into a hunter
