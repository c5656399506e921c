"""Limits are checked when they are made."""

import pytest

from arkml.errors import UsageError
from arkml.limits import RUN_SECONDS, Limits, call_limits


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("rows", -1),
        ("rows", 1.5),
        ("handles", "many"),
        ("run_seconds", 0),
        ("run_seconds", -1),
        ("call_seconds", 0),
        ("call_seconds", "long"),
        ("host_bytes", -1),
        ("guest_bytes", None),
        ("compile_seconds", 0),
        ("compile_seconds", None),
    ],
)
def test_a_limit_that_makes_no_sense_is_refused_by_name(name, value):
    with pytest.raises(UsageError, match=f"Limits.{name} is {value!r}"):
        Limits(**{name: value})


def test_no_time_budget_is_a_limit_too():
    assert Limits(run_seconds=None).run_seconds is None


def test_a_budget_raises_the_time_of_a_call_with_its_waits_and_none_lifts_it():
    limits = Limits(run_seconds=1.0, call_seconds=30.0)

    assert call_limits(limits, RUN_SECONDS) == (1.0, 30.0)
    assert call_limits(limits, 5.0) == (5.0, 30.0)
    assert call_limits(limits, 60.0) == (60.0, 60.0)
    assert call_limits(limits, None) == (None, None)
    assert call_limits(Limits(call_seconds=None), 5.0) == (5.0, None)
    assert call_limits(Limits(run_seconds=None), RUN_SECONDS) == (None, 30.0)
    with pytest.raises(UsageError):
        call_limits(limits, -1.0)
