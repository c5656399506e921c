"""The memory of observations and results of brains is that of the guest that they belong to."""

import gc
import struct
import tracemalloc

import pytest
from tests.conformance import scripted_guest
from tests.conformance.brains import V0, Guest
from tests.conformance.models import model, node, port, same
from tests.conformance.scripted_guest import MODEL, PAGE, ScriptedGuest, step

from arkml import Host, Limits
from arkml.abi.codes import ErrorCode

WIDEST = 255
PORTION = 64 << 10
RESULTS = 64 * WIDEST * 4 * WIDEST
"""Bytes of the results of `wide_results` for as many agents as an execution answers."""


def many_inputs(count):
    """out = the sum of `count` inputs of width 1."""
    names = [f"i{number}" for number in range(count)]
    inputs = [port(name, "N", 1) for name in names]
    return model([node("Sum", " ".join(names), "out")], inputs, [port("out", "N", 1)])


def wide_results():
    """64 outputs of 255 floats, each of them the one input."""
    names = [f"o{number}" for number in range(64)]
    nodes = [node("Identity", "obs", name) for name in names]
    return model(nodes, [port("obs", "N", WIDEST)], [port(name, "N", WIDEST) for name in names])


class FullGuest(Guest):
    """A guest of ml-inference-v0 that submits the same observation for many agents."""

    @property
    def bytes(self):
        """All that counts but the vectors of calls, for which some stays granted."""
        account = self.run.guest.account
        return account.total_bytes - account.vector_bytes

    def fill(self, brain, agents, *items, runtime=None):
        """Codes of the ends of the submissions for `agents`."""
        place, codes = (runtime or self.runtime, brain), []
        lent, at = [], MODEL
        for name, row in items:
            text, floats = name.encode(), struct.pack(f"<{len(row)}f", *row)
            self.run.put(at, text + floats)
            lent.append((at, len(text), at + len(text), len(row)))
            at += len(text) + len(floats)
        for agent in agents:
            found = self.run(
                step(V0 + "begin_infer_submission", *place, agent),
                *(step(V0 + "submit_inference_item", *place, *item) for item in lent),
                step(V0 + "end_infer_submission", *place),
            )
            assert set(found[:-1]) == {0}
            codes.append(found[-1])
        return codes

    def code(self, runtime=None):
        """The code of an execution."""
        return self.run.vector(V0 + "execute_inference", runtime or self.runtime)[0]

    def destroy(self, runtime):
        (code,) = self.run(step(V0 + "destroy_runtime", runtime))
        return code


@pytest.fixture
def make_guest():
    """A factory of guests, each with a host of its own, which is closed at the end."""
    hosts = []

    def make(**limits):
        hosts.append(Host(limits=Limits(run_seconds=None, **limits)))
        return FullGuest(ScriptedGuest(hosts[-1].load(scripted_guest.module())))

    yield make
    for host in hosts:
        host.close()


@pytest.fixture
def traced():
    """A function that returns the bytes allocated by Python and numpy in the test."""
    tracemalloc.start()

    def size():
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    yield size
    tracemalloc.stop()


def test_observations_of_many_small_inputs_count_with_what_they_take(make_guest, traced):
    guest = make_guest()
    brain = guest.brain(many_inputs(60))
    items = [(f"i{number}", [1.0]) for number in range(60)]
    guest.fill(brain, [0], *items)
    before, counted = traced(), guest.bytes
    guest.fill(brain, range(1, 201), *items)
    taken, counts = traced() - before, guest.bytes - counted

    assert taken <= counts + PORTION  # one that was asked for before
    assert counts < 200 * 4 * 60 * 3 + PORTION


def test_results_count_with_what_they_take(make_guest, traced):
    guest = make_guest()
    brain = guest.brain(wide_results())
    before, counted = traced(), guest.bytes
    guest.fill(brain, range(WIDEST), ("obs", [1.0] * WIDEST))
    assert len(guest.execute()) == WIDEST
    taken, counts = traced() - before, guest.bytes - counted

    assert RESULTS <= taken <= counts
    assert counts < RESULTS + 4 * PORTION


def test_what_a_brain_held_does_not_count_when_it_is_gone(make_guest):
    guest = make_guest()
    kept = guest.bytes
    other = guest.create()
    unloaded, destroyed = guest.brain(wide_results()), guest.brain(wide_results(), other)
    for brain, runtime in ((unloaded, guest.runtime), (destroyed, other)):
        guest.fill(brain, range(WIDEST), ("obs", [1.0] * WIDEST), runtime=runtime)
        guest.execute(runtime=runtime)
        guest.fill(brain, [1], ("obs", [1.0] * WIDEST), runtime=runtime)
    full = guest.bytes
    guest.execute()
    codes = guest.unload(unloaded), guest.destroy(other)

    assert full > 2 * RESULTS
    assert codes == (0, 0)
    assert guest.bytes == kept


def test_an_execution_without_agents_frees_the_results_of_the_last_one(make_guest):
    guest = make_guest()
    brain = guest.brain(wide_results())
    loaded = guest.bytes
    guest.fill(brain, range(WIDEST), ("obs", [1.0] * WIDEST))
    guest.execute()
    full = guest.bytes
    guest.execute()

    assert full - loaded > RESULTS
    assert guest.bytes == loaded


def test_results_beyond_the_bytes_of_a_guest_are_unavailable(make_guest):
    guest = make_guest(guest_bytes=64 << 20)
    runtimes = [guest.create() for _ in range(6)]
    codes = []
    for runtime in runtimes:
        brain = guest.brain(wide_results(), runtime)
        guest.fill(brain, range(WIDEST), ("obs", [1.0] * WIDEST), runtime=runtime)
        codes.append(guest.code(runtime))
    full = guest.bytes
    guest.destroy(runtimes[0])
    guest.fill(brain, range(WIDEST), ("obs", [1.0] * WIDEST), runtime=runtime)

    assert codes == [0, 0, 0, *[ErrorCode.UNAVAILABLE] * 3]
    assert 3 * RESULTS < full <= 64 << 20
    assert guest.run.guest.statistics.limits["GuestMemoryFull"] == 3
    assert guest.code(runtime) == 0


@pytest.mark.parametrize(
    "limits",
    [{"guest_bytes": 16 * PAGE}, {"host_bytes": 16 * PAGE, "memory_bytes": 4 * PAGE}],
    ids=["guest", "host"],
)
def test_observations_beyond_the_bytes_of_a_guest_or_its_host_are_unavailable(make_guest, limits):
    guest = make_guest(**limits)
    brain = guest.brain(same(100))
    guest.fill(brain, range(WIDEST), ("obs", [1.0] * 100))
    guest.execute()  # so that the vector of its results counts from here on
    codes = guest.fill(brain, range(2_000), ("obs", [1.0] * 100))
    queued, full = codes.count(0), guest.bytes
    while guest.execute():
        pass

    assert set(codes[queued:]) == {ErrorCode.UNAVAILABLE}
    assert 8 * PAGE < 4 * 100 * queued + 6 * PAGE < full <= 16 * PAGE
    assert set(guest.fill(brain, range(queued), ("obs", [1.0] * 100))) == {0}


def test_a_queue_that_was_long_leaves_nothing_behind(make_guest, traced):
    guest = make_guest()
    brain = guest.brain(same(1))
    guest.fill(brain, [0], ("obs", [1.0]))
    guest.execute()
    before = traced()
    guest.fill(brain, range(3_000), ("obs", [1.0]))
    full = traced() - before
    while guest.execute():
        pass

    assert full > 3_000 * 100
    assert traced() - before < 30_000
