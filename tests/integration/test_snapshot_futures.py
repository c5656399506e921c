"""States of guests that wait for results of a hive, or have some that they did not take."""

import gc
from dataclasses import replace

import msgspec
import pytest
from tests.integration.guest_text import ACTOR
from tests.integration.snapshot_files import altered

from arkml import FleetSnapshot, GuestSnapshot, Host, Limits
from arkml.abi.codes import ExperimentStatus
from arkml.errors import GuestMemoryFull, NotFound, StateRefused, TooManyRequests, Unavailable
from arkml.guests.guest import calls_of
from arkml.guests.snapshots import summary_of
from arkml.sessions import results
from arkml.sessions.guest_run import ExperimentInfo, ExperimentShape, Metric

INFO = ExperimentInfo("walk", "a1", 1, 2, 3, ExperimentStatus.RUNNING, 4)
VALUES = {
    results.BOOL: True,
    results.BYTES: b"\0policy",
    results.TEXT: "größe",
    results.SHAPE: ExperimentShape(3, 2),
    results.EXPERIMENTS: [INFO],
    results.METRICS_V1: [Metric("return", 1.5)],
    results.METRICS_V3: [Metric("loss", float("inf"))],
}


def table(guest):
    return calls_of(guest).services.futures


def opened(guest, kind=results.BYTES):
    return table(guest).open(kind)


def copies(state, make_host):
    """The guest of a state in another host: from memory, and from a file."""
    for each in (state, GuestSnapshot.load(bytes(state))):
        guest = make_host().load(ACTOR)
        guest.restore(each)
        yield guest


@pytest.mark.parametrize("kind", VALUES, ids=lambda kind: kind.name)
def test_a_result_that_was_not_taken_is_taken_after_a_restore(kind, make_host):
    guest = make_host().load(ACTOR)
    handle, future = opened(guest, kind)
    future.resolve(VALUES[kind])
    state = guest.snapshot()
    for _ in range(2):
        assert table(guest).take(handle, kind) == VALUES[kind]
        with pytest.raises(NotFound):
            table(guest).take(handle, kind)
        guest.restore(state)
    table(guest).drop(handle)
    guest.restore(state)

    assert table(guest).poll(handle, kind).ready
    assert table(guest).take(handle, kind) == VALUES[kind]
    upcoming, _ = opened(guest)
    assert upcoming != handle
    for copy in copies(state, make_host):
        assert len(table(copy)) == 1
        assert table(copy).take(handle, kind) == VALUES[kind]
        assert len(table(copy)) == 0
        assert opened(copy)[0] == upcoming


def test_an_error_that_was_not_taken_is_raised_after_a_restore(make_host):
    guest = make_host().load(ACTOR)
    handle, future = opened(guest)
    future.fail(TooManyRequests("wait a minute"))
    state = guest.snapshot()
    for copy in (guest, *copies(state, make_host)):
        with pytest.raises(TooManyRequests, match="wait a minute"):
            table(copy).take(handle, results.BYTES)


def test_a_request_goes_on_for_the_guest_that_made_it_and_is_not_repeated_for_others(make_host):
    guest = make_host().load(ACTOR)
    handle, future = opened(guest)
    state = guest.snapshot()
    guest.restore(state)
    assert not table(guest).poll(handle, results.BYTES).ready
    for copy in copies(state, make_host):
        with pytest.raises(Unavailable, match="byte vector was pending in the state: a request"):
            table(copy).take(handle, results.BYTES)
    future.resolve(b"late")

    assert table(guest).take(handle, results.BYTES) == b"late"
    guest.restore(state)
    assert table(guest).take(handle, results.BYTES) == b"late"


def test_a_restore_drops_what_the_state_has_not(make_host):
    guest = make_host().load(ACTOR)
    before = guest.snapshot()
    handle, future = opened(guest)
    withdrawn = []
    future.withdraw_by(lambda: withdrawn.append(1))
    guest.restore(before)

    assert withdrawn == [1]
    assert len(table(guest)) == 0
    with pytest.raises(NotFound):
        table(guest).poll(handle, results.BYTES)


def test_results_of_a_state_are_charged_to_the_guest_that_gets_them(make_host):
    guest = make_host().load(ACTOR)
    handle, future = opened(guest)
    future.resolve(bytes(1 << 20))
    state = guest.snapshot()
    assert guest.account.snapshot_bytes > 1 << 20
    (copy, _) = copies(state, make_host)
    requests = calls_of(copy).services.requests
    held = requests.held
    assert held > 1 << 20
    table(copy).take(handle, results.BYTES)
    assert requests.held == held - future.size

    small = make_host(limits=Limits(guest_bytes=1 << 20, memory_bytes=1 << 19)).load(ACTOR)
    with pytest.raises(StateRefused, match=r"a byte vector of 1,048,\d+ bytes is over Limits.gue"):
        small.restore(state)
    few = make_host(limits=Limits(futures=0)).load(ACTOR)
    with pytest.raises(StateRefused, match=r"the state has 1 futures, over the limit of 0"):
        few.restore(state)
    assert few.failure is None


def test_a_fleet_keeps_results_that_were_not_taken():
    with Host() as host:
        fleet = host.fleet(ACTOR, 3)
        handle, future = opened(fleet.guests[1])
        future.resolve(b"one")
        state = fleet.snapshot()
        table(fleet.guests[1]).drop(handle)
        fleet.restore(state)
        copy = host.fleet(ACTOR, 3)
        copy.restore(FleetSnapshot.load(bytes(state)))
        for each in (fleet, copy):
            assert [len(table(guest)) for guest in each.guests] == [0, 1, 0]
            assert table(each.guests[1]).take(handle, results.BYTES) == b"one"


def test_the_start_of_a_training_is_only_had_by_the_guest_that_waits_for_it(make_host):
    guest = make_host().load(ACTOR)
    handle, _ = opened(guest, results.TRAINING)
    state = guest.snapshot()
    guest.restore(state)
    assert not table(guest).poll(handle, results.TRAINING).ready
    with pytest.raises(StateRefused, match="the guest waits for a training session, which files"):
        bytes(state)
    for other in (make_host().load(ACTOR), guest):
        table(guest).clear() if other is guest else None
        with pytest.raises(StateRefused, match="lacks a training session that the state waits for"):
            other.restore(state)
        assert other.failure is None


def test_a_state_says_how_many_results_it_has(make_host):
    guest = make_host().load(ACTOR)
    for kind in (results.BYTES, results.BYTES, results.TEXT):
        opened(guest, kind)
    assert summary_of(guest.snapshot())["futures"] == {"byte vector": 2, "string": 1}


def test_a_state_that_is_dropped_gives_its_bytes_back(make_host):
    guest = make_host().load(ACTOR)
    _, future = opened(guest)
    future.resolve(bytes(1 << 20))
    before = guest.account.snapshot_bytes
    state = guest.snapshot()
    assert guest.account.snapshot_bytes - before > 1 << 20
    del state
    gc.collect()
    assert guest.account.snapshot_bytes == before


def test_a_state_that_does_not_fit_beside_its_guest_is_refused(make_host):
    limits = Limits(guest_bytes=2 << 20, memory_bytes=1 << 19)
    guest = make_host(limits=limits).load(ACTOR)
    _, future = opened(guest)
    future.resolve(bytes(3 << 20))
    with pytest.raises(GuestMemoryFull):
        guest.snapshot()


def of_future(**fields):
    return lambda guest: guest["futures"][0].update(fields)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (results.BYTES, b"\x82"),  # a map of two, and nothing of it
        (results.BYTES, msgspec.msgpack.encode("text")),
        (results.SHAPE, msgspec.msgpack.encode(ExperimentShape(-1, 2))),
        (results.SHAPE, msgspec.msgpack.encode(ExperimentShape(1, 1 << 40))),
        (results.EXPERIMENTS, msgspec.msgpack.encode([replace(INFO, worker_count=1 << 63)])),
    ],
)
def test_a_result_that_no_hive_gave_is_refused(kind, value, make_host):
    guest = make_host().load(ACTOR)
    _, future = opened(guest, kind)
    future.resolve(VALUES[kind])
    with pytest.raises(StateRefused, match="damaged"):
        GuestSnapshot.load(altered(guest.snapshot(), of_future(value=value)))


def test_a_guest_that_fails_in_a_restore_gives_results_back(make_host):
    guest = make_host().load(ACTOR)
    for _ in range(3):
        opened(guest)[1].resolve(bytes(1 << 20))
    state = guest.snapshot()
    small = make_host(limits=Limits(guest_bytes=3 << 20, memory_bytes=1 << 19)).load(ACTOR)
    with pytest.raises(StateRefused, match=r"over Limits\.guest_bytes"):
        small.restore(state)

    assert small.failure is not None
    assert calls_of(small).services.requests.held == 0


def test_a_result_that_came_since_the_last_state_is_charged_with_the_next(make_host):
    guest = make_host().load(ACTOR)
    _, future = opened(guest)
    first = guest.snapshot()
    future.resolve(bytes(1 << 20))
    before = guest.account.snapshot_bytes
    second = guest.snapshot()

    assert guest.account.snapshot_bytes - before > 1 << 20
    assert first is not second


def test_sessions_futures_and_brains_of_a_state_share_one_limit(make_host):
    guest = make_host().load(ACTOR)
    brains = calls_of(guest).services.handler("ark-ml-inference-v0")
    for _ in range(2):
        opened(guest)
        brains.create_runtime()
    state = guest.snapshot()
    few = make_host(limits=Limits(handles=3)).load(ACTOR)
    with pytest.raises(StateRefused, match=r"has 4 handles, over the limit of 3"):
        few.restore(state)
    assert few.failure is None
