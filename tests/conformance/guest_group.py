"""Guests that push and submit frames, one by one or as a fleet."""

import struct
from dataclasses import dataclass

import numpy as np
from tests.conformance.scripted_guest import STEP, step

from arkml.abi.codes import EpisodeState

START = "ark-ml-v1.ml__start_inference"
STOP = "ark-ml-v1.ml__stop_inference"
PUSH = "ark-ml-v1.ml__push_inference_observation"
SUBMIT = "ark-ml-v1.ml__submit_inference_observations"
RUNNING, INITIAL = EpisodeState.RUNNING, EpisodeState.INITIAL
HANDLE, FEATURES, ACTIONS, SCRIPT = 0x40, 0x80, 0x18000, 0x30000
PAGES = 16


@dataclass(frozen=True)
class Row:
    """One observation."""

    agent: int
    features: tuple[float, ...]
    state: EpisodeState = RUNNING


class GuestGroup:
    """
    Guests that play frames, called one by one or together.

    A frame is the rows of each guest, in lists: one list for each submit. `frame` returns for
    each guest the actions of each submit, or the guest's error.
    """

    def __init__(self, guests, call):
        self.guests = guests
        self._call = call
        self._handles = {}
        self._width = 0

    @classmethod
    def alone(cls, host, program, count):
        guests = [host.load(program) for _ in range(count)]

        def call(places):
            return [guests[place].call("entry", 0, 0) for place in places]

        return cls(guests, call)

    @classmethod
    def fleet(cls, host, program, count):
        fleet = host.fleet(program, count)

        def call(places):
            result = fleet.call("entry", 0, 0, only=places)
            return [result.failures.get(n, value) for n, value in enumerate(result.values)]

        group = cls(fleet.guests, call)
        group.as_fleet = fleet
        return group

    def start(self, model, num_features, num_actions, *, only=None):
        """Open a session of `model` in each guest."""
        places = list(range(len(self.guests)) if only is None else only)
        self._width = num_actions
        for place in places:
            guest = self.guests[place]
            guest.write_memory(FEATURES, model)
            shape = num_features, num_actions
            self.write(guest, [step(START, *shape, FEATURES, len(model), 0, HANDLE)])
        self._call(places)
        for place in places:
            guest = self.guests[place]
            assert self.codes(guest, 1) == [0]
            self._handles[place] = int.from_bytes(guest.read_memory(HANDLE, 8), "little")

    def stop(self, *, only=None):
        """Close the session of each guest."""
        places = list(range(len(self.guests)) if only is None else only)
        for place in places:
            self.write(self.guests[place], [step(STOP, self._handles.pop(place))])
        self._call(places)
        for place in places:
            assert self.codes(self.guests[place], 1) == [0]

    def frame(self, rows, *, extra=None):
        """
        Play one frame. `rows`: by place of the guest, a list of rows for each submit.

        `extra` holds a last step by place, for guests that do something else.
        """
        counts = {}
        for place, submits in rows.items():
            steps = self.steps(place, submits)
            steps += [extra[place]] if extra and place in extra else []
            counts[place] = len(steps)
            self.write(self.guests[place], steps)
        results = dict(zip(rows, self._call(list(rows)), strict=True))
        return {
            place: self.actions(place, rows[place], counts[place])
            if results[place] == 0
            else results[place]
            for place in rows
        }

    def steps(self, place, submits):
        guest, handle = self.guests[place], self._handles[place]
        steps, at, out = [], FEATURES, ACTIONS
        for submit in submits:
            for row in submit:
                data = struct.pack(f"<{len(row.features)}f", *row.features)
                guest.write_memory(at, data)
                steps.append(
                    step(PUSH, handle, row.agent, row.state, 0.0, at, len(row.features), 0.0)
                )
                at += len(data)
            count = len(submit)
            values = out + 4 * count * self._width
            steps.append(step(SUBMIT, handle, out, count * self._width, values, count))
            out = values + 4 * count
        assert at <= ACTIONS
        assert out <= SCRIPT
        return steps

    def write(self, guest, steps):
        script = b"".join(steps)
        assert SCRIPT + len(script) + 4 * len(steps) <= PAGES * 65_536
        guest.write_memory(0, struct.pack("<III", SCRIPT, len(steps), SCRIPT + len(script)))
        guest.write_memory(SCRIPT, script + b"\xee" * (4 * len(steps)))

    def codes(self, guest, count):
        data = guest.read_memory(SCRIPT + count * STEP.size, 4 * count)
        return list(struct.unpack(f"<{count}I", data))

    def actions(self, place, submits, count):
        """The actions of each submit, float32, [rows, num_actions]; the code of one refused."""
        codes = iter(self.codes(self.guests[place], count))
        found, out = [], ACTIONS
        for submit in submits:
            assert {next(codes) for _ in submit} <= {0}
            code, size = next(codes), 4 * len(submit) * self._width
            data = self.guests[place].read_memory(out, size)
            array = np.frombuffer(data, "<f4").reshape(len(submit), self._width)
            found.append(code or array)
            out += size + 4 * len(submit)
        return found


def same_bits(first, second):
    """Whether two arrays, or lists of arrays, are equal bit for bit."""
    if isinstance(first, list):
        return len(first) == len(second) and all(map(same_bits, first, second))
    return first.shape == second.shape and first.tobytes() == second.tobytes()
