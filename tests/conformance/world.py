"""One guest with something of everything alive, and good arguments for every import."""

import struct
from dataclasses import dataclass, field
from enum import IntEnum
from functools import cache

from tests.conformance import models as build
from tests.conformance.fakes import Echo, Sink

from arkml.abi.catalog import APIS
from arkml.abi.codes import EpisodeState, ErrorCode, ExperimentStatus, SnapshotFormat
from arkml.abi.layout import pack, size_of, slots, struct_size
from arkml.abi.schema import (
    Block,
    Bytes,
    Handle,
    Out,
    OutBlock,
    Outcome,
    OutSlice,
    Ref,
    Scalar,
    Slice,
    Str,
    Struct,
    Text,
)
from arkml.sessions import results
from arkml.sessions.roster import TrainingStart

FEATURES, ACTIONS, AGENT = 3, 2, 7
MODEL = build.linear([[1, 0], [0, 1], [1, 1]])
ROWS = [(api, function) for api in APIS for function in api.functions]
CODES = set(ErrorCode)
FILL = b"?"

EXPERIMENT = results.ExperimentInfo(
    name="walk", id="7", started_at=1, ended_at=2, max_duration=3,
    experiment_status=ExperimentStatus.RUNNING, worker_count=4,
)  # fmt: skip
METRICS = [results.Metric("loss", 0.5), results.Metric("reward", 2.0)]

# What polls and takes of a name bring: the type, a value, and how many items it has.
FUTURES = {
    ("ark-ml-v1", "bool"): (results.BOOL, True, 1),
    ("ark-ml-v1", "vec_u8"): (results.BYTES, b"policy", 6),
    ("ark-ml-v1", "vec_metric"): (results.METRICS_V1, METRICS, 2),
    ("ark-ml-v1", "training_handle"): (results.TRAINING, None, 1),
    ("ark-ml-v1", "vec_experiment_info"): (results.EXPERIMENTS, [EXPERIMENT], 1),
    ("ark-ml-v2", "ark_experiment_config"): (results.SHAPE, results.ExperimentShape(5, 6), 1),
    ("ark-ml-v3", "vec_metric"): (results.METRICS_V3, METRICS, 2),
    ("ark-ml-v4", "string"): (results.TEXT, "härd", 1),
}

# Functions that ask a hive; a host without one answers Unavailable.
ASKING = {
    *("list_experiments", "start_training", "start_training_from_checkpoint"),
    *("download_snapshot", "download_metrics", "set_worker_module_link"),
    *("connect_to_experiment", "experiment_config", "experiment_config_from_registry"),
    *("download_snapshot_from_registry", "raw_experiment_config_from_registry"),
    *("raw_experiment_config",),
}


def name_of(api, function):
    """What the proxy calls an import."""
    return f"{api.module}.{api.symbol(function)}"


def future_of(api, function):
    """The key in FUTURES of a function that polls or takes, or None."""
    verb, _, kind = function.name.partition("_future_")
    if verb not in ("poll", "take"):
        return None
    return api.module, kind


def expected_code(api, function):
    """What a call with good arguments answers on a host without a hive; None for no result."""
    if function.outcome is Outcome.NONE:
        return None
    if function.name in ASKING and api.module != "ark-core-v4":
        return ErrorCode.UNAVAILABLE
    if function.name == "take_host_return_vec":  # a call on its own finds no vector
        return ErrorCode.NOT_FOUND
    return ErrorCode.SUCCESS


@dataclass
class Call:
    """Arguments by slot, and where the host may write."""

    values: dict[str, int | float] = field(default_factory=dict)
    rooms: dict[str, tuple[int, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)


class World:
    """A proxy guest. Everything is opened when it is asked for, through wasm where that is possible."""

    def __init__(self, guest, *, fill=FILL):
        self.guest = guest
        self.fill = fill
        self.sink = Sink()
        self.policy = Echo(FEATURES, ACTIONS)
        self.size = len(self._everything())
        self._top = 64
        guest.write_memory(0, fill * self.size)

    def call(self, name, *arguments, writes=()):
        """Call an import; whatever is outside of `writes` must stay as it is. An unsigned code."""
        before = self._everything()
        code = self.guest.call(name, *arguments)
        after = self._everything()
        for pointer, size in writes:
            before[pointer : pointer + size] = after[pointer : pointer + size]
        assert after == before, f"{name} wrote {differences(before, after)}"
        return None if code is None else code & 0xFFFF_FFFF

    def make(self, api, function, call):
        """Make a call that `arrange` prepared."""
        arguments = [call.values[slot.name] for slot in slots(function)]
        return self.call(name_of(api, function), *arguments, writes=call.rooms.values())

    def put(self, data):
        """Write `data` somewhere and return where."""
        pointer = self.room(len(data))
        self.guest.write_memory(pointer, data)
        return pointer

    def room(self, size, *, odd=0):
        """Unused memory."""
        pointer = self._top + odd
        self._top = (pointer + size + 31) & ~15
        assert self._top <= self.size
        return pointer

    def read(self, pointer, size):
        return self.guest.read_memory(pointer, size)

    def alive(self):
        services = self.guest.services
        return services.live_handles, services.live_futures

    def fetch(self, name, *arguments):
        """Call an import that has one result behind a last pointer; returns its bytes."""
        size = _result_size(_row(name)[1].returns)
        pointer = self.room(size)
        assert self.call(name, *arguments, pointer, writes=[(pointer, size)]) in (0, None)
        return self.read(pointer, size)

    def handle(self, name, *arguments):
        return int.from_bytes(self.fetch(name, *arguments), "little")

    # What can be alive

    def inference(self, model=MODEL, num_features=FEATURES, num_actions=ACTIONS):
        pointer = self.put(model)
        return self.handle(
            "ark-ml-v1.ml__start_inference", num_features, num_actions, pointer, len(model), 0
        )

    def training(self, policy=None, sink=None):
        policy = policy or self.policy
        start = TrainingStart(policy, policy.num_features, policy.num_actions, sink or self.sink)
        return self.guest.services.roster.open_training(start)

    def future(self, key, value=None):
        """A ready future; returns its handle."""
        result, usual, _ = FUTURES[key]
        handle, future = self.guest.services.futures.open(result)
        value = usual if value is None else value
        if result is results.TRAINING:
            value = TrainingStart(self.policy, FEATURES, ACTIONS, self.sink)
        future.resolve(value)
        return handle

    def pending(self, key):
        return self.guest.services.futures.open(FUTURES[key][0])

    def runtime(self):
        return self.handle("ark-ml-inference-v0.ml_inference__create_runtime")

    def load(self, runtime, model=MODEL):
        pointer = self.put(model)
        name = "ark-ml-inference-v0.ml_inference__load_inference_async"
        return self.handle(name, runtime, 0, pointer, len(model))

    def brain(self, runtime, model=MODEL):
        load = self.load(runtime, model)
        return self.handle("ark-ml-inference-v0.ml_inference__poll_load_inference_async", load)

    def push(self, handle, *, training=False, agent=AGENT, state=EpisodeState.INITIAL, row=None):
        row = [1.0, 2.0, 3.0] if row is None else row
        pointer = self.put(struct.pack(f"<{len(row)}f", *row))
        kind = "training" if training else "inference"
        given = (0, 0) if training else ()
        name = f"ark-ml-v3.ml__push_{kind}_observation"
        return self.call(name, handle, agent, state, 0.5, pointer, len(row), *given, 4, 0)

    def _everything(self):
        pages = self.guest._sandbox.native_memory.pages()
        return bytearray(self.guest.read_memory(0, pages * 65_536))


def arrange(world, api, function, *, odd=0, last=None):
    """
    Good arguments for a call, in a world that is ready for it.

    `odd` is added to every pointer; what the slot `last` points to ends where memory ends.
    """
    call = Call()
    handles = _ready(world, api, function)

    def place(slot, size):
        return world.size - size if slot == last else world.room(size, odd=odd)

    def lend(slot, data):
        call.sizes[slot] = len(data)
        call.values[slot] = place(slot, len(data))
        world.guest.write_memory(call.values[slot], data)

    def offer(slot, size):
        call.sizes[slot] = size
        call.values[slot] = place(slot, size)
        call.rooms[slot] = (call.values[slot], size)

    for param in function.params:
        name = param.name
        match param.type:
            case Handle():
                call.values[name] = handles[param.type.name]
            case Str():
                data = _text(name).encode()
                lend(f"{name}_ptr", data)
                call.values[f"{name}_len"] = len(data)
            case Slice(item=item):
                data, count = _items(name, item)
                lend(f"{name}_ptr", data)
                call.values[f"{name}_len"] = count
            case OutSlice(item=item):
                count = _count(api, function, name)
                offer(f"{name}_ptr", count * size_of(item))
                call.values[f"{name}_len"] = count
            case Ref(struct=record):
                lend(name, bytes(struct_size(record)))
            case Out(type=kind):
                offer(name, size_of(kind))
            case Block():
                lend(name, b"result")
            case OutBlock():
                call.values[name] = place(name, 0)
            case Scalar() | type():
                call.values[name] = _scalar(function, name, param.type)
    if slots(function) and slots(function)[-1].name.startswith("__ark"):
        offer(slots(function)[-1].name, _result_size(function.returns))
    return call


def differences(before, after):
    return [
        (index, bytes(after[index : index + 1]))
        for index in range(len(before))
        if before[index] != after[index]
    ][:8]


@cache
def _row(name):
    return next(row for row in ROWS if name_of(*row) == name)


def _result_size(kind):
    return 4 if isinstance(kind, (Bytes, Text)) else size_of(kind)


def _text(name):
    return {"config": "{}", "configuration": "{}", "name": "obs"}.get(name, "text")


def _items(name, item):
    if isinstance(item, Struct):
        fields = {field.name for field in item.fields}
        assert fields == {"name", "value"}
        return pack(item, {"name": "speed", "value": 2.5}), 1
    if item.size == 1:
        return MODEL, len(MODEL)
    count = ACTIONS if name == "actions" else FEATURES
    return struct.pack(f"<{count}f", *range(1, count + 1)), count


def _count(api, function, name):
    key = future_of(api, function)
    if key is not None:
        return FUTURES[key][2]
    return {"out_actions": ACTIONS, "out_values": 1, "out": 6}[name]


def _scalar(function, name, kind):
    if isinstance(kind, type) and issubclass(kind, IntEnum):
        return int(max(kind)) if kind is not SnapshotFormat else int(SnapshotFormat.ONNX)
    if name == "size":
        return 6 if function.name == "return_slice" else 0
    usual = {
        "hive_port": 12_356, "num_features": FEATURES, "num_actions": ACTIONS, "agent": AGENT,
        "reward": 0.5, "length": 0.25, "time_limit_s": 1.0, "ns_since_epoch": 1_700_000_000 * 10**9,
    }  # fmt: skip
    return usual.get(name, 0)


def _ready(world, api, function):
    """Open what the function needs; handles by the name of their kind."""
    kinds = {param.type.name for param in function.params if isinstance(param.type, Handle)}
    handles = {}
    if "InferenceHandle" in kinds:
        handles["InferenceHandle"] = world.inference()
    if "TrainingHandle" in kinds:
        handles["TrainingHandle"] = world.training()
    if "FutureHandle" in kinds:
        key = future_of(api, function) or ("ark-ml-v1", "bool")
        handles["FutureHandle"] = world.future(key)
    if api.module == "ark-ml-inference-v0" and kinds:
        handles["RuntimeHandle"] = runtime = world.runtime()
        if "LoadInferenceHandle" in kinds:
            handles["LoadInferenceHandle"] = world.load(runtime)
        if "RawInferenceHandle" in kinds:
            handles["RawInferenceHandle"] = brain = world.brain(runtime)
            _queue(world, function, runtime, brain)
    if function.name.startswith("submit_") and api.prefix == "ml":
        (handle,) = handles.values()
        assert world.push(handle, training="TrainingHandle" in handles) == 0
    return handles


def _queue(world, function, runtime, brain):
    """Bring a brain to where `function` can go on."""
    prefix = "ark-ml-inference-v0.ml_inference__"
    name, data = world.put(b"obs"), world.put(struct.pack("<3f", 1, 2, 3))
    place = (runtime, brain)
    if function.name in ("submit_inference_item", "end_infer_submission"):
        assert world.call(prefix + "begin_infer_submission", *place, AGENT) == 0
    if function.name == "end_infer_submission":
        assert world.call(prefix + "submit_inference_item", *place, name, 3, data, 3) == 0
    if "result" in function.name:
        submit(world, runtime, brain, AGENT, obs=[1, 2, 3])
        world.fetch(prefix + "execute_inference", runtime)


def submit(world, runtime, brain, agent, **inputs):
    """Queue one observation of an agent; returns the code of its end."""
    prefix = "ark-ml-inference-v0.ml_inference__"
    assert world.call(prefix + "begin_infer_submission", runtime, brain, agent) == 0
    for name, row in inputs.items():
        text, data = world.put(name.encode()), world.put(struct.pack(f"<{len(row)}f", *row))
        place = (text, len(name.encode()), data, len(row))
        assert world.call(prefix + "submit_inference_item", runtime, brain, *place) == 0
    return world.call(prefix + "end_infer_submission", runtime, brain)
