"""Events of a hive for its pages: once a second, resumed, bounded, ended with the hive."""

import asyncio
import contextlib
import json
from collections import deque
from contextlib import aclosing
from types import SimpleNamespace

import pytest

from arkml.hive.protocol.page_messages import HistoryEntry, UsageEntry
from arkml.hive.protocol.runs import RunInfo, Status
from arkml.server.access import callers
from arkml.server.access.callers import CALLER, AccessRole, Caller
from arkml.server.labels import Labels
from arkml.server.page import feed
from arkml.server.page.events import EventStreams
from arkml.server.page.feed import Feed


class FakeRun:
    """What a feed looks at of a run."""

    def __init__(self, name, owner=""):
        self.document = SimpleNamespace(id=name, is_over=False, status=Status.RUNNING, owner=owner)
        self.labels = SimpleNamespace(now=Labels())
        self.metrics = SimpleNamespace(total=0, recent=deque(maxlen=64))
        self.events = []
        history = SimpleNamespace(
            total=0, newest=lambda count: self.events[len(self.events) - count :]
        )
        supervisor = SimpleNamespace(place=SimpleNamespace(pid=None))
        self.lifecycle = SimpleNamespace(history=history, supervisor=supervisor)
        self.rows = 0

    def info(self):
        latest = {"rollout/ep_rew_mean": 1.0, "train/loss": 2.0}
        shape = ("n", "g", Status.RUNNING, 1, 1, 1)
        return RunInfo(self.document.id, *shape, rows=self.rows, latest=latest)

    def report(self, value):
        self.metrics.total += 1
        self.metrics.recent.append((self.metrics.total, [("m", self.rows, value)]))

    def happen(self, text):
        self.events.append(HistoryEntry(1, "best", text))
        self.lifecycle.history.total += 1


class FakeHive:
    """What a feed looks at of a hive."""

    def __init__(self, *names, owners=None):
        self.owners = owners or {}
        self.present_runs = [FakeRun(name, self.owners.get(name, "")) for name in names]
        self.disk = SimpleNamespace(used=7)
        self.runs_closed = asyncio.Event()
        self.resources = self

    async def measure(self, _, disk):
        return UsageEntry(1, disk, [])


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(feed, "INTERVAL", 0.01)


def events_in(chunk):
    """The events of a chunk: number, kind, data."""
    found = []
    for part in chunk.decode().split("\n\n"):
        lines = dict(line.split(": ", 1) for line in part.splitlines() if not line.startswith(":"))
        if lines:
            found.append((int(lines["id"]), lines["event"], json.loads(lines["data"])))
    return found


async def until(stream, kind):
    """Read a stream up to the first event of a kind; return all events."""
    found = []
    async with asyncio.timeout(30):
        async for chunk in stream:
            found += events_in(chunk)
            if any(one[1] == kind for one in found):
                return found
    raise AssertionError(f"the stream ended without {kind}: {found}")


async def test_a_stream_has_the_metrics_of_its_runs_only():
    hive = FakeHive("a", "b")
    async with aclosing(Feed(hive).stream(frozenset("a"), None)) as stream:
        assert (await until(stream, "open"))[0][2] == {}
        hive.present_runs[1].report(5.0)
        hive.present_runs[0].report(6.0)
        hive.present_runs[0].happen("<b>")
        found = await until(stream, "happened")

    metrics = [data for _, kind, data in found if kind == "metrics"]
    assert metrics == [{"run": "a", "points": [["m", 0, 6.0, 1]]}]
    assert found[-1][2] == {"run": "a", "at": 1, "kind": "best", "text": "<b>"}
    assert [number for number, *_ in found] == sorted({number for number, *_ in found})


@pytest.mark.parametrize("end", ["the hive", "the token", "the client"])
async def test_an_answer_is_whole_however_its_stream_ends(monkeypatch, end):
    monkeypatch.setattr(callers, "_LOOK_EVERY", 0.001)
    hive, begun, sent = FakeHive("a"), asyncio.Event(), []
    caller = Caller(AccessRole.READ, is_valid=lambda: end != "the token" or not begun.is_set())
    scope = {"type": "http", "method": "GET", "headers": [], "query_string": b""}
    scope[CALLER] = caller

    async def receive():
        await begun.wait()
        if end != "the client":
            await asyncio.Event().wait()
        return {"type": "http.disconnect"}

    async def send(message):
        sent.append(message)
        if message.get("body"):
            begun.set()
            if end == "the hive":
                hive.runs_closed.set()

    async with asyncio.timeout(30):
        await EventStreams(Feed(hive))(scope, receive, send)
    assert sent[0]["type"] == "http.response.start"
    assert [one.get("more_body", False) for one in sent[1:]] == [True] * (len(sent) - 2) + [False]
    assert sent[-1]["body"] == b""


async def test_a_run_that_changed_is_told_once_with_the_metrics_of_tables():
    hive = FakeHive("a")
    async with aclosing(Feed(hive).stream(frozenset(), None)) as stream:
        await until(stream, "usage")
        hive.present_runs[0].rows = 9
        [run] = (await until(stream, "runs"))[-1][2]["runs"]
        later = await until(stream, "usage")

    assert (run["rows"], run["latest"]) == (9, {"rollout/ep_rew_mean": 1.0})
    assert "runs" not in [kind for _, kind, _ in later]


async def test_a_stream_resumes_after_the_last_event():
    hive = FakeHive("a")
    made = Feed(hive)
    async with aclosing(made.stream(frozenset("a"), None)) as stream:
        await until(stream, "open")
        hive.present_runs[0].report(1.0)
        last = (await until(stream, "metrics"))[-1][0]
        async with aclosing(made.stream(frozenset("a"), None)) as other:
            hive.present_runs[0].report(2.0)
            await until(other, "metrics")
    async with aclosing(made.stream(frozenset("a"), last)) as stream:
        found = await until(stream, "metrics")

    assert found[0][:2] == (last, "open")
    assert [data["points"][0][2] for _, kind, data in found if kind == "metrics"] == [2.0]


async def test_events_that_are_gone_are_said_to_be(monkeypatch):
    monkeypatch.setattr(feed, "_MOST_EVENTS", 3)
    hive = FakeHive("a")
    made = Feed(hive)
    async with aclosing(made.stream(frozenset("a"), None)) as stream:
        first = (await until(stream, "open"))[0][0]
        for _ in range(5):
            hive.present_runs[0].report(1.0)
            await until(stream, "metrics")
        async with aclosing(made.stream(frozenset("a"), first)) as late:
            assert (await until(late, "reset"))[0][0] > first
        async with aclosing(made.stream(frozenset("a"), 3)) as former:
            await until(former, "reset")


async def test_a_stream_that_has_missed_much_gets_it_in_parts_and_the_hive_keeps_few_of_them():
    made = Feed(FakeHive("a", "b"))
    async with contextlib.AsyncExitStack() as opened:

        async def begin(last):
            stream = made.stream(frozenset("a"), last)
            await opened.enter_async_context(aclosing(stream))
            await anext(stream)
            return stream

        await begin(None)
        first = made._next
        for number in range(3_000):
            made._add("ab"[number % 2], "metrics", "y" * 2_000)
        streams = [await begin(first + number) for number in range(100)]
        chunks = [await anext(stream) for stream in streams]
        kept = sum(len(chunk) for chunk, _ in made._chunks.values())
        rest = [*events_in(chunks[0]), *(await until(streams[0], "usage"))]

    assert max(map(len, chunks)) <= 64 << 10
    assert kept <= 64 * (64 << 10)
    numbers = [number for number, kind, _ in rest if kind == "metrics"]
    assert numbers == list(range(first + 2, first + 3_000, 2))


async def test_a_quiet_stream_has_comments(monkeypatch):
    monkeypatch.setattr(feed, "COMMENT_EVERY", 0.05)
    monkeypatch.setattr(feed, "_USAGE_EVERY", 1 << 30)
    async with (
        asyncio.timeout(30),
        aclosing(Feed(FakeHive()).stream(frozenset(), None)) as stream,
    ):
        chunks = [await anext(stream) for _ in range(4)]

    assert any(chunk.startswith(b":") for chunk in chunks)


async def test_a_stream_ends_with_the_last_figures_of_its_hive():
    hive = FakeHive("a")
    async with aclosing(Feed(hive).stream(frozenset("a"), None)) as stream:
        await until(stream, "open")
        hive.present_runs[0].report(8.0)
        hive.runs_closed.set()
        found = await until(stream, "ended")
        rest = [chunk async for chunk in stream]

    assert [kind for _, kind, _ in found][-1] == "ended"
    assert "metrics" in [kind for _, kind, _ in found]
    assert rest == []


async def test_removed_runs_are_told():
    hive = FakeHive("a", "b")
    async with aclosing(Feed(hive).stream(frozenset(), None)) as stream:
        await until(stream, "open")
        del hive.present_runs[0]
        found = await until(stream, "runs")

    assert found[-1][2] == {"runs": [], "removed": ["a"]}
