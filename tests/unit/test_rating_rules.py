"""How many episodes rate a version, when a goal is reached, and when the next one is rated."""

import numpy as np
import pytest

from arkml.training.rating_rules import FIRST_AFTER, RatingPace, RatingRule

GOAL = 50.0


class Clock:
    """A clock that stands still until it is set."""

    def __init__(self):
        self.now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock():
    return Clock()


def pace_of(clock, *, has_goal=False):
    """A pace that has seen version 1, of a policy that has learned nothing."""
    pace = RatingPace(has_goal=has_goal, clock=clock)
    assert not pace.is_due(1)
    return pace


def rate(pace, clock, version, seconds, *, is_rated=True):
    """Rate a version, which takes some seconds."""
    pace.begin(version)
    clock.now += seconds
    pace.end(is_rated=is_rated)


def played(rule, episodes, best=None):
    """The number of episodes that count of a version whose returns are known, to its end."""
    returns = [next(episodes) for _ in range(rule.episodes)]
    while more := rule.lacking(returns, best):
        returns += [next(episodes) for _ in range(more)]
    return returns


@pytest.mark.parametrize(
    ("mean", "best", "goal", "count"),
    [
        (40.0, None, None, 10),
        (40.0, 45.0, GOAL, 10),
        (40.0, 35.0, GOAL, 20),
        (40.0, 40.0, GOAL, 10),
        (50.0, None, GOAL, 100),
        (50.0, 35.0, GOAL, 100),
        (50.0, 60.0, GOAL, 100),
        (50.0, 35.0, None, 20),
    ],
)
def test_a_version_plays_on_if_it_seems_the_best_or_at_the_goal(mean, best, goal, count):
    returns = played(RatingRule(10, goal), iter(lambda: mean, None), best)

    assert len(returns) == count


@pytest.mark.parametrize(("episodes", "count"), [(3, 100), (60, 120), (150, 300)])
def test_a_goal_takes_a_hundred_episodes_or_as_many_as_are_wanted(episodes, count):
    assert len(played(RatingRule(episodes, GOAL), iter(lambda: 60.0, None), best=0.0)) == count


def test_a_goal_that_a_second_look_reaches_takes_a_hundred_episodes_too():
    returns = played(RatingRule(10, GOAL), iter([45.0] * 10 + [60.0] * 90), best=40.0)

    assert len(returns) == 100


def test_without_episodes_a_version_plays_no_more():
    assert RatingRule(10, -np.inf).lacking([], best=-np.inf) == 0


@pytest.mark.parametrize(
    ("returns", "is_reached"),
    [
        ([GOAL] * 100, True),
        ([GOAL - 1] * 100, False),
        ([GOAL + 9] * 10, False),
        ([GOAL + 9] * 19, False),
        ([GOAL + 9] * 20, True),
        ([float("nan")] * 100, False),
    ],
)
def test_a_goal_is_reached_by_the_mean_of_twenty_episodes_at_least(returns, is_reached):
    assert RatingRule(10, GOAL).is_reached(returns) is is_reached
    assert not RatingRule(10, None).is_reached(returns)


def test_a_version_at_the_goal_by_chance_is_found_out_by_its_further_episodes():
    """Of 2,000 versions whose mean is 1 standard error of 100 episodes below the goal."""
    random, rule = np.random.default_rng(1), RatingRule(10, GOAL)
    seemed = reached = 0
    for _ in range(2_000):
        returns = played(rule, iter(lambda: random.normal(GOAL - 1.0, 10.0), None))
        seemed += np.mean(returns[:10]) >= GOAL
        reached += rule.is_reached(returns)

    assert seemed / 2_000 == pytest.approx(0.376, abs=0.04)
    assert reached / 2_000 < 0.15  # 0.159 by all of 100 alone


def test_the_first_version_has_learned_nothing_and_is_not_rated(clock):
    pace = pace_of(clock, has_goal=True)
    clock.now += 1e6

    assert not pace.is_due(1)
    assert pace.is_due(2)


def test_without_a_goal_the_first_rating_comes_after_seconds_of_learning(clock):
    pace, waiting = pace_of(clock), pace_of(clock, has_goal=True)
    clock.now += 60.0  # before there is a version with updates

    assert not pace.is_due(2)
    assert waiting.is_due(2)
    clock.now += FIRST_AFTER - 0.01
    assert not pace.is_due(3)
    clock.now += 0.01
    assert pace.is_due(4)


@pytest.mark.parametrize(("has_goal", "share"), [(False, 0.2), (True, 0.5)])
def test_ratings_take_a_share_of_the_time(clock, has_goal, share):
    pace, rng = pace_of(clock, has_goal=has_goal), np.random.default_rng(2)
    pace.is_due(2)
    clock.now += FIRST_AFTER
    began, rated = clock.now, 0.0
    for version in range(2, 22):
        while not pace.is_due(version):
            clock.now += 0.01
        seconds = rng.uniform(2.0, 8.0)
        rate(pace, clock, version, seconds)
        rated += seconds
    while not pace.is_due(22):
        clock.now += 0.01

    assert rated / (clock.now - began) == pytest.approx(share, rel=0.02)


@pytest.mark.parametrize(("has_goal", "count"), [(False, 390), (True, 580)])
def test_an_hour_has_hundreds_of_ratings_however_short_they_are(clock, has_goal, count):
    pace, version = pace_of(clock, has_goal=has_goal), 2
    began = clock.now
    while clock.now < began + 3_600.0:
        clock.now += 0.05
        if pace.is_due(version):
            rate(pace, clock, version, 0.01)
            version += 1

    assert version - 2 == pytest.approx(count, rel=0.1)


def test_one_version_is_rated_at_a_time_and_none_twice(clock):
    pace = pace_of(clock, has_goal=True)
    assert pace.is_due(2)
    pace.begin(2)
    clock.now += 3.0
    assert pace.is_pausing
    assert not pace.is_due(3)
    pace.end(is_rated=True)
    assert pace.is_pausing
    assert not pace.is_due(3)
    clock.now += 3.0

    assert not pace.is_pausing
    assert not pace.is_due(2)
    assert pace.is_due(3)


def test_a_failure_before_the_first_rating_is_the_last(clock):
    pace = pace_of(clock, has_goal=True)
    rate(pace, clock, 2, 1.0, is_rated=False)
    clock.now += 1e6

    assert pace.is_over
    assert not pace.is_due(3)


def test_after_a_rating_three_failures_in_a_row_are_the_last(clock):
    pace, over = pace_of(clock, has_goal=True), []
    for version, is_rated in enumerate([True, False, False, True, False, False, False], 2):
        rate(pace, clock, version, 1.0, is_rated=is_rated)
        over.append(pace.is_over)

    assert over == [False] * 6 + [True]


def test_a_pace_that_was_given_up_stays_so(clock):
    pace = pace_of(clock, has_goal=True)
    pace.give_up()
    rate(pace, clock, 2, 1.0)
    clock.now += 10.0

    assert pace.is_over
    assert pace.is_pausing
    assert not pace.is_due(3)
