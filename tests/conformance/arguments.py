"""Good arguments for every import, from its row in the tables, and what they are answered with."""

import struct
from dataclasses import dataclass, field
from enum import IntEnum

from tests.conformance.checked_guest import (
    ACTIONS,
    AGENT,
    FEATURES,
    FUTURES,
    MODEL,
    CheckedGuest,
    future_of,
    result_size,
)

from arkml.abi.codes import ErrorCode, SnapshotFormat
from arkml.abi.layout import pack, size_of, slots, struct_size
from arkml.abi.schema import (
    Block,
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
)

# Functions that ask a hive; a host without one answers Unavailable.
ASKING = {
    *("list_experiments", "start_training", "start_training_from_checkpoint"),
    *("download_snapshot", "download_metrics", "set_worker_module_link"),
    *("connect_to_experiment", "experiment_config", "experiment_config_from_registry"),
    *("download_snapshot_from_registry", "raw_experiment_config_from_registry"),
    *("raw_experiment_config",),
}


def expected_code(function):
    """What a call with good arguments answers on a host without a hive; None for no result."""
    if function.outcome is Outcome.NONE:
        return None
    if function.name in ASKING:
        return ErrorCode.UNAVAILABLE
    if function.name == "take_host_return_vec":  # a call on its own finds no vector
        return ErrorCode.NOT_FOUND
    return ErrorCode.SUCCESS


@dataclass
class Call:
    """
    Arguments by slot, and where the host may write.

    `odd` is added to every pointer; what the slot `last` points to ends where memory ends.
    """

    checked: CheckedGuest
    odd: int = 0
    last: str | None = None
    values: dict[str, int | float] = field(default_factory=dict)
    rooms: dict[str, tuple[int, int]] = field(default_factory=dict)
    sizes: dict[str, int] = field(default_factory=dict)

    def place(self, slot, size):
        checked = self.checked
        self.sizes[slot] = size
        self.values[slot] = (
            checked.size - size if slot == self.last else checked.room(size, odd=self.odd)
        )

    def lend(self, slot, data):
        """Something that the host reads."""
        self.place(slot, len(data))
        self.checked.guest.write_memory(self.values[slot], data)

    def offer(self, slot, size):
        """Something that the host writes."""
        self.place(slot, size)
        self.rooms[slot] = (self.values[slot], size)


def arrange(checked, api, function, *, odd=0, last=None):
    """Good arguments for a call, in a guest that is prepared for it."""
    call = Call(checked, odd, last)
    handles = _ready(checked, api, function)
    for param in function.params:
        if isinstance(param.type, Handle):
            call.values[param.name] = handles[param.type.name]
        else:
            _argue(call, api, function, param)
    if slots(function) and slots(function)[-1].name.startswith("__ark"):
        call.offer(slots(function)[-1].name, result_size(function.returns))
    return call


def _argue(call, api, function, param):
    """Add a good argument for a parameter that is no handle."""
    name = param.name
    match param.type:
        case Str():
            data = _text(name).encode()
            call.lend(f"{name}_ptr", data)
            call.values[f"{name}_len"] = len(data)
        case Slice(item=item):
            data, count = _items(name, item)
            call.lend(f"{name}_ptr", data)
            call.values[f"{name}_len"] = count
        case OutSlice(item=item):
            count = _count(api, function, name)
            call.offer(f"{name}_ptr", count * size_of(item))
            call.values[f"{name}_len"] = count
        case Ref(struct=record):
            call.lend(name, bytes(struct_size(record)))
        case Out(type=kind):
            call.offer(name, size_of(kind))
        case Block():
            call.lend(name, b"result")
        case OutBlock():
            call.place(name, 0)
        case Scalar() | type():
            call.values[name] = _scalar(function, name, param.type)


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


def _ready(checked, api, function):
    """Open what the function needs; handles by the name of their kind."""
    kinds = {param.type.name for param in function.params if isinstance(param.type, Handle)}
    handles = {}
    if "InferenceHandle" in kinds:
        handles["InferenceHandle"] = checked.inference()
    if "TrainingHandle" in kinds:
        handles["TrainingHandle"] = checked.training()
    if "FutureHandle" in kinds:
        key = future_of(api, function) or ("ark-ml-v1", "bool")
        handles["FutureHandle"] = checked.future(key)
    if api.module == "ark-ml-inference-v0" and kinds:
        handles["RuntimeHandle"] = runtime = checked.runtime()
        if "LoadInferenceHandle" in kinds:
            handles["LoadInferenceHandle"] = checked.load(runtime)
        if "RawInferenceHandle" in kinds:
            handles["RawInferenceHandle"] = brain = checked.brain(runtime)
            _queue(checked, function, runtime, brain)
    if function.name.startswith("submit_") and api.prefix == "ml":
        (handle,) = handles.values()
        assert checked.push(handle, training="TrainingHandle" in handles) == 0
    return handles


def _queue(checked, function, runtime, brain):
    """Bring a brain to where `function` can go on."""
    prefix = "ark-ml-inference-v0.ml_inference__"
    name, data = checked.put(b"obs"), checked.put(struct.pack("<3f", 1, 2, 3))
    place = (runtime, brain)
    if function.name in ("submit_inference_item", "end_infer_submission"):
        assert checked.call(prefix + "begin_infer_submission", *place, AGENT) == 0
    if function.name == "end_infer_submission":
        assert checked.call(prefix + "submit_inference_item", *place, name, 3, data, 3) == 0
    if "result" in function.name:
        submit(checked, runtime, brain, AGENT, obs=[1, 2, 3])
        checked.fetch(prefix + "execute_inference", runtime)


def submit(checked, runtime, brain, agent, **inputs):
    """Queue one observation of an agent; returns the code of its end."""
    prefix = "ark-ml-inference-v0.ml_inference__"
    assert checked.call(prefix + "begin_infer_submission", runtime, brain, agent) == 0
    for name, row in inputs.items():
        text, data = checked.put(name.encode()), checked.put(struct.pack(f"<{len(row)}f", *row))
        place = (text, len(name.encode()), data, len(row))
        assert checked.call(prefix + "submit_inference_item", runtime, brain, *place) == 0
    return checked.call(prefix + "end_infer_submission", runtime, brain)
