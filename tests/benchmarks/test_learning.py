"""Tests for the ratings of learners, and for the environments that others learn in."""

from __future__ import annotations

import numpy as np
import pytest
from tests.benchmarks.games import GAMES, Arrays, rate
from tests.benchmarks.guest_places import GuestPlaces, allowed
from tests.benchmarks.learning import BARS, KINDS, reached
from tests.benchmarks.rating import EVERY, HOLDING, Policies
from tests.benchmarks.rows import NotWithin
from tests.benchmarks.suite import SUITE
from tests.benchmarks.their_runs import RUNS

GAME = GAMES["cart-pole"]


def stay(features):
    return np.zeros((len(features), 1))


def balance(features):
    return np.clip(features @ [0.24, 0.45, 0.377, 0.9], -1, 1)[:, None]


def rated(*policies, goal=GAME.goal):
    noted = Policies()
    for number, policy in enumerate(policies):
        noted.note(EVERY * (number + 1), lambda policy=policy: policy)
    return noted.rated(goal, lambda policy: rate(GAME, policy))


def test_a_goal_is_reached_by_the_first_policy_that_is_rated_so():
    found = rated(stay, balance, stay, balance)

    assert found["rows"] == found["played"] / 2 == 2 * EVERY
    assert found["ratings"][1] == 500
    assert 0 <= found["seconds"] <= found["played_seconds"]


def test_a_goal_is_held_by_the_ratings_that_follow():
    found = rated(balance, stay, balance, balance, balance, balance, stay)

    assert (found["held"], found["of"]) == (4, HOLDING)


def test_a_learner_that_did_not_reach_the_goal_says_how_far_it_played():
    result = rated(stay, stay)

    assert max(result["ratings"]) < 100
    assert reached([result], "rows") == [NotWithin(2 * EVERY)]
    assert reached([result], "seconds") == [NotWithin(result["played_seconds"])]


def test_a_learner_that_ended_before_its_first_rating_has_played_nothing():
    assert reached([rated()], "rows") == [NotWithin(0)]


def test_what_was_reached_is_told_seed_by_seed():
    results = [rated(balance), rated(stay, balance)]

    assert reached(results, "rows") == [EVERY, 2 * EVERY]


def test_a_policy_is_noted_at_every_mark():
    noted = Policies()
    for rows in (EVERY - 1, EVERY, EVERY + 1, 2 * EVERY + 5):
        noted.note(rows, lambda: stay)

    assert noted.rows == [EVERY, 2 * EVERY + 5]


def test_every_bar_is_that_of_a_game_and_of_a_competitor_that_learns():
    assert set(BARS) <= set(SUITE)
    for bars in BARS.values():
        assert {KINDS[competitor] for competitor in bars} <= set(RUNS)


@pytest.mark.parametrize("name", GAMES)
def test_arrays_are_the_game_of_the_suite(name):
    game, places = SUITE[name], GuestPlaces(SUITE[name], 1)
    arrays = Arrays(GAMES[name], game.agents, 1)
    for environments in (places, arrays):
        assert environments.reset().shape == (game.agents, game.features)
    assert GAMES[name].goal == game.goal

    pushed = np.full((game.agents, 1), 0.3, np.float32)
    arrays._bodies[:] = bodies_of(name, places.reset())
    for _ in range(5):
        theirs, ours = places.step(pushed), arrays.step(pushed)
        np.testing.assert_allclose(theirs[0], ours[0], atol=1e-4)
        np.testing.assert_allclose(theirs[1], ours[1], atol=1e-4)
    places.close()


def bodies_of(name, features):
    """The bodies that are observed so."""
    if name == "pendulum":
        return np.stack([np.arctan2(features[:, 1], features[:, 0]), 8 * features[:, 2]], axis=1)
    return features * [2.4, 3.0, np.deg2rad(12), 3.0]


def test_an_agent_that_ends_begins_again_in_the_same_step():
    places = GuestPlaces(SUITE["cart-pole"], 1)
    places.reset()
    ended = np.zeros(places.num_envs, bool)
    while not ended.any():
        seen, _, ended, infos = places.step(np.ones((places.num_envs, 1), np.float32))
    first = int(np.flatnonzero(ended)[0])
    places.close()

    assert np.abs(seen[first]).max() < 0.5
    assert np.abs(infos[first]["terminal_observation"]).max() > 1
    assert not infos[first]["TimeLimit.truncated"]
    assert all(not infos[place] for place in np.flatnonzero(~ended))


def test_a_masked_choice_is_replaced_by_the_next_that_is_allowed():
    masks = (np.array([[1, 0, 0, 1], [1, 1, 1, 0]]), np.array([[0, 1], [1, 1]]))

    taken = allowed(np.array([[1, 0], [3, 1]]), masks)

    assert taken.tolist() == [[3, 1], [0, 1]]


def test_the_places_of_a_game_with_masks_take_every_choice():
    places = GuestPlaces(SUITE["corridor"], 1)
    seen = places.reset()
    random = np.random.default_rng(0)
    rewards = []
    for _ in range(30):
        seen, reward, _, _ = places.step(random.integers(0, 4, (places.num_envs, 2)))
        rewards.append(reward)
    places.close()

    assert seen.shape == (16, 6)
    assert np.isfinite(rewards).all()
