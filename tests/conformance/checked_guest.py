"""A guest whose memory is checked around each call, and in which anything can be opened."""

import struct
from functools import cache

from tests.conformance import models as build
from tests.conformance.echo import Echo

from arkml.abi.catalog import APIS
from arkml.abi.codes import EpisodeState, ErrorCode, ExperimentStatus
from arkml.abi.layout import size_of, slots
from arkml.abi.schema import (
    Bytes,
    Text,
)
from arkml.guests.guest import calls_of
from arkml.sessions import results
from arkml.sessions.session_table import TrainingStart
from arkml.testing import RecordingSink

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
    ("ark-ml-v1", "training_handle"): (results.TRAINING, TrainingStart(None, 0, 0), 1),
    ("ark-ml-v1", "vec_experiment_info"): (results.EXPERIMENTS, [EXPERIMENT], 1),
    ("ark-ml-v2", "ark_experiment_config"): (results.SHAPE, results.ExperimentShape(5, 6), 1),
    ("ark-ml-v3", "vec_metric"): (results.METRICS_V3, METRICS, 2),
    ("ark-ml-v4", "string"): (results.TEXT, "härd", 1),
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


class CheckedGuest:
    """A proxy guest that asserts of each call that it wrote its outputs only."""

    def __init__(self, guest, *, fill=FILL):
        self.guest = guest
        self.fill = fill
        self.sink = RecordingSink()
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
        """Make a call that `arguments.arrange` prepared."""
        values = [call.values[slot.name] for slot in slots(function)]
        return self.call(name_of(api, function), *values, writes=call.rooms.values())

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
        services = calls_of(self.guest).services
        return services.live_handles, services.live_futures

    def fetch(self, name, *arguments):
        """Call an import that has one result behind a last pointer; returns its bytes."""
        size = result_size(_row(name)[1].returns)
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
        return calls_of(self.guest).services.sessions.open_training(start)

    def future(self, key, value=None):
        """A ready future; returns its handle."""
        result, usual, _ = FUTURES[key]
        handle, future = calls_of(self.guest).services.futures.open(result)
        if value is None:
            start = TrainingStart(self.policy, FEATURES, ACTIONS, self.sink)
            value = start if result is results.TRAINING else usual
        future.resolve(value)
        return handle

    def pending(self, key):
        return calls_of(self.guest).services.futures.open(FUTURES[key][0])

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
        pages = calls_of(self.guest).instance._sandbox.pages
        return bytearray(self.guest.read_memory(0, pages * 65_536))


def differences(before, after):
    return [
        (index, bytes(after[index : index + 1]))
        for index in range(len(before))
        if before[index] != after[index]
    ][:8]


@cache
def _row(name):
    return next(row for row in ROWS if name_of(*row) == name)


def result_size(kind):
    return 4 if isinstance(kind, (Bytes, Text)) else size_of(kind)
