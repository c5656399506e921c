"""A guest of ml-inference-v0 with a runtime, and models for its brains."""

import struct

from tests.conformance import models as build
from tests.conformance.checked_guest import MODEL as LINEAR
from tests.conformance.scripted_guest import MODEL, step

from arkml.guests.guest import calls_of

V0 = "ark-ml-inference-v0.ml_inference__"


def two_inputs():
    """sum = seen, of shape (2, 3), and far = position * 10."""
    return build.model(
        [
            build.node("Identity", "seen", "sum"),
            build.node("Mul", "position ten", "far"),
        ],
        [build.port("seen", "N", 2, 3), build.port("position", "N", 2)],
        [build.port("sum", "N", 2, 3), build.port("far", "N", 2)],
        [build.weight("ten", [10])],
    )


def wide(width):
    """out = obs, of `width` floats."""
    return build.model(
        [build.node("Identity", "obs", "out")],
        [build.port("obs", "N", width)],
        [build.port("out", "N", width)],
    )


class Guest:
    """A guest of ml-inference-v0 with one runtime."""

    def __init__(self, run):
        self.run = run
        self.services = calls_of(run.guest).services
        self.runtime = self.create()

    def create(self):
        return self.run.handle(4, V0 + "create_runtime")

    def load(self, model, runtime=None, form=0):
        self.run.put(MODEL, model)
        place = (runtime or self.runtime, form, MODEL, len(model))
        return self.run.handle(4, V0 + "load_inference_async", *place)

    def poll(self, load):
        code, data = self.run.value(4, V0 + "poll_load_inference_async", load)
        return code, None if data is None else int.from_bytes(data, "little")

    def brain(self, model=LINEAR, runtime=None):
        code, brain = self.poll(self.load(model, runtime))
        assert code == 0
        return brain

    def names(self, brain, which):
        code, data = self.run.vector(f"{V0}{which}_names", self.runtime, brain)
        assert code == 0
        return listed(data)

    def shape(self, brain, which, slot):
        code, data = self.run.value(36, f"{V0}get_brain_{which}_shape", self.runtime, brain, slot)
        if code:
            return code
        ndim, *dims = struct.unpack("<9I", data)
        assert ndim <= 8
        assert not any(dims[ndim:])
        return tuple(dims[:ndim])

    def submit(self, brain, agent, *items, runtime=None):
        """Codes of begin, the items and end."""
        place = (runtime or self.runtime, brain)
        steps, at = [step(V0 + "begin_infer_submission", *place, agent)], MODEL
        for name, row in items:
            text, floats = name.encode(), struct.pack(f"<{len(row)}f", *row)
            self.run.put(at, text + floats)
            lent = (at, len(text), at + len(text), len(row))
            steps.append(step(V0 + "submit_inference_item", *place, *lent))
            at += len(text) + len(floats)
        return self.run(*steps, step(V0 + "end_infer_submission", *place))

    def execute(self, seconds=None, runtime=None):
        runtime = runtime or self.runtime
        if seconds is None:
            code, data = self.run.vector(V0 + "execute_inference", runtime)
        else:
            code, data = self.run.vector(V0 + "execute_inference_for", runtime, seconds)
        assert code == 0
        return agents(data)

    def agents(self, brain):
        code, data = self.run.vector(V0 + "result_get_brain_agents", self.runtime, brain)
        assert code == 0
        return agents(data)

    def output(self, brain, agent, slot=0):
        name = V0 + "result_get_brain_agent_output"
        code, data = self.run.vector(name, self.runtime, brain, agent, slot)
        if code:
            return code
        assert len(data) == 1 + 4 * data[0]
        return list(struct.unpack(f"<{data[0]}f", data[1:]))

    def has_result(self, brain, agent):
        code, data = self.run.value(1, V0 + "poll_result", self.runtime, brain, agent)
        assert code == 0
        assert data in (b"\0", b"\1")
        return data == b"\1"

    def unload(self, brain, runtime=None):
        (code,) = self.run(step(V0 + "unload_inference", runtime or self.runtime, brain))
        return code


def listed(data):
    count, *rest = data
    names = []
    for _ in range(count):
        size, rest = rest[0], rest[1:]
        names.append(bytes(rest[:size]).decode())
        rest = rest[size:]
    assert rest == []
    return names


def agents(data):
    assert len(data) == 1 + 8 * data[0]
    return list(struct.unpack(f"<{data[0]}Q", data[1:]))
