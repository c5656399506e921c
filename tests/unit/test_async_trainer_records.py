"""Records, their summaries, and recorders."""

from datetime import datetime

import numpy as np
import pytest
from tensorboardX.proto.event_pb2 import Event
from tests.async_parts import LearnerAgent, LearnerConfig

from arkml.async_trainer.core import (
    BufferedRecorder,
    LrrError,
    NullRecorder,
    Record,
    RecordStorage,
    TensorBoardRecorder,
)
from arkml.errors import UsageError

NOON = datetime(2024, 5, 1, 12)
VALUES = Record(
    {
        "loss": 0.5,
        "name": "run",
        "began": NOON,
        "row": [1, 2],
        "image": np.zeros((2, 3)),
        "film": np.zeros((4, 2, 3), np.uint8),
    }
)
GETTERS = {
    "loss": "get_scalar",
    "name": "get_string",
    "began": "get_datetime",
    "row": "get_array1",
    "image": "get_array2",
    "film": "get_array3",
}


@pytest.mark.parametrize("name", GETTERS)
def test_a_value_is_got_by_the_getter_of_its_type_and_no_other(name):
    for other, getter in GETTERS.items():
        get = getattr(VALUES, getter)
        if other == name:
            assert np.array_equal(get(name), VALUES.get(name))
        else:
            with pytest.raises(LrrError, match=f"the value '{name}' of a record is .*, not a"):
                get(name)


@pytest.mark.parametrize("getter", GETTERS.values())
def test_a_name_that_is_missing_is_refused_with_those_that_are_there(getter):
    with pytest.raises(LrrError, match="a record of 'loss' has no value 'los'"):
        getattr(Record.from_scalar("loss", 1), getter)("los")


@pytest.mark.parametrize("value", [None, object(), np.zeros((1, 1, 1, 1)), ["a"]])
def test_a_record_refuses_values_of_other_types(value):
    with pytest.raises(UsageError, match="the value 'x' of a record"):
        Record({"x": value})


def test_a_merged_record_keeps_both_and_the_later_wins():
    first, second = Record({"a": 1, "b": 2}), Record({"b": 3, "c": 4})
    merged = first.merge(second)
    first.merge_inplace(second)

    assert list(merged) == list(first) == [("a", 1.0), ("b", 3.0), ("c", 4.0)]
    assert len(second) == 2


def test_the_only_number_is_got_without_its_name():
    assert Record.from_scalar("score", 3).get_scalar_without_key() == 3.0
    assert Record.from_slice([("a", 1), ("b", 2)]).get_scalar_without_key() is None
    assert Record({"a": "text"}).get_scalar_without_key() is None
    assert Record.empty().get_scalar_without_key() is None
    assert Record.empty().is_empty
    assert not VALUES.is_empty


def test_stored_numbers_are_summarized_and_of_other_values_the_last_is_kept():
    storage = RecordStorage()
    for loss, name in ((4.0, "a"), (1.0, "b"), (1.5, "c"), (0.5, "d")):
        storage.store(Record({"loss": loss, "name": name}))
    storage.store(Record({"row": [1.0]}))
    whole = storage.aggregate()

    assert list(whole) == [
        ("loss_min", 0.5),
        ("loss_max", 4.0),
        ("loss_mean", 1.75),
        ("loss_median", 1.25),
        ("name", "d"),
        ("row", np.array([1.0], np.float32)),
    ]
    assert storage.aggregate().is_empty


def test_a_name_with_values_of_two_types_is_not_summarized():
    storage = RecordStorage()
    storage.store(Record({"loss": 1.0}))
    storage.store(Record({"loss": "one"}))

    with pytest.raises(LrrError, match=r"the value 'loss' of a record is 1\.0, not a str"):
        storage.aggregate()


def test_a_number_that_is_not_one_makes_its_summary_so():
    storage = RecordStorage()
    storage.store(Record({"loss": 1.0}))
    storage.store(Record({"loss": float("nan")}))

    assert all(np.isnan(value) for _, value in storage.aggregate())


def test_a_buffered_recorder_keeps_records_and_summaries():
    recorder = BufferedRecorder()
    recorder.write(Record({"a": 1}))
    recorder.store(Record({"b": 2}))
    recorder.store(Record({"b": 4}))
    recorder.flush(7)
    recorder.flush(8)

    assert len(recorder.records) == 2
    written, summary = recorder
    assert list(written) == [("a", 1.0)]
    assert summary.get_scalar("b_mean") == 3.0
    assert summary.get_scalar("step") == 7.0


def test_a_null_recorder_drops_records():
    recorder = NullRecorder()
    recorder.write(Record({"a": 1}))
    recorder.store(Record({"b": 2}))

    recorder.flush(1)


def test_a_recorder_with_a_directory_keeps_models(tmp_path):
    recorder = NullRecorder(tmp_path)
    agent, other = LearnerAgent(LearnerConfig(first=5)), LearnerAgent(LearnerConfig())
    files = recorder.save_model("best", agent)
    recorder.load_model("best", other)

    assert files == [tmp_path / "best" / "agent.json"]
    assert other.n_opts == 5
    with pytest.raises(UsageError, match="there is no model 'last'"):
        recorder.load_model("last", other)


def test_a_recorder_without_a_directory_keeps_no_models():
    assert NullRecorder().save_model("best", LearnerAgent(LearnerConfig())) == []


def test_numbers_are_written_as_events_of_tensorboard(tmp_path):
    recorder = TensorBoardRecorder(tmp_path)
    recorder.write(Record({"score": 2.5, "name": "left out", "nan": float("nan")}))
    recorder.store(Record({"loss": 1.0}))
    recorder.flush(30)

    points = [
        (event.step, value.tag, value.simple_value)
        for event in events(tmp_path)
        for value in event.summary.value
    ]
    assert points == [
        (0, "score", 2.5),
        (30, "loss_min", 1.0),
        (30, "loss_max", 1.0),
        (30, "loss_mean", 1.0),
        (30, "loss_median", 1.0),
    ]


def events(directory):
    """The events of the one file in a directory: each has its length, two sums and its bytes."""
    (path,) = directory.iterdir()
    data, found = path.read_bytes(), []
    while data:
        length = int.from_bytes(data[:8], "little")
        found.append(Event.FromString(data[12 : 12 + length]))
        data = data[16 + length :]
    return found
