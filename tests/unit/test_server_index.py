"""The index and the metrics that it copies."""

import asyncio
import json

import pytest

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
