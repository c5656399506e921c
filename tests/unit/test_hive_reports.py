"""The times of reports, and what is left of old ones."""

import time

from hypothesis import given
from hypothesis import strategies as st

from arkml.hive.protocol.reports import MINUTE, SECOND, ReportClock, thin

POINTS = st.lists(
    st.tuples(st.sampled_from("ab"), st.integers(0, 9), st.floats(-5, 5)), min_size=1, max_size=3
)
TIMES = st.lists(st.integers(1, 5 * MINUTE), unique=True, max_size=40).map(sorted)


def extremes(reports, interval):
    """The lowest, the highest and the last value of each metric in each interval."""
    values = {}
    for at, points in reports:
        for name, _, value in points:
            values.setdefault((at // interval, name), []).append(value)
    return {key: (min(one), max(one), one[-1]) for key, one in values.items()}


@given(TIMES, st.data())
def test_thinning_keeps_the_extremes_and_the_last_value_of_each_interval(times, data):
    reports = [(at, data.draw(POINTS)) for at in times]
    thinned = thin(reports, MINUTE)

    assert extremes(thinned, MINUTE) == extremes(reports, MINUTE)
    assert thin(thinned, MINUTE) == thinned
    assert all(set(points) <= set(dict(reports)[at]) for at, points in thinned)


def test_a_minute_of_seconds_leaves_three_points_of_each_metric_at_most():
    reports = [(second * SECOND, [("a", second, float(second % 7))]) for second in range(60)]

    assert [at // SECOND for at, _ in thin(reports, MINUTE)] == [0, 6, 59]


def test_times_of_reports_increase_while_the_wall_clock_is_set_back(monkeypatch):
    clock = ReportClock()
    before = clock.now()
    monkeypatch.setattr(time, "time_ns", lambda: 5)
    times = [before, *(clock.now() for _ in range(100))]

    assert times == sorted(set(times))
    assert times[-1] - before < MINUTE


def test_times_of_reports_continue_after_those_of_the_process_before():
    last = time.time_ns() + 10 * MINUTE

    assert ReportClock(last).now() > last
