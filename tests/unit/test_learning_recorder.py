"""Events for TensorBoard, on disks with room and without."""

import ast
import math
import resource
import struct
import time
from pathlib import Path

import pytest
from tensorboardX.proto.api_pb2 import Status
from tensorboardX.proto.event_pb2 import Event
from tensorboardX.proto.plugin_hparams_pb2 import HParamsPluginData
from tensorboardX.proto.summary_pb2 import Summary
from tensorboardX.record_writer import masked_crc32c
from tensorboardX.summary import scalar

from arkml.learning import event_messages as module
from arkml.learning.event_files import read_events
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


def plugin_data(event):
    """The tag and the content that an event has for the plugin hparams."""
    (value,) = event.summary.value
    assert value.metadata.plugin_data.plugin_name == "hparams"
    return value.tag, HParamsPluginData.FromString(value.metadata.plugin_data.content)


def test_settings_and_the_metric_they_led_to_are_written_for_the_plugin_hparams(tmp_path):
    settings = {"algorithm": "sac", "gamma": 0.99, "normalize": True, "hidden": 64}
    recorder = Recorder(tmp_path / "events", settings)
    recorder.record([("eval/mean_reward", -150.5)], 1_000)
    recorder.end()
    first, *told_of_hparams, last = events(tmp_path / "events")
    (experiment_tag, experiment), (start_tag, start) = map(plugin_data, told_of_hparams[:2])
    end_tag, end = plugin_data(last)
    hparams = start.session_start_info.hparams

    assert first.file_version == "brain.Event:2"
    assert experiment_tag == "_hparams_/experiment"
    assert [info.name for info in experiment.experiment.hparam_infos] == list(settings)
    assert [info.name.tag for info in experiment.experiment.metric_infos] == [
        "eval/mean_reward", "rollout/ep_rew_mean",
    ]  # fmt: skip
    assert start_tag == "_hparams_/session_start_info"
    assert (hparams["algorithm"].string_value, hparams["normalize"].bool_value) == ("sac", True)
    assert (hparams["gamma"].number_value, hparams["hidden"].number_value) == (0.99, 64.0)
    assert told(told_of_hparams[2]) == (1_000, [("eval/mean_reward", -150.5)])
    assert end_tag == "_hparams_/session_end_info"
    assert end.session_end_info.status == Status.Value("STATUS_SUCCESS")


def test_a_session_without_values_leaves_no_file(tmp_path):
    Recorder(tmp_path / "events", {"gamma": 0.99}).end()

    assert not (tmp_path / "events").exists()


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


def test_the_names_of_tensorboardx_that_are_not_in_its_documentation_are_these():
    """Another version fails here first."""
    tree = ast.parse(Path(module.__file__).read_text())
    names = {
        (node.module, alias.name)
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and node.module.startswith("tensorboardX")
        for alias in node.names
    }

    assert names == {
        ("tensorboardX.proto.event_pb2", "Event"),
        ("tensorboardX.proto.summary_pb2", "Summary"),
        ("tensorboardX.record_writer", "masked_crc32c"),
        ("tensorboardX.summary", "hparams"),
        ("tensorboardX.summary", "scalar"),
    }


def test_a_scalar_of_tensorboardx_is_one_value_as_it_is():
    (value,) = scalar("train/ent_coef_loss", 0.1).value

    assert value.tag == "train/ent_coef_loss"
    assert value.simple_value == pytest.approx(0.1)
    assert value.WhichOneof("value") == "simple_value"


def test_events_of_tensorboardx_have_the_fields_and_numbers_of_tensorflow():
    numbers = {f.name: f.number for f in Event.DESCRIPTOR.fields}
    values = Summary.Value.DESCRIPTOR.fields_by_name

    assert {name: numbers[name] for name in ("wall_time", "step", "file_version", "summary")} == {
        "wall_time": 1, "step": 2, "file_version": 3, "summary": 5,
    }  # fmt: skip
    assert (values["tag"].number, values["simple_value"].number) == (1, 2)


def test_the_checksum_of_tensorboardx_is_crc32c_masked_as_in_a_tfrecord():
    crc = 0xE306_9283  # the check value of CRC-32C, of b"123456789"
    rotated = (crc >> 15 | crc << 17) & 0xFFFF_FFFF

    assert masked_crc32c(b"123456789") == (rotated + 0xA282_EAD8) & 0xFFFF_FFFF


@pytest.fixture
def clock(monkeypatch):
    """The clocks of a process, which pass when the test says so."""
    passed = [0.0]
    began = 1_800_000_000 * 10**9, 10**12  # at the beginning of an hour, and of a quarter
    monkeypatch.setattr(time, "time_ns", lambda: began[0] + round(passed[0] * 1e9))
    monkeypatch.setattr(time, "monotonic_ns", lambda: began[1] + round(passed[0] * 1e9))

    def pass_(seconds):
        passed[0] += seconds

    return pass_


def all_events(directory):
    """The events of all files of a directory, in the order of their names."""
    return [event for path in sorted(directory.iterdir()) for event in read_events(path)]


def test_events_are_kept_for_an_hour_and_then_by_the_minute_and_after_a_day_in_one_file_a_day(
    tmp_path, clock
):
    recorder = Recorder(tmp_path / "events", {"gamma": 0.99})
    count, every = 60 * 3_600 // 30, 30
    for step in range(count):
        recorder.record([("a", 1_000.0 if step == 7 else float(step % 5)), ("b", step)], step)
        clock(every)
    found = all_events(tmp_path / "events")
    last = found[-1].wall_time
    ages = [last - event.wall_time for event in found if event.step]
    steps = [event.step for event in found if event.summary.value and event.step]
    values = [value.simple_value for event in found for value in event.summary.value]

    assert sum(age < 3_600 for age in ages) == 3_600 / every
    assert sum(age > 2 * 86_400 for age in ages) <= 12 * 3 * 5
    assert steps == sorted(steps)
    assert 1_000.0 in values[:20]
    assert len(list((tmp_path / "events").iterdir())) < 24 * 2 + 3
    assert sum(one.HasField("summary") and not one.step for one in found) == 3  # hparams and step 0


def test_a_learner_that_is_started_again_thins_the_files_of_the_one_before(tmp_path, clock):
    for _ in range(2):
        recorder = Recorder(tmp_path / "events")
        for step in range(800):
            recorder.record([("a", math.sin(step))], step)
            clock(10)
    first = min((tmp_path / "events").iterdir())

    assert len(list(read_events(first))) < 1 + 60 * 4
    assert first.stat().st_size < max(p.stat().st_size for p in (tmp_path / "events").iterdir())


def test_a_clock_that_is_set_back_leaves_events_in_order(tmp_path, clock, monkeypatch):
    recorder = Recorder(tmp_path / "events")
    recorder.record([("a", 1.0)], 1)
    clock(5)
    monkeypatch.setattr(time, "time_ns", lambda: 1)
    recorder.record([("a", 2.0)], 2)
    again = Recorder(tmp_path / "events")
    again.record([("a", 3.0)], 3)
    found = [event for event in all_events(tmp_path / "events") if event.step]

    assert [event.step for event in found] == [1, 2, 3]
    assert found[1].wall_time - found[0].wall_time == pytest.approx(5, abs=1)
