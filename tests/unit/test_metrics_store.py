"""The store of a run's metrics: series, thinning, and what is left after damage and death."""

import asyncio
import math
import os
import random
import resource
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.sqlite_journals import write_hot_journal

from arkml.hive.protocol.reports import HOUR, MINUTE, SECOND, thin
from arkml.server.metrics import RunMetrics
from arkml.server.metrics_store import MetricsStore, read_curves, read_store

BEGAN = 1_800_000_000 * SECOND


@pytest.fixture
def path(tmp_path):
    return tmp_path / "metrics.sqlite"


def use(directory, work):
    async def run():
        with ThreadPoolExecutor(1) as thread:
            metrics = RunMetrics("r", MetricsStore(directory, thread))
            try:
                return await work(metrics)
            finally:
                await metrics.close()

    return asyncio.run(run())


def measure(directory, *reports):
    async def work(metrics):
        for report in reports:
            await metrics.add(report)
        await metrics.load()
        return metrics.latest, await metrics.series("a", 0)

    return use(directory, work)


def test_metrics_come_back_as_a_series(tmp_path):
    latest, series = measure(tmp_path, [("a", 1, 0.5), ("b", 1, 7.0)], [("a", 2, 0.75)])

    assert latest == {"a": (0.75, 2), "b": (7.0, 1)}
    assert [point[:2] for point in series] == [(1, 0.5), (2, 0.75)]


def test_a_store_is_closed_behind_a_reader_that_is_about_to_open_it(tmp_path):
    """A reader that waited for the thread opened it again, and nobody closed it."""
    measure(tmp_path, [("a", 1, 0.5)])

    async def close_beside(metrics, thread):
        busy = threading.Event()
        thread.submit(busy.wait)
        reading = asyncio.ensure_future(metrics.series("a", 0))
        await asyncio.sleep(0)
        closing = asyncio.ensure_future(metrics.close())
        await asyncio.sleep(0)
        busy.set()
        await closing
        return await reading

    with ThreadPoolExecutor(1) as thread:
        store = MetricsStore(tmp_path, thread)
        series = asyncio.run(close_beside(RunMetrics("r", store), thread))

    assert [point[:2] for point in series] == [(1, 0.5)]
    assert store._connection is None


def test_a_close_that_was_canceled_before_its_turn_is_made_up_for(tmp_path):
    async def close_twice(metrics, thread):
        await metrics.add([("a", 1, 0.5)])
        busy = threading.Event()
        thread.submit(busy.wait)
        closing = asyncio.ensure_future(metrics.close())
        await asyncio.sleep(0)
        closing.cancel()
        with pytest.raises(asyncio.CancelledError):
            await closing
        busy.set()
        await metrics.close()

    with ThreadPoolExecutor(1) as thread:
        store = MetricsStore(tmp_path, thread)
        asyncio.run(close_twice(RunMetrics("r", store), thread))

    assert store._connection is None


@pytest.mark.parametrize(
    "wrong", [("a", 1, math.nan), ("a", 1, math.inf), ("a", 1 << 64, 1.0), ("\ud800", 1, 1.0)]
)
def test_values_that_no_store_takes_are_left_out(tmp_path, wrong):
    latest, series = measure(tmp_path, [wrong, ("a", 2, 1.0)], [wrong])

    assert latest == {"a": (1.0, 2)}
    assert [point[:2] for point in series] == [(2, 1.0)]


def test_a_run_without_metrics_has_no_file(tmp_path):
    assert measure(tmp_path) == ({}, [])
    assert read_curves(tmp_path) == {}
    assert not list(tmp_path.iterdir())


def test_a_full_disk_is_a_warning_and_what_was_there_stays(tmp_path, caplog):
    async def work(metrics):
        await metrics.add([("a", 1, 0.5)])
        limits = resource.getrlimit(resource.RLIMIT_FSIZE)
        resource.setrlimit(resource.RLIMIT_FSIZE, (0, limits[1]))
        try:
            await metrics.add([("a", 2, 0.75)])
        finally:
            resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        await metrics.add([("a", 3, 1.0)])
        return await metrics.series("a", 0)

    assert [step for step, _, _ in use(tmp_path, work)] == [1, 3]
    assert len(caplog.records) == 1
    assert "metrics of run r cannot be written" in caplog.text


@pytest.mark.parametrize("damage", [b"", b"SQLite format 3\0" + b"\xff" * 4_000, b"nonsense" * 99])
def test_a_store_that_cannot_be_read_at_all_begins_anew(path, tmp_path, damage, caplog):
    measure(tmp_path, [("a", 1, 0.5)])
    path.write_bytes(damage)
    latest, series = measure(tmp_path, [("a", 2, 0.75)])

    assert latest == {"a": (0.75, 2)}
    assert [point[:2] for point in series] == [(2, 0.75)]
    assert ("is replaced by what can be read of it" in caplog.text) == bool(damage)


def test_a_store_of_another_shape_begins_anew(path, tmp_path):
    with sqlite3.connect(path) as other:
        other.execute("CREATE TABLE series (something TEXT)")
    other.close()

    assert measure(tmp_path, [("a", 1, 0.5)])[1]
    assert (tmp_path / "metrics.damaged.sqlite").is_file()


def test_what_can_be_read_of_a_damaged_store_is_kept(path, tmp_path):
    store = MetricsStore(tmp_path)
    names = [f"m/{number:02d}" for number in range(20)]
    store.add((BEGAN + step, [(name, step, step / 7) for name in names]) for step in range(500))
    store.close()
    whole = read_curves(tmp_path)
    data = bytearray(path.read_bytes())
    page = data.rindex((BEGAN + 250).to_bytes(8, "big")) // 4_096
    data[page * 4_096 : (page + 1) * 4_096] = random.Random(0).randbytes(4_096)
    path.write_bytes(data)
    seen = [store.series(name, 0) for name in names]
    store.close()
    left = read_curves(tmp_path)

    assert len(whole) == len(names)
    assert 0.9 < sum(map(len, left.values())) / sum(map(len, whole.values())) < 1.0
    assert all(set(left[name]) <= set(whole[name]) for name in left)
    assert [len(one) for one in seen[-1:]] == [len(left[names[-1]])]
    assert (tmp_path / "metrics.damaged.sqlite").read_bytes() == bytes(data)


@pytest.mark.parametrize("kind", ["a pipe", "a directory", "a link"])
def test_what_is_no_plain_file_is_not_waited_for_nor_followed(path, tmp_path, kind, caplog):
    if kind == "a pipe":
        os.mkfifo(path)
    elif kind == "a directory":
        path.mkdir()
    else:
        measure(tmp_path, [("a", 1, 0.5)])
        path.symlink_to(path.rename(tmp_path / "elsewhere"))
    before = (tmp_path / "elsewhere").read_bytes() if kind == "a link" else b""

    assert measure(tmp_path, [("a", 2, 0.75)]) == ({"a": (0.75, 2)}, [])
    assert "metrics of run r cannot be written" in caplog.text
    assert kind != "a link" or (tmp_path / "elsewhere").read_bytes() == before


def test_every_report_that_was_added_outlives_a_process_that_is_killed(tmp_path):
    """The directory is taken as it is while the process has it open."""
    program = (
        "import sys, time; from pathlib import Path\n"
        "from arkml.server.metrics_store import MetricsStore\n"
        "store = MetricsStore(Path(sys.argv[1]))\n"
        "for at in range(1, 1_000_000):\n"
        "    store.add([(at, [(f'm{n}', at, 1.0 * n) for n in range(50)])])\n"
        "    print(at, flush=True)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, tmp_path], stdout=subprocess.PIPE, text=True
    ) as process:
        for _ in range(300):
            last = int(process.stdout.readline())
        process.kill()
        last = max([last, *map(int, process.stdout.read().split())])
    curves = read_curves(tmp_path)

    assert set(map(len, curves.values())) <= {last, last + 1}
    assert len(set(map(len, curves.values()))) == 1
    assert len(curves) == 50


def test_curves_are_read_while_they_are_written_and_where_nothing_can_be(tmp_path):
    store = MetricsStore(tmp_path)
    store.add([(BEGAN, [("a", 1, 0.5)])])
    meanwhile = read_curves(tmp_path)
    store.close()
    copy = shutil.copytree(tmp_path, tmp_path / "copy")
    copy.chmod(0o500)

    assert meanwhile == read_curves(copy) == {"a": [(1.0, 0.5)]}
    copy.chmod(0o700)


def test_sql_thins_as_the_events_of_tensorboard_are_thinned(tmp_path):
    """Names with values that are alike, equal at times, and all the same."""
    source = random.Random(1)
    reports = [
        (
            BEGAN + number * 7 * SECOND,
            [("a", number, source.gauss(0, 1)), ("b", number, float(source.randrange(3))),
             ("c", number, 1.0)],
        )
        for number in range(500)
    ]  # fmt: skip
    store = MetricsStore(tmp_path)
    store.add(reports)
    store.thin(BEGAN + 3 * HOUR)
    store.close()
    expected: dict[str, list] = {}
    for _, points in thin(reports, MINUTE):
        for name, step, value in points:
            expected.setdefault(name, []).append((float(step), value))

    assert read_curves(tmp_path) == expected


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
    tmp_path, clock
):
    async def work(metrics):
        await play(metrics, clock, 0, 30 * 3_600, 40)
        return await metrics.series("a", 0), await metrics.series("b", 0), metrics

    series, rising, metrics = use(tmp_path, work)
    ages = [(clock.wall - at) / SECOND for _, _, at in series]
    young = [age for age in ages if age < 3_600]
    minutes = [age for age in ages if 4_800 < age < 86_400 - 3_600]

    assert len(young) == 3_600 / 40
    assert 0 < len(minutes) <= 2 * (86_400 - 3_600 - 4_800) / 60
    assert sum(age > 86_400 + 2 * 3_600 + 1_200 for age in ages) <= 3 * 3 * 4
    assert max(value for _, value, _ in series) == 1_000.0
    assert [step for step, _, _ in rising] == sorted(step for step, _, _ in rising)
    assert metrics.latest["b"] == (30 * 3_600.0 - 40, 30 * 3_600 - 40)


def test_a_process_that_begins_again_thins_on(tmp_path, clock):
    async def work(metrics):
        await play(metrics, clock, 0, 2 * 3_600, 10)
        return await metrics.series("b", 0)

    async def on(metrics):
        await play(metrics, clock, 2 * 3_600, 4 * 3_600, 10)
        return await metrics.series("b", 0)

    before, after = use(tmp_path, work), use(tmp_path, on)

    assert set(after) < {*before, *after[-720:]}
    assert [step for step, _, _ in after] == sorted({step for step, _, _ in after})
    assert after[-1][0] == 4 * 3_600 - 10


def test_a_clock_that_is_set_back_leaves_curves_in_order(tmp_path, clock):
    async def work(metrics):
        await play(metrics, clock, 0, 300, 30)
        clock.wall -= 7 * 86_400 * SECOND
        await play(metrics, clock, 300, 600, 30)
        return await metrics.series("a", 0)

    times = [at for _, _, at in use(tmp_path, work)]

    assert times == sorted(times)
    assert times[-1] - times[0] == 570 * SECOND


def test_a_journal_beside_a_store_is_refused_and_deletes_nothing(path, tmp_path):
    measure(tmp_path, [("loss", 1, 1.0)])
    victim = tmp_path / "victim"
    victim.write_text("kept")
    write_hot_journal(path, victim)

    with closing(MetricsStore(tmp_path)) as store, pytest.raises(OSError, match="-journal"):
        store.latest()
    with pytest.raises(OSError, match="-journal"):
        read_store(tmp_path)
    assert victim.read_text() == "kept"


def test_a_store_with_foreign_tables_is_set_aside_unread(path, tmp_path):
    with closing(sqlite3.connect(path)) as made:
        made.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE n(id) AS (SELECT 1 UNION ALL SELECT id FROM n)"
            " SELECT id FROM n"
        )
        made.commit()

    with pytest.raises(sqlite3.DatabaseError, match="foreign tables"):
        read_store(tmp_path)
    measure(tmp_path, [("loss", 1, 1.0)])
    with closing(MetricsStore(tmp_path)) as store:
        assert store.latest()
