"""One inference session of ml-v1 in a scripted guest."""

import struct

import numpy as np
from tests.conformance.scripted_guest import step

from arkml.abi.codes import EpisodeState

V1, V3 = "ark-ml-v1.ml__", "ark-ml-v3.ml__"
SUBMIT = V1 + "submit_inference_observations"
FEATURES, ACTIONS, VALUES = 0x1000, 0x4000, 0x8000


class ScriptedSession:
    def __init__(self, run, handle, num_actions):
        self.run = run
        self.handle = handle
        self.num_actions = num_actions

    def push(self, agent, row, state=EpisodeState.INITIAL):
        self.run.put(FEATURES, struct.pack(f"<{len(row)}f", *row))
        place = (FEATURES, len(row), 4, 0)
        (code,) = self.run(
            step(V3 + "push_inference_observation", self.handle, agent, state, 0.0, *place)
        )
        return code

    def submit(self, rows):
        """The code, actions and values; None where the call was refused and wrote nothing."""
        count = rows * self.num_actions
        self.run.put(ACTIONS - 8, b"?" * (4 * count + 16))
        self.run.put(VALUES - 8, b"?" * (4 * rows + 16))
        (code,) = self.run(step(SUBMIT, self.handle, ACTIONS, count, VALUES, rows))
        actions = self.run.guest.read_memory(ACTIONS - 8, 4 * count + 16)
        values = self.run.guest.read_memory(VALUES - 8, 4 * rows + 16)
        assert actions[:8] + actions[-8:] + values[:8] + values[-8:] == b"?" * 32
        if code:
            assert set(actions + values) <= {ord("?")}
            return code, None, None
        shaped = np.frombuffer(actions[8:-8], "<f4").reshape(rows, self.num_actions)
        return code, shaped.tolist(), np.frombuffer(values[8:-8], "<f4").tolist()

    def stop(self):
        return self.run(step(V1 + "stop_inference", self.handle))[0]


def start(run, model, num_features, num_actions):
    run.put(0x200, model)
    name = V1 + "start_inference"
    handle = run.handle(8, name, num_features, num_actions, 0x200, len(model), 0)
    return ScriptedSession(run, handle, num_actions)
