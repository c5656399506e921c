import numpy as np
import pytest
from tests.benchmarks.configurations import COMMAND, CONFIGURATIONS, CRATE, PROTOCOL, SETTINGS
from tests.benchmarks.games import GAMES
from tests.benchmarks.learner_runs import EVERY, Journal
from tests.benchmarks.learning import reached
from tests.benchmarks.rows import NotWithin

from arkml.abi.ml_v4 import PROTOCOL_CONFIG
from arkml.hive.protocol.settings import Settings

GAME = GAMES["cart-pole"]


def stay(features):
    return np.zeros(len(features))


def balance(features):
    return np.clip(features @ [0.24, 0.45, 0.377, 0.9], -1, 1)


def played(*policies, most_seconds=60.0):
    journal = Journal(10_000, most_seconds)
    for number, policy in enumerate(policies):
        journal.note(EVERY * (number + 1), lambda policy=policy: policy)
    return journal


def test_a_goal_is_reached_by_the_first_policy_that_is_rated_so():
    found = played(stay, balance, stay, balance).rated(GAME)

    assert found["steps"] == found["steps played"] / 2 == 2 * EVERY
    assert found["rating"] == 500
    assert 0 <= found["seconds"] <= found["seconds played"]


def test_a_learner_that_did_not_reach_the_goal_says_how_far_it_played():
    result = played(stay, stay).rated(GAME)

    assert result["rating"] < 100
    assert reached([result], "steps") == [NotWithin(2 * EVERY)]
    assert reached([result], "seconds") == [NotWithin(result["seconds played"])]


def test_what_was_reached_is_told_seed_by_seed():
    results = [played(balance).rated(GAME), played(stay, balance).rated(GAME)]

    assert reached(results, "steps") == [EVERY, 2 * EVERY]
    assert reached(results, "rating") == [500, 500]


def test_a_policy_is_noted_at_every_mark_and_at_the_end():
    journal = Journal(10_000, 60.0)
    assert not journal.is_due(EVERY - 1)
    assert journal.is_due(EVERY)
    journal.note(EVERY, lambda: stay)
    assert not journal.is_due(EVERY + 1)
    assert not journal.is_full

    assert journal.is_due(10_000)
    assert journal.is_full


def test_a_learner_ends_when_its_seconds_are_over():
    journal = Journal(10_000, 0.0)

    assert journal.is_due(1)
    assert journal.is_full


@pytest.mark.parametrize("configuration", CONFIGURATIONS.values(), ids=CONFIGURATIONS)
@pytest.mark.parametrize("game", GAMES.values(), ids=GAMES)
def test_a_configuration_is_one_that_a_learner_takes(configuration, game):
    settings = Settings(game.features, 1).changed(configuration.settings(game))

    assert not settings.other


def test_the_defaults_are_those_that_a_guest_gets():
    assert COMMAND.settings(GAME) == {}
    assert Settings(4, 1, hidden=7).changed(SETTINGS.settings(GAME)) == Settings(4, 1)
    assert Settings(4, 1).changed(CRATE.settings(GAME)) == Settings(4, 1, **PROTOCOL)


def test_the_defaults_of_the_crate_name_all_that_a_protocol_sets():
    counts = {"feature_count", "action_count"}

    assert set(PROTOCOL) == {field.name for field in PROTOCOL_CONFIG.fields} - counts
