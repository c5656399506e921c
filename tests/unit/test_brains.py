import struct

import numpy as np
import pytest

from arkml.abi.codes import SnapshotFormat
from arkml.errors import (
    InvalidArguments,
    ModelRejected,
    NotFound,
    SnapshotTooLarge,
    TooManyHandles,
    TooManyRows,
    Unavailable,
)
from arkml.limits import Limits
from arkml.policies.ports import Port
from arkml.sessions.services import Services
from arkml.testing import RecordingPolicies

LIMITS = Limits()
ONNX = SnapshotFormat.ONNX


class FakeNetwork:
    """Doubles its first input; `sum` adds up all inputs."""

    def __init__(self, inputs=(("obs", (2,)),), outputs=(("actions", (2,)), ("sum", ()))):
        self.inputs = tuple(Port(*port) for port in inputs)
        self.outputs = tuple(Port(*port) for port in outputs)
        self.batches = []
        self.failure = None
        self.seconds = 0.0
        self.session_bytes = 0

    def run(self, agents, inputs):
        if self.failure is not None:
            raise self.failure
        self.batches.append(agents.tolist())
        Clock.now += self.seconds
        totals = sum(array.reshape(len(agents), -1).sum(axis=1) for array in inputs.values())
        doubled = 2 * inputs[self.inputs[0].name].reshape(len(agents), -1)
        return {
            port.name: totals.astype(np.float32) if port.shape == () else doubled
            for port in self.outputs
        }


class Clock:
    """The stopwatch; networks that take their time move it."""

    now = 0.0

    def __call__(self):
        return Clock.now


class World:
    """The brain functions of one guest, and how a guest uses them."""

    def __init__(self, networks=None, limits=LIMITS, background=None):
        Clock.now = 0.0
        self.network = FakeNetwork()
        self.library = RecordingPolicies(networks={b"model": self.network} | (networks or {}))
        self.services = Services(
            "npc",
            1,
            limits=limits,
            library=self.library,
            queues=None,
            stopwatch=Clock(),
            **({} if background is None else {"background": background}),
        )
        self.calls = self.services.handler("ark-ml-inference-v0")
        self.runtime = self.calls.create_runtime()

    def load(self, snapshot=b"model"):
        return self.calls.poll_load_inference_async(
            self.calls.load_inference_async(self.runtime, ONNX, snapshot)
        )

    def submit(self, brain, agent, **items):
        self.calls.begin_infer_submission(self.runtime, brain, agent)
        for name, floats in (items or {"obs": [1, 2]}).items():
            data = np.array(floats, np.float32)
            self.calls.submit_inference_item(self.runtime, brain, name, data)
        self.calls.end_infer_submission(self.runtime, brain)

    def execute(self, seconds=None):
        if seconds is None:
            return agents(self.calls.execute_inference(self.runtime))
        return agents(self.calls.execute_inference_for(self.runtime, seconds))

    def output(self, brain, agent, slot):
        return floats(self.calls.result_get_brain_agent_output(self.runtime, brain, agent, slot))


def agents(data):
    (count,) = data[:1]
    return list(struct.unpack_from(f"<{count}Q", data, 1))


def floats(data):
    (count,) = data[:1]
    return list(struct.unpack(f"<{count}f", data[1:]))


@pytest.fixture
def world():
    return World()


# Loading


def test_a_load_ends_in_a_brain_and_its_handle_is_gone(world):
    load = world.calls.load_inference_async(world.runtime, ONNX, b"model")
    brain = world.calls.poll_load_inference_async(load)

    assert len({world.runtime, load, brain, 0}) == 4
    assert all(handle < 1 << 32 for handle in (world.runtime, load, brain))
    with pytest.raises(NotFound):
        world.calls.poll_load_inference_async(load)
    assert world.services.live_handles == 2


def test_a_load_on_another_thread_is_unavailable_until_it_is_done():
    jobs = []
    world = World(background=jobs.append)
    load = world.calls.load_inference_async(world.runtime, ONNX, b"model")
    for _ in range(2):
        with pytest.raises(Unavailable):
            world.calls.poll_load_inference_async(load)
    seen = world.services.changes.count
    jobs.pop()()

    assert world.services.pending_polls == 2
    assert world.services.changes.count == seen + 1
    assert world.calls.poll_load_inference_async(load)


def test_a_failed_load_keeps_erring_and_is_told_once(world, caplog):
    world.library.failure = ModelRejected("the model has no outputs")
    load = world.calls.load_inference_async(world.runtime, ONNX, b"garbage")
    for _ in range(3):
        with pytest.raises(ModelRejected):
            world.calls.poll_load_inference_async(load)

    assert caplog.messages == ["a brain was refused: the model has no outputs"]
    assert world.services.pending_polls == 0


def test_a_bug_while_loading_is_raised_to_whoever_polls(world):
    world.library.failure = TypeError("a bug")
    load = world.calls.load_inference_async(world.runtime, ONNX, b"model")

    with pytest.raises(TypeError):
        world.calls.poll_load_inference_async(load)


@pytest.mark.parametrize(
    ("ports", "reason"),
    [
        ({"outputs": [("wide", (256,))]}, "256 floats"),
        ({"outputs": [("deep", (1,) * 9)]}, "9 dimensions"),
        ({"inputs": [(f"in {n}", (1,)) for n in range(256)]}, "256 inputs"),
        ({"inputs": [("ö" * 128, (1,))]}, "more than 255 bytes"),
    ],
)
def test_a_model_that_cannot_be_described_is_refused_at_load(ports, reason):
    world = World({b"odd": FakeNetwork(**ports)})

    with pytest.raises(ModelRejected, match=reason):
        world.load(b"odd")


def test_every_brain_has_noise_of_its_own(world):
    world.load()
    world.load()

    assert len(set(world.library.network_keys)) == 2


def test_the_place_of_a_load_is_kept_for_its_brain():
    world = World(limits=Limits(handles=2))
    load = world.calls.load_inference_async(world.runtime, ONNX, b"model")
    with pytest.raises(TooManyHandles):
        world.calls.load_inference_async(world.runtime, ONNX, b"model")

    assert world.calls.poll_load_inference_async(load)


def test_a_runtime_that_cannot_be_made_is_zero(caplog):
    world = World(limits=Limits(handles=1))

    assert world.calls.create_runtime() == 0
    assert len(caplog.messages) == 1
    with pytest.raises(NotFound):
        world.calls.execute_inference(0)


# Describing


def test_names_and_shapes_are_told(world):
    world.library.networks[b"odd"] = FakeNetwork(
        [("obs:0", (2, 3)), ("höhe", (1,))], [("Identity:0", ())]
    )
    brain = world.load(b"odd")
    place = (world.runtime, brain)

    assert world.calls.get_brain_input_names(*place) == b"\x02\x03obs\x05h\xc3\xb6he"
    assert world.calls.get_brain_output_names(*place) == b"\x01\x08Identity"
    assert world.calls.result_get_brain_output_names(*place) == b"\x01\x08Identity"
    assert world.calls.get_brain_input_shape(*place, 0) == {
        "ndim": 2,
        "dims": [2, 3, 0, 0, 0, 0, 0, 0],
    }
    assert world.calls.get_brain_output_shape(*place, 0) == {"ndim": 0, "dims": [0] * 8}
    for ask in (world.calls.get_brain_input_shape, world.calls.get_brain_output_shape):
        with pytest.raises(InvalidArguments):
            ask(*place, 2)


def test_names_that_differ_only_in_their_number_are_told_in_full(world):
    world.library.networks[b"odd"] = FakeNetwork([("x:0", (1,)), ("x:1", (1,))])
    brain = world.load(b"odd")

    assert world.calls.get_brain_input_names(world.runtime, brain) == b"\x02\x03x:0\x03x:1"


# Submitting and executing


def test_what_is_submitted_is_executed_and_read_per_agent(world):
    brain = world.load()
    world.submit(brain, 7, obs=[1, 2])
    world.submit(brain, 2**64 - 1, obs=[3, 4])
    place = (world.runtime, brain)

    assert world.execute() == [7, 2**64 - 1]
    assert agents(world.calls.result_get_brain_agents(*place)) == [7, 2**64 - 1]
    assert world.output(brain, 7, 0) == [2, 4]
    assert world.output(brain, 2**64 - 1, 1) == [7]
    assert world.calls.poll_result(*place, 7) is True
    assert world.calls.poll_result(*place, 8) is False
    with pytest.raises(NotFound):
        world.output(brain, 8, 0)
    with pytest.raises(InvalidArguments):
        world.output(brain, 7, 2)


def test_nothing_queued_is_a_single_zero_byte(world):
    brain = world.load()

    assert world.calls.execute_inference(world.runtime) == b"\0"
    assert world.calls.execute_inference_for(world.runtime, 1.0) == b"\0"
    assert world.calls.result_get_brain_agents(world.runtime, brain) == b"\0"


def test_items_may_come_in_any_order(world):
    world.library.networks[b"odd"] = FakeNetwork([("a", (1,)), ("b", (2, 1))])
    brain = world.load(b"odd")
    world.submit(brain, 1, b=[10, 20], a=[1])
    world.execute()

    assert world.output(brain, 1, 1) == [31]


@pytest.mark.parametrize(
    "items",
    [
        {"obs": [1]},
        {"obs": [1, 2, 3]},
        {"other": [1, 2]},
        {"obs": [1, 2], "other": []},
        {"other": [1], "obs": [1, 2]},
    ],
)
def test_a_wrong_submission_is_refused_at_its_end_and_forgotten(world, items):
    brain = world.load()

    with pytest.raises(InvalidArguments, match="agent 5"):
        world.submit(brain, 5, **items)
    with pytest.raises(InvalidArguments, match="not begun"):
        world.calls.end_infer_submission(world.runtime, brain)
    assert world.execute() == []


def test_a_submission_without_items_misses_them(world):
    brain = world.load()
    world.calls.begin_infer_submission(world.runtime, brain, 5)

    with pytest.raises(InvalidArguments, match="obs missing"):
        world.calls.end_infer_submission(world.runtime, brain)


def test_items_belong_into_a_submission(world):
    brain = world.load()

    with pytest.raises(InvalidArguments, match="outside of a submission"):
        world.calls.submit_inference_item(world.runtime, brain, "obs", np.zeros(2, np.float32))


def test_beginning_again_forgets_what_was_not_ended(world):
    brain = world.load()
    world.calls.begin_infer_submission(world.runtime, brain, 1)
    world.submit(brain, 2)

    assert world.execute() == [2]


def test_a_newer_observation_of_an_agent_replaces_the_queued_one(world):
    brain = world.load()
    world.submit(brain, 1, obs=[1, 1])
    world.submit(brain, 1, obs=[5, 5])

    assert world.execute() == [1]
    assert world.output(brain, 1, 0) == [10, 10]


def test_results_are_those_of_the_last_execution(world):
    brain = world.load()
    world.submit(brain, 1)
    world.execute()
    world.submit(brain, 2)
    world.execute()

    assert world.calls.poll_result(world.runtime, brain, 1) is False
    assert world.calls.poll_result(world.runtime, brain, 2) is True
    world.execute()
    assert world.calls.poll_result(world.runtime, brain, 2) is False


def test_more_agents_than_can_be_counted_wait_for_the_next_execution(world):
    first, second = world.load(), world.load()
    for agent in range(300):
        world.submit(first, agent)
    world.submit(second, 1000)

    assert world.execute() == list(range(255))
    assert world.execute() == [1000, *range(255, 300)]
    assert world.execute() == []


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("-inf"), 1e-9])
def test_a_time_limit_lets_at_least_one_brain_run_whole(world, seconds):
    world.network.seconds = 1.0
    first, second = world.load(), world.load()
    for agent in (1, 2):
        world.submit(first, agent)
        world.submit(second, agent + 10)

    assert world.execute(seconds) == [1, 2]
    assert world.calls.poll_result(world.runtime, second, 11) is False
    assert world.execute(seconds) == [11, 12]
    assert world.execute(seconds) == []


def test_brains_run_until_the_time_is_used_up(world):
    world.network.seconds = 1.0
    for agent, brain in enumerate([world.load() for _ in range(4)]):
        world.submit(brain, agent)

    assert world.execute(1.5) == [0, 1]
    assert world.execute(float("inf")) == [2, 3]


def test_the_brain_that_waited_longest_runs_first(world):
    world.network.seconds = 1.0
    first, second = world.load(), world.load()
    order = []
    for agent in range(4):
        world.submit(first, agent)
        world.submit(second, agent + 10)
        order += world.execute(0.0)

    assert order == [0, 10, 11, 1, 2, 12, 13]


def test_a_model_that_fails_loses_its_queue_and_not_that_of_others(world):
    world.library.networks[b"good"] = FakeNetwork()
    bad, good = world.load(), world.load(b"good")
    world.network.failure = Unavailable("out of memory")
    world.submit(bad, 1)
    world.submit(good, 2)

    with pytest.raises(Unavailable):
        world.execute()
    assert world.execute() == [2]


def test_a_queue_is_limited_in_rows():
    world = World(limits=Limits(rows=2))
    brain = world.load()
    for agent in (1, 2, 2):
        world.submit(brain, agent)

    with pytest.raises(TooManyRows):
        world.submit(brain, 3)
    assert world.execute() == [1, 2]


def test_the_queues_of_all_brains_together_are_limited_in_bytes():
    """An observation takes 8 bytes and 256 for the objects that hold it."""
    world = World(limits=Limits(snapshot_bytes=2 * 264))
    first, second = world.load(), world.load()
    world.submit(first, 1)
    world.submit(second, 1)
    with pytest.raises(TooManyRows):
        world.submit(first, 2)
    world.execute()
    world.submit(first, 2)

    assert world.execute() == [2]


def test_observations_that_are_refused_take_no_memory():
    world = World(limits=Limits(rows=1))
    brain = world.load()
    world.submit(brain, 1)
    before = world.services.session_bytes
    for _ in range(1_000):
        with pytest.raises(InvalidArguments):
            world.submit(brain, 1, obs=[1, 2, 3])
        with pytest.raises(TooManyRows):
            world.submit(brain, 2)

    assert world.services.session_bytes == before > 0


def test_executions_that_fail_take_no_memory(world):
    brain = world.load()
    world.network.failure = Unavailable("out of memory")
    for agent in range(1_000):
        world.submit(brain, agent)
        with pytest.raises(Unavailable):
            world.execute()

    assert world.services.session_bytes == len(b"model")  # which is kept


def test_an_observation_takes_its_memory_when_it_is_begun(world):
    brain = world.load()
    before = world.services.session_bytes
    world.calls.begin_infer_submission(world.runtime, brain, 1)

    assert world.services.session_bytes > before


def test_a_newer_observation_takes_the_memory_of_the_older_one(world):
    brain = world.load()
    world.submit(brain, 1)
    before = world.services.session_bytes
    for _ in range(1_000):
        world.calls.begin_infer_submission(world.runtime, brain, 2)
        world.submit(brain, 1)

    assert world.services.session_bytes == before > 0


# Forgetting


def test_a_brain_with_queued_data_cannot_be_unloaded(world):
    brain = world.load()
    world.submit(brain, 1)

    with pytest.raises(InvalidArguments, match="1 agents are queued"):
        world.calls.unload_inference(world.runtime, brain)
    world.execute()
    world.calls.unload_inference(world.runtime, brain)
    with pytest.raises(NotFound):
        world.calls.unload_inference(world.runtime, brain)


def test_a_brain_belongs_to_one_runtime(world):
    brain = world.load()
    other = world.calls.create_runtime()

    for call in (world.calls.unload_inference, world.calls.get_brain_input_names):
        with pytest.raises(NotFound):
            call(other, brain)
        with pytest.raises(NotFound):
            call(brain, brain)
        with pytest.raises(NotFound):
            call(world.runtime, other)


def test_destroying_a_runtime_takes_its_brains_and_loads_along(world):
    brain = world.load()
    world.submit(brain, 1)
    load = world.calls.load_inference_async(world.runtime, ONNX, b"garbage")
    world.calls.destroy_runtime(world.runtime)

    assert world.services.live_handles == 0
    for call in (
        lambda: world.calls.unload_inference(world.runtime, brain),
        lambda: world.calls.poll_load_inference_async(load),
        lambda: world.calls.destroy_runtime(world.runtime),
        lambda: world.calls.execute_inference(world.runtime),
    ):
        with pytest.raises(NotFound):
            call()


def test_a_load_that_ends_after_its_runtime_is_forgotten():
    jobs = []
    world = World(background=jobs.append)
    load = world.calls.load_inference_async(world.runtime, ONNX, b"model")
    world.calls.destroy_runtime(world.runtime)
    jobs.pop()()

    with pytest.raises(NotFound):
        world.calls.poll_load_inference_async(load)


def test_what_destroyed_runtimes_had_queued_no_longer_counts():
    world = World(limits=Limits(snapshot_bytes=600))
    for _ in range(5):
        world.runtime = world.calls.create_runtime()
        brain = world.load()
        world.submit(brain, 1)
        world.submit(brain, 2)
        world.calls.destroy_runtime(world.runtime)

    assert world.services.live_handles == 1
    assert world.services.session_bytes == 0


def test_close_ends_runtimes(world):
    brain = world.load()
    world.submit(brain, 1)
    world.calls.begin_infer_submission(world.runtime, brain, 2)
    world.services.close()

    assert world.services.live_handles == 0
    assert world.services.session_bytes == 0


def test_snapshots_of_brains_have_a_limit_together_and_come_back_when_they_end():
    names = [bytes([letter]) * 20 for letter in b"abc"]
    world = World({name: FakeNetwork() for name in names}, limits=Limits(snapshot_bytes=10))
    first, _ = world.load(names[0]), world.load(names[1])

    with pytest.raises(SnapshotTooLarge, match="20 bytes beside 40"):
        world.calls.load_inference_async(world.runtime, ONNX, names[2])
    world.calls.unload_inference(world.runtime, first)
    assert world.load(names[2])
    world.calls.destroy_runtime(world.runtime)
    assert world.services.snapshots.used == 0


def test_a_refused_brain_and_a_destroyed_load_use_no_snapshot(world):
    world.library.failure = ModelRejected("the model has no outputs")
    with pytest.raises(ModelRejected):
        world.load(b"garbage")
    world.library.failure = None

    assert world.services.snapshots.used == 0
    world.calls.load_inference_async(world.runtime, ONNX, b"model")
    assert world.services.snapshots.used == 5
    world.calls.destroy_runtime(world.runtime)
    assert world.services.snapshots.used == 0
