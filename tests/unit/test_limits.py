"""Limits are checked when they are made."""

import pytest

from arkml.errors import UsageError
from arkml.limits import Limits


@pytest.mark.parametrize(
    ("name", "value"),
    [("rows", -1), ("rows", 1.5), ("handles", "many"), ("run_seconds", 0), ("run_seconds", -1)],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"Limits.{name} is {value!r}"):
        Limits(**{name: value})


def test_no_time_budget_is_a_limit_too():
    assert Limits(run_seconds=None).run_seconds is None
