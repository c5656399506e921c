"""Limits are checked when they are made."""

from dataclasses import fields

import pytest

from arkml.errors import UsageError
from arkml.limits import RUN_SECONDS, Limits, call_limits, start_budget


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
        ("start_seconds", 0),
        ("log_lines", -1),
        ("log_lines", None),
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


def test_an_initializer_has_the_larger_of_two_budgets_unless_one_is_given():
    limits = Limits(run_seconds=0.004, start_seconds=0.5)

    assert start_budget(limits, RUN_SECONDS) == 0.5
    assert start_budget(limits, 0.1) == 0.1
    assert start_budget(limits, None) is None
    assert start_budget(Limits(), RUN_SECONDS) is RUN_SECONDS
    assert start_budget(Limits(run_seconds=0.004), RUN_SECONDS) is RUN_SECONDS
    assert start_budget(Limits(run_seconds=None), RUN_SECONDS) is RUN_SECONDS


def test_the_limits_of_a_game_follow_its_frames():
    at_60, at_30 = Limits.game(), Limits.game(fps=30)

    assert at_60.run_seconds == pytest.approx(0.004)
    assert at_30.run_seconds == pytest.approx(0.008)
    assert (at_60.call_seconds, at_30.call_seconds) == pytest.approx((2 / 60, 2 / 30))
    assert (at_60.memory_bytes, at_60.log_lines, at_60.start_seconds) == (16 << 20, 10, 1.0)
    assert all(
        getattr(at_60, field.name) <= getattr(Limits(), field.name)
        for field in fields(Limits)
        if field.name not in {"host_bytes", "start_seconds"}
    )


@pytest.mark.parametrize("fps", [0, -60, float("nan"), float("inf"), "60", None, True])
def test_a_rate_that_is_none_is_refused(fps):
    with pytest.raises(
        UsageError, match=r"fps is .*: it takes a number of frames a second above 0"
    ):
        Limits.game(fps)
