"""Options of a web port, the pace of its reading, and what waits for a watcher."""

import asyncio
import contextlib
import math
import resource
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from arkml.trials.core.error import TrialError
from arkml.trials.server.web import entry_queue, rates
from arkml.trials.server.web.access import ALL, Access, Grant
from arkml.trials.server.web.calls import WebCall
from arkml.trials.server.web.connections import Connection, Connections, connection_in
from arkml.trials.server.web.entry_queue import EntryQueue, EntryRoom
from arkml.trials.server.web.lifecycle_calls import LifecycleMethods
from arkml.trials.server.web.rates import ReadingPaces, TokenBucket
from arkml.trials.server.web.web_options import WebLimits, WebOptions
from arkml.trials.wire.lifecycle_pb2 import TrialInfo, TrialListEntry, TrialListRequest


def test_a_bucket_passes_a_seconds_worth_and_then_its_rate():
    bucket = TokenBucket(10, now=0.0)

    assert bucket.take(10, 0.0) == 0
    assert bucket.take(1, 0.0) == pytest.approx(0.1)
    assert bucket.take(4, 0.0) == pytest.approx(0.5)
    assert bucket.take(1, 0.6) == 0
    assert not bucket.is_full(1.0)
    assert bucket.is_full(2.0)


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 2)), max_size=30))
def test_what_passes_a_bucket_is_never_more_than_its_rate(steps):
    bucket, now, passed = TokenBucket(3, now=0.0), 0.0, 0.0
    for amount, pause in steps:
        now += pause + bucket.take(amount, now + pause)
        passed += amount

    assert passed <= 3 + 3 * now + 1e-6


def test_addresses_have_paces_of_their_own_and_are_forgotten():
    now = [0.0]
    paces = ReadingPaces(WebLimits(), lambda: now[0])
    first = paces.of("first")
    for number in range(9_999):
        paces.of(str(number))
    now[0] = 5.0
    paces.of("one more")

    assert paces.of("one more") is paces.of("one more")
    assert paces.of("first") is not first


def entry(trial_id, state):
    return TrialListEntry(trial_id=trial_id, state=state)


async def taken(queue):
    queue.end()
    entries = []
    while (one := await queue.next()) is not None:
        entries.append((one.trial_id, one.state))
    return entries


async def test_a_watcher_that_reads_gets_every_state():
    queue = EntryQueue(4, 10_000, EntryRoom())
    for state in range(1, 5):
        queue.put(entry("a", state))

    assert await taken(queue) == [("a", 1), ("a", 2), ("a", 3), ("a", 4)]


@given(st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(1, 5)), max_size=80))
def test_a_watcher_that_does_not_read_gets_the_last_state_of_each_trial(states):
    queue = EntryQueue(4, 10_000, EntryRoom())
    for one in states:
        queue.put(entry(*one))
        assert len(queue) <= 12  # twice the trials, or the limit

    entries = asyncio.run(taken(queue))
    assert dict(entries) == dict(states)
    remaining = iter(states)
    assert all(one in remaining for one in entries)  # in order, and none that was not put


async def test_a_watcher_that_never_reads_has_a_bound(monkeypatch):
    monkeypatch.setattr(entry_queue, "MOST_ENTRIES", 10)
    queue = EntryQueue(4, 10_000, EntryRoom())
    for number in range(1_000):
        queue.put(entry(f"t{number}", 1))
        assert len(queue) <= 21

    left = await taken(queue)
    assert left[-1] == ("t999", 1)


class EndlessTrials:
    """Trials whose states of 4,000 bytes never end; `asked` of them were taken."""

    asked = 0

    async def watch(self, _):
        while True:
            self.asked += 1
            info = TrialInfo(properties={"text": "x" * 4_000})
            yield TrialListEntry(trial_id=f"{self.asked}", info=info)
            await asyncio.sleep(0)


async def test_entries_that_a_watcher_does_not_read_have_a_bound_of_bytes():
    trials, limits = EndlessTrials(), WebLimits(queued_bytes=40_000)
    watch = LifecycleMethods(trials, limits, Access(WebOptions())).by_name["WatchTrials"].answer
    entries = watch(WebCall("WatchTrials", TrialListRequest(full_info=True), [], ALL))
    async with contextlib.aclosing(entries):
        first = await anext(entries)
        for _ in range(100):
            await asyncio.sleep(0)
        while_unread = trials.asked
        read = [(await anext(entries)).trial_id for _ in range(100)]

    assert while_unread <= 1 + 40_000 // 4_000 + 1
    assert [first.trial_id, *read] == [f"{number}" for number in range(1, 102)]


async def test_entries_that_many_watchers_do_not_read_have_one_bound(monkeypatch):
    """A browser held 22 MB of states that it did not read, and 200 of one address held so much."""
    monkeypatch.setattr(entry_queue, "MOST_BYTES", 100_000)
    methods = LifecycleMethods(EndlessTrials(), WebLimits(), Access(WebOptions()))
    watch, room = methods.by_name["WatchTrials"].answer, methods._room
    async with contextlib.AsyncExitStack() as stack:
        for _ in range(20):
            call = WebCall("WatchTrials", TrialListRequest(full_info=True), [], ALL)
            entries = await stack.enter_async_context(contextlib.aclosing(watch(call)))
            await anext(entries)
        for _ in range(300):
            await asyncio.sleep(0)
        unread = room.bytes
        for _ in range(300):
            await anext(entries)  # of one that reads, while the others do not

        assert 100_000 < unread <= 100_000 + 20 * 5_000
    assert room.bytes == 0


@pytest.mark.parametrize(("descriptors", "most"), [(40, 10), (2, 1), (400, 20)])
def test_connections_leave_descriptors_to_the_rest_of_a_server(monkeypatch, descriptors, most):
    monkeypatch.setattr(resource, "getrlimit", lambda _: (descriptors, descriptors))
    connections = Connections(WebLimits(connections=20))

    assert sum(connections.admit(Connection("a")) for _ in range(30)) == most


async def test_addresses_that_do_not_rest_have_a_bound(monkeypatch):
    monkeypatch.setattr(rates, "_MOST_ADDRESSES", 10)
    paces = ReadingPaces(WebLimits(), lambda: 0.0)
    for number in range(100):
        await paces.of(f"a{number}").admit(1)

    assert len(paces._paces) <= 10


async def test_a_watcher_waits_for_the_next_state():
    queue = EntryQueue(4, 10_000, EntryRoom())
    waiting = asyncio.create_task(queue.next())
    await asyncio.sleep(0)
    queue.put(entry("a", 1))

    assert await waiting == entry("a", 1)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"port": 65_536}, "port 65536: it takes a whole number from 0 to 65535"),
        ({"token": "a/b"}, "has one of"),
        ({"token": "ü"}, "characters that no address can have"),
        ({"tls_key": Path("key.pem")}, "--tls-key needs --tls-cert"),
        ({"allow_origins": ("*",)}, "'\\*' is not an origin"),
        ({"allow_origins": ("null",)}, "'null' is not an origin"),
        ({"allow_origins": ("https://game.example/",)}, "is not an origin"),
        ({"allow_origins": ("https://Game.example",)}, "is not an origin"),
        ({"allow_origins": ("https://[game",)}, "is not an origin"),
        ({"allow_origins": ("game.example",)}, "is not an origin"),
    ],
)
def test_options_that_cannot_be_meant_are_refused(options, text):
    with pytest.raises(TrialError, match=text):
        WebOptions(**options)


@pytest.mark.parametrize("name", WebLimits.__dataclass_fields__)
@pytest.mark.parametrize("value", [0, -1, math.nan, math.inf])
def test_limits_are_numbers_above_zero(name, value):
    with pytest.raises(TrialError, match=f"{name} is {value}"):
        WebLimits(**{name: value})


def test_a_message_has_to_fit_into_a_second():
    with pytest.raises(TrialError, match="bytes_per_second is 100, less than a message of 65536"):
        WebLimits(bytes_per_second=100)


@pytest.mark.parametrize(
    ("options", "needs"),
    [
        ({}, False),
        ({"host": "localhost", "allow_hosts": ("127.0.0.2:80",)}, False),
        ({"host": "0.0.0.0"}, True),
        ({"allow_hosts": ("game.example",)}, True),
        ({"token": "mine"}, True),
    ],
)
def test_a_token_is_needed_where_others_reach_the_port(options, needs):
    access = Access(WebOptions(**options))

    assert bool(access.token) is needs
    assert access.grant(None) == (None if needs else ALL)
    assert access.grant(access.token or None) == ALL


def test_tokens_have_grants_until_their_trial_ends():
    access = Access(WebOptions())
    first, second = access.issue(Grant("a", frozenset({"web"}))), access.issue(Grant("b"))
    access.end_trial("a")

    assert access.grant(first) is None
    assert access.grant(second) == Grant("b")
    assert access.grant("") is None
    assert access.grant("\udcff") is None


def test_connections_are_counted_by_address_and_in_all():
    open_ones = Connections(WebLimits(connections=3, connections_per_address=2))
    first, second, third = (Connection("here") for _ in range(3))
    there = [Connection("there") for _ in range(2)]

    assert [open_ones.admit(one) for one in (first, second, third)] == [True, True, False]
    open_ones.release(third)
    assert [open_ones.admit(one) for one in there] == [True, False]
    open_ones.release(first)
    open_ones.release(first)
    assert (len(open_ones), open_ones.admit(there[1])) == (2, True)


@pytest.mark.parametrize(
    ("client", "address"),
    [
        (("127.0.0.1", 80), "127.0.0.1"),
        (("2001:db8::1", 80), "2001:db8::/64"),
        (None, ""),
    ],
)
def test_a_client_of_ipv6_is_known_by_its_network(client, address):
    assert connection_in({"client": client}).address == address
