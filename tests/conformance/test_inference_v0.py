"""ml-inference-v0 through wasm: names, shapes, submissions, executions and their results."""

import struct

import pytest
from tests.conformance import models as build
from tests.conformance.driver import MODEL, step
from tests.conformance.world import MODEL as LINEAR

from arkml.abi.codes import ErrorCode

V0 = "ark-ml-inference-v0.ml_inference__"
WRONG, MISSING, LATER = (
    ErrorCode.INVALID_ARGUMENTS,
    ErrorCode.NOT_FOUND,
    ErrorCode.UNAVAILABLE,
)
FEW = 0.000_001


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
        self.services = run.guest.services
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


@pytest.fixture
def guest(run):
    return Guest(run)


def test_a_load_is_unavailable_until_it_is_done_and_then_gives_its_brain(guest):
    jobs = []
    guest.services._guest.background = jobs.append
    load = guest.load(LINEAR)
    before = [guest.poll(load) for _ in range(3)]
    jobs.pop()()
    code, brain = guest.poll(load)

    assert before == [(LATER, None)] * 3
    assert code == 0
    assert guest.poll(load) == (MISSING, None)
    assert guest.names(brain, "get_brain_input") == ["obs"]


@pytest.mark.parametrize("model", [b"", b"no model", wide(256)], ids=["empty", "none", "wide"])
def test_a_load_that_failed_errs_at_every_poll_and_is_never_unavailable(guest, model):
    load = guest.load(model)

    assert [guest.poll(load) for _ in range(5)] == [(WRONG, None)] * 5
    assert guest.run(step(V0 + "destroy_runtime", guest.runtime)) == [0]
    assert guest.poll(load) == (MISSING, None)


def test_a_tensorflow_snapshot_is_refused(guest):
    guest.run.put(MODEL, LINEAR)
    place = (guest.runtime, 1, MODEL, len(LINEAR))
    code, load = guest.run.value(4, V0 + "load_inference_async", *place)

    assert code == WRONG or guest.poll(int.from_bytes(load, "little")) == (WRONG, None)


def test_an_output_of_255_floats_is_the_widest(guest):
    brain = guest.brain(wide(255))
    row = [float(number) for number in range(255)]
    guest.submit(brain, 1, ("obs", row))

    assert guest.execute() == [1]
    assert guest.output(brain, 1) == row


def test_names_are_counted_texts_and_shapes_have_no_batch_dimension(guest):
    brain = guest.brain(two_inputs())

    assert guest.names(brain, "get_brain_input") == ["seen", "position"]
    assert guest.names(brain, "get_brain_output") == ["sum", "far"]
    assert guest.names(brain, "result_get_brain_output") == ["sum", "far"]
    assert [guest.shape(brain, "input", slot) for slot in range(2)] == [(2, 3), (2,)]
    assert [guest.shape(brain, "output", slot) for slot in range(2)] == [(2, 3), (2,)]


@pytest.mark.parametrize("which", ["input", "output"])
@pytest.mark.parametrize("slot", [2, 8, 0x8000_0000, 0xFFFF_FFFF])
def test_a_slot_that_does_not_exist_is_refused(guest, which, slot):
    brain = guest.brain(two_inputs())

    assert guest.shape(brain, which, slot) in (WRONG, MISSING)


def test_what_the_host_feeds_is_no_input_of_the_guest(guest):
    brain = guest.brain(build.noisy(2))

    assert guest.names(brain, "get_brain_input") == ["obs"]
    assert guest.submit(brain, 3, ("obs", [1, 2])) == [0, 0, 0]
    assert guest.execute() == [3]
    assert guest.output(brain, 3) != [1, 2]


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_items_may_come_in_any_order(guest, order):
    brain = guest.brain(two_inputs())
    items = [("seen", [1, 2, 3, 4, 5, 6]), ("position", [7, 8])]

    assert guest.submit(brain, 9, *[items[place] for place in order]) == [0] * 4
    assert guest.execute() == [9]
    assert guest.output(brain, 9, 0) == [1, 2, 3, 4, 5, 6]
    assert guest.output(brain, 9, 1) == [70, 80]


@pytest.mark.parametrize(
    "items",
    [
        [],
        [("seen", [0] * 6)],
        [("seen", [0] * 6), ("position", [0])],
        [("seen", [0] * 7), ("position", [0, 0])],
        [("seen", []), ("position", [0, 0])],
        [("seen", [0] * 6), ("position", [0, 0]), ("other", [0])],
        [("Seen", [0] * 6), ("position", [0, 0])],
        [("seen", [0] * 6), ("position", [0] * 3), ("other", [])],
    ],
)
def test_a_wrong_submission_is_refused_at_its_end_and_discarded(guest, items):
    brain = guest.brain(two_inputs())
    codes = guest.submit(brain, 9, *items)
    after = guest.submit(brain, 4, ("seen", [0] * 6), ("position", [1, 2]))

    assert codes == [0] * (len(items) + 1) + [WRONG]
    assert after == [0] * 4
    assert guest.execute() == [4]


def test_items_and_ends_without_a_beginning_are_refused(guest):
    brain = guest.brain()
    place = (guest.runtime, brain)
    guest.run.put(MODEL, b"obs" + bytes(12))
    item = step(V0 + "submit_inference_item", *place, MODEL, 3, MODEL + 3, 3)
    codes = guest.run(step(V0 + "end_infer_submission", *place), item)

    assert codes == [WRONG, WRONG]
    assert guest.execute() == []


def test_an_end_ends_only_once(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1, 2, 3]))

    assert guest.run(step(V0 + "end_infer_submission", guest.runtime, brain)) == [WRONG]
    assert guest.execute() == [1]


def test_submissions_of_two_brains_do_not_mix(guest):
    first, second = guest.brain(), guest.brain(wide(2))
    guest.run.put(MODEL, b"obs" + struct.pack("<5f", 1, 2, 3, 4, 5))
    begin, item, end = ("begin_infer_submission", "submit_inference_item", "end_infer_submission")
    codes = guest.run(
        step(V0 + begin, guest.runtime, first, 10),
        step(V0 + begin, guest.runtime, second, 20),
        step(V0 + item, guest.runtime, second, MODEL, 3, MODEL + 15, 2),
        step(V0 + item, guest.runtime, first, MODEL, 3, MODEL + 3, 3),
        step(V0 + end, guest.runtime, first),
        step(V0 + end, guest.runtime, second),
    )

    assert codes == [0] * 6
    assert sorted(guest.execute()) == [10, 20]
    assert (guest.output(first, 10), guest.output(second, 20)) == ([4, 5], [4, 5])


def test_an_execution_answers_everything_and_results_are_those_of_the_last_one(guest):
    brain = guest.brain()
    for agent in (5, 3, (1 << 64) - 1):
        guest.submit(brain, agent, ("obs", [agent % 100, 0, 1]))
    before = guest.has_result(brain, 5)
    first = guest.execute()
    outputs = [guest.output(brain, agent) for agent in first]
    found = guest.agents(brain), guest.has_result(brain, 5), guest.has_result(brain, 6)
    guest.submit(brain, 8, ("obs", [8, 8, 8]))
    second = guest.execute()

    assert before is False
    assert sorted(first) == [3, 5, (1 << 64) - 1]
    assert outputs == [[agent % 100 + 1, 1] for agent in first]
    assert found == (first, True, False)
    assert (second, guest.agents(brain)) == ([8], [8])
    assert guest.output(brain, 5) == MISSING
    assert guest.has_result(brain, 5) is False


def test_nothing_queued_is_a_single_zero_byte(guest):
    brain = guest.brain()

    assert guest.run.vector(V0 + "execute_inference", guest.runtime) == (0, b"\0")
    assert guest.run.vector(V0 + "execute_inference_for", guest.runtime, 1.0) == (0, b"\0")
    assert guest.run.vector(V0 + "result_get_brain_agents", guest.runtime, brain) == (0, b"\0")


def test_more_than_255_agents_take_more_than_one_execution(guest):
    brain = guest.brain()
    for agent in range(600):
        assert guest.submit(brain, agent, ("obs", [agent, 0, 0])) == [0, 0, 0]
    rounds = [guest.execute() for _ in range(4)]
    last = guest.submit(brain, 0, ("obs", [1, 0, 0])), guest.execute()

    assert [len(found) for found in rounds] == [255, 255, 90, 0]
    assert sorted(sum(rounds, [])) == list(range(600))
    assert last == ([0, 0, 0], [0])


def test_255_agents_of_several_brains_are_one_execution(guest):
    first, second = guest.brain(), guest.brain(wide(2))
    for agent in range(200):
        guest.submit(first, agent, ("obs", [0, 0, 0]))
        guest.submit(second, 1000 + agent, ("obs", [0, 0]))
    rounds = [guest.execute() for _ in range(3)]

    assert [len(found) for found in rounds] == [255, 145, 0]
    assert len(set(sum(rounds, []))) == 400


@pytest.mark.parametrize("seconds", [0.0, -0.0, -1.0, float("nan"), float("-inf"), FEW])
def test_too_little_time_runs_one_whole_model(guest, seconds):
    brains = [guest.brain(), guest.brain(), guest.brain()]
    for place, brain in enumerate(brains):
        for agent in range(10):
            guest.submit(brain, 100 * place + agent, ("obs", [0, 0, 0]))
    ticks = iter(range(1000))
    guest.services._guest.stopwatch = lambda: float(next(ticks))
    rounds = [sorted(guest.execute(seconds)) for _ in range(4)]

    assert sorted(rounds) == [[], *[[100 * place + k for k in range(10)] for place in range(3)]]
    assert rounds[3] == []


@pytest.mark.parametrize("seconds", [10.0, 1e30, float("inf")])
def test_enough_time_runs_every_model(guest, seconds):
    for place in range(3):
        guest.submit(guest.brain(), place, ("obs", [0, 0, 0]))

    assert sorted(guest.execute(seconds)) == [0, 1, 2]


def test_models_take_turns_when_time_is_short(guest):
    brains = [guest.brain(), guest.brain()]
    seen = []
    for _ in range(4):
        for place, brain in enumerate(brains):
            guest.submit(brain, place, ("obs", [0, 0, 0]))
        seen += guest.execute(0.0)

    assert sorted(set(seen)) == [0, 1]


def test_a_runtime_executes_only_its_own(guest):
    other = guest.create()
    mine, theirs = guest.brain(), guest.brain(runtime=other)
    guest.submit(mine, 1, ("obs", [0, 0, 0]))
    guest.submit(theirs, 2, ("obs", [0, 0, 0]), runtime=other)

    assert guest.execute(runtime=other) == [2]
    assert guest.execute() == [1]


def test_a_brain_with_queued_agents_is_not_unloaded(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1, 2, 3]))
    refused = guest.unload(brain)

    assert refused == WRONG
    assert guest.execute() == [1]
    assert guest.output(brain, 1) == [4, 5]
    assert (guest.unload(brain), guest.unload(brain)) == (0, MISSING)
    assert guest.output(brain, 1) == MISSING


def test_a_brain_with_a_discarded_submission_is_unloaded(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1]))

    assert guest.unload(brain) == 0


def test_agents_keep_their_state_from_execution_to_execution(guest):
    brain = guest.brain(build.adding(2))
    outputs = []
    for frame in range(1, 4):
        for agent in (7, 8):
            guest.submit(brain, agent, ("obs", [frame, agent]))
        guest.execute()
        outputs.append([guest.output(brain, agent) for agent in (7, 8)])

    assert outputs == [
        [[1, 7], [1, 8]],
        [[3, 14], [3, 16]],
        [[6, 21], [6, 24]],
    ]


def test_a_slot_that_does_not_exist_has_no_output(guest):
    brain = guest.brain()
    guest.submit(brain, 1, ("obs", [1, 2, 3]))
    guest.execute()

    assert guest.output(brain, 1, 1) in (WRONG, MISSING)
    assert guest.output(brain, 2, 0) == MISSING


def test_a_runtime_that_cannot_be_announced_is_not_made(guest):
    alive = guest.services.live_handles
    guest.run(step(V0 + "create_runtime", 4 * 65_536 - 3))

    assert guest.services.live_handles == alive
