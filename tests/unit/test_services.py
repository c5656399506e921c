import inspect
import logging
import struct

import numpy as np
import pytest

from arkml.abi.catalog import APIS
from arkml.abi.codes import (
    EpisodeState,
    ErrorCode,
    ExperimentStatus,
    HardwareType,
    SnapshotFormat,
    TimeFormat,
)
from arkml.abi.layout import struct_size, unpack
from arkml.abi.ml_v1 import EXPERIMENT_INFO, METRIC_V1
from arkml.abi.ml_v3 import METRIC_V3
from arkml.errors import (
    HttpRequestFailed,
    InvalidArguments,
    ModelRejected,
    NotFound,
    SnapshotTooLarge,
    TooManyFutures,
    TooManyHandles,
    Unavailable,
)
from arkml.limits import Limits
from arkml.sessions import results
from arkml.sessions.services import HANDLERS, Services
from arkml.sessions.session import Origin
from arkml.sessions.session_table import TrainingStart
from arkml.testing import ConstantPolicy, MemoryQueue, RecordingPolicies, RecordingSink

HOST_ROWS = [
    pytest.param(api, function, id=f"{api.module}.{function.name}")
    for api in APIS
    for function in api.functions
    if function.lane.has_handler
]
PORT = 12356
LIMITS = Limits()


class Room:
    """An OutBuffer over a bytearray."""

    def __init__(self, size, item=1):
        self.data = bytearray(b"?" * size)
        self.item = item

    @property
    def length(self):
        return len(self.data) // self.item

    def write(self, data):
        if len(data) != len(self.data):
            raise InvalidArguments(f"{len(data)} bytes into {len(self.data)}")
        self.data[:] = data


class World:
    """Services of one guest and the fakes around them."""

    def __init__(self, limits=LIMITS, *, num_features=3, num_actions=2, action=1.5):
        self.queues = []
        self.policy = ConstantPolicy(3, 2, actions=action)
        self.library = RecordingPolicies(
            actions=action, num_features=num_features, num_actions=num_actions
        )
        self.services = Services(
            "npc",
            1,
            limits=limits,
            library=self.library,
            queues=self,
            clock=lambda: 1_000_000_000,
            stopwatch=lambda: 0.0,
        )
        self.v1, self.v2, self.v3, self.v4, self.v5 = (
            self.services.handler(f"ark-ml-v{version}") for version in range(1, 6)
        )
        self.core = [self.services.handler(f"ark-core-v{version}") for version in range(5)]
        self.time = self.services.handler("ark-time-v1")

    def open_queue(self, handle, *, training, num_features, num_actions, key):  # noqa: ARG002
        self.queues.append(MemoryQueue(num_features, num_actions))
        return self.queues[-1]

    def push(self, *states):
        """Push a row of each state to the first session, for the agents 0, 1, 2 ..."""
        for agent, state in enumerate(states):
            self.queues[0].push(agent, [0] * self.queues[0].num_features, state=state)

    def infer(self):
        return self.v1.start_inference(3, 2, b"model", SnapshotFormat.ONNX)

    def train(self, sink=None):
        return self.services.sessions.open_training(TrainingStart(self.policy, 3, 2, sink))

    def future(self, result, value):
        handle, future = self.services.futures.open(result)
        future.resolve(value)
        return handle


@pytest.fixture
def world():
    return World()


# The tables and the handlers


@pytest.mark.parametrize(("api", "function"), HOST_ROWS)
def test_every_row_of_the_host_lane_has_a_handler_with_its_parameters(world, api, function):
    handler = getattr(world.services.handler(api.module), function.name)

    assert list(inspect.signature(handler).parameters) == [param.name for param in function.params]


def test_no_handler_exists_without_a_row(world):
    rows = {api.module: {f.name for f in api.functions if f.lane.has_handler} for api in APIS}
    found = {
        module: {name for name in dir(world.services.handler(module)) if not name.startswith("_")}
        for module in HANDLERS
    }

    assert found == rows


# Core


def test_a_returned_slice_belongs_to_the_call_that_returned_it(world):
    code = world.core[0].return_slice(b"result", 6, 6)
    during = world.services.returned
    world.services.begin_call()

    assert code == ErrorCode.SUCCESS
    assert during == b"result"
    assert world.services.returned is None


def test_an_empty_slice_is_not_the_same_as_none(world):
    world.core[0].return_slice(b"", 0, 0)

    assert world.services.returned == b""


def test_input_is_copied_from_the_current_call(world):
    world.services.begin_call(b"0123456789")
    room, rest, none = Room(4), Room(1), Room(0)

    assert world.core[0].get_input_slice(room, 4, 3) == 0
    assert world.core[0].get_input_slice(rest, 1, 9) == 0
    assert world.core[0].get_input_slice(none, 0, 10) == 0
    assert (bytes(room.data), bytes(rest.data)) == (b"3456", b"9")


@pytest.mark.parametrize(("size", "offset"), [(11, 0), (1, 10), (0, 11), (4, 0xFFFF_FFFF)])
def test_input_beyond_its_end_is_refused(world, size, offset):
    world.services.begin_call(b"0123456789")
    room = Room(size)

    with pytest.raises(InvalidArguments):
        world.core[0].get_input_slice(room, size, offset)
    assert bytes(room.data) == b"?" * size


def test_there_are_no_extensions(world):
    assert world.core[1].has_extension(1) == 0


def test_a_panic_shows_message_place_and_contexts_and_ends_with_its_call(world, caplog):
    world.core[4].add_debug_context("phase", "training")
    world.core[2].register_panic("index 7\x1b", "src/lib.rs", 12, 5)
    panic = world.services.panic
    world.services.begin_call()

    assert panic == "index 7\\x1b, src/lib.rs:12:5 [phase=training]"
    assert world.services.panic is None
    assert caplog.messages == ["panic: index 7\\x1b, src/lib.rs:12:5 [phase=training]"]


@pytest.mark.parametrize(
    ("place", "panic"),
    [
        (("", 0, 0), "panic without a message"),
        (("", 2**32 - 5, 1), "panic without a message"),
        (("a.rs", 0, 0), "panic without a message, a.rs:0:0"),
    ],
)
def test_a_panic_may_have_no_message_and_no_place(world, place, panic):
    world.services.register_panic("", *place)

    assert world.services.panic == panic


@pytest.mark.parametrize(
    ("level", "expected"), [(1, logging.WARNING), (4, 5), (5, logging.ERROR), (2**32 - 1, 40)]
)
def test_guests_log_at_their_level_and_unknown_ones_as_errors(world, caplog, level, expected):
    caplog.set_level(1, logger="arkml.guest.npc")
    world.core[3].log(level, "hello")

    assert caplog.record_tuples == [("arkml.guest.npc", expected, "hello")]


def test_a_pending_vector_is_taken_once_and_in_full(world):
    world.services.vectors.keep_pending(b"abc")
    with pytest.raises(InvalidArguments):
        world.core[4].take_host_return_vec(Room(2))
    room = Room(3)
    world.core[4].take_host_return_vec(room)

    assert bytes(room.data) == b"abc"
    with pytest.raises(NotFound):
        world.core[4].take_host_return_vec(Room(3))


def test_only_the_last_vector_is_pending_and_an_empty_one_is_too(world):
    world.services.vectors.keep_pending(b"abc")
    world.services.vectors.keep_pending(b"")
    world.core[4].take_host_return_vec(Room(0))

    with pytest.raises(NotFound):
        world.core[4].take_host_return_vec(Room(0))


def test_time_comes_from_the_clock(world):
    assert world.time.time_utc() == 1_000_000_000
    assert (
        world.time.format_time_for_display(0, TimeFormat.RELATIVE_FRIENDLY) == "a few seconds ago"
    )


# Inference


def test_a_session_lives_from_start_to_stop(world):
    handle = world.infer()
    session = world.services.sessions.at(world.services.sessions._handles.index(handle))
    live = world.services.live_handles
    world.v1.stop_inference(handle)

    assert (session.num_features, session.num_actions) == (3, 2)
    assert (live, world.services.live_handles) == (1, 0)
    assert not world.queues[0].is_open
    with pytest.raises(NotFound):
        world.v1.stop_inference(handle)


def test_a_refused_snapshot_opens_nothing_and_is_told(world, caplog):
    world.library.failure = ModelRejected("the model has no bytes")
    with pytest.raises(ModelRejected):
        world.v1.start_inference(3, 2, b"", SnapshotFormat.ONNX)

    assert world.services.live_handles == 0
    assert caplog.messages == ["a snapshot was refused: the model has no bytes"]


def test_without_room_for_a_handle_no_snapshot_is_loaded():
    world = World(Limits(handles=1))
    world.infer()

    with pytest.raises(TooManyHandles):
        world.infer()
    assert len(world.library.snapshots) == 1


def test_v5_takes_the_shape_from_the_snapshot():
    world = World(num_features=9, num_actions=4)
    world.v5.start_inference(b"model", SnapshotFormat.ONNX)

    assert (world.queues[0].num_features, world.queues[0].num_actions) == (9, 4)


def test_v5_refuses_more_actions_than_a_guest_can_multiply():
    world = World(num_actions=16_384)

    with pytest.raises(InvalidArguments, match="16384 actions"):
        world.v5.start_inference(b"model", SnapshotFormat.ONNX)
    assert world.services.live_handles == 0


def test_v5_answers_with_bytes_and_empties_the_queue(world):
    handle = world.v5.start_inference(b"model", SnapshotFormat.ONNX)
    world.push(EpisodeState.RUNNING, EpisodeState.TERMINAL)
    world.services.sessions.at(0).answer()
    answer = world.v5.submit_inference_observations(handle)

    assert answer == struct.pack("<BBHQB2fQB", 0, 2, 2, 0, 1, 1.5, 1.5, 1, 0)
    assert len(world.queues[0]) == 0
    assert world.v5.submit_inference_observations(handle) == struct.pack("<BBH", 0, 0, 2)


def test_v5_refuses_more_than_255_rows_empties_the_queue_and_says_why(world, caplog):
    handle = world.v5.start_inference(b"model", SnapshotFormat.ONNX)
    world.push(*[EpisodeState.RUNNING] * 256)

    with pytest.raises(InvalidArguments):
        world.v5.submit_inference_observations(handle)
    assert len(world.queues[0]) == 0
    assert caplog.messages == [
        "a submit was refused: 256 rows in one submit of ml-v5, the limit is 255"
    ]


def test_v5_sends_zeros_for_actions_that_are_not_finite_and_says_so_once(caplog):
    world = World(action=np.nan)
    handle = world.v5.start_inference(b"model", SnapshotFormat.ONNX)
    for _ in range(2):
        world.push(EpisodeState.RUNNING)
        world.services.sessions.at(0).answer()
        answer = world.v5.submit_inference_observations(handle)

    assert answer[4:] == struct.pack("<QB2f", 0, 1, 0, 0)
    assert world.services.sessions.at(0).non_finite_actions == 4
    assert len(caplog.messages) == 1


def test_v5_answers_training_sessions_too(world):
    handle = world.train()
    world.push(EpisodeState.INITIAL)

    assert world.v5.submit_training_observations(handle)[1] == 1
    with pytest.raises(NotFound):
        world.v5.submit_inference_observations(handle)


# Training sessions


def test_an_experiment_tells_its_counts(world):
    handle = world.train()

    assert world.v1.experiment_feature_count(handle) == 3
    assert world.v1.experiment_action_count(handle) == 2


def test_rows_of_others_reach_the_run(world):
    sink = RecordingSink()
    handle = world.train(sink)
    world.v1.submit_training_augmented_observations(handle)
    world.v1.submit_training_demonstration_observations(handle)

    assert [origin for _, origin in sink.accepted] == [Origin.AUGMENTED, Origin.DEMONSTRATION]


def test_stopping_an_experiment_makes_the_stop_that_follows_a_plain_error(world):
    sink = RecordingSink()
    handle = world.train(sink)
    world.v2.stop_experiment(handle)

    with pytest.raises(NotFound):
        world.v1.stop_training(handle)
    assert sink.left == [True]


def test_stopping_training_leaves_the_run(world):
    sink = RecordingSink()
    handle = world.train(sink)
    world.v1.stop_training(handle)

    assert sink.left == [False]
    assert world.services.live_handles == 0


@pytest.mark.parametrize(
    ("version", "function"),
    [
        (1, "experiment_action_count"),
        (1, "experiment_feature_count"),
        (1, "submit_training_augmented_observations"),
        (1, "submit_training_demonstration_observations"),
        (1, "stop_training"),
        (1, "download_snapshot"),
        (1, "download_metrics"),
        (2, "stop_experiment"),
        (2, "experiment_config"),
        (3, "download_metrics"),
        (5, "raw_experiment_config"),
        (5, "submit_training_observations"),
    ],
)
def test_a_handle_of_no_training_session_is_not_found(world, version, function):
    call = getattr(world.services.handler(f"ark-ml-v{version}"), function)

    for handle in (0, 99, world.infer(), world.future(results.BOOL, value=True)):
        with pytest.raises(NotFound):
            call(handle)


# Without a hive


def asks(world, port, config="{}"):
    """Every call that asks a hive, by name."""
    at = ("localhost", port)
    v3 = (*at, "game", "run", 3, 2, 0, config, "", 60)
    protocol = {"feature_count": 3, "action_count": 2}
    return {
        "v1 list": lambda: world.v1.list_experiments(*at),
        "v1 start": lambda: world.v1.start_training(*at, "game", "run", 3, 2),
        "v1 resume": lambda: world.v1.start_training_from_checkpoint(*at, "g", "r", 3, 2, "c"),
        "v2 connect": lambda: world.v2.connect_to_experiment(*at, "run"),
        "v2 start": lambda: world.v2.start_training(*at, "game", "run", 3, 2, 0, config),
        "v2 resume": lambda: world.v2.start_training_from_checkpoint(
            *at, "game", "run", 3, 2, 0, config, "checkpoint"
        ),
        "v2 config": lambda: world.v2.experiment_config_from_registry(*at, "run"),
        "v2 snapshot": lambda: world.v2.download_snapshot_from_registry(*at, "run"),
        "v3 start": lambda: world.v3.start_training(*v3),
        "v4 start": lambda: world.v4.start_training(
            *at, "game", "run", 0, config, "", 60, protocol
        ),
        "v4 config": lambda: world.v4.raw_experiment_config_from_registry(*at, "run"),
        "v5 start": lambda: world.v5.start_training(
            *at, "run", config, "space", "module", 60, 0, HardwareType.CPU
        ),
    }


ASKS = list(asks(World(), PORT))


@pytest.mark.parametrize("name", ASKS)
def test_without_a_hive_what_asks_for_one_is_unavailable(world, name):
    with pytest.raises(Unavailable, match="no hive is configured"):
        asks(world, PORT)[name]()
    assert world.services.live_futures == 0


@pytest.mark.parametrize("name", ASKS)
def test_a_port_above_65535_is_refused_before_anything_else(world, name):
    with pytest.raises(InvalidArguments, match="65536"):
        asks(world, 65_536)[name]()


@pytest.mark.parametrize("name", ["v2 start", "v2 resume", "v3 start", "v4 start", "v5 start"])
@pytest.mark.parametrize("config", ["{", "nonsense", "[" * 100_000])
def test_a_configuration_that_is_no_json_is_refused(world, name, config):
    with pytest.raises(InvalidArguments, match="not JSON"):
        asks(world, PORT, config)[name]()


def test_without_a_hive_nobody_can_connect_to_one(world):
    handle = world.v1.can_connect_to_hive("localhost", PORT)
    polled = world.v1.poll_future_bool(handle)
    room = Room(1)
    world.v1.take_future_bool(handle, room)

    assert polled == {"ready": True}
    assert bytes(room.data) == b"\0"
    with pytest.raises(InvalidArguments):
        world.v1.can_connect_to_hive("localhost", 65_536)


def test_a_module_link_and_an_open_session_need_a_hive_too(world):
    handle = world.train()

    with pytest.raises(Unavailable):
        world.v2.set_worker_module_link("bafy")
    for call in (
        world.v1.download_snapshot,
        world.v1.download_metrics,
        world.v2.experiment_config,
        world.v3.download_metrics,
        world.v5.raw_experiment_config,
    ):
        with pytest.raises(Unavailable):
            call(handle)


# Futures


def experiment(name):
    return results.ExperimentInfo(name, "id", 1, 2, 3, ExperimentStatus.RUNNING, 4)


COUNTED = [
    (1, "vec_u8", results.BYTES, b"abc", 3),
    (1, "vec_metric", results.METRICS_V1, [results.Metric("a", 1.0)] * 2, 64),
    (1, "vec_experiment_info", results.EXPERIMENTS, [experiment("a")], 232),
    (3, "vec_metric", results.METRICS_V3, [results.Metric("a", 1.0)] * 2, 144),
]
PLAIN = [
    (1, "bool", results.BOOL, True, 1),
    (1, "training_handle", results.TRAINING, TrainingStart(ConstantPolicy(3, 2), 3, 2), 8),
    (2, "ark_experiment_config", results.SHAPE, results.ExperimentShape(3, 2), 8),
]


@pytest.mark.parametrize(("version", "name", "result", "value", "size"), [*COUNTED, *PLAIN])
def test_a_future_is_polled_and_taken_in_its_own_layout(world, version, name, result, value, size):
    handlers = world.services.handler(f"ark-ml-v{version}")
    handle = world.future(result, value)
    expected = {"ready": True} | ({"len": len(value)} if result.counted else {})
    room = Room(size)

    assert getattr(handlers, f"poll_future_{name}")(handle) == expected
    getattr(handlers, f"take_future_{name}")(handle, room)
    assert bytes(room.data) != b"?" * size
    with pytest.raises(NotFound):
        getattr(handlers, f"poll_future_{name}")(handle)


@pytest.mark.parametrize(("version", "name", "result", "value", "size"), [*COUNTED, *PLAIN])
def test_a_room_of_the_wrong_size_consumes_the_future_and_is_left_alone(
    world, version, name, result, value, size
):
    handlers = world.services.handler(f"ark-ml-v{version}")
    handle = world.future(result, value)
    room = Room(size + 1)

    with pytest.raises(InvalidArguments):
        getattr(handlers, f"take_future_{name}")(handle, room)
    assert bytes(room.data) == b"?" * (size + 1)
    assert world.services.live_futures == 0
    assert world.services.live_handles == 0


def test_text_is_taken_as_text(world):
    handle = world.future(results.TEXT, "{}")

    assert world.v4.poll_future_string(handle) == {"ready": True}
    assert world.v4.take_future_string(handle) == "{}"


def test_the_training_handle_that_a_guest_takes_names_a_session(world):
    room = Room(8)
    world.v1.take_future_training_handle(
        world.future(results.TRAINING, TrainingStart(world.policy, 5, 4)), room
    )

    assert world.v1.experiment_feature_count(int.from_bytes(room.data, "little")) == 5


def test_metrics_are_cut_to_their_names_room(world):
    metric = results.Metric("å" * 40, 1e300)
    short, long = Room(struct_size(METRIC_V1)), Room(struct_size(METRIC_V3))
    world.v1.take_future_vec_metric(world.future(results.METRICS_V1, [metric]), short)
    world.v3.take_future_vec_metric(world.future(results.METRICS_V3, [metric]), long)

    assert unpack(METRIC_V1, bytes(short.data)) == {"name": ("å" * 14).encode(), "value": np.inf}
    assert unpack(METRIC_V3, bytes(long.data)) == {"name": "å" * 32, "value": np.inf}


def test_experiments_are_laid_out_field_by_field(world):
    room = Room(232)
    world.v1.take_future_vec_experiment_info(
        world.future(results.EXPERIMENTS, [experiment("walk")]), room
    )

    assert unpack(EXPERIMENT_INFO, bytes(room.data)) == {
        "name": "walk",
        "id": "id",
        "started_at": 1,
        "ended_at": 2,
        "max_duration": 3,
        "experiment_status": ExperimentStatus.RUNNING,
        "worker_count": 4,
    }


def test_metrics_of_one_version_are_not_those_of_the_other(world):
    handle = world.future(results.METRICS_V1, [])

    with pytest.raises(InvalidArguments):
        world.v3.poll_future_vec_metric(handle)
    assert world.v1.poll_future_vec_metric(handle) == {"ready": True, "len": 0}


def test_polls_that_find_nothing_are_counted_for_each_call(world):
    handle, future = world.services.futures.open(results.BYTES)
    for _ in range(3):
        assert world.v1.poll_future_vec_u8(handle) == {"ready": False, "len": 0}
    future.fail(HttpRequestFailed("503"))
    ready = world.v1.poll_future_vec_u8(handle)

    assert ready == {"ready": True, "len": 0}
    assert world.services.pending_polls == 3
    world.services.begin_call()
    assert world.services.pending_polls == 0
    with pytest.raises(HttpRequestFailed):
        world.v1.take_future_vec_u8(handle, Room(0))


def test_futures_have_a_limit_of_their_own():
    world = World(Limits(futures=2))
    handles = [world.v1.can_connect_to_hive("", 0) for _ in range(2)]

    with pytest.raises(TooManyFutures):
        world.v1.can_connect_to_hive("", 0)
    world.v1.drop_future(handles[0])
    assert world.v1.can_connect_to_hive("", 0) not in handles


# The end


def test_close_frees_everything_and_can_be_repeated(world):
    world.infer()
    sink = RecordingSink()
    world.train(sink)
    world.v1.can_connect_to_hive("", 0)
    brains = world.services.handler("ark-ml-inference-v0")
    brains.create_runtime()
    before = (world.services.live_handles, world.services.live_futures)
    world.services.close()
    world.services.close()

    assert before == (3, 1)
    assert (world.services.live_handles, world.services.live_futures) == (0, 0)
    assert [queue.is_open for queue in world.queues] == [False, False]
    assert [len(policy.forgotten) for policy in (*world.library.policies, world.policy)] == [1, 1]
    assert sink.left == [False]


def test_no_handle_of_one_kind_equals_one_of_another(world):
    handles = [world.infer(), world.train(), world.future(results.BOOL, value=True)]

    assert len(set(handles)) == 3
    with pytest.raises(NotFound):
        world.v1.drop_future(handles[0])
    with pytest.raises(NotFound):
        world.v1.stop_inference(handles[2])


def test_snapshots_in_use_have_a_limit_together_and_the_same_one_counts_once(caplog):
    world = World(Limits(snapshot_bytes=10))
    handles = [
        world.v1.start_inference(3, 2, snapshot, SnapshotFormat.ONNX)
        for snapshot in (b"a" * 20, b"a" * 20, b"b" * 20)
    ]

    with pytest.raises(SnapshotTooLarge, match="1 bytes beside 40"):
        world.v5.start_inference(b"c", SnapshotFormat.ONNX)
    assert len(caplog.messages) == 1
    assert len(world.library.snapshots) == 3
    world.v1.stop_inference(handles[0])
    with pytest.raises(SnapshotTooLarge):
        world.v5.start_inference(b"c", SnapshotFormat.ONNX)
    world.v1.stop_inference(handles[1])
    assert world.v5.start_inference(b"c", SnapshotFormat.ONNX)


def test_a_session_that_could_not_be_opened_uses_no_snapshot():
    world = World(Limits(snapshot_bytes=10), num_actions=16_384)
    for byte in range(5):
        with pytest.raises(InvalidArguments, match="16384 actions"):
            world.v5.start_inference(bytes([byte]) * 40, SnapshotFormat.ONNX)

    assert world.infer()


def test_close_gives_every_snapshot_back(world):
    world.infer()
    world.services.close()

    assert world.services.snapshots.used == 0


def test_handles_of_both_widths_share_one_limit():
    world = World(Limits(handles=2))
    brains = world.services.handler("ark-ml-inference-v0")
    runtime = brains.create_runtime()
    session = world.infer()

    with pytest.raises(TooManyHandles):
        world.infer()
    assert brains.create_runtime() == 0
    world.v1.stop_inference(session)
    assert brains.create_runtime() not in (0, runtime)
