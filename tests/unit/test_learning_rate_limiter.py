"""How rows and updates keep together, and what is counted of them."""

import numpy as np
import pytest

from arkml.hive.protocol.rows import META, Header, RowColumns, RowKind
from arkml.hive.protocol.runs import LEAST_AHEAD, MOST_AHEAD
from arkml.hive.protocol.segments import Record
from arkml.hive.protocol.settings import Settings
from arkml.learning.policy_lag import STALE, PolicyLag
from arkml.learning.rate_limiter import MOST_UPDATES, RateLimiter
from arkml.learning.row_statistics import WINDOW, RowStatistics
from arkml.learning.trajectories import FinishedEpisodes

SETTINGS = Settings(1, 1, memory_min_size=1_000, rows_per_update=8.0, max_updates_per_row=0.5)
SYNC = Settings(1, 1, rows_per_update=8.0, sync=True)
NONE = FinishedEpisodes(np.zeros(0), np.zeros(0, np.int64))


def test_each_update_admits_rows():
    pace = RateLimiter(SETTINGS)

    assert pace.admitted(0) == 1_000 + LEAST_AHEAD
    assert pace.admitted(10) == 1_000 + LEAST_AHEAD + 80


@pytest.mark.parametrize(
    ("seconds", "ahead"), [(0.0001, MOST_AHEAD), (0.003, 800), (1.0, LEAST_AHEAD)]
)
def test_rows_of_a_third_of_a_second_are_admitted_in_advance(seconds, ahead):
    pace = RateLimiter(SETTINGS)
    pace.record(1, seconds)

    assert pace.admitted(0) == 1_000 + ahead


def test_updates_are_bounded_by_rows():
    pace = RateLimiter(SETTINGS)

    assert pace.due(2_001, 0) == 1_000
    assert pace.due(2_001, 999) == 1
    assert pace.due(2_001, 2_000) == 0


def test_lockstep_has_as_many_updates_as_rows_allow():
    pace = RateLimiter(SYNC)

    assert pace.due(1_007, 100) == 25
    assert pace.turn(25) == 25
    assert pace.turn(500) == MOST_UPDATES


def test_updates_that_were_lost_with_a_learner_make_no_host_wait():
    pace = RateLimiter(SETTINGS)
    pace.begin(50_000, 4_000)

    assert pace.admitted(4_000) == 50_000 + LEAST_AHEAD
    assert pace.admitted(4_001) == 50_000 + LEAST_AHEAD + 8


def test_a_turn_takes_about_a_tenth_of_a_second():
    pace = RateLimiter(SETTINGS)
    first = pace.turn(1_000)
    pace.record(10, 0.1)
    usual = pace.turn(1_000)
    pace.record(1, 100.0)

    assert first == 1
    assert usual == 10
    assert pace.turn(1_000) == 1


def record(meta=(), *, kind=RowKind.TRAINING, dropped=0):
    rows = RowColumns.empty(1, 1, 1)
    rows.meta = np.array([(0, *item) for item in meta], META)
    return Record(0, 0, Header(1, 1, 1, 1, kind, dropped=dropped), rows, 0, 0)


def episodes(*returns):
    return FinishedEpisodes(np.array(returns), np.full(len(returns), 7))


def test_means_are_over_the_last_episodes_of_training():
    made = RowStatistics()
    made.count(record(), episodes(*range(WINDOW + 50)))
    made.count(record(kind=RowKind.DEMONSTRATION), episodes(1e9))
    points = dict(made.points())

    assert points["rollout/ep_rew_mean"] == np.mean(range(50, WINDOW + 50))
    assert points["rollout/ep_len_mean"] == 7.0
    assert points["time/episodes"] == WINDOW + 50


def test_metrics_of_the_guest_are_means_under_its_names():
    made = RowStatistics()
    made.name(["speed", "height"])
    made.count(record([(0, 1.0), (1, 5.0), (0, 3.0), (0, np.nan), (9, 1.0)]), NONE)
    first = dict(made.points())
    made.count(record([(0, 8.0)]), NONE)
    second = dict(made.points())

    assert first["guest/speed"] == 2.0
    assert first["guest/height"] == 5.0
    assert second["guest/speed"] == 4.0
    assert "guest/height" not in second


def test_many_values_of_a_metric_are_all_in_its_mean():
    made = RowStatistics()
    made.name(["speed"])
    made.count(record([(0, float(value)) for value in range(1_000)]), NONE)

    assert dict(made.points())["guest/speed"] == 499.5


def test_lost_rows_are_counted_and_survive_a_restart():
    made, again = RowStatistics(), RowStatistics()
    made.count(record(dropped=30), episodes(1.0, 2.0))
    made.count(record(dropped=12), NONE)
    again.restore(made.as_json())

    assert dict(again.points())["hive/dropped"] == 42
    assert dict(again.points()) == dict(made.points())


def test_policies_have_an_age_in_versions_and_seconds():
    made = PolicyLag()
    for version in range(1, 11):
        made.publish(version, now=float(version))
    made.count(np.array([10, 10, 9, 0, 10 - STALE - 1], np.uint32), now=12.0)
    ages = made.take()

    assert ages.versions == (0 + 0 + 1 + STALE + 1) / 4
    assert ages.seconds == (2 + 2 + 3 + 2 + STALE + 1) / 4
    assert ages.stale == 0.25
    assert made.take() is None


def test_versions_of_before_a_restart_have_no_known_age():
    made = PolicyLag()
    made.publish(50, now=1.0)
    made.count(np.array([49, 50], np.uint32), now=3.0)

    assert made.take() == pytest.approx((0.5, 2.0, 0.0))
