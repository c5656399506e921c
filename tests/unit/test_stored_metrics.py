"""Bytes that the metrics of a run take in a month, in its store and in events."""

import random

import numpy as np
import pytest
from tests.documented_metrics import documented

from arkml.hive.protocol.histograms import Histogram, bins_of, thin_histograms
from arkml.hive.protocol.reports import HOUR, MINUTE, OLD_INTERVAL, SECOND, thin
from arkml.learning.event_files import _record_of_report
from arkml.server.metrics_store import MetricsStore

BEGAN = 1_800_000_000 * SECOND // HOUR * HOUR
MINUTE_HOURS, OLD_HOURS = 25, 29 * 24
"""Hours of a month that are kept by the minute, a day with what is due, and by larger intervals."""

MOST = 40e6
EVERY = {"features": 10, "actions": 10, "system": 5, "eval": 60}
COUNTERS = {"time/total_timesteps", "time/time_elapsed", "time/episodes", "train/n_updates"}
CONSTANTS = {
    "train/learning_rate", "hive/updates_per_row_wanted", "pace/samples_per_insert_wanted",
    "hive/dropped", "features/non_finite", "features/constant", "replay/demonstration_share",
    "rollout/equal_rewards",
}  # fmt: skip


def an_hour_of(names):
    """Reports of an hour; most values are noise, which thins worst."""
    source = random.Random(0)
    for second in range(3_600):
        points = []
        for name in names:
            every = 10 if name in CONSTANTS else EVERY.get(name.split("/")[0], 1)
            if second % (60 if "branch" in name else every):
                continue
            value = source.gauss(100.0, 30.0)
            if name in COUNTERS | CONSTANTS:
                value = 1e6 + 100.0 * second if name in COUNTERS else 0.001
            points.append((name, 1_000_000 + 100 * second, value))
        yield BEGAN + second * SECOND, points


def store_bytes(directory, reports=(), histograms=()):
    """Bytes of reports in a store beyond those of an empty one."""
    sizes = []
    for kept, made in (((), ()), (reports, histograms)):
        place = directory / str(len(sizes))
        place.mkdir(parents=True)
        store = MetricsStore(place)
        for report in kept:
            store.add([report])
        store.add_histograms(made)
        store.close()
        sizes.append(sum(path.stat().st_size for path in place.iterdir()))
    return sizes[1] - sizes[0]


def count(reports):
    return sum(len(points) for _, points in reports)


def rounded(reports):
    return [
        (at, [(*point[:2], float(f"{point[2]:.7g}")) for point in part]) for at, part in reports
    ]


def month_of(measure, hour):
    """Bytes of a month in which every hour is like this one."""
    by_minute, of_interval = rounded(thin(hour, MINUTE)), rounded(thin(hour, HOUR))
    parts = ((hour, 1.2), (by_minute, MINUTE_HOURS), (of_interval, OLD_HOURS * HOUR / OLD_INTERVAL))
    return sum(measure(reports) * times for reports, times in parts)


@pytest.mark.parametrize(("learner", "branches"), [("sac", ()), ("ppo", (7, 5))])
def test_a_month_of_all_metrics_of_a_run_takes_40_mb_at_most(learner, branches, tmp_path):
    often = documented(learner, branches) - {"hive/learner_ends"}  # that one comes with a death
    names = sorted(often)
    hour = list(an_hour_of(names))
    taken = {
        "store": month_of(count, hour) * store_bytes(tmp_path / "metrics", hour) / count(hour),
        "events": month_of(lambda part: sum(len(_record_of_report(one)) for one in part), hour),
        "histograms": histogram_bytes(tmp_path),
    }
    print(learner, len(names), "metrics:", {name: f"{n / 1e6:.1f} MB" for name, n in taken.items()})

    assert sum(taken.values()) <= MOST


def histogram_bytes(directory, features=8, actions=2):
    """Bytes of a month of histograms, of which there is a report each minute."""
    source = np.random.default_rng(0)
    reports = [(BEGAN + second * SECOND, (second, list(drawn(source, features, actions))))
               for second in range(0, 3_600, 60)]  # fmt: skip
    parts = [
        (reports, 1.2),
        (thin_histograms(reports, 10 * MINUTE), MINUTE_HOURS),
        (thin_histograms(reports, 2 * HOUR), OLD_HOURS / 2),
    ]
    return sum(
        store_bytes(directory / f"h{len(part)}", histograms=part) * hours for part, hours in parts
    )


def drawn(source, features, actions):
    for kind, count in (("features", features), ("actions", actions)):
        for number in range(count):
            values = source.normal(size=1_024)
            bins, bounds = bins_of(values), (float(values.min()), float(values.max()))
            yield Histogram(f"{kind}/{number}", bins, *bounds, 0.015625)


def test_the_largest_histograms_of_a_month_take_12_mb_at_most(tmp_path):
    taken = histogram_bytes(tmp_path, 64, 64)
    print(f"{taken / 1e6:.1f} MB")

    assert taken <= 12e6
