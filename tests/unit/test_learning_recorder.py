"""Events for TensorBoard, on disks with room and without."""

import resource
import struct

import pytest
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.record_writer import masked_crc32c

from arkml.learning.recorder import Recorder


def events(directory):
    """The events in the one file of a directory, each checked as TensorBoard does."""
    (path,) = directory.iterdir()
    data, found, at = path.read_bytes(), [], 0
    while at < len(data):
        size, length_sum = struct.unpack_from("<QI", data, at)
        body = data[at + 12 : at + 12 + size]
        (body_sum,) = struct.unpack_from("<I", data, at + 12 + size)
        assert (masked_crc32c(data[at : at + 8]), masked_crc32c(body)) == (length_sum, body_sum)
        found.append(Event.FromString(body))
        at += 16 + size
    return found


def told(event):
    return event.step, [(value.tag, value.simple_value) for value in event.summary.value]


@pytest.fixture
def limit():
    """Let this process write no file beyond a size."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    yield lambda size: resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    resource.setrlimit(resource.RLIMIT_FSIZE, before)


def test_values_are_written_under_their_tags_and_what_is_not_finite_has_none(tmp_path):
    recorder = Recorder(tmp_path / "events")
    points = recorder.record([("train/loss", 0.5), ("bad", float("nan")), ("a", 2.0)], 7)
    recorder.record([("bad", float("inf"))], 8)
    first, second = events(tmp_path / "events")

    assert points == [("train/loss", 7, 0.5), ("a", 7, 2.0)]
    assert first.file_version == "brain.Event:2"
    assert told(second) == (7, [("train/loss", 0.5), ("a", 2.0)])


def test_a_full_disk_loses_events_and_leaves_those_that_are_there(tmp_path, limit):
    recorder = Recorder(tmp_path / "events")
    recorder.record([("a", 1.0)], 1)
    (path,) = (tmp_path / "events").iterdir()
    limit(path.stat().st_size + 5)
    points = [recorder.record([("a", 2.0)], step) for step in range(2, 40)]
    limit(1 << 20)
    recorder.record([("a", 3.0)], 40)

    assert points[0] == [("a", 2, 2.0)]
    assert [told(event) for event in events(tmp_path / "events")[1:]] == [
        (1, [("a", 1.0)]),
        (40, [("a", 3.0)]),
    ]
