"""Counts of several guests together."""

from collections import Counter

from arkml.guests.counts import Statistics


def test_refusals_of_guests_that_follow_each_other_are_bounded():
    lives = [Statistics(refusals=Counter({f"push at {n}": 1, "submit": 2})) for n in range(1_000)]
    found = sum(lives, Statistics()).refusals

    assert len(found) == 256
    assert found["submit"] == 2_000
    assert found.total() == 3_000
    assert found["others"] == 1_000 - 254
