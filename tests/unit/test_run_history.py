"""Events and logs of a run: kept over restarts, bounded, damaged lines left out."""

import os

import pytest

from arkml.errors import HiveRefused
from arkml.hive.protocol.page_messages import ModuleReport
from arkml.hive.protocol.rows import Place
from arkml.hive.protocol.runs import Best, Status
from arkml.server.curve_reader import read_names
from arkml.server.history import HISTORY_NAME, RunHistory
from arkml.server.learner_events import CheckpointSaved, LearnerStarted
from arkml.server.learner_log import FORMER_NAME, LOG_NAME, append_line, last_lines

BEGUN = LearnerStarted(Place(0, 0), 8, "cpu", 1)


def test_events_are_kept_over_restarts(tmp_path):
    history = RunHistory(tmp_path)
    for event in (BEGUN, CheckpointSaved(9), BEGUN):
        history.note(event)
    history.add("warning", "the learner ended", "restarted")
    history.note_best(Best("evaluation", 1.5, 3, 9))
    history.note_stop(Status.STOPPED, "")
    again = RunHistory(tmp_path)

    assert [one.kind for one in again.entries] == [
        "started", "checkpoint", "restart", "warning", "best", "stopped",
    ]  # fmt: skip
    assert again.entries == history.entries
    assert (history.total, again.total) == (6, 0)
    assert [one.kind for one in history.newest(2)] == ["best", "stopped"]
    assert history.newest(0) == []
    assert [one.about for one in again.entries] == [None, None, None, "restarted", None, None]
    assert history.since(history.entries[3].at) == history.entries[4:]


def test_the_end_of_a_run_that_is_aborted_is_for_people_who_are_away(tmp_path):
    history = RunHistory(tmp_path)

    assert history.note_stop(Status.STOPPED, "").about is None
    assert history.note_stop(Status.ABORTED, "no memory").about == "aborted"


@pytest.mark.parametrize(
    ("report", "text"),
    [
        (
            ModuleReport("a" * 64, "b" * 64, "kept"),
            "the guest is bbbbbbbbbbbb after aaaaaaaaaaaa: its state was kept",
        ),
        (
            ModuleReport("a" * 64, "b" * 64, "anew"),
            "the guest is bbbbbbbbbbbb after aaaaaaaaaaaa: its state begins anew",
        ),
        (
            ModuleReport("b" * 64, "a" * 64, None, "it trapped"),
            "the guest goes back from bbbbbbbbbbbb to aaaaaaaaaaaa: it trapped",
        ),
    ],
)
def test_a_rebuilt_module_is_an_event_with_both_hashes_and_the_way_of_its_state(
    tmp_path, report, text
):
    RunHistory(tmp_path).note_module(report)
    (kept,) = RunHistory(tmp_path).entries

    assert (kept.kind, kept.text) == ("module", text)


def test_pipes_in_the_place_of_files_are_not_waited_for(tmp_path, caplog):
    for name in (HISTORY_NAME, LOG_NAME):
        os.mkfifo(tmp_path / name)
    history = RunHistory(tmp_path)
    history.note(BEGUN)
    append_line(tmp_path, b"one\n")

    assert [one.kind for one in history.entries] == ["started"]
    assert "not a plain file" in caplog.text
    with pytest.raises(OSError, match="not a plain file"):
        last_lines(tmp_path, 10)


def test_a_long_history_keeps_its_end(tmp_path):
    history = RunHistory(tmp_path)
    for number in range(2_500):
        history.add("checkpoint", str(number))

    assert len((tmp_path / HISTORY_NAME).read_text().splitlines()) <= 1_000
    assert RunHistory(tmp_path).entries[-1].text == "2499"
    assert len(RunHistory(tmp_path).entries) == 500


def test_damaged_lines_and_long_texts_do_no_harm(tmp_path):
    RunHistory(tmp_path).add("warning", "x" * 10_000)
    with (tmp_path / HISTORY_NAME).open("ab") as file:
        file.write(b'{"at": -1}\n\xff\xfe\n{"at": 1, "kind": "worst", "text": ""}\n{"at')
    [entry] = RunHistory(tmp_path).entries

    assert entry.text == "x" * 500


def test_a_history_that_cannot_be_written_stays_in_memory(tmp_path):
    (tmp_path / HISTORY_NAME).mkdir()
    history = RunHistory(tmp_path)
    history.add("best", "1")

    assert [one.text for one in history.entries] == ["1"]


def test_a_log_stays_small_and_ends_with_its_last_lines(tmp_path):
    line = b"x" * 1_000 + b"\n"
    for number in range(2_600):
        append_line(tmp_path, b"%d " % number + line)
    lines, is_whole = last_lines(tmp_path, 2_000)

    assert lines[-1].startswith("2599 ")
    assert len(lines) > 1_000
    assert not is_whole or len(lines) < 2_000
    sizes = [(tmp_path / name).stat().st_size for name in (LOG_NAME, FORMER_NAME)]
    assert sum(sizes) < 3 << 20


def test_controls_in_a_log_are_shown(tmp_path):
    append_line(tmp_path, b"\x1b[31mred\xff\n")

    assert last_lines(tmp_path, 10) == (["\\x1b[31mred\ufffd"], True)
    assert last_lines(tmp_path / "other", 10) == ([], True)


def test_names_of_curves_may_have_commas():
    assert read_names("a,b/c") == ["a", "b/c"]
    assert read_names('["a,b", "]"]') == ["a,b", "]"]
    assert read_names("") == []
    for wrong in ("[1]", "[", '["a", null]', "[[" * 5_000, ",".join("a" * 300), '["\\ud800"]'):
        with pytest.raises(HiveRefused):
            read_names(wrong)
