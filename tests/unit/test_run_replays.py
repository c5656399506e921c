"""The replays that a run keeps: the best, the worst and the latest, in files."""

from base64 import b64encode

import pytest
from tests.unit.shown_replays import document, submit

from arkml.errors import HiveRefused, ProtocolError
from arkml.hive.protocol.replay_messages import ReplayDocument, ReplayReport
from arkml.server.run_replays import RunReplays


@pytest.fixture
def replays(tmp_path):
    return RunReplays(tmp_path)


def report(version, score):
    """A replay whose guest is named by its version."""
    return ReplayReport.of(version, score, document([submit(["1"], [score])], guest=str(version)))


def versions(kept):
    return {one.kind: (one.version, one.score) for one in kept}


def test_the_highest_the_lowest_and_the_newest_are_kept_and_later_ones_of_equal_scores(replays):
    assert replays.kept() == []
    first = replays.keep(report(1, 2.0))
    assert versions(first) == {"best": (1, 2.0), "worst": (1, 2.0), "latest": (1, 2.0)}
    replays.keep(report(2, 5.0))
    replays.keep(report(3, 1.0))
    replays.keep(report(4, 5.0))
    last = replays.keep(report(5, 3.0))

    assert versions(last) == {"best": (4, 5.0), "worst": (3, 1.0), "latest": (5, 3.0)}
    assert all(one.at > 0 for one in last)
    shown = {one.kind: ReplayDocument.unpack(replays.read(one.kind)).guest for one in last}
    assert shown == {"best": "4", "worst": "3", "latest": "5"}


def test_they_are_there_after_a_restart(replays, tmp_path):
    replays.keep(report(7, 1.0))

    assert versions(RunReplays(tmp_path).kept())["best"] == (7, 1.0)


def test_what_is_not_a_document_is_refused_and_changes_nothing(replays):
    replays.keep(report(1, 1.0))
    before = replays.kept()
    packed = report(2, 9.0).packed()
    for wrong in ("", "***", b64encode(packed[:-9]).decode(), b64encode(b"{}").decode()):
        with pytest.raises(ProtocolError):
            replays.keep(ReplayReport(2, 9.0, wrong))

    assert replays.kept() == before


def test_a_file_that_is_damaged_is_left_out_and_written_anew(replays, tmp_path, caplog):
    replays.keep(report(1, 1.0))
    (tmp_path / "replays" / "best.replay").write_bytes(b"{" * 100)

    assert [one.kind for one in replays.kept()] == ["worst", "latest"]
    assert "is damaged, and left out" in caplog.text
    assert versions(replays.keep(report(2, 0.5)))["best"] == (2, 0.5)


def test_a_replay_that_there_is_not_is_refused(replays):
    with pytest.raises(HiveRefused, match="keeps no replay that is the best"):
        replays.read("best")


def test_nothing_is_read_through_a_link(replays, tmp_path):
    replays.keep(report(1, 1.0))
    secret = tmp_path / "secret"
    secret.write_bytes((tmp_path / "replays" / "best.replay").read_bytes())
    (tmp_path / "replays" / "best.replay").unlink()
    (tmp_path / "replays" / "best.replay").symlink_to(secret)

    for ask in (replays.kept, lambda: replays.read("best")):
        with pytest.raises(OSError, match=r"best\.replay"):
            ask()


def test_recorded_episodes_are_kept_by_version_and_the_oldest_of_nine_goes(replays):
    replays.keep(report(1, 2.0))
    for version in (5, 4, 3, 2, 6, 7, 8, 9):
        replays.keep_recorded(report(version, 1.0))
    replays.keep_recorded(report(3, 7.0))  # again
    last = replays.keep_recorded(report(10, 1.0))

    kept = [(one.kind, one.version) for one in replays.kept()]
    recorded = [("recorded", version) for version in (2, 3, 4, 6, 7, 8, 9, 10)]
    assert kept == [("best", 1), ("worst", 1), ("latest", 1), *recorded]
    assert last in replays.kept()
    assert ReplayDocument.unpack(replays.read("recorded", 3)).guest == "3"
    assert {one.version: one.score for one in replays.kept()}[3] == 7.0
    with pytest.raises(HiveRefused, match="recorded of version 5"):
        replays.read("recorded", 5)
    with pytest.raises(HiveRefused, match="version=N"):
        replays.read("recorded")
    with pytest.raises(ProtocolError):
        replays.keep_recorded(ReplayReport(11, 1.0, "***"))
