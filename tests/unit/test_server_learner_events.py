"""Messages of a learner as values, and the progress that follows from them."""

import pytest

from arkml.hive.protocol.histograms import Bins, Histogram
from arkml.hive.protocol.rows import Place
from arkml.server.learner_events import (
    CheckpointSaved,
    HistogramsMade,
    LearnerFailing,
    LearnerProgress,
    LearnerReply,
    LearnerStarted,
    MetricPoints,
    PolicyFile,
    Progress,
    read_message,
)

HELLO = {"kind": "hello", "pid": 7, "device": "cpu", "n_opts": 5, "cursor": [2, 30]}
REPORT = {
    "kind": "progress",
    "n_opts": 6,
    "cursor": [2, 90],
    "admits": 400,
    "hold": True,
    "turn_seconds": 0.5,
}
REPLY = {"kind": "reply", "req": 3, "held": 10}


@pytest.mark.parametrize(
    ("message", "value"),
    [
        (HELLO, LearnerStarted(Place(2, 30), 5, "cpu", 7)),
        (REPORT, LearnerProgress(Progress(Place(2, 90), 6, 400, holds=True), 0.5)),
        (
            {"kind": "policy", "file": "policies/1.onnx", "sha256": "ab", "n_opts": 6},
            PolicyFile("policies/1.onnx", "ab", 6),
        ),
        ({"kind": "metrics", "points": [["loss", 6, 1]]}, MetricPoints([("loss", 6, 1.0)])),
        (
            {"kind": "histograms", "rows": 6, "histograms": [["a", [0, 1, [2]], 1.0, 1.5, 0.0]]},
            HistogramsMade(6, [Histogram("a", Bins(0, 1, [2]), 1.0, 1.5, 0.0)]),
        ),
        ({"kind": "checkpoint", "file": "6.zip", "n_opts": 6}, CheckpointSaved(6)),
        (REPLY, LearnerReply(3, REPLY)),
        ({"kind": "fatal", "reason": "diverged", "retry": True}, LearnerFailing("diverged")),
        ({"kind": "unknown"}, None),
    ],
    ids=lambda value: value["kind"] if isinstance(value, dict) else "",
)
def test_each_kind_of_message_is_a_value(message, value):
    assert read_message(message) == value


@pytest.mark.parametrize(
    ("message", "field"),
    [(HELLO, "pid"), (HELLO, "device"), (HELLO, "n_opts"), (HELLO, "cursor"), (REPORT, "n_opts"),
     (REPORT, "cursor"), (REPORT, "admits"), (REPORT, "hold"), (REPLY, "req")],
)  # fmt: skip
def test_a_message_without_a_field_of_its_kind_is_refused(message, field):
    with pytest.raises(KeyError):
        read_message({name: value for name, value in message.items() if name != field})


@pytest.mark.parametrize("cursor", [None, [], [1], [1, 2, 3], ["x", 0], 5])
def test_a_cursor_that_is_not_a_position_is_refused(cursor):
    with pytest.raises((TypeError, ValueError)):
        read_message({**REPORT, "cursor": cursor})


@pytest.mark.parametrize("points", [None, 1, [1], [["loss", 6]], [["loss", "x", 1.0]]])
def test_points_that_are_not_metrics_are_refused(points):
    with pytest.raises((TypeError, ValueError)):
        read_message({"kind": "metrics", "points": points})


def test_a_learner_that_starts_holds_no_rows_back_and_admits_those_of_before():
    before = Progress(Place(9, 9), 90, 400, holds=True)

    assert before.after(read_message(HELLO)) == Progress(Place(2, 30), 5, 400, holds=False)


def test_a_report_replaces_the_progress_of_before():
    before = Progress(Place(9, 9), 90, 1_000)

    assert before.after(read_message(REPORT)) == Progress(Place(2, 90), 6, 400, holds=True)


def test_a_checkpoint_changes_nothing_but_the_number_of_updates():
    before = Progress(Place(1, 2), 3, 400, holds=True)

    assert before.after(CheckpointSaved(8)) == Progress(Place(1, 2), 8, 400, holds=True)
