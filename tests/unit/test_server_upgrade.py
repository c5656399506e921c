"""Data of older releases: upgraded in place, with what changes kept beside."""

import json
import os
from contextlib import closing

import pytest

from arkml.errors import HiveError
from arkml.hive.protocol.reports import MINUTE, SECOND
from arkml.hive.protocol.runs import DOCUMENT_NAME
from arkml.server.metrics_store import MetricsStore, read_curves
from arkml.server.upgrade import DATA_VERSION, STEPS, VersionStep, upgrade_run, upgraded


class Killed(BaseException):
    """The end of the process."""


def lines_in_capitals(directory):
    path = directory / "notes.txt"
    path.write_text(path.read_text().upper())


OLDEST = {"id": "abc", "started_at": 2_000_000_000, "ended_at": 9_500_000_000}
NEXT = {
    **STEPS,
    DATA_VERSION: VersionStep(
        lambda values: {**values, "rows": values["rows"] + 1}, ("*.txt",), lines_in_capitals
    ),
}
"""The steps of a later release, which has changed the notes of runs."""


@pytest.fixture
def run(tmp_path):
    directory = tmp_path / "abc"
    directory.mkdir()
    (directory / DOCUMENT_NAME).write_text(json.dumps(OLDEST | {"version": 1, "rows": 5}))
    (directory / "notes.txt").write_text("a note")
    (directory / "rows.bin").write_bytes(b"rows")
    return directory


def document(directory):
    return json.loads((directory / DOCUMENT_NAME).read_text())


def test_a_run_of_an_older_version_goes_through_all_steps(run):
    before = (run / DOCUMENT_NAME).read_bytes()
    was_changed = upgrade_run(run, NEXT)
    kept = run / "version-1"

    assert was_changed
    assert document(run) == {
        **OLDEST, "version": DATA_VERSION + 1, "rows": 6, "owner": "", "creator": None,
        "lasted": 7.5,
    }  # fmt: skip
    assert (run / "notes.txt").read_text() == "A NOTE"
    assert (kept / DOCUMENT_NAME).read_bytes() == before
    assert (kept / "notes.txt").read_text() == "a note"
    assert sorted(path.name for path in kept.iterdir()) == ["notes.txt", DOCUMENT_NAME]


def test_a_document_without_a_version_is_of_the_first_one():
    after = {"owner": "", "creator": None, "lasted": 7.5, "version": DATA_VERSION}
    assert upgraded(OLDEST) == OLDEST | after


@pytest.mark.parametrize("ended_at", [0, 1_999_999_999])
def test_a_run_that_has_not_ended_or_ended_before_it_began_has_lasted_no_time(ended_at):
    """The clock of its machine may have been set meanwhile."""
    assert upgraded(OLDEST | {"ended_at": ended_at})["lasted"] == 0.0


def test_a_run_of_this_version_is_left_alone(run):
    upgrade_run(run)
    before = {path: path.stat().st_mtime_ns for path in run.rglob("*")}

    assert not upgrade_run(run)
    assert {path: path.stat().st_mtime_ns for path in run.rglob("*")} == before


def test_a_run_of_a_newer_version_is_left_alone(run):
    upgrade_run(run, NEXT)
    before = (run / DOCUMENT_NAME).read_bytes()

    assert not upgrade_run(run)
    assert (run / DOCUMENT_NAME).read_bytes() == before


def test_what_is_kept_of_a_link_is_the_link(run, tmp_path):
    (tmp_path / "secret").write_text("a secret")
    (run / "more.txt").symlink_to(tmp_path / "secret")
    upgrade_run(run, NEXT)

    assert (run / "version-1" / "more.txt").is_symlink()


@pytest.mark.parametrize("moment", ["before the copies", "after them", "while files change"])
def test_an_upgrade_that_is_killed_is_made_again(run, monkeypatch, moment):
    def die(*_, **__):
        raise Killed

    before = (run / DOCUMENT_NAME).read_bytes()
    steps = dict(NEXT)
    with monkeypatch.context() as patched:
        match moment:
            case "before the copies":
                patched.setattr("shutil.copy2", die)
            case "after them":
                patched.setattr("arkml.server.upgrade.write_atomic", die)
            case _:
                steps[DATA_VERSION] = VersionStep(NEXT[DATA_VERSION].document, ("*.txt",), die)
        with pytest.raises(Killed):
            upgrade_run(run, steps)
    unchanged = (run / DOCUMENT_NAME).read_bytes()
    upgrade_run(run, NEXT)

    assert unchanged == before
    assert document(run)["version"] == DATA_VERSION + 1
    assert (run / "notes.txt").read_text() == "A NOTE"
    assert (run / "version-1" / "notes.txt").read_text() == "a note"
    assert (run / "version-1" / DOCUMENT_NAME).read_bytes() == before


@pytest.mark.parametrize("version", [0, -1, None, "1", 1.5, True])
def test_what_is_not_a_version_is_refused_and_left_alone(run, version):
    (run / DOCUMENT_NAME).write_text(json.dumps({"version": version, "id": "abc"}))
    before = (run / DOCUMENT_NAME).read_bytes()

    with pytest.raises(HiveError, match="upgrades those from version 1 on"):
        upgrade_run(run)
    assert (run / DOCUMENT_NAME).read_bytes() == before
    assert not (run / "version-1").exists()


def test_a_document_that_a_step_cannot_read_is_refused(run):
    (run / DOCUMENT_NAME).write_text(json.dumps({"version": DATA_VERSION, "id": "abc"}))

    with pytest.raises(HiveError, match=r"cannot be upgraded: KeyError\('rows'\)"):
        upgrade_run(run, NEXT)


BEGAN = 1_800_000_000 * SECOND
HISTOGRAM = [10, [["a", [0, 0, [1, 2]], -1.0, 3.5, 0.25]]]
"""What the releases before kept for one histogram: the rows of the run then, and it."""


def line(at, *points):
    return json.dumps([at, points]).encode() + b"\n"


@pytest.fixture
def old_run(run):
    """A run of version 2: one that was killed between two of its files, whose lines are damaged."""
    (run / DOCUMENT_NAME).write_text(json.dumps(OLDEST | {"version": 2, "rows": 5}))
    old = line(BEGAN, ["a", 1, 0.5], ["b", 1, 7])
    minutes = line(BEGAN + MINUTE, ["a", 2, 1.5])
    recent = [
        line(BEGAN + MINUTE - SECOND, ["a", 2, 1.25]),  # it was thinned, and not deleted yet
        b'[1, [["a", Infinity, 1]]]\n', b"[\xff\n", b"[" * 9_999 + b"\n", line(1.5), b"7\n",
        line(BEGAN + 2 * MINUTE, ["a", 3, 2.5], ["a", 1 << 70, 1], ["\ud800", 1, 1]),
        b'[1, [["a", 2',
    ]  # fmt: skip
    (run / "metrics.old.jsonl").write_bytes(old)
    (run / "metrics.minutes.jsonl").write_bytes(minutes)
    (run / "metrics.jsonl").write_bytes(b"".join(recent))
    (run / "histograms.jsonl").write_text(json.dumps([BEGAN, HISTOGRAM]) + "\nnothing\n")
    return run


def histograms(run):
    with closing(MetricsStore(run)) as store:
        return list(store.histograms())


CURVES = {"a": [(1.0, 0.5), (2.0, 1.5), (3.0, 2.5)], "b": [(1.0, 7.0)]}


def test_metrics_in_files_of_lines_are_moved_to_the_store(old_run):
    lines = {path.name: path.read_bytes() for path in old_run.glob("*.jsonl")}
    was_changed = upgrade_run(old_run)
    kept = {path.name: path.read_bytes() for path in (old_run / "version-2").glob("*.jsonl")}
    [(at, (rows, [histogram]))] = histograms(old_run)

    assert was_changed
    assert read_curves(old_run) == CURVES
    assert (at, rows, histogram.name, histogram.bins.counts) == (BEGAN, 10, "a", [1, 2])
    assert kept == lines
    assert not list(old_run.glob("*.jsonl"))


def test_metrics_that_were_moved_by_half_are_there_once(old_run, monkeypatch):
    def die(*_, **__):
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr("arkml.server.old_reports._parse_histograms", die)
        with pytest.raises(Killed):
            upgrade_run(old_run)
    by_half = document(old_run)["version"], sorted(path.name for path in old_run.glob("*.jsonl"))
    upgrade_run(old_run)

    assert by_half == (2, ["histograms.jsonl"])
    assert read_curves(old_run) == CURVES
    assert len(histograms(old_run)) == 1


def test_a_pipe_in_the_place_of_a_file_of_lines_is_left_there(old_run, caplog):
    (old_run / "metrics.minutes.jsonl").unlink()
    os.mkfifo(old_run / "metrics.minutes.jsonl")
    upgrade_run(old_run)

    assert [step for step, _ in read_curves(old_run)["a"]] == [1.0, 2.0, 3.0]
    assert "not a plain file" in caplog.text
