"""The index and the metrics that it copies."""

import asyncio
import json
import math
import resource
import sqlite3
import time

import pytest

from arkml.hive.protocol.reports import SECOND
from arkml.server.index import Index
from arkml.server.metrics import RunMetrics


@pytest.fixture
def path(tmp_path):
    return tmp_path / "index.sqlite"


def use(path, work):
    async def run():
        index = Index(path)
        try:
            await index.put_run("r", "name", "game", "running", 1)
            return await work(index)
        finally:
            index.close()

    return asyncio.run(run())


def measure(path, tmp_path, *reports):
    async def work(index):
        metrics = RunMetrics("r", tmp_path, index)
        for report in reports:
            await metrics.add(report)
        await metrics.load()
        return metrics.latest, await metrics.series("a", 0)

    return use(path, work)


def test_metrics_come_back_as_a_series(path, tmp_path):
    latest, series = measure(path, tmp_path, [("a", 1, 0.5), ("b", 1, 7.0)], [("a", 2, 0.75)])

    assert latest == {"a": (0.75, 2), "b": (7.0, 1)}
    assert [point[:2] for point in series] == [(1, 0.5), (2, 0.75)]


def test_values_that_are_not_finite_are_left_out(path, tmp_path):
    latest, series = measure(path, tmp_path, [("a", 1, float("nan")), ("a", 2, 1.0)])

    assert latest == {"a": (1.0, 2)}
    assert [point[:2] for point in series] == [(2, 1.0)]


def test_an_index_that_cannot_be_written_is_left_as_it_is(path, tmp_path):
    measure(path, tmp_path, [("a", 1, 0.5)])
    before, limits = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
    try:
        with pytest.raises(sqlite3.OperationalError):
            Index(path)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert path.read_bytes() == before


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3\0" + b"\xff" * 4_000, b"nonsense" * 99])
def test_a_damaged_index_is_made_anew_from_the_directories(path, tmp_path, damage):
    measure(path, tmp_path, [("a", 1, 0.5)])
    path.write_bytes(damage)
    latest, series = measure(path, tmp_path, [("a", 2, 0.75)])

    assert latest == {"a": (0.75, 2)}
    assert [point[:2] for point in series] == [(1, 0.5), (2, 0.75)]


def test_an_index_of_another_shape_is_made_anew(path, tmp_path):
    import sqlite3

    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE runs (something TEXT)")
    other.close()

    assert measure(path, tmp_path, [("a", 1, 0.5)])[1]


def test_nothing_is_read_twice(path, tmp_path):
    measure(path, tmp_path, [("a", 1, 0.5)])
    _, series = measure(path, tmp_path)

    assert len(series) == 1


def test_a_torn_line_is_cut(path, tmp_path):
    measure(path, tmp_path, [("a", 1, 0.5)])
    with (tmp_path / "metrics.jsonl").open("a") as file:
        file.write('[1, [["a", 2')
    latest, series = measure(path, tmp_path, [("a", 3, 0.75)])

    assert latest == {"a": (0.75, 3)}
    assert [point[0] for point in series] == [1, 3]
    assert all(json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines())


def test_a_forgotten_run_leaves_nothing(path, tmp_path):
    measure(path, tmp_path, [("a", 1, 0.5)])
    (tmp_path / "metrics.jsonl").unlink()

    async def forget(index):
        await index.delete_run("r")
        return await index.metric_series("r", "a", 0)

    assert use(path, forget) == []


class Clock:
    """The clocks of a process, both set by the test."""

    def __init__(self, monkeypatch):
        self.wall, self.monotonic = 1_800_000_000 * SECOND, 50 * SECOND
        monkeypatch.setattr(time, "time_ns", lambda: self.wall)
        monkeypatch.setattr(time, "monotonic_ns", lambda: self.monotonic)

    def pass_(self, seconds):
        self.wall += round(seconds * SECOND)
        self.monotonic += round(seconds * SECOND)


@pytest.fixture
def clock(monkeypatch):
    return Clock(monkeypatch)


async def play(metrics, clock, begin, end, every):
    """Add a report every few seconds; the value is highest in one of them."""
    for second in range(begin, end, every):
        clock.pass_(every)
        value = 1_000.0 if second == 5 * every else math.sin(second)
        await metrics.add([("a", second, value), ("b", second, float(second))])


def test_reports_are_kept_for_an_hour_and_then_by_the_minute_and_after_a_day_by_forty(
    path, tmp_path, clock
):
    async def work(index):
        metrics = RunMetrics("r", tmp_path, index)
        await play(metrics, clock, 0, 30 * 3_600, 40)
        return await metrics.series("a", 0), await metrics.series("b", 0), metrics

    series, rising, metrics = use(path, work)
    ages = [(clock.wall - at) / SECOND for _, _, at in series]
    young = [age for age in ages if age < 3_600]
    minutes = [age for age in ages if 4_800 < age < 86_400 - 3_600]

    assert len(young) == 3_600 / 40
    assert 0 < len(minutes) <= 2 * (86_400 - 3_600 - 4_800) / 60
    assert sum(age > 86_400 + 2 * 3_600 + 1_200 for age in ages) <= 3 * 3 * 4
    assert max(value for _, value, _ in series) == 1_000.0
    assert [step for step, _, _ in rising] == sorted(step for step, _, _ in rising)
    assert metrics.latest["b"] == (30 * 3_600.0 - 40, 30 * 3_600 - 40)


def test_an_index_that_is_lost_has_the_same_points_after_thinning(path, tmp_path, clock):
    async def work(index):
        metrics = RunMetrics("r", tmp_path, index)
        await play(metrics, clock, 0, 4 * 3_600, 30)
        return await metrics.series("a", 0)

    async def again(index):
        metrics = RunMetrics("r", tmp_path, index)
        await metrics.load()
        return await metrics.series("a", 0), metrics.latest

    before = use(path, work)
    path.unlink()
    after, latest = use(path, again)

    assert after == before
    assert latest["a"][1] == 4 * 3_600 - 30


def test_a_process_killed_between_two_files_leaves_each_report_once(path, tmp_path, clock):
    async def work(index):
        metrics = RunMetrics("r", tmp_path, index)
        await play(metrics, clock, 0, 3_000, 10)
        recent = (tmp_path / "metrics.jsonl").read_bytes()
        await play(metrics, clock, 3_000, 6_000, 10)
        return recent, await metrics.series("b", 0)

    recent, before = use(path, work)
    late = (tmp_path / "metrics.jsonl").read_bytes()
    whole = recent + b"".join(
        line for line in late.splitlines(keepends=True) if line not in set(recent.splitlines(True))
    )
    (tmp_path / "metrics.jsonl").write_bytes(whole)  # as if it had not been replaced
    after = use(path, lambda index: read_again(index, tmp_path))

    assert (tmp_path / "metrics.minutes.jsonl").stat().st_size
    assert whole != late
    assert after == before


def test_a_clock_that_is_set_back_leaves_curves_in_order(path, tmp_path, clock):
    async def work(index):
        metrics = RunMetrics("r", tmp_path, index)
        await play(metrics, clock, 0, 300, 30)
        clock.wall -= 7 * 86_400 * SECOND
        await play(metrics, clock, 300, 600, 30)
        return await metrics.series("a", 0)

    times = [at for _, _, at in use(path, work)]

    assert times == sorted(times)
    assert times[-1] - times[0] == 570 * SECOND


def test_reports_are_kept_while_their_file_cannot_be_replaced(path, tmp_path, clock, caplog):
    obstacle = tmp_path / ".metrics.jsonl.new"

    async def work(index):
        metrics = RunMetrics("r", tmp_path, index)
        obstacle.mkdir()
        await play(metrics, clock, 0, 5_000, 10)
        obstacle.rmdir()
        kept = await metrics.series("b", 0)
        await play(metrics, clock, 5_000, 6_000, 10)
        return kept, await metrics.series("b", 0)

    kept, thinned = use(path, work)
    path.unlink()
    again = use(path, lambda index: read_again(index, tmp_path))

    assert len(kept) == 500
    assert len(thinned) < 500
    assert thinned == again
    assert len(caplog.records) == 2  # and not one for each report


async def read_again(index, directory):
    metrics = RunMetrics("r", directory, index)
    await metrics.load()
    return await metrics.series("b", 0)
