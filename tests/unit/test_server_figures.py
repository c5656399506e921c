"""What a hive keeps and says of histograms, of sessions, and of the machine that learners use."""

import asyncio
import os
import sqlite3
import time
from contextlib import closing, contextmanager

import pytest

from arkml.hive.protocol.histograms import Bins, Histogram, HistogramInfo
from arkml.hive.protocol.reports import HOUR, SECOND
from arkml.hive.protocol.result_messages import EvaluationReport
from arkml.hive.protocol.rows import Header
from arkml.hive.protocol.runs import Role
from arkml.server.histogram_files import RunHistograms
from arkml.server.metrics import UnrecordedPoints, evaluation_points
from arkml.server.metrics_store import MetricsStore
from arkml.server.session_figures import PACE_SECONDS, SessionCounts, SessionFigures
from arkml.server.sessions import Sessions
from arkml.server.usage import CpuShares, cpu_seconds_of, learner_points

WIDE, NARROW = Bins(1, 0, [3, 1]), Bins(0, -1, [2, 0, 5])


def histogram(name, bins=WIDE):
    return Histogram(name, bins, -1.0, 3.5, 0.25)


@contextmanager
def opened(directory):
    with closing(MetricsStore(directory)) as store:
        yield RunHistograms("r", store)


@contextmanager
def kept(directory, *reports):
    with opened(directory) as histograms:

        async def add():
            for rows, made in reports:
                await histograms.add(rows, made)

        asyncio.run(add())
        yield histograms


def ask(histograms, name="", since=0):
    return asyncio.run(histograms.reply(name, since))


def test_histograms_come_back_by_name_with_common_edges(tmp_path):
    reports = (
        (10, [histogram("features/10"), histogram("features/2", NARROW)]),
        (20, [histogram("features/2", WIDE), histogram("actions/0")]),
    )
    with kept(tmp_path, *reports) as histograms:
        reply = ask(histograms, "features/2")

    assert reply.histograms == [
        HistogramInfo(name, -1.0, 3.5, 0.25) for name in ("actions/0", "features/2", "features/10")
    ]
    assert reply.rows == [10, 20]
    assert reply.times == sorted(reply.times)
    assert reply.edges == [-2.0, 0.0, 2.0, 4.0]
    assert reply.counts == [[2, 5, 0], [0, 3, 1]]


def test_histograms_are_there_after_a_restart_and_from_a_row_on(tmp_path):
    with kept(tmp_path, (10, [histogram("a")]), (20, [histogram("a")])):
        pass
    with kept(tmp_path, (30, [histogram("a")])) as again:
        rows, later = ask(again, "a").rows, ask(again, "a", since=20).rows

    assert rows == [10, 20, 30]
    assert later == [20, 30]


def test_an_unknown_name_and_a_run_without_rows_have_no_histogram(tmp_path):
    with kept(tmp_path) as histograms:
        empty = ask(histograms)
    with kept(tmp_path, (1, [histogram("a")])) as histograms:
        unknown = ask(histograms, "b")

    assert (empty.histograms, empty.edges) == ([], [])
    assert [one.name for one in unknown.histograms] == ["a"]
    assert (unknown.times, unknown.counts) == ([], [])


def test_damaged_reports_are_passed_over(tmp_path):
    with kept(tmp_path, (10, [histogram("a")])):
        pass
    with closing(sqlite3.connect(tmp_path / "metrics.sqlite")) as store, store:
        wrong = [(1, 2, b'["x"]'), (2, 2, b"\xff"), (3, 2, b"[17"), (4, 2, "17")]
        store.executemany("INSERT INTO histograms VALUES (?, ?, ?)", wrong)
    with kept(tmp_path, (20, [histogram("a")])) as again:
        rows = ask(again, "a").rows

    assert rows == [10, 20]


def test_histograms_of_hours_ago_are_added_up(tmp_path, monkeypatch):
    passed = [1_800_000_000 * SECOND]
    monkeypatch.setattr(time, "time_ns", lambda: passed[0])
    monkeypatch.setattr(time, "monotonic_ns", lambda: passed[0])

    async def play(histograms):
        for minute in range(5 * 60):
            passed[0] += 60 * SECOND
            await histograms.add(minute, [histogram("a")])

    with opened(tmp_path) as histograms:
        asyncio.run(play(histograms))
        reply = ask(histograms, "a")
    young = [at for at in reply.times if passed[0] - at < HOUR]

    assert len(young) == 60
    assert len(reply.times) < 60 + 10 + 4 * 6 + 2
    assert sum(map(sum, reply.counts)) == 5 * 60 * sum(WIDE.counts)


def test_a_disk_that_takes_nothing_is_a_warning(tmp_path, caplog):
    (tmp_path / "metrics.sqlite").mkdir()
    with opened(tmp_path) as histograms:
        asyncio.run(histograms.add(1, [histogram("a")]))

    assert "histograms of run r cannot be written" in caplog.text


def test_sessions_are_told_with_their_rows_and_their_lag():
    figures, sessions = SessionFigures(), Sessions([])
    first, second = (sessions.add(f"key number {n}", Role.ACT) for n in range(2))
    second.left = True
    counts = {0: SessionCounts().plus(Header(1, 100, 3, 2, dropped=7), 5)}
    now = time.monotonic()
    figures.publish(3, now - 8.0)
    for second_ago in (30, 4, 3, 2):
        figures.count(0, 50, 3, now - second_ago)
    one, other = figures.infos(sessions, counts, newest=5, lease=60.0, now=now)

    assert (one.index, one.role, one.alive, other.alive) == (first.index, "act", True, False)
    assert (one.rows, one.refused, one.dropped) == (100, 5, 7)
    assert one.rows_per_second == 3 * 50 / PACE_SECONDS
    assert (one.policy_version, one.lag) == (3, 2)
    assert one.policy_seconds == pytest.approx(8.0)
    assert (other.rows, other.rows_per_second, other.policy_version, other.lag) == (0, 0.0, 0, 0)


def test_a_session_that_has_just_begun_counts_from_its_first_rows():
    figures, sessions = SessionFigures(), Sessions([])
    sessions.add("key number 0", Role.ACT)
    now = time.monotonic()
    figures.count(0, 50, 0, now - 2.0)
    (one,) = figures.infos(sessions, {}, newest=5, lease=60.0, now=now)

    assert one.rows_per_second == pytest.approx(25.0, rel=0.01)
    assert (one.policy_version, one.lag, one.policy_seconds) == (0, 0, 0.0)


def test_the_pace_of_the_sessions_is_kept_that_have_sent_rows_last():
    figures, sessions = SessionFigures(), Sessions([])
    for number in range(3_000):
        sessions.add(f"key number {number}", Role.ACT)
        for index in (0, number):
            figures.count(index, 1, 7, 100.0)
    assert len(figures._paces) == 1_024
    infos = figures.infos(sessions, {}, newest=7, lease=60.0, now=100.0)

    assert [one.index for one in infos if one.policy_version == 7] == [0, *range(1_977, 3_000)]


def test_a_session_of_before_the_restart_has_not_been_seen_yet():
    sessions = Sessions([])
    sessions.add("key number 0", Role.ACT).seen = float("-inf")
    (one,) = SessionFigures().infos(sessions, {}, newest=0, lease=60.0, now=time.monotonic())

    assert (one.idle_seconds, one.alive) == (None, False)
    assert one.from_json(one.as_json()) == one


def test_processor_time_is_that_of_the_process():
    before = cpu_seconds_of(os.getpid())
    while time.process_time() < before + 0.2:
        sum(range(1_000))

    assert cpu_seconds_of(os.getpid()) >= before + 0.1
    assert cpu_seconds_of(2**22 + 1) is None  # beyond any process


def test_pages_that_ask_again_get_the_same_reply_until_there_is_a_report(tmp_path):
    async def asked(histograms):
        await histograms.add(1, [histogram("features/0")])
        first = await histograms.reply("features/0", 0)
        again = await histograms.reply("features/0", 0)
        await histograms.add(2, [histogram("features/0")])
        return first, again, await histograms.reply("features/0", 0)

    with opened(tmp_path) as histograms:
        first, again, then = asyncio.run(asked(histograms))

    assert first is again
    assert (first.rows, then.rows) == ([1], [1, 2])


def test_the_first_measurement_of_a_process_has_no_share():
    shares = CpuShares()
    first = dict(learner_points(shares, os.getpid(), 5, 6))
    second = dict(learner_points(shares, os.getpid(), 5, 6))
    another = dict(learner_points(shares, os.getppid(), 5, 6))

    assert first == another == {"system/memory_bytes": 5.0, "system/disk_bytes": 6.0}
    assert second["system/cpu_share"] >= 0.0


def test_points_wait_for_a_learner():
    sent, is_there = [], []
    unrecorded = UnrecordedPoints(
        lambda kind, points: bool(is_there) and not sent.append((kind, points))
    )
    unrecorded.add([("a", 1, 0.5)])
    before = list(sent)
    is_there.append(True)
    unrecorded.add([("a", 2, 0.5)])

    assert before == []
    assert sent == [("record", [("a", 1, 0.5)]), ("record", [("a", 2, 0.5)])]


def test_an_evaluation_has_a_success_rate_where_successes_are_known():
    report = EvaluationReport(1, [1.0, 3.0], [4.0, 6.0], [True, False], rows=50)
    names = [name for name, *_ in evaluation_points(EvaluationReport(1, [1.0], [4.0]), 70)]

    assert evaluation_points(report, 70) == [
        ("eval/mean_reward", 50, 2.0), ("eval/std_reward", 50, 1.0),
        ("eval/mean_ep_length", 50, 5.0), ("eval/success_rate", 50, 0.5),
    ]  # fmt: skip
    assert "eval/success_rate" not in names


async def test_replies_about_unknown_histograms_are_not_kept(tmp_path):
    with opened(tmp_path) as histograms:
        await histograms.add(10, [histogram("features/0")])
        for number in range(1, 50):
            unknown = await histograms.reply("x" * number, 0)
        known = await histograms.reply("features/0", 0)
        again = await histograms.reply("features/0", 0)

    assert [one.name for one in unknown.histograms] == ["features/0"]
    assert (unknown.times, known.rows) == ([], [10])
    assert again is known
    assert list(histograms._replies) == [("features/0", 0)]
